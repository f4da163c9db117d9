"""Answers that name thousands of things are made some at a time, in virtual time."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from rmq.broker.admin.lookup import Lookup
from rmq.broker.groups import offsets as offsets_module
from rmq.protocol import frame
from rmq.protocol.bodies.connection import ProducerConnection, ProducerInfo, ProducerTableInfo
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.pop import QueryAssignmentResponseBody
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting import long_body
from rmq.remoting.long_body import LongBody
from rmq.testing.simworld import Simulation
from tests.support.odd.campaign import Campaign, Line
from tests.support.raw_peer import subscribe
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.turns import Turns
from tests.support.virtual import in_virtual_time

#: The most of one turn.
MOST = 250


async def beat(scene: PopScene, *, producers: int = 1, topics: int = 1) -> None:
    command = subscribe()
    body = json.loads(command.body)
    (wanted,) = body["consumerDataSet"][0]["subscriptionDataSet"]
    body["consumerDataSet"][0]["subscriptionDataSet"] = [wanted | {"topic": f"t{number}"} for number in range(topics)]
    body["producerDataSet"] = [{"groupName": f"p{number}"} for number in range(producers)]
    command.body = json.dumps(body).encode()
    assert (await scene.client.request(scene.addr, command, 60.0)).code == 0


async def asked(scene: PopScene, code: int, body: bytes = b"", **ext: str) -> bytes:
    answer = await scene.client.request(scene.addr, Command(code, ext=dict(ext), body=body), 60.0)
    assert answer.code == 0, answer.remark
    return answer.body


@pytest.mark.parametrize("count", [0, 1, 600])
@in_virtual_time
async def test_all_producers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    async with pop_scene() as scene:
        await beat(scene, producers=count)
        made = Turns(monkeypatch, ProducerInfo, "encode")
        body = await asked(scene, RequestCode.GET_ALL_PRODUCER_INFO)
        assert body == ProducerTableInfo.decode(body).encode()
        assert list(json.loads(body)["data"]) == [f"p{number}" for number in range(count)]
        assert made.whole >= count
        assert made.longest <= MOST


@pytest.mark.parametrize("count", [1, 600])
@in_virtual_time
async def test_the_members_of_a_group(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    async with pop_scene() as scene:
        await beat(scene, topics=count)
        made = Turns(monkeypatch, SubscriptionData, "encode")
        body = await asked(scene, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")
        found = json.loads(body)
        assert list(found) == sorted(found)
        assert list(found["subscriptionTable"]) == [f"t{number}" for number in range(count)]
        assert [one["clientId"] for one in found["connectionSet"]] == ["c"]
        assert made.whole == count
        assert made.longest <= MOST


@pytest.mark.parametrize("count", [1, 600])
@in_virtual_time
async def test_the_producers_of_a_group(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    async with pop_scene() as scene:
        await beat(scene)
        channels = scene.app.members.producers.group("p0")
        assert channels is not None
        monkeypatch.setattr(scene.app.members.producers, "group", lambda name: channels * count)
        made = Turns(monkeypatch, ProducerConnection, "encode", lambda body: len(body.connection_set))
        body = await asked(scene, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p0")
        assert len(json.loads(body)["connectionSet"]) == made.whole == count
        assert made.longest <= MOST
        assert body == ProducerConnection.decode(body).encode()


@pytest.mark.parametrize("queues", [1, 5_000])
@in_virtual_time
async def test_the_queues_of_a_member(monkeypatch: pytest.MonkeyPatch, queues: int) -> None:
    """Of a topic of 100,000 queues it held the loop for two seconds."""
    async with pop_scene() as scene:
        await scene.topic("T", queues)
        await beat(scene)
        made = Turns(
            monkeypatch, QueryAssignmentResponseBody, "encode", lambda body: len(body.message_queue_assignments)
        )
        names = {"clientId": "c", "consumerGroup": "G", "messageModel": "CLUSTERING", "topic": "T"}
        body = await asked(scene, RequestCode.QUERY_ASSIGNMENT, json.dumps(names).encode())
        found = [one["messageQueue"]["queueId"] for one in json.loads(body)["messageQueueAssignments"]]
        assert found == list(range(queues))
        assert made.whole == queues
        assert made.longest <= MOST


#: Request and what says how far a queue is looked at.
OF_QUEUES = [
    (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": "T"}),
    (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}),
    (RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "T", "compareGroup": "G"}),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, {}),
]


async def commit_all(scene: PopScene, queues: int) -> None:
    for queue in range(queues):
        scene.app.tables.offsets.commit("G", "T", queue, queue)


@pytest.mark.parametrize(("code", "ext"), OF_QUEUES)
@in_virtual_time
async def test_what_tells_of_every_queue_does_so_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, code: int, ext: dict[str, str]
) -> None:
    """Of a topic of 100,000 queues some of them held the loop for 0.3 seconds."""
    queues = 5_000
    async with pop_scene() as scene:
        await scene.topic("T", queues)
        assert (await scene.client.request(scene.addr, subscribe(), 60.0)).code == 0
        await commit_all(scene, queues)
        monkeypatch.setattr(offsets_module, "_QUEUES", 1_000)
        looked = Turns(monkeypatch, Lookup, "max_offset")
        items = Turns(monkeypatch, LongBody, "item")
        encoded = Turns(monkeypatch, LongBody, "_encode", lambda body: body._waiting)
        body = await asked(scene, code, **ext)
        assert len(json.loads(re.sub(rb"(\{|,)([0-9]+|\{[^{}]*\}):", rb'\1"x":', body))) > 0
        assert looked.whole in (0, queues)
        assert looked.longest <= MOST + 1
        assert items.longest <= 3_000
        assert encoded.longest <= 2 * (64 << 10) or code == RequestCode.GET_ALL_CONSUMER_OFFSET


@pytest.mark.parametrize(("code", "ext"), OF_QUEUES[:5])
@in_virtual_time
async def test_what_no_frame_has_room_for_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch, code: int, ext: dict[str, str]
) -> None:
    """303 of a topic of 100,000 queues worked for 1.5 seconds, to find that it could not be sent."""
    monkeypatch.setattr(long_body, "_MOST", 100_000)
    async with pop_scene() as scene:
        await scene.topic("T", 5_000)
        assert (await scene.client.request(scene.addr, subscribe(), 60.0)).code == 0
        await commit_all(scene, 5_000)
        looked = Turns(monkeypatch, Lookup, "queue")
        asked_for = Turns(monkeypatch, Lookup, "max_offset")
        answer = await scene.client.request(scene.addr, Command(code, ext=dict(ext)), 60.0)
        assert answer.code == 1
        assert re.match(r"the answer for 5000 queues would have \d+ bytes at least", answer.remark or "")
        assert looked.whole == asked_for.whole == 0


@pytest.mark.parametrize("count", [1, 600])
@in_virtual_time
async def test_lists_of_topics(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Of 20,000 topics the name server's held the loop for 50 ms."""
    async with Campaign(Simulation(1).node("one"), {}) as made:
        names = [f"topic-{number}" for number in range(count)]
        app = made._cluster.brokers[0]
        for name in names:
            app.topics.put(TopicConfig(topic_name=name, topic_sys_flag=3))
            app.offsets.commit("G", name, 0, 1)
        await asyncio.sleep(60)
        encoded = Turns(monkeypatch, TopicList, "encode", lambda body: len(body.topic_list))
        broker, namesrv = await made.line(made.broker), await made.line(made.namesrv)
        requests: list[tuple[Line, int, dict[str, str]]] = [
            (namesrv, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (namesrv, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
            (namesrv, RequestCode.GET_UNIT_TOPIC_LIST, {}),
            (namesrv, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
            (broker, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "G"}),
        ]
        for line, code, ext in requests:
            encoded.again()
            line.transport.write(frame.encode(Command(code, ext=ext, opaque=7)))
            answer = await line.answer(7, 60.0)
            longest = encoded.longest
            assert answer is not None
            found = TopicList.decode(answer.body)
            assert answer.body == found.encode()
            assert set(found.topic_list).issuperset(names)
            assert longest <= MOST
