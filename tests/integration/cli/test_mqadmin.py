"""mqadmin against a real cluster: what is created shows up, states are no errors, errors are one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import ConsumeFromWhere, Message, MessageExt, MessageModel, Producer, PushConsumer
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.protocol import ids
from rmq.testing.cluster import Cluster
from tests.support.virtual import eventually


class Admin:
    """Runs mqadmin's commands on a thread while the cluster serves on the test's loop."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys

    async def run(self, *args: str, code: int = 0, said: str = "") -> str:
        """Standard output, or the one line of standard error when ``code`` says that it fails.

        :param said: what stands in standard error of one that does not; nothing does without it.
        """
        self._capsys.readouterr()
        words = [*args, "-n", self.cluster.namesrv_addr]
        got = await asyncio.to_thread(invoke, root, "mqadmin", words)
        out, err = self._capsys.readouterr()
        assert got == code, f"{words}: {out}{err}"
        if code == 0:
            assert said in err if said else err == ""
            return out
        assert len(err.splitlines()) == 1, err
        return err

    async def json(self, *args: str) -> Any:
        return json.loads(await self.run(*args, "--json"))


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setenv("HOME", str(tmp_path))  # where broadcasting consumers keep their offsets
    async with Cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Admin:
    return Admin(cluster, capsys)


async def test_a_created_topic_shows_up_everywhere(admin: Admin) -> None:
    await admin.run("updateTopic", "-c", "DefaultCluster", "-t", "Made", "-r", "3", "-w", "2", "-p", "4")
    for name in ("Zebra", "Alpha", "Beta"):
        await admin.run("updateTopic", "-c", "DefaultCluster", "-t", name)
    names = (await admin.run("topicList")).split()
    assert {"Made", "Alpha", "Beta", "Zebra"} <= {*names}
    assert names == sorted(names) == await admin.json("topicList")
    route = await admin.json("topicRoute", "-t", "Made")
    queues = {"brokerName": "broker-0", "perm": 4, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 2}
    assert route["queueDatas"] == [queues]
    assert len(await admin.json("topicStatus", "-t", "Made")) == 2
    rows = await admin.json("topicList", "-c")
    assert {"cluster": "DefaultCluster", "topic": "Made", "groups": []} in rows
    assert rows == sorted(rows, key=lambda row: (row["cluster"], row["topic"]))


async def test_an_ordered_topic_has_its_queue_map(admin: Admin) -> None:
    addr = admin.cluster.broker_addr
    out = await admin.run("updateTopic", "-b", addr, "-t", "Ordered", "-w", "5", "-o", "true")
    assert out.startswith("set broker orderConf. isOrder=true, orderConf=[broker-0:5]\n")
    assert admin.cluster.namesrvs[0].kv.get("ORDER_TOPIC_CONFIG", "Ordered") == "broker-0:5"


async def test_messages_are_found_by_either_id_and_by_key(admin: Admin) -> None:
    """Field case B118."""
    async with Producer("p", namesrv=admin.cluster.namesrv_addr) as producer:
        result = await producer.send(Message("Topic", "hello", keys="k1 k2", tags="A"))
    found = await admin.json("queryMsgByKey", "-t", "Topic", "-k", "k2")
    assert [one["msgId"] for one in found] == [result.msg_id]
    for wanted in (result.offset_msg_id, result.msg_id):
        message = await admin.json("queryMsgById", "-i", wanted)
        assert (message["offsetMsgId"], message["body"]) == (result.offset_msg_id, "hello")
    assert f"OffsetID:            {result.offset_msg_id}\n" in await admin.run("queryMsgById", "-i", result.msg_id)


async def test_ids_of_nobody_are_one_line_and_nobody_else_is_asked(admin: Admin) -> None:  # field case B118
    asked: list[str] = []
    async with await asyncio.start_server(lambda r, w: (asked.append("asked"), w.close()), "127.0.0.1", 0) as foreign:
        port = foreign.sockets[0].getsockname()[1]
        for wanted in (
            ids.offset_msg_id("127.0.0.1", port, 0),
            ids.offset_msg_id("::1", port, 0),
            "0123456789ABCDEF0123456789ABCDE",
            "F" * 32,
        ):
            assert "is neither the offset id of a message" in await admin.run("queryMsgById", "-i", wanted, code=3)
        assert "is no message id" in await admin.run("queryMsgById", "-i", "x" * 32, code=2)
    assert asked == []


async def test_a_broker_known_by_name_finds_its_messages_by_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # field cases B096, B118
    async with Cluster(tmp_path, settings={"brokerIP1": "localhost"}) as cluster:
        admin = Admin(cluster, capsys)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            result = await producer.send(Message("Topic", "hello"))
        route = await admin.json("topicRoute", "-t", "Topic")
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": f"localhost:{cluster.brokers[0].address[1]}"}
        assert (await admin.json("queryMsgById", "-i", result.offset_msg_id))["body"] == "hello"


async def test_a_message_is_found_by_its_old_id_after_its_broker_moved(admin: Admin) -> None:  # field case B093
    cluster = admin.cluster
    async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
        result = await producer.send(Message("Topic", "hello"))
    await cluster.stop_broker(cluster.brokers[0])
    await cluster.start_broker(0)
    assert (await admin.json("queryMsgById", "-i", result.offset_msg_id))["body"] == "hello"


async def test_states_of_groups_are_no_errors(admin: Admin) -> None:  # field case B119
    namesrv = admin.cluster.namesrv_addr
    await admin.run("updateSubGroup", "-c", "DefaultCluster", "-g", "unused")
    assert await admin.run("consumerProgress", "-g", "unused") == "unused: never connected\n"
    async with Producer("p", namesrv=namesrv) as producer:
        for number in range(4):
            await producer.send(Message("Topic", f"{number}"))
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    for group, model in (("clustering", MessageModel.CLUSTERING), ("broadcast", MessageModel.BROADCASTING)):
        got = asyncio.Semaphore(0)
        consumer = PushConsumer(group, namesrv=namesrv, consume_from_where=first, message_model=model)

        async def handle(message: object, got: asyncio.Semaphore = got) -> None:
            got.release()

        consumer.on("Topic")(handle)
        async with consumer:
            for _ in range(4):
                await got.acquire()
            async with asyncio.timeout(100):
                # The last handler has released us and returns in a moment; nothing tells of it.
                while sum(consumer._inner.offsets("Topic").values()) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            await consumer.persist_offsets()
            online = await admin.json("consumerProgress", "-g", group)
            rows = {row["group"]: row for row in await admin.json("consumerProgress")}
            if model is MessageModel.CLUSTERING:
                assert online["state"] == "known"
                assert sum(queue["brokerOffset"] for queue in online["queues"]) == 4
                assert (rows[group]["clients"], rows[group]["type"], rows[group]["model"]) == (1, "PUSH", "CLUSTERING")
                shown = await admin.run("consumerProgress", "-g", group, "-s", "true")
                assert "#Client IP" in shown
            else:
                assert online["state"] == "broadcast (offsets are local)"
    offline = await admin.json("consumerProgress", "-g", "clustering")
    assert (offline["state"], offline["diffTotal"]) == ("known", 0)
    assert sum(queue["consumerOffset"] for queue in offline["queues"]) == 4
    rows = {row["group"]: row for row in await admin.json("consumerProgress")}
    assert (rows["clustering"]["clients"], rows["clustering"]["version"]) == (0, "OFFLINE")


async def test_masters_and_slaves_tell_how_far_each_is(admin: Admin) -> None:
    cluster = admin.cluster
    alone = await admin.run("haStatus", "-b", cluster.broker_addr)
    assert "#SlaveNum                  0" in alone
    slave = await cluster.start_slave()
    async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await producer.send(Message("T", b"a"))
    end = cluster.brokers[0].store.log.end
    master = cluster.brokers[0].roles.sends_log
    assert master is not None
    await eventually(lambda: [one.acked for one in master.slaves()] == [end])
    addresses = [f"127.0.0.1:{app.address[1]}" for app in cluster.brokers]
    told = await admin.json("haStatus", "-c", "DefaultCluster")
    assert list(told) == addresses
    of_master, of_slave = told.values()
    (one,) = of_master["haConnectionInfo"]
    assert (one["diff"], one["inSync"], one["slaveAckOffset"], of_master["inSyncSlaveNums"]) == (0, True, end, 1)
    assert of_slave["haClientRuntimeInfo"]["maxOffset"] == end
    shown = await admin.run("haStatus", "-c", "DefaultCluster")
    assert f"#SlaveAddr                 {addresses[1]}\n#MasterHAAddr              127.0.0.1:" in shown
    assert await admin.run("haStatus", code=2)
    figures = {row["brokerId"]: row["figures"] for row in await admin.json("clusterList")}
    assert [figures[number]["brokerRole"] for number in (0, 1)] == ["master", "slave"]
    assert slave.roles.slave is not None
    await slave.roles.slave.metadata.round(slave.roles.slave.metadata._progress, arrived=True)
    of_master, of_slave = [await admin.run("brokerStatus", "-b", address) for address in addresses]
    for line in ("slaveBehindBytes                : 0", "slaveBehindSeconds              : 0"):
        assert line in of_master
        assert line in of_slave
    assert "slavesConnected                 : 1\nslavesInSync                    : 1" in of_master
    head, *rows = (await admin.run("clusterList")).splitlines()
    assert head.endswith("#SPACE #Role    #Behind")
    assert [row.split()[-2:] for row in rows] == [["master", "0B/0s"], ["slave", "0B/0s"]]


async def test_a_broker_tells_its_figures(admin: Admin) -> None:
    addr = admin.cluster.broker_addr
    (row,) = await admin.json("clusterList")
    assert (row["cluster"], row["brokerName"], row["brokerId"], row["addr"]) == (
        "DefaultCluster",
        "broker-0",
        0,
        addr,
    )
    assert row["figures"]["brokerVersionDesc"] == "V4_9_8"
    shown = (await admin.run("brokerStatus", "-b", addr)).splitlines()
    assert any(line.startswith("commitLogMaxOffset              : ") for line in shown)
    assert all(line.startswith(addr) for line in (await admin.run("brokerStatus", "-c", "DefaultCluster")).splitlines())
    assert "V4_9_8" in await admin.run("clusterList")


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (("topicRoute", "-t", "Nope"), 3, "code 17"),
        (("topicStatus", "-t", "Nope"), 3, "mqadmin topicList shows what there is"),
        (("queryMsgByKey", "-t", "TBW102", "-k", "nope"), 3, "no message of TBW102 with the key nope"),
        (("updateTopic", "-c", "Nowhere", "-t", "T"), 3, "there is no cluster Nowhere"),
        (("updateTopic", "-c", "DefaultCluster", "-t", "a/b"), 1, "illegal characters"),
        (("updateTopic", "-c", "DefaultCluster", "-t", "TBW102"), 1, "TBW102"),
        (("brokerStatus", "-b", "127.0.0.1:1"), 5, "connect to 127.0.0.1:1 failed"),
        (("brokerStatus", "-b", "nonsense"), 2, "'nonsense' is no address"),
    ],
)
async def test_failures_are_one_line(admin: Admin, args: tuple[str, ...], code: int, expected: str) -> None:
    assert expected in await admin.run(*args, code=code)


async def test_an_auto_created_topic_is_on_one_broker_until_it_is_made_on_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # field case B095
    async with Cluster(tmp_path, brokers=2, settings={"defaultTopicQueueNums": "32"}) as cluster:
        admin = Admin(cluster, capsys)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Auto", "1"))
        route = await admin.json("topicRoute", "-t", "Auto")
        assert [queues["writeQueueNums"] for queues in route["queueDatas"]] == [4]
        await admin.run("updateTopic", "-c", "DefaultCluster", "-t", "Auto")
        route = await admin.json("topicRoute", "-t", "Auto")
        assert [queues["writeQueueNums"] for queues in route["queueDatas"]] == [8, 8]


async def test_a_message_is_consumed_now_or_sent_again(admin: Admin) -> None:
    namesrv = admin.cluster.namesrv_addr
    async with Producer("p", namesrv=namesrv) as producer:
        result = await producer.send(Message("Topic", "hello", tags="A", keys="k", properties={"own": "1"}))
    got: asyncio.Queue[str] = asyncio.Queue()
    consumer = PushConsumer("members", namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    @consumer.on("Topic")
    async def handle(message: MessageExt) -> None:
        got.put_nowait(f"{message.body.decode()} {message.tags} {message.keys} {message.properties['own']}")

    async with consumer:
        assert await got.get() == "hello A k 1"
        results = await admin.json("queryMsgById", "-i", result.msg_id, "-g", "members")
        assert [one["consumeResult"] for one in results.values()] == ["CR_SUCCESS"]
        assert await got.get() == "hello A k 1"
        (client_id,) = results
        shown = await admin.run("queryMsgById", "-i", result.msg_id, "-g", "members", "-d", client_id)
        assert "consumeResult=CR_SUCCESS" in shown
        assert await got.get() == "hello A k 1"
        shown = await admin.run("queryMsgById", "-i", result.msg_id, "-s", "true")
        assert shown.startswith(f"prepare resend msg. originalMsgId={result.msg_id}\nSendResult [sendStatus=SEND_OK, ")
        assert await got.get() == "hello A k 1"
    error = await admin.run("queryMsgById", "-i", result.msg_id, "-g", "members", "-d", "nobody", code=1)
    assert error.startswith("mqadmin: code ")


async def test_a_message_trace_is_shown_by_the_id_of_its_message(admin: Admin) -> None:
    options: Any = {"namesrv": admin.cluster.namesrv_addr, "enable_msg_trace": True}
    async with Producer("p", **options) as producer:
        sent = await producer.send([Message("Topic", "one", keys="k1"), Message("Topic", "two")])
    first, second = sent.msg_id.split(",")
    head, row, *_ = (await admin.run("queryMsgTraceById", "-i", second)).splitlines()
    assert head.split() == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
    assert (row.split()[:3], row.split()[-1]) == (["Pub", "p", "127.0.0.1"], "success")
    [told] = await admin.json("queryMsgTraceById", "-i", first)
    assert (told["type"], told["msgId"], told["keys"], told["bodyLength"]) == ("Pub", first, "k1", 3)
    assert "enable_msg_trace" in await admin.run("queryMsgTraceById", "-i", "F" * 32, code=3)
    assert "Nowhere" in await admin.run("queryMsgTraceById", "-i", first, "-t", "Nowhere", code=3)
