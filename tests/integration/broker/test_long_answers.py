"""Answers that name thousands of things are made some at a time, in virtual time."""

from __future__ import annotations

import json

import pytest

from rmq.protocol.bodies.connection import ProducerConnection, ProducerInfo, ProducerTableInfo
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.bodies.pop import QueryAssignmentResponseBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
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
