"""What strangers may make a broker and a nameserver keep, and work on: names, counts of queues, bodies."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.command import Command
from rmq.protocol.queue import MAX_QUEUES
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, pull, send, subscribe

_LONG = "n" * 200_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer(*cluster.brokers[0].address) as peer:
        yield peer


def _pull(**changed: str) -> Command:
    command = pull()
    assert command.ext is not None
    command.ext |= changed
    return command


def _offset(**changed: str) -> Command:
    where = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "0"}
    return Command(15, ext={**where, **changed})


def _heartbeat(**changed: str) -> Command:
    command = subscribe()
    beat = json.loads(command.body)
    (consumer,) = beat["consumerDataSet"]
    for name, value in changed.items():
        if name in consumer:
            consumer[name] = value
        elif name in consumer["subscriptionDataSet"][0]:
            consumer["subscriptionDataSet"][0][name] = value
        else:
            beat[name] = value
    command.body = json.dumps(beat).encode()
    return command


def _lock(**changed: str) -> Command:
    queue = {"topic": changed.pop("topic", "T"), "brokerName": "b", "queueId": 0}
    return Command(41, body=json.dumps({"consumerGroup": "G", "clientId": "c", "mqSet": [queue], **changed}).encode())


@pytest.mark.parametrize(
    "command",
    [
        _pull(consumerGroup=_LONG),
        _pull(topic=_LONG),
        _pull(subscription="a" * 20_000),
        _offset(consumerGroup=_LONG),
        _offset(topic=_LONG),
        _heartbeat(groupName=_LONG),
        _heartbeat(clientID=_LONG),
        _heartbeat(topic=_LONG),
        _heartbeat(subString="a" * 20_000),
        _lock(consumerGroup="g" * 60_000),
        _lock(clientId="g" * 60_000),
        _lock(topic="g" * 60_000),
        Command(200, body=json.dumps({"groupName": "g" * 60_000}).encode()),
        Command(38, ext={"consumerGroup": _LONG}),
        Command(14, ext={"consumerGroup": _LONG, "topic": "T", "queueId": "0"}),
        Command(36, ext={"offset": "0", "group": _LONG, "delayLevel": "0"}),
        Command(35, ext={"clientID": "c", "consumerGroup": _LONG}),
        Command(353, ext={"group": _LONG, "topic": "T", "readable": "false"}),
    ],
)
async def test_no_name_is_kept_that_is_too_long(cluster: Cluster, peer: RawPeer, command: Command) -> None:
    broker = cluster.brokers[0]
    assert (await peer.ask(send())).code == 0
    groups, topics = len(broker.groups.all()), len(broker.topics)
    answer = await peer.ask(command)
    assert answer.code != 0
    assert " at most " in (answer.remark or "")
    assert len(answer.remark or "") < 300
    assert (len(broker.groups.all()), len(broker.topics)) == (groups, topics)
    assert list(broker.offsets.pairs()) == []
    assert len(broker.members.consumers.groups()) == 0


async def test_names_that_are_as_long_as_they_may_be(cluster: Cluster, peer: RawPeer) -> None:
    await peer.ask(send())
    assert (await peer.ask(_pull(consumerGroup="g" * 255))).code == 0
    assert (await peer.ask(_heartbeat(clientID="c" * 1_024))).code == 0
    assert (await peer.ask(_lock(clientId="c" * 1_024))).code == 0


def _topic(queues: int) -> Command:
    ext = {"topic": "BIG", "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
    ext |= {"readQueueNums": str(queues), "writeQueueNums": str(queues), "topicSysFlag": "0"}
    return Command(17, ext=dict(ext))


async def test_a_topic_of_a_million_queues(cluster: Cluster, peer: RawPeer) -> None:
    broker = cluster.brokers[0]
    answer = await peer.ask(_topic(1_000_000))
    assert (answer.code, answer.remark) == (1, "readQueueNums=1000000: topic BIG may have 100000 at most")
    body = {"topicConfigList": [json.loads(TopicConfig("BIG", 4, MAX_QUEUES + 1).encode())]}
    assert "writeQueueNums=100001" in ((await peer.ask(Command(18, body=json.dumps(body).encode()))).remark or "")
    group = {"groupName": "G", "retryQueueNums": MAX_QUEUES + 1}
    assert "retryQueueNums=100001" in ((await peer.ask(Command(200, body=json.dumps(group).encode()))).remark or "")
    # The most that is taken makes queues as messages come, not all at once.
    assert (await peer.ask(_topic(MAX_QUEUES))).code == 0
    before = len(broker.store.queues)
    for queue in (0, MAX_QUEUES - 1):
        one = send("BIG")
        assert one.ext is not None
        one.ext["e"] = str(queue)
        answer = await peer.ask(one)
        assert (answer.code, (answer.ext or {})["queueId"]) == (0, str(queue))
    assert len(broker.store.queues) - before < 2_000
    assert (await peer.ask(pull(topic="BIG", queue=MAX_QUEUES - 1))).code == 0


@pytest.mark.parametrize("code", [103, 322, 318, 25, 34, 41, 42, 46, 200, 17, 18, 225, 400, 401])
async def test_a_body_of_many_quotes(cluster: Cluster, code: int) -> None:
    """Whatever is asked: a long body is refused before it is parsed, and what is parsed is parsed in one go."""
    where = cluster.namesrvs[0].address if code in (103, 322, 318) else cluster.brokers[0].address
    ext = {"brokerName": "b", "brokerAddr": "1.2.3.4:1", "clusterName": "c", "brokerId": "0", "haServerAddr": ""}
    async with RawPeer(*where) as peer:
        for body in (b'{"' + b'\\"' * 16_000, b'{"' + b'\\"' * 6_000_000, b'{"brokerName":"' * 4_000):
            answer = await peer.ask(Command(code, ext=dict(ext), body=body))
            assert answer.code != 0
            assert len(answer.remark or "") < 300


async def test_whoever_reads_a_body_says_how_long_it_may_be(cluster: Cluster) -> None:
    sized = (10, 310, 320, 324, 325, 25, 318)  # messages and settings have limits of their own
    for router in (cluster.brokers[0].router, cluster.namesrvs[0]._router):
        for code in router.codes():
            handler = router.handler(code)
            assert handler is not None
            if "request.body" in inspect.getsource(handler.call) and code not in sized:
                assert handler.body is not None, handler.owner


async def test_a_compressed_registration_with_a_long_name(cluster: Cluster) -> None:
    def piece(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    plain = piece(b'{"counter":1,"timestamp":1}') + (1).to_bytes(4, "big") + piece(b"x" * 300 + b" 4 4 6 SINGLE_TAG")
    ext = {"brokerName": "b", "brokerAddr": "1.2.3.4:1", "clusterName": "c", "brokerId": "0", "haServerAddr": ""}
    async with RawPeer(*cluster.namesrvs[0].address) as peer:
        answer = await peer.ask(
            Command(103, ext={**ext, "compressed": "true"}, body=zlib.compress(plain + piece(b"[]")))
        )
    assert answer.code == 1
    assert "a topic's name of 300 characters" in (answer.remark or "")
