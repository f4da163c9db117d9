"""The requests of RocketMQ's CVEs and their kin: nothing of a daemon's state is another one afterwards."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol import batch
from rmq.protocol.command import Command
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.accounts import SECRET, by, home
from tests.support.raw_peer import RawPeer, pull, send, subscribe
from tests.support.scenes.pop import pop_scene
from tests.support.state import broker_state, changed, namesrv_state
from tests.support.virtual import in_virtual_time

#: Names that are paths, end lines, or have no end.
NAMES = (
    "../x", "../../../../tmp/x", "/etc/x", "..", ".", "a/b", "a\\b", "..%2f..%2fx", "x\0", "\0", "a\r\nb", "a\x1b[2Jb",
    "x" * 4096, "a\x01REAL_TOPIC\x02b", "名", " ", "a b", "\u202ex",
)  # fmt: skip


def _topic_requests(name: str) -> Iterator[Command]:
    """Every request of a client or a tool that may make a topic of that name."""
    config = {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    made = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
    yield send(name)
    several = send(name, batch.encode([(0, b"x", {})]))
    assert several.ext is not None
    several.code, several.ext["m"] = 320, "true"
    yield several
    v1 = {"producerGroup": "P", "topic": name, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
          "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0",
          "unitMode": "false", "batch": "false"}  # fmt: skip
    yield Command(10, ext=dict(v1), body=b"x")
    yield Command(17, ext=dict(made))
    yield Command(18, body=json.dumps({"topicConfigList": [config]}).encode())
    for code in (29, 30, 31, 32, 202, 215, 351):
        yield Command(code, ext={"topic": name, "queueId": "0", "timestamp": "0"})


async def test_cve_2019_17572_a_topic_is_no_path(tmp_path: Path) -> None:
    """X03, B112. Automatic creation is on, as it is unless set."""
    async with Cluster(tmp_path / "store") as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            assert (await peer.ask(send("T"))).code == 0
            before = broker_state(broker)
            for name in NAMES:
                for request in _topic_requests(name):
                    answer = await peer.ask(request)
                    silent = request.code in (29, 30, 31, 32)  # they answer for queues that are not there
                    assert answer.code != 0 or silent, (name, request, answer)
                    assert not changed(before, broker_state(broker)), (name, request)
    folders = set(os.listdir(tmp_path / "store" / "broker-0" / "consumequeue"))
    assert folders == {"T"}
    assert os.listdir(tmp_path) == ["store"]


async def test_a_group_or_a_client_is_called_what_a_file_can_say(tmp_path: Path) -> None:
    """X03: any name that is one line, as with Java; and nothing of a name that is none."""
    none = [name for name in NAMES if min(name) < " " or len(name) > 1_024]
    async with Cluster(tmp_path / "store") as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            assert (await peer.ask(send("T"))).code == 0
            assert (await peer.ask(subscribe("G"))).code == 0
            before = broker_state(broker)
            for name in none:
                group = {"groupName": name, "retryQueueNums": 1}
                requests = [
                    subscribe(name), subscribe("G", client=name), pull(name),
                    Command(34, body=json.dumps({"clientID": "c", "producerDataSet": [{"groupName": name}]}).encode()),
                    Command(200, body=json.dumps(group).encode()),
                    Command(225, body=json.dumps({"groupConfigList": [group]}).encode()),
                    Command(15, ext={"consumerGroup": name, "topic": "T", "queueId": "0", "commitOffset": "1"}),
                    Command(353, ext={"group": name, "topic": "T", "readable": "false"}),
                    Command(401, body=json.dumps({"topic": "T", "consumerGroup": name, "mode": "POP"}).encode()),
                    Command(36, ext={"offset": "0", "group": name, "delayLevel": "0"}),
                ]  # fmt: skip
                for request in requests:
                    await peer.ask(request)
                    assert not changed(before, broker_state(broker)), (name, request)


#: What turned settings into a command, a file or another key, in the ways a .properties file may say it.
_BAD = (
    "rocketmqHome=-c $@|sh . echo id\nfilterServerNums=1", "brokerConfigPath=/tmp/x", "configBlackList=",
    "rocketmqHome=/tmp\nflushIntervalCommitLog=400", "flushIntervalCommitLog=400\nrocketmqHome=/tmp",
    "rocketmq\\u0048ome=/tmp\nflushIntervalCommitLog=400", "  rocketmqHome  :  /tmp\nflushIntervalCommitLog=400",
    "rocketmqHome=\\\n/tmp\nflushIntervalCommitLog=400", "storePathRootDir=/tmp\nflushIntervalCommitLog=400",
    "storePathCommitLog=/tmp\nflushIntervalCommitLog=400", "aclUncheckedCodes=true\nflushIntervalCommitLog=400",
    "aclCredentialsFile=/etc/passwd\nflushIntervalCommitLog=400", "listenPort=1\nflushIntervalCommitLog=400",
    "tls.server.certPath=/etc/passwd\nflushIntervalCommitLog=400", "namesrvAddr=evil:1\nlistenPort=1",
    "flushIntervalCommitLog=400\nflushIntervalCommitLog=x", "metricsTokenFile=/etc/passwd\nflushIntervalCommitLog=400",
    "flushIntervalCommitLog=400\n\\u0072ocketmqHome=/tmp\nmaxMessageSize=5",
)  # fmt: skip


@pytest.mark.parametrize("guarded", [False, True])
async def test_cve_2023_33246_settings_are_no_command(tmp_path: Path, guarded: bool) -> None:
    """X01, B110: refused with all that comes along; with access control whoever asks needs to be an administrator."""
    async with Cluster(tmp_path / "store", settings=home(tmp_path) if guarded else {}) as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            before = broker_state(broker)
            for body in _BAD:
                for who in ("operator", "unprivileged", None) if guarded else (None,):
                    answer = await peer.ask(by(who, Command(25, body=body.encode())))
                    assert answer.code != 0, (who, body)
                    assert not changed(before, broker_state(broker)), (who, body)
            # Other spellings are no keys, and known keys without a use have none.
            for body in ("ROCKETMQHOME=/tmp", "rocketmqhome=/tmp", "rocketmq Home=/tmp"):
                await peer.ask(by("operator" if guarded else None, Command(25, body=body.encode())))
                assert not changed(before, broker_state(broker)), body


@pytest.mark.parametrize("guarded", [False, True])
async def test_cve_2023_37582_settings_of_a_nameserver_are_no_file(tmp_path: Path, guarded: bool) -> None:
    kept = tmp_path / "namesrv.properties"
    settings = NamesrvSettings.from_sources(
        overrides={
            "bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json"),
            "configStorePath": str(kept), **(home(tmp_path) if guarded else {}),
        }
    )  # fmt: skip
    bad = (
        "configStorePath=/tmp/x\nproductEnvName=*/1 * * * * id", "orderMessageEnable=true\nconfigStorePath=/tmp/x",
        "configStorePathName=/tmp/x\nkvConfigPath=/tmp/x", "kvConfigPath=/tmp/x", "configBlackList=", "rocketmqHome=/",
        "config\\u0053torePath=/tmp/x", "orderMessageEnable=true\nlistenPort=1",
        "orderMessageEnable=true\naclEnable=false\nlistenPort=2",
    )  # fmt: skip
    async with NamesrvApp(World.real(), settings) as namesrv, RawPeer(*namesrv.address) as peer:
        before = namesrv_state(namesrv)
        for body in bad:
            for who in ("operator", "unprivileged", "a-broker", None) if guarded else (None,):
                answer = await peer.ask(by(who, Command(318, body=body.encode())))
                assert answer.code != 0, (who, body)
                assert not changed(before, namesrv_state(namesrv)), (who, body)
                assert not kept.exists()


async def test_cve_2024_23321_accounts_are_told_to_nobody(tmp_path: Path) -> None:
    """A08: an ordinary account asks for all of them, or an address of a white list does without one."""
    accounts = f"""\
globalWhiteRemoteAddresses: [127.0.0.1]
accounts:
- {{accessKey: operator, secretKey: '{SECRET}', admin: true}}
- {{accessKey: ordinary, secretKey: '{SECRET}', whiteRemoteAddress: 127.0.0.1, defaultTopicPerm: PUB|SUB}}
- {{accessKey: canary-key, secretKey: canary-secret}}
"""
    async with Cluster(tmp_path / "store", settings=home(tmp_path, accounts)) as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            before = broker_state(broker)
            for code in (54, 52, 26, 28, 319, 3005, 3010, 50, 51, 53):
                for who in (None, "ordinary", "operator"):
                    if who == "operator" and code in (50, 51, 53):
                        continue
                    answer = await peer.ask(by(who, Command(code)))
                    assert answer.code != 0 or who == "operator", (code, who)
                    told = answer.body + json.dumps([answer.remark, answer.ext]).encode()
                    assert b"canary-secret" not in told, (code, who)
                    assert SECRET.encode() not in told, (code, who)
                    assert not changed(before, broker_state(broker)), (code, who)


#: What a broker writes for itself; given by a sender it must mean nothing.
_FORGED = "REAL_TOPIC\x01Other\x02REAL_QID\x010\x02RETRY_TOPIC\x01Other\x02POP_CK\x010 0 0 0 b 0 Other 0\x02"


@in_virtual_time
async def test_x08_properties_of_the_broker_cannot_be_forged() -> None:
    """A message that waits goes where its send said, whatever its properties call its real topic."""
    async with pop_scene() as scene:
        for topic in ("T", "Other"):
            await scene.topic(topic)
        forged = (
            _FORGED + "DELAY\x011\x02", "DELAY\x011\x02" + _FORGED, _FORGED + "TIMER_DELAY_SEC\x012\x02",
            _FORGED + "TIMER_OUT_MS\x011\x02TIMER_DELAY_MS\x01900\x02", _FORGED, "A\x01b" + "\x02" + _FORGED,
            "DELAY\x011\x02DELAY\x012\x02" + _FORGED, "K\x01\x02" + _FORGED + "DELAY\x011",
        )  # fmt: skip
        for props in forged:
            answer = await scene.client.request(scene.addr, send("T", props=props))
            assert answer.code == 0, props
        half = send("T", props="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u\x02" + _FORGED)
        assert half.ext is not None
        half.ext["f"] = "4"
        at = scene.app.store.log.end
        answer = await scene.client.request(scene.addr, half)
        end = {"producerGroup": "P", "tranStateTableOffset": (answer.ext or {})["queueOffset"],
               "commitLogOffset": str(at), "commitOrRollback": "8"}  # fmt: skip
        await scene.client.request(scene.addr, Command(37, ext=dict(end)))
        await asyncio.sleep(20)
        ends = {topic: scene.app.store.queues.get(topic, 0) for topic in ("T", "Other")}
        assert ends["T"] is not None
        assert ends["T"].visible == len(forged) + 1
        assert ends["Other"] is None or ends["Other"].visible == 0
