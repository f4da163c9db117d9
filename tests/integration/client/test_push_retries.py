"""What becomes of messages a concurrent listener fails: tries, delays, dead letters; whole cluster in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict

import pytest

from rmq.aio import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
)
from rmq.client.consumer import sendback
from rmq.protocol.errors import ConnectFailed, RequestTimeout
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@in_virtual_time
async def test_sixteen_retries_with_growing_delays_then_the_dead_letters() -> None:
    """Field case B049."""
    # Eighteen levels of 1 s to 18 s instead of hours: the first retry is level 3, the last one level 18.
    async with scene(messageDelayLevel=" ".join(f"{level}s" for level in range(1, 19))) as s:
        tries: list[tuple[int, float]] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            assert message.topic == "T"
            tries.append((message.reconsume_times, asyncio.get_running_loop().time()))
            raise ValueError("never")

        async with consumer:
            (sent,) = await s.send(1)
            await eventually(lambda: len(tries) == 17, within=400)
            await asyncio.sleep(60)
        assert [times for times, _ in tries] == list(range(17))
        gaps = [round(later - sooner) for (_, sooner), (_, later) in itertools.pairwise(tries)]
        assert all(level <= gap <= level + 1 for gap, level in zip(gaps, range(3, 19), strict=True)), gaps
        assert (await s.admin.query_message("%DLQ%g", sent)).messages[0].msg_id == sent


@in_virtual_time
async def test_the_listener_chooses_the_delay_or_the_dead_letters() -> None:
    async with scene() as s:
        tries: dict[str, list[float]] = defaultdict(list)
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            tries[message.tags or ""].append(asyncio.get_running_loop().time())
            context.delay_level_when_next_consume = -1 if message.tags == "dead" else 2
            done = message.tags == "later" and message.reconsume_times == 1
            return ConsumeResult.SUCCESS if done else ConsumeResult.RECONSUME_LATER

        async with consumer:
            (dead,) = await s.send(1, tags="dead")
            await s.send(1, tags="later")
            await eventually(lambda: len(tries["later"]) == 2)
            await asyncio.sleep(100)
        assert len(tries["dead"]) == 1
        assert 5 <= tries["later"][1] - tries["later"][0] < 7
        assert (await s.admin.query_message("%DLQ%g", dead)).messages


@in_virtual_time
async def test_a_configured_maximum_of_retries() -> None:
    async with scene() as s:
        tries: Counter[int] = Counter()
        consumer = s.consumer(max_reconsume_times=2)

        @consumer.on("T")
        async def handle(message: MessageExt) -> bool:
            tries[message.reconsume_times] += 1
            return False

        async with consumer:
            await s.send(1)
            await asyncio.sleep(1000)
        assert tries == {0: 1, 1: 1, 2: 1}


@in_virtual_time
async def test_a_listener_over_the_consume_timeout_gives_one_copy_and_a_late_result_does_not_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case B044: the copy is made within a tenth of the timeout, and the offset goes on before the call ends."""
    async with scene() as s:
        await s.topic("One", 1)
        calls: list[tuple[str | None, int, float]] = []
        ended = 0
        consumer = s.consumer(consume_timeout=5, consume_thread_min=4, consume_thread_max=4)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            nonlocal ended
            calls.append((message.keys, message.reconsume_times, asyncio.get_running_loop().time()))
            if message.reconsume_times == 0 and message.keys in ("k0", "slow"):
                await asyncio.sleep(8)
                ended += 1

        async with consumer:
            await s.send(3, "One")
            await eventually(lambda: len(calls) == 3)
            (queue,) = [queue for queue in consumer.assignment if queue.topic == "One"]
            began = calls[0][2]
            await asyncio.sleep(4.8)
            assert consumer._inner.offsets("One")[queue] == 0
            await asyncio.sleep(1)
            assert (consumer._inner.offsets("One")[queue], ended) == (3, 0)
            await eventually(lambda: len(calls) == 4)
            await asyncio.sleep(100)
            assert [(keys, times) for keys, times, _ in calls] == [("k0", 0), ("k1", 0), ("k2", 0), ("k0", 1)]
            assert 15 <= calls[3][2] - began < 15.7  # level 3 is 10 s
            assert ended == 1
            assert sum("its result does not count" in record.message for record in caplog.records) == 1
            assert set((await s.diff()).values()) == {0}

            # What looks for slow calls lives on when a message cannot be sent back.
            async def refused(*_: object, **__: object) -> None:
                raise ConnectFailed("cut")

            with monkeypatch.context() as patch:
                patch.setattr(sendback, "send_message_back", refused)
                patch.setattr(sendback, "send_to_retry_topic", refused)
                await s.producer.send(Message("One", b"x", keys="slow"))
                await asyncio.sleep(7)
                assert consumer._inner.offsets("One")[queue] == 3
            await eventually(lambda: consumer._inner.offsets("One")[queue] == 4, within=20)
            await s.producer.send(Message("One", b"x", keys="slow"))
            await eventually(lambda: consumer._inner.offsets("One")[queue] == 5, within=7)
            await asyncio.sleep(60)
        assert set((await s.diff()).values()) == {0}


@in_virtual_time
async def test_a_message_that_cannot_be_sent_back_holds_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case B043."""
    async with scene() as s:
        await s.topic("One", 1)
        tries = 0
        consumer = s.consumer()

        async def refused(*_: object, **__: object) -> None:
            raise ConnectFailed("cut")

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            nonlocal tries
            if message.keys == "k4":
                tries += 1
                raise ValueError("no")

        with monkeypatch.context() as patch:
            patch.setattr(sendback, "send_message_back", refused)
            patch.setattr(sendback, "send_to_retry_topic", refused)
            async with consumer:
                await s.send(10, "One")
                await asyncio.sleep(23)
                assert tries == 5  # at once, then every 5 s
        assert (await s.diff())[("One", 0)] == 6
        good: list[str | None] = []
        after = s.consumer()

        @after.on("One")
        async def take(message: MessageExt) -> None:
            good.append(message.keys)

        async with after:
            await eventually(lambda: len(good) == 6)
        assert "k4" in good


@in_virtual_time
async def test_what_failed_before_an_unsubscription_is_tried_again() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        tries: list[int] = []
        consumer = s.consumer()
        consumer.on("T")(lambda message: None)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            tries.append(message.reconsume_times)
            if len(tries) == 1:
                raise ValueError("not yet")

        async with consumer:
            await s.send(1, "One")
            await eventually(lambda: tries)
            await asyncio.sleep(1)
            consumer.unsubscribe("One")
            await asyncio.sleep(100)
        assert tries == [0, 1]


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("most", [0, 2])
def test_a_message_has_all_its_tries_when_a_send_back_gets_no_answer(
    most: int, orderly: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise RequestTimeout("no answer")

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            tries: list[int] = []
            consumer = s.consumer(max_reconsume_times=most, orderly=orderly)

            @consumer.on("T")
            async def handle(message: MessageExt) -> bool:
                tries.append(message.reconsume_times)
                return False

            monkeypatch.setattr(sendback, "send_message_back", lost)
            async with consumer:
                (sent,) = await s.send(1)
                await asyncio.sleep(200)
            assert tries == list(range(most + 1))
            assert len((await s.admin.query_message("%DLQ%g", sent)).messages) == 1
        assert [record.levelname for record in caplog.records if "goes to the dead letters" in record.message] == [
            "WARNING"
        ]

    run()


@in_virtual_time
async def test_the_delay_that_a_listener_asks_for_holds_when_a_send_back_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise RequestTimeout("no answer")

    async with scene() as s:
        at: list[float] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt, context: ConsumeContext) -> bool:
            at.append(asyncio.get_running_loop().time())
            context.delay_level_when_next_consume = (5, -1)[message.reconsume_times]
            return False

        monkeypatch.setattr(sendback, "send_message_back", lost)
        async with consumer:
            (sent,) = await s.send(1)
            await asyncio.sleep(200)
        assert [round(each - at[0]) for each in at] == [0, 60]
        assert len((await s.admin.query_message("%DLQ%g", sent)).messages) == 1
