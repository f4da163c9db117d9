"""What mqadmin says when a broker does not answer, a topic goes meanwhile, or an answer is not all there is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import AdminClient, Message, MessageExt, MessageQueue, Producer, PushConsumer
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command as rmq_command
from rmq.client.admin import Answers
from rmq.namesrv.departed import SILENT
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster
from tests.integration.cli.test_mqadmin import Admin


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Admin:
    made = Admin(cluster, capsys)
    await made.run("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "4")
    return made


class Silence:
    """Brokers that take connections and answer nothing; what they were asked."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.asked: list[int] = []

    def begin(self, cluster: Cluster, number: int = 1) -> str:
        host, port = cluster.brokers[number].address
        self.addresses.add(f"{host}:{port}")
        return f"{host}:{port}"


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silence]:
    made = Silence()
    answered = RemotingClient.request

    async def request(self: RemotingClient, address: str, command: Command, timeout: float, *rest: Any) -> Command:
        if address in made.addresses:
            assert timeout <= 5
            made.asked.append(command.code)
            raise RequestTimeout(f"{address} does not answer within {timeout:g} s")
        return await answered(self, address, command, timeout, *rest)

    monkeypatch.setattr(RemotingClient, "request", request)
    yield made
    made.addresses.clear()


async def send(cluster: Cluster, count: int, **how: Any) -> list[Any]:
    async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
        return [
            await producer.send(Message("T", f"{n}", **how), queue=MessageQueue("T", f"broker-{n % 2}", n // 2 % 4))
            for n in range(count)
        ]


async def read_all(cluster: Cluster, count: int) -> PushConsumer:
    got: list[MessageExt] = []
    consumer = PushConsumer("g", namesrv=cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET")  # type: ignore[arg-type]

    @consumer.on("T")
    async def take(message: MessageExt) -> None:
        got.append(message)

    await consumer.start()
    while len(got) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await consumer.persist_offsets()
    return consumer


async def shown(admin: Admin, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    words = [*args, "-n", admin.cluster.namesrv_addr]
    capsys.readouterr()
    code = await asyncio.to_thread(invoke, root, "mqadmin", words)
    out, err = capsys.readouterr()
    return code, out, err


async def test_a_message_of_a_silent_broker_is_one_line_and_no_second_question(
    admin: Admin, silence: Silence, capsys: pytest.CaptureFixture[str]
) -> None:
    results = await send(admin.cluster, 2, keys="k")
    addr = silence.begin(admin.cluster)
    for wanted, code in ((results[1].offset_msg_id, 5), (results[1].msg_id, 4), ("F" * 32, 4)):
        silence.asked.clear()
        error = await admin.run("queryMsgById", "-i", wanted, code=code)
        assert addr in error
        assert "broker-1" in error
        assert len(silence.asked) == 1
    for wanted in (results[0].offset_msg_id, results[0].msg_id):
        silence.asked.clear()
        # The message is there; which groups have it is not known of all brokers.
        code, out, err = await shown(admin, capsys, "queryMsgById", "-i", wanted, "--json")
        found = json.loads(out)
        assert (code, found["body"], len(found["missing"])) == (4, "0", 1)
        assert addr in err
        assert len(silence.asked) <= 2


async def test_a_key_query_says_whose_answer_is_missing(
    admin: Admin, silence: Silence, capsys: pytest.CaptureFixture[str]
) -> None:
    await send(admin.cluster, 2, keys="k")
    addr = silence.begin(admin.cluster)
    code, out, err = await shown(admin, capsys, "queryMsgByKey", "-t", "T", "-k", "k", "--json")
    assert code == 4
    why = f"{addr} does not answer within 2.5 s"
    (found, missing) = json.loads(out)
    assert found["body"] == "0"
    assert missing == {"missing": "broker-1", "why": why}
    assert err == f"mqadmin: broker-1 is missing here: {why}\n"


async def test_a_key_query_that_is_cut_says_so(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    async with Producer("p", namesrv=admin.cluster.namesrv_addr) as producer:
        for number in range(100):
            await producer.send(Message("T", f"{number}", keys="k"), queue=MessageQueue("T", "broker-0", 0))
    code, out, err = await shown(admin, capsys, "queryMsgByKey", "-t", "T", "-k", "k")
    assert (code, len(out.splitlines())) == (0, 65)
    assert err == "mqadmin: broker-0: 64 messages were asked for, and there may be more\n"


async def test_how_far_a_group_is_lacks_a_broker_by_name(
    admin: Admin, silence: Silence, capsys: pytest.CaptureFixture[str]
) -> None:
    await send(admin.cluster, 16)
    consumer = await read_all(admin.cluster, 16)
    try:
        whole = await admin.json("consumerProgress", "-g", "g")
        assert {row["brokerName"] for row in whole["queues"]} == {"broker-0", "broker-1"}
        addr = silence.begin(admin.cluster)
        said = f"mqadmin: broker-1 is missing here: {addr} does not answer within 2.5 s\n"
        for command in (
            ["consumerProgress", "-g", "g", "-s", "true"],
            ["consumerProgress"],
            ["consumerStatus", "-g", "g"],
        ):
            code, out, err = await shown(admin, capsys, *command)
            assert (code, err) == (4, said), command
            assert consumer.client_id in out or "broker-0" in out or "\ng " in out
        code, out, err = await shown(admin, capsys, "topicStatus", "-t", "T", "--json")
        assert (code, err) == (4, said)
        *rows, missing = json.loads(out)
        assert {row["brokerName"] for row in rows} == {"broker-0"}
        assert missing == {"missing": "broker-1", "why": f"{addr} does not answer within 2.5 s"}
        async with AdminClient(namesrv=admin.cluster.namesrv_addr) as client:
            stats = await client.consume_stats("g")
            assert list(stats.missing) == ["broker-1"]
            assert {queue.broker_name for queue in stats.offset_table} == {"broker-0"}
            assert list((await client.consumer_connections("g")).missing) == ["broker-1"]
            silence.begin(admin.cluster, 0)
            with pytest.raises(RequestTimeout):
                await client.consume_stats("g")
    finally:
        silence.addresses.clear()
        await consumer.shutdown()


async def test_a_group_that_one_broker_does_not_know_is_found_at_the_other(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members are known to the brokers that they are connected to; the others must not decide."""
    await send(admin.cluster, 16)
    consumer = await read_all(admin.cluster, 16)
    try:
        for broker in admin.cluster.brokers:
            with monkeypatch.context() as patch:
                patch.setattr(broker.members.consumers, "group", lambda name: None)
                for _ in range(4):
                    progress = await admin.json("consumerProgress", "-g", "g", "-s", "true")
                    assert None not in {row["clientIP"] for row in progress["queues"] if row["topic"] == "T"}
                    assert "does not answer" not in await admin.run("consumerStatus", "-g", "g")
    finally:
        await consumer.shutdown()


async def test_a_topic_that_goes_meanwhile_is_left_out_of_the_list(
    admin: Admin, silence: Silence, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = AdminClient.topic_groups

    async def meanwhile(self: AdminClient, topic: str) -> Answers[list[str]]:
        return await asked(self, "Gone" if topic == "T" else topic)

    await admin.run("updateTopic", "-c", "DefaultCluster", "-t", "U")
    with monkeypatch.context() as patch:
        patch.setattr(AdminClient, "topic_groups", meanwhile)
        topics = [row["topic"] for row in await admin.json("topicList", "-c")]
    assert "U" in topics
    assert "T" not in topics
    silence.begin(admin.cluster)
    code, out, err = await shown(admin, capsys, "topicList", "-c", "--json")
    assert code == 4
    rows = json.loads(out)
    assert {"T", "U"} <= {row.get("topic") for row in rows}
    # What only that broker has is named, and the broker itself.
    assert {"broker-1", "groups of broker-1"} == {row["missing"] for row in rows if "missing" in row}
    (line,) = err.splitlines()
    assert "broker-1, groups of broker-1 are missing here: " in line


async def test_fewer_queues_name_what_is_hidden_first(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    await send(admin.cluster, 16)
    addr = admin.cluster.broker_addr
    code, out, err = await shown(admin, capsys, "updateTopic", "-b", addr, "-t", "T", "-r", "3", "-w", "3")
    assert code == 0
    assert out.startswith(f"create topic to {addr} success.\n")
    assert err == (
        "mqadmin: 2 messages that no group has read are hidden in queues of T that are no longer read "
        "(broker-0 queue 3: 2); to have them read, lower -w alone, and -r later\n"
    )
    assert await admin.run("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "4")
    consumer = await read_all(admin.cluster, 16)
    await consumer.shutdown()
    assert await admin.run("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "2")
    await admin.run("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "4")
    await send(admin.cluster, 16)
    code, _, err = await shown(admin, capsys, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "2", "-w", "2")
    assert code == 0
    assert "8 messages not read by g are hidden in queues of T that are no longer read (broker-0 queue 2: 2, " in err
    code, _, err = await shown(admin, capsys, "updateTopic", "-b", addr, "-t", "T", "-r", "2", "-w", "2", "-p", "2")
    assert "4 messages not read by g are hidden" in err


async def test_a_broker_of_a_cluster_without_a_master_is_named(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    masters = AdminClient.masters

    async def without(self: AdminClient, cluster: str) -> dict[str, str]:
        return {name: addr for name, addr in (await masters(self, cluster)).items() if name != "broker-1"}

    monkeypatch.setattr(AdminClient, "masters", without)
    code, out, err = await shown(admin, capsys, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "4")
    assert (code, out.count("success")) == (4, 1)
    assert err == "mqadmin: broker-1 is missing here: it has no master now\n"


async def test_a_reset_moves_nothing_while_a_broker_does_not_answer(admin: Admin, silence: Silence) -> None:
    await send(admin.cluster, 16)
    consumer = await read_all(admin.cluster, 16)
    await consumer.shutdown()

    async def offsets() -> dict[int, int]:
        async with AdminClient(namesrv=admin.cluster.namesrv_addr) as client:
            table = (await client.consume_stats("g", "T")).offset_table
        return {queue.queue_id: one.consumer_offset for queue, one in table.items() if queue.broker_name == "broker-0"}

    before = await offsets()
    assert before == dict.fromkeys(range(4), 2)
    addr = silence.begin(admin.cluster)
    assert addr in await admin.run("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0", code=5)
    assert await offsets() == before
    silence.addresses.clear()
    await admin.run("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0")
    assert await offsets() == dict.fromkeys(range(4), 0)


async def test_a_broker_that_one_name_server_does_not_know_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path) as cluster:
        admin = Admin(cluster, capsys)
        assert "broker-0" in await admin.run("clusterList")
        await cluster.start_namesrv(1)  # no broker was told of it
        first, second = cluster.namesrv_addr.split(";")
        for words in (("clusterList",), ("topicList",), ("statsAll",), ("consumerProgress",)):
            code, out, err = await shown(admin, capsys, *words, "--json")
            assert code == 4, words
            assert f"the name server {first} knows it, and {second} does not" in out + err
        code, _, err = await shown(admin, capsys, "exportMetadata", "-c", "DefaultCluster", "-f", str(tmp_path))
        assert code in (3, 4)  # which of them is asked first is chance
        await cluster.namesrvs[1].stop()
        code, _, err = await shown(admin, capsys, "clusterList")
        assert (code, err) == (0, "")


async def test_a_broker_that_fell_silent_is_missed_until_it_is_back_or_gone_for_good(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two that stands still leaves the name server after two minutes, and the cluster looked whole."""
    cluster = admin.cluster
    await admin.run("updateSubGroup", "-c", "DefaultCluster", "-g", "g")
    addr = "10.0.0.9:10911"
    await cluster.stop_broker(cluster.brokers[1])
    cluster.namesrvs[0].routes.departed.left("broker-1", "DefaultCluster", addr, SILENT)
    why = f"it was at {addr}, and the name server has heard nothing of it for two minutes"
    for words in (("clusterList",), ("topicList",), ("topicStatus", "-t", "T"), ("statsAll",), ("consumerProgress",),
                  ("updateTopic", "-c", "DefaultCluster", "-t", "T")):  # fmt: skip
        code, out, err = await shown(admin, capsys, *words, "--json")
        assert (code, "broker-0" in out or "T" in out, "broker-1" in out + err) == (4, True, True), words
        assert why in out + err
    for line in ("doctor", "doctor -g g", "explain g"):
        words = [*line.split(), "-n", cluster.namesrv_addr]
        capsys.readouterr()
        assert await asyncio.to_thread(invoke, rmq_command, "rmq", words) in (1, 4)
        out, err = capsys.readouterr()
        assert "broker-1" in out
    assert (await shown(admin, capsys, "updateKvConfig", "-s", "DEPARTED_BROKERS", "-k", "x", "-v", "y"))[0] == 1
    assert (await shown(admin, capsys, "deleteKvConfig", "-s", "DEPARTED_BROKERS", "-k", "broker-1"))[0] == 0
    assert (await shown(admin, capsys, "clusterList"))[0] == 0
