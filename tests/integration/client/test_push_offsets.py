"""The push consumer in clustering mode: where it begins, what it notes, and resets, whole cluster in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import (
    MessageExt,
    MessageQueue,
    PushConsumer,
)
from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.offset import ResetOffsetRequest
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@in_virtual_time
async def test_a_consumer_tells_how_far_it_noted_each_queue() -> None:
    async with scene() as s:
        consumer = s.consumer()
        queue = MessageQueue("T", "broker-0", 0)
        seen: list[str] = []

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            seen.append(message.msg_id)

        assert consumer._inner.noted(queue) == -1, "it is not started"
        await consumer.start()
        await s.send(40)
        await eventually(lambda: len(seen) == 40)
        await eventually(lambda: consumer._inner.noted(queue) == 10)
        assert consumer._inner.noted(MessageQueue("T", "broker-0", 99)) == -1
        await consumer.shutdown()


@pytest.mark.parametrize(
    ("at_hand", "policy", "expected"),
    [
        ("40", "LAST_OFFSET", 7), ("40", "FIRST_OFFSET", 7), ("40", "TIMESTAMP", 7),
        ("0", "LAST_OFFSET", 2), ("0", "FIRST_OFFSET", 7), ("0", "TIMESTAMP", 4),
    ],
)  # fmt: skip
def test_where_a_new_group_starts(at_hand: str, policy: str, expected: int) -> None:
    """Field case B013: where it says, once the first message of a queue has left what counts as memory."""

    @in_virtual_time
    async def run() -> None:
        async with scene(accessMessageInMemoryMaxRatio=at_hand) as s:
            await s.topic("One", 1)
            await s.send(3, "One")
            await asyncio.sleep(60)
            middle = s.cluster.world.clock.now_ms()
            await asyncio.sleep(60)
            await s.send(2, "One")
            import datetime

            when = datetime.datetime.fromtimestamp((middle + 59_000) / 1000)
            got: list[MessageExt] = []
            consumer = s.consumer(consume_from_where=f"CONSUME_FROM_{policy}", consume_timestamp=when)

            @consumer.on("One")
            async def handle(message: MessageExt) -> None:
                got.append(message)

            async with consumer:
                await eventually(lambda: consumer.assignment)
                await asyncio.sleep(1)
                await s.send(2, "One")
                await asyncio.sleep(30)
            assert len(got) == expected

    run()


@pytest.mark.parametrize("policy", ["LAST_OFFSET", "FIRST_OFFSET"])
def test_where_to_start_matters_for_a_group_without_offsets_only(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """Field case B014."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            got: list[int] = []

            def member(consume_from_where: str) -> PushConsumer:
                made = s.consumer(consume_from_where=consume_from_where)

                @made.on("One")
                async def handle(message: MessageExt) -> None:
                    got.append(message.queue_offset)

                return made

            await s.send(10, "One")
            async with member("CONSUME_FROM_FIRST_OFFSET"):
                await eventually(lambda: len(got) == 10)
            await s.send(5, "One")
            caplog.clear()
            async with member(f"CONSUME_FROM_{policy}"):
                await eventually(lambda: len(got) == 15)
                await asyncio.sleep(30)
            assert got == list(range(15))
            lines = [record.getMessage() for record in caplog.records if "topic=One" in record.getMessage()]
            assert any("starts at the committed offset 10" in line for line in lines), lines

    with caplog.at_level("INFO"):
        run()


@in_virtual_time
async def test_an_offset_that_does_not_exist_is_corrected_once() -> None:
    """Field case B022."""
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(50, "One")
        broken = s.consumer()
        got: list[str] = []

        @broken.on("One")
        async def handle(message: MessageExt) -> None:
            got.append(message.msg_id)

        async with broken:
            await eventually(lambda: len(got) == 50)
            (queue,) = [queue for queue in broken.assignment if queue.topic == "One"]
            await broken._inner.reset_offsets("One", {queue: 5000})
            await asyncio.sleep(30)
            await s.send(3, "One")
            await eventually(lambda: len(got) == 53)
            await asyncio.sleep(10)
        assert len(got) == 53
        assert (await s.diff())[("One", 0)] == 0


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_reset_from_outside_is_not_undone_by_late_results(orderly: bool) -> None:
    """Field case B018."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            got: list[int] = []
            consumer = s.consumer(orderly=orderly, consume_thread_min=1, consume_thread_max=1)

            @consumer.on("One")
            async def handle(message: MessageExt) -> None:
                await asyncio.sleep(0.2)
                got.append(message.queue_offset)

            async with consumer:
                await s.send(100, "One")
                await eventually(lambda: len(got) == 5)
                await consumer.persist_offsets()
                header = ResetOffsetRequest(topic="One", group="g", timestamp=-1, is_force=True)
                await s.admin._client.call(s.cluster.broker_addr, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
                await s.send(1, "One")
                # It goes on after the call under way: a queue never stands still for a reset.
                await eventually(lambda: got[-1] == 100, within=2)
                assert len(got) <= 7
                await asyncio.sleep(30)
                assert len(got) <= 7
            assert (await s.diff())[("One", 0)] == 0

    run()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_reset_while_nothing_is_called_takes_effect_at_once(orderly: bool) -> None:
    """An orderly queue's worker waits for messages, or out the pause after a failure: it is not waited for."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            await s.topic("Failing", 1)
            got: list[tuple[str, int]] = []
            consumer = s.consumer(orderly=orderly, suspend_current_queue_time=30)

            @consumer.on("One")
            @consumer.on("Failing")
            async def handle(message: MessageExt) -> bool:
                got.append((message.topic, message.queue_offset))
                return message.topic != "Failing"

            async with consumer:
                await s.send(3, "One")
                await s.send(3, "Failing")
                await eventually(lambda: got.count(("One", 2)) and got.count(("Failing", 0)))
                await asyncio.sleep(5)
                for topic in ("One", "Failing"):
                    got.clear()
                    await s.admin.reset_offset_by_timestamp(topic, "g", 0)
                    await eventually(lambda topic=topic: (topic, 0) in got, within=2)  # type: ignore[misc]

    run()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_reset_holds_when_the_member_stops_at_once(orderly: bool) -> None:
    """Field case B018."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            got: list[int] = []

            def member() -> PushConsumer:
                made = s.consumer(orderly=orderly, consume_thread_min=1, consume_thread_max=1)

                @made.on("One")
                async def handle(message: MessageExt) -> None:
                    await asyncio.sleep(0.2)
                    got.append(message.queue_offset)

                return made

            await s.send(100, "One")
            async with member() as first:
                await eventually(lambda: len(got) == 5)
                await first.persist_offsets()
                done = await s.admin.reset_offset_by_timestamp("One", "g", -1)
                assert [(one.new_offset, one.clients) for one in done] == [(100, 1)]
                await asyncio.sleep(0.01)
            assert len(got) <= 6
            assert (await s.diff())[("One", 0)] == 0
            async with member():
                await asyncio.sleep(30)
                assert len(got) <= 6
                await s.send(1, "One")
                await eventually(lambda: got[-1] == 100)

    run()


@in_virtual_time
async def test_offsets_are_first_kept_after_one_interval() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(3, "One")
        got: list[MessageExt] = []
        consumer = s.consumer()

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            got.append(message)

        async with consumer:
            await eventually(lambda: len(got) == 3, within=1)
            await asyncio.sleep(5)
            assert (await s.diff())[("One", 0)] == 0
