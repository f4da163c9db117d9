"""What is done to single queues of an assignment: pause and seek, with both ways of consuming and both kinds of
listener."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq.aio import Message, MessageExt, MessageQueue, PushConsumer
from rmq.client.consumer.assignment import Assignment
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = [
    pytest.mark.usefixtures("listeners"),
    pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"]),
]

QUEUES = [MessageQueue("T", "broker-0", number) for number in range(4)]


@asynccontextmanager
async def member(s: Scene, orderly: bool) -> AsyncIterator[tuple[PushConsumer, Assignment, dict[int, list[int]]]]:
    """A started member, its assignment, and the offsets consumed of each queue, in whatever order side by side."""
    got: dict[int, list[int]] = defaultdict(list)
    # As pulls that a pause meets end soon, the queue is quiet soon.
    consumer = s.consumer(orderly=orderly, broker_suspend_max_time=1, consumer_timeout_when_suspend=2)

    @consumer.on("T")
    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(0.01)
        got[message.queue_id].append(message.queue_offset)

    async with consumer:
        await eventually(lambda: set(QUEUES) <= set(consumer.assignment))
        assert consumer._delivery is not None
        yield consumer, consumer._delivery.assignment, got


async def send_to_each(s: Scene, count: int) -> None:
    for queue in QUEUES:
        for _ in range(count):
            await s.producer.send(Message("T", b"x"), queue=queue)


async def ignore(message: MessageExt) -> None:
    return None


@in_virtual_time
async def test_paused_queues_stand_and_the_others_go_on(orderly: bool) -> None:
    async with scene() as s, member(s, orderly) as (consumer, assignment, got):
        await send_to_each(s, 2)
        await eventually(lambda: sum(map(len, got.values())) == 8)
        assignment.pause([QUEUES[0], QUEUES[1], MessageQueue("T", "broker-0", 99)])
        await asyncio.sleep(2)  # a pull under way brings what comes while it waits
        await send_to_each(s, 2)
        await asyncio.sleep(60)
        assert {number: len(offsets) for number, offsets in got.items()} == {0: 2, 1: 2, 2: 4, 3: 4}
        assert set(consumer.assignment) >= set(QUEUES), "a pause is not being dead"
        assignment.resume([QUEUES[0], MessageQueue("T", "broker-0", 99)])
        await eventually(lambda: sorted(got[0]) == [0, 1, 2, 3], within=5)
        assert sorted(got[1]) == [0, 1]
        assignment.resume(QUEUES)
        await eventually(lambda: sorted(got[1]) == [0, 1, 2, 3], within=5)


@in_virtual_time
async def test_a_seek_moves_its_queue_alone_and_at_once(orderly: bool) -> None:
    async with scene() as s, member(s, orderly) as (_, assignment, got):
        await send_to_each(s, 4)
        await eventually(lambda: sum(map(len, got.values())) == 16)
        await assignment.seek({QUEUES[2]: 1, QUEUES[3]: 3, MessageQueue("T", "broker-0", 99): 0})
        await eventually(lambda: sorted(got[2][4:]) == [1, 2, 3] and got[3][4:] == [3], within=2)
        await asyncio.sleep(10)
        assert {number: len(offsets) for number, offsets in got.items()} == {0: 4, 1: 4, 2: 7, 3: 5}
        assert set((await s.diff()).values()) == {0}


@in_virtual_time
async def test_a_paused_queue_that_is_set_to_another_offset_stays_paused(orderly: bool) -> None:
    async with scene() as s, member(s, orderly) as (_, assignment, got):
        await send_to_each(s, 4)
        await eventually(lambda: sum(map(len, got.values())) == 16)
        assignment.pause(QUEUES[:1])
        await assignment.seek({QUEUES[0]: 2, QUEUES[1]: 2})
        await eventually(lambda: sorted(got[1][4:]) == [2, 3], within=2)
        await asyncio.sleep(60)
        assert len(got[0]) == 4
        assignment.resume(QUEUES[:1])
        await eventually(lambda: sorted(got[0][4:]) == [2, 3], within=5)


@in_virtual_time
async def test_a_queue_that_comes_back_from_another_member_is_not_paused(orderly: bool) -> None:
    async with scene() as s, member(s, orderly) as (consumer, assignment, got):
        assignment.pause(QUEUES)
        await asyncio.sleep(2)
        other = s.consumer(orderly=orderly)
        other.on("T")(ignore)
        async with other:
            await eventually(lambda: sum(queue in other.assignment for queue in QUEUES) == 2)
            taken = [queue for queue in QUEUES if queue in other.assignment]
        await eventually(lambda: set(QUEUES) <= set(consumer.assignment))
        await send_to_each(s, 1)
        await asyncio.sleep(30)
        assert sorted(got) == sorted(queue.queue_id for queue in taken)
