"""The push consumer in clustering mode: what is called, how much at once, and its end; a cluster in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rmq.aio import (
    MessageExt,
    PushConsumer,
)
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@in_virtual_time
async def test_the_exact_tag_is_compared_here_and_offsets_pass_what_does_not_match() -> None:
    """Field case B030."""
    async with scene() as s:
        got: list[str | None] = []
        consumer = s.consumer()

        @consumer.on("T", "BBBB || TagC")
        async def handle(message: MessageExt) -> None:
            got.append(message.tags)

        async with consumer:
            await s.send(40, tags="AaAa")  # the same Java hash as BBBB: only the client can tell
            await s.send(20, tags="other")
            await s.send(2, tags="TagC")
            await s.send(10, tags="AaAa")
            await eventually(lambda: len(got) == 2)
            await asyncio.sleep(21)
            assert set((await s.diff()).values()) == {0}
        assert got == ["TagC", "TagC"]


@in_virtual_time
async def test_pulling_stops_at_the_limits() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        release = asyncio.Event()
        done = 0
        consumer = s.consumer(consume_thread_max=2, consume_thread_min=1, pull_threshold_for_queue=100)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            nonlocal done
            await release.wait()
            done += 1

        async with consumer:
            await s.send(300, "One")
            await asyncio.sleep(30)
            held = next(pq for queue, pq in consumer._inner.process_queues().items() if queue.topic == "One")
            assert 100 <= held.count <= 132
            release.set()
            await eventually(lambda: done == 300)


@in_virtual_time
async def test_the_span_stops_pulling_while_the_first_message_is_stuck() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        release = asyncio.Event()
        done: list[int] = []
        consumer = s.consumer(consume_concurrently_max_span=50)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            if message.queue_offset == 0:
                await release.wait()
            done.append(message.queue_offset)

        async with consumer:
            await s.send(200, "One")
            await asyncio.sleep(30)
            assert 50 < len(done) <= 50 + 2 * 32
            assert (await s.diff())[("One", 0)] == 200
            release.set()
            await eventually(lambda: len(done) == 200)


@in_virtual_time
async def test_suspend_and_resume() -> None:
    async with scene() as s:
        got: list[str] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.msg_id)

        async with consumer:
            await s.send(1)
            await eventually(lambda: len(got) == 1)
            consumer.suspend()
            await asyncio.sleep(20)
            await s.send(5)
            await asyncio.sleep(60)
            assert len(got) == 1
            consumer.resume()
            await eventually(lambda: len(got) == 6)


@in_virtual_time
async def test_more_calls_at_a_time_begin_at_once_and_fewer_when_some_have_ended() -> None:
    async with scene() as s:
        running = most = 0
        consumer = s.consumer(consume_thread_min=1, consume_thread_max=1)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(10)
            running -= 1

        async with consumer:
            await s.send(40)
            await eventually(lambda: running == 1)
            await asyncio.sleep(5)
            assert most == 1
            consumer.update_core_pool_size(4)
            await eventually(lambda: running == 4, within=1)
            await asyncio.sleep(30)
            assert most == 4
            consumer.update_core_pool_size(2)
            await eventually(lambda: running == 2, within=11)
            most = 0
            await asyncio.sleep(30)
            assert most == 2


@in_virtual_time
async def test_shutdown_finishes_what_runs_and_leaves_the_rest() -> None:
    """Field case B041."""
    async with scene() as s:
        await s.topic("One", 1)
        seen: Counter[str] = Counter()

        def member() -> PushConsumer:
            made = s.consumer(consume_thread_min=1, consume_thread_max=4)

            @made.on("One")
            async def handle(message: MessageExt) -> None:
                await asyncio.sleep(2)
                seen[message.msg_id] += 1

            return made

        sent = await s.send(100, "One")
        first = member()
        await first.start()
        await eventually(lambda: len(seen) >= 20)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        began = loop.time()
        await first.shutdown(timeout=10)
        assert loop.time() - began <= 2.5
        assert 20 <= len(seen) <= 32
        second = member()
        await second.start()
        await eventually(lambda: len(seen) == 100, within=200)
        await second.shutdown()
        assert seen == Counter(sent)


@pytest.mark.parametrize("listeners", ["coroutine"], indirect=True)  # one on a thread would wait for itself
@in_virtual_time
async def test_a_listener_may_shut_its_consumer_down() -> None:
    async with scene() as s:
        ended = asyncio.Event()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            await consumer.shutdown()
            ended.set()

        await consumer.start()
        await s.send(1)
        await ended.wait()
        await eventually(lambda: not consumer.assignment)
        await asyncio.sleep(1)
        assert set((await s.diff()).values()) == {0}
