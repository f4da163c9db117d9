"""Scheduled pulls: a function is called for each queue of a member's share, when it says."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import pytest

from rmq.aio import ClientError, MessageQueue, ScheduledPullConsumer
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


class Reader:
    """A member that reads all there is, and looks again after so many seconds."""

    def __init__(self, s: Scene, pause: Any = 1.0, **options: Any) -> None:
        self.got: list[str | None] = []
        self.calls: list[MessageQueue] = []
        self.pause = pause
        self.hold = 0.0
        self.consumer = ScheduledPullConsumer(
            "scheduled", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, **options
        )
        self.consumer.on("T")(self.pull)

    async def pull(self, queue: MessageQueue) -> Any:
        self.calls.append(queue)
        await asyncio.sleep(self.hold)
        consumer = self.consumer
        offset = max(0, await consumer.fetch_consume_offset(queue))
        result = await consumer.pull(queue, "*", offset)
        self.got += [message.keys for message in result.messages]
        consumer.update_consume_offset(queue, result.next_begin_offset)
        return 0 if result.messages else self.pause


@in_virtual_time
async def test_each_queue_is_read_and_looked_at_again_when_its_function_says() -> None:
    async with scene() as s:
        await s.send(100)
        reader = Reader(s, datetime.timedelta(seconds=10))
        async with reader.consumer:
            await eventually(lambda: len(reader.got) == 100)
            await asyncio.sleep(1.0)
            calls = len(reader.calls)
            await asyncio.sleep(8.0)
            assert len(reader.calls) == calls
            await s.send(4)
            await asyncio.sleep(2.0)
            assert len(reader.got) == 104
        again = Reader(s)
        async with again.consumer:
            await asyncio.sleep(5.0)
            assert not again.got


@in_virtual_time
async def test_members_share_the_queues_and_go_on_where_others_were() -> None:
    async with scene() as s:
        one, other = Reader(s), Reader(s, 3600.0)
        async with one.consumer:
            await s.send(40)
            await eventually(lambda: len(one.got) == 40)
            async with other.consumer:
                await eventually(lambda: len(one.consumer._wakes) == 2)
                await eventually(lambda: len(set(other.calls)) == 2)
                assert not other.got
                await s.send(40)
                await eventually(lambda: len(one.got) == 60)
                # The other one sleeps for an hour; what it has left is read by who has its queues then.
            await eventually(lambda: len(one.got) == 80)
            assert sorted(one.got) == sorted([f"k{i}" for i in range(40)] * 2)  # type: ignore[type-var]


@in_virtual_time
async def test_who_has_lost_a_queue_notes_no_more_of_it_whatever_it_waits_for() -> None:
    async with scene() as s:
        await s.send(40)
        one, other = Reader(s, 3600.0), Reader(s)
        async with one.consumer:
            await eventually(lambda: len(one.got) == 40)
            async with other.consumer:
                await eventually(lambda: len(one.consumer._wakes) == 2)
                await eventually(lambda: len(set(other.calls)) == 2)
                await s.send(40)
                await eventually(lambda: len(other.got) == 20)
                await asyncio.sleep(5.0)
                assert len(one.consumer._inner.offsets("T")) == len(other.consumer._inner.offsets("T")) == 2


@in_virtual_time
async def test_a_call_under_way_keeps_no_offset_of_a_queue_that_was_lost() -> None:
    """It would be kept again and again, over what the next owner notes."""
    async with scene() as s:
        await s.send(40)
        one, other = Reader(s, 0.5), Reader(s)
        async with one.consumer:
            await eventually(lambda: len(one.got) == 40)
            one.hold = 3600.0
            await asyncio.sleep(1.0)
            async with other.consumer:
                await eventually(lambda: len(set(other.calls)) == 2)
                assert len(one.consumer._wakes) == 4
                assert set(one.consumer._inner.offsets("T")) == set(one.calls) - set(other.calls)
                assert not other.got


@in_virtual_time
async def test_a_function_that_raises_or_says_nonsense_is_called_again_and_holds_up_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as s:
        consumer = ScheduledPullConsumer("g", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        times: dict[int, list[float]] = {0: [], 1: [], 2: [], 3: []}

        @consumer.on("T")
        async def pull(queue: MessageQueue) -> Any:
            times[queue.queue_id].append(now())
            match queue.queue_id:
                case 0:
                    raise ValueError("what a callback raises")
                case 1:
                    return "nonsense"
                case 2:
                    await asyncio.sleep(3600.0)
            return None

        with caplog.at_level(logging.ERROR, logger="rmq"):
            await consumer.start()
            await asyncio.sleep(10.1)
        assert [len(times[i]) for i in range(4)] == [10, 10, 1, 50]
        assert "what a callback raises" in caplog.text
        assert "what the callback returned is 'nonsense'" in caplog.text
        began = now()
        await consumer.shutdown()
        assert 20.0 <= now() - began < 21.0
        assert not consumer._wakes


@in_virtual_time
async def test_plain_functions_run_on_threads() -> None:
    async with scene() as s:
        consumer = ScheduledPullConsumer("g", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        seen: set[int] = set()

        @consumer.on("T")
        def pull(queue: MessageQueue) -> float:
            seen.add(queue.queue_id)
            if queue.queue_id == 3:
                raise SystemExit(3)
            return 1.0

        async with consumer:
            await eventually(lambda: len(seen) == 4)


@in_virtual_time
async def test_what_cannot_be_called_is_refused_at_once() -> None:
    async with scene() as s:
        consumer = ScheduledPullConsumer("g", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        with pytest.raises(ClientError, match="the consumer g calls nothing"):
            await consumer.start()
        with pytest.raises(ClientError, match="the callback is 5"):
            consumer.on("T")(5)  # type: ignore[type-var]
        reader = Reader(s)
        with pytest.raises(ClientError, match="the topic T has a callback in this consumer already"):
            reader.consumer.on("T")(reader.pull)
        async with reader.consumer:
            with pytest.raises(ClientError, match="is started"):
                reader.consumer.on("U")(reader.pull)
