"""What happens between two steps of a pop: arrivals, acks, resets and crashes at the worst moment, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.pop.revive import Reviver
from rmq.broker.pop.take import Taker
from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.topic import DeleteTopicRequest
from tests.support.scenes.pop import Given, pop_scene
from tests.support.virtual import eventually, in_virtual_time


def bodies(messages: list[Given]) -> list[str]:
    return sorted(message.body for message in messages)


@in_virtual_time
async def test_a_message_given_back_before_a_crash_is_given_back_once() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b")
        await scene.pop(invisible_time=2_000)
        await eventually(lambda: scene.app.roles.master.pop.reviver.given_back == 2)
        await scene.kill()
        await asyncio.sleep(5)
        assert bodies(await scene.pop(invisible_time=60_000)) == ["a", "b"]
        assert await scene.pop() == []


@in_virtual_time
async def test_an_offset_on_the_disk_never_passes_a_pop_that_is_not() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b")
        await asyncio.sleep(15)
        assert len(await scene.pop(invisible_time=60_000)) == 2
        scene.app.roles.master.pop.state.tell()
        await scene.app.metadata.persist_offsets()
        await scene.power_cut()
        assert bodies(await scene.pop()) == ["a", "b"]


@in_virtual_time
async def test_one_arrival_of_many_messages_serves_everybody_who_waits() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        waiting = [asyncio.create_task(scene.pop(poll_time=15_000, max_msg_nums=1), name="client") for _ in range(5)]
        await eventually(lambda: len(scene.app.roles.master.pop.polls) == 5)
        await asyncio.gather(*(scene.send(str(i)) for i in range(5)))
        got = await asyncio.wait_for(asyncio.gather(*waiting), 1)
        assert bodies([message for messages in got for message in messages]) == list("01234")


@in_virtual_time
async def test_what_arrives_between_looking_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Taker.take

    async def slow(self: Taker, *arguments: Any) -> Any:
        found = await take(self, *arguments)
        await asyncio.sleep(1)
        return found

    async with pop_scene() as scene:
        await scene.topic()
        monkeypatch.setattr(Taker, "take", slow)
        waiting = asyncio.create_task(scene.pop(poll_time=15_000), name="client")
        await asyncio.sleep(0.5)
        await scene.send("a")
        assert bodies(await asyncio.wait_for(waiting, 3)) == ["a"]


@in_virtual_time
async def test_an_ack_while_the_message_is_read_to_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Reviver._record

    async def slow(self: Reviver, *arguments: Any) -> Any:
        found = await read(self, *arguments)
        await asyncio.sleep(1)
        return found

    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        (a,) = await scene.pop(invisible_time=2_000)
        monkeypatch.setattr(Reviver, "_record", slow)
        await asyncio.sleep(2.5)
        assert await scene.ack(a) == 0
        await asyncio.sleep(5)
        assert await scene.pop() == []


@in_virtual_time
async def test_a_reset_while_messages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Taker._scan

    async def slow(self: Taker, *arguments: Any) -> Any:
        found = await scan(self, *arguments)
        await asyncio.sleep(1)
        return found

    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*"abcdef")
        await scene.pop(max_msg_nums=4)
        monkeypatch.setattr(Taker, "_scan", slow)
        popping = asyncio.create_task(scene.pop(), name="client")
        await asyncio.sleep(0.5)
        await asyncio.sleep(0)
        scene.app.offsets.commit("g", "T", 0, 0)
        assert await popping == []
        monkeypatch.setattr(Taker, "_scan", scan)
        assert bodies(await scene.pop()) == list("abcdef")


@in_virtual_time
async def test_messages_of_a_new_topic_are_not_taken_for_those_of_the_old_one() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b", "c")
        await scene.pop(invisible_time=5_000)
        answer = await scene.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="T"))
        assert answer.code == 0
        await scene.topic()
        await scene.send("x", "y", "z")
        new = await scene.pop(invisible_time=60_000)
        assert bodies(new) == ["x", "y", "z"]
        for message in new:
            assert await scene.ack(message) == 0
        await asyncio.sleep(10)
        assert await scene.pop() == []
        await scene.kill()
        await asyncio.sleep(10)
        assert await scene.pop() == []


@in_virtual_time
async def test_two_pops_at_once_share_without_overlap() -> None:
    async with pop_scene() as scene:
        await scene.topic(queues=4)
        for i in range(40):
            await scene.send(str(i), queue_id=i % 4)
        got = await asyncio.gather(*(scene.pop(max_msg_nums=8, poll_time=5_000) for _ in range(5)))
        assert bodies([message for messages in got for message in messages]) == sorted(map(str, range(40)))
