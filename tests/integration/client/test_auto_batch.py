"""``auto_batch``: single sends of one topic are joined; each has its own result, one that is wrong its own error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rmq
from rmq.aio import ClientError, Hook, Message, MessageQueue, Producer, ResponseError, SendHookContext, by_hash
from rmq.client.accumulator import Accumulator
from rmq.client.results import SendResult, SendStatus
from rmq.client.sending import BatchItem, PreparedSend, SendEncoder
from rmq.client.settings import ProducerSettings
from rmq.protocol.codes import ResponseCode
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import in_virtual_time


class Sizes(Hook):
    """How many messages went in each request."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_send(self, context: SendHookContext) -> None:
        self.seen.append(len(context.messages))


def producer(s: Scene, sizes: Sizes, **options: Any) -> Producer:
    return Producer(
        "b", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, auto_batch=True, hooks=[sizes], **options
    )


async def stored(s: Scene, topic: str = "T") -> dict[str, tuple[int, int, str]]:
    """Of each message its place, and the id that it is stored under."""
    found = {}
    async with s.puller("reader") as puller:
        for queue in await puller.fetch_subscribe_message_queues(topic):
            for one in (await puller.pull(queue, "*", 0, 1000)).messages:
                found[one.msg_id] = (one.queue_id, one.queue_offset, one.offset_msg_id)
    return found


@in_virtual_time
async def test_each_message_has_its_own_result() -> None:
    async with scene(maxTransferCountOnMessageInMemory="1000") as s:
        sizes = Sizes()
        async with producer(s, sizes) as made:
            awaited = [made.send(Message("T", b"x%d" % i, tags="A", keys=f"k{i}")) for i in range(100)]
            futures = [made.send_async(Message("T", b"y%d" % i, keys=f"k{i}")) for i in range(100)]
            results = [*await asyncio.gather(*awaited), *await asyncio.gather(*futures)]
        assert sum(sizes.seen) == 200
        assert len(sizes.seen) <= 4
        told = {one.msg_id: (one.message_queue.queue_id, one.queue_offset, one.offset_msg_id) for one in results}
        assert told == await stored(s)


@in_virtual_time
async def test_what_cannot_be_joined_goes_alone_and_kinds_apart() -> None:
    async with scene() as s:
        sizes = Sizes()
        async with producer(s, sizes, batch_max_bytes=1000) as made:
            queue = (await made.send(Message("T", b"first"))).message_queue
            await asyncio.gather(
                made.send(Message("T", b"a")),
                made.send(Message("T", b"b"), queue=queue),
                made.send(Message("T", b"c", wait_store_ok=False)),
                made.send(Message("T", b"d"), timeout=1),
                made.send(Message("T", b"e", delay_level=1)),
                made.send(Message("T", b"f"), selector=by_hash, arg=1),
                made.send(Message("T", b"g" * 1000)),
                made.send([Message("T", b"h"), Message("T", b"i")]),
                made.send(Message("T", b"j")),
                made.send(Message("T", b"k"), queue=queue),
            )
        assert sorted(sizes.seen) == [1, 1, 1, 1, 1, 1, 2, 2, 2]


@in_virtual_time
async def test_a_message_that_is_wrong_fails_alone() -> None:
    async with scene() as s:
        sizes = Sizes()
        async with producer(s, sizes) as made:
            bad = Message("T", b"x", properties={"UNIQ_KEY": "1"})
            good, refused, empty = await asyncio.gather(
                made.send(Message("T", b"1")), made.send(bad), made.send(Message("T", b"")), return_exceptions=True
            )
            with pytest.raises(ClientError, match="RocketMQ's own"):
                made.send_async(bad)
        assert isinstance(good, SendResult)
        assert isinstance(refused, ClientError)
        assert isinstance(empty, ClientError)
        assert sizes.seen == [1]


@in_virtual_time
async def test_who_sends_one_by_one_waits_for_nothing_and_a_shutdown_for_all() -> None:
    async with scene() as s:
        sizes = Sizes()
        made = producer(s, sizes, batch_max_delay=5)
        await made.start()
        clock = s.cluster.world.clock
        await made.send(Message("T", b"0"))
        began = clock.monotonic()
        for _ in range(5):
            await made.send(Message("T", b"1"))
        assert clock.monotonic() - began < 1
        left = [asyncio.ensure_future(made.send(Message("T", b"2"))) for _ in range(5)]
        await asyncio.sleep(0)
        await made.shutdown()
        assert clock.monotonic() - began < 1
        assert all(one.ok for one in await asyncio.gather(*left))
        assert len(await stored(s)) == 11


def accumulator(outcomes: list[Any], sent: list[int], **options: Any) -> Accumulator:
    settings = ProducerSettings.of({"auto_batch": True, **options})  # type: ignore[arg-type]
    ids = iter(range(1000))
    encoder = SendEncoder("pg", settings, lambda _: f"ID{next(ids)}", lambda: 0)

    async def send(prepared: PreparedSend, queue: MessageQueue | None, seconds: float) -> SendResult:
        count = len(prepared.batch or ())
        sent.append(count)
        await asyncio.sleep(1)
        if outcomes and (error := outcomes.pop(0)) is not None:
            raise error
        where = ",".join(f"at{number}" for number in range(count))
        return SendResult(SendStatus.SEND_OK, prepared.msg_id, where, MessageQueue("T", "b", 0), 7)

    tasks: set[asyncio.Task[None]] = set()
    return Accumulator(encoder, settings, send, tasks.add)


def item(made: Accumulator, body: bytes) -> BatchItem:
    return made._encoder.prepare_item(Message("T", body))


@in_virtual_time
async def test_a_batch_leaves_when_full_or_late_and_gathers_while_one_is_under_way() -> None:
    sent: list[int] = []
    made = accumulator([], sent, batch_max_bytes=200, batch_max_delay=0.5)

    async def burst(count: int) -> list[SendResult]:
        return await asyncio.gather(*(made.join(item(made, b"x" * 50), None, 3.0) for _ in range(count)))

    first = asyncio.ensure_future(burst(1))
    await asyncio.sleep(0.1)
    more = asyncio.ensure_future(burst(5))  # two fit
    await asyncio.sleep(0.1)
    assert sent == [1, 2, 2]
    await asyncio.sleep(0.5)
    assert sent == [1, 2, 2, 1]
    assert [one.queue_offset for one in await more] == [7, 8, 7, 8, 7]
    assert (await first)[0].offset_msg_id == "at0"
    assert made._lanes == {}
    assert made._held == 0


@in_virtual_time
async def test_of_a_batch_that_holds_an_illegal_message_the_others_are_sent() -> None:
    sent: list[int] = []
    illegal = ResponseError(ResponseCode.MESSAGE_ILLEGAL, "no", "b:1")
    made = accumulator([illegal, None, illegal, None], sent)
    outcomes = await asyncio.gather(*(made.join(item(made, b"x"), None, 3.0) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in outcomes] == [SendResult, ResponseError, SendResult]
    assert sent == [3, 1, 1, 1]


@in_virtual_time
async def test_who_is_cancelled_before_the_batch_leaves_is_not_sent() -> None:
    sent: list[int] = []
    made = accumulator([], sent)
    joined = [made.join(item(made, b"x"), None, 3.0) for _ in range(3)]
    joined[1].cancel()
    outcomes = await asyncio.gather(*joined, return_exceptions=True)
    assert [type(one) for one in outcomes] == [SendResult, asyncio.CancelledError, SendResult]
    assert sent == [2]


def test_no_more_is_held_than_the_settings_say() -> None:
    made = accumulator([], [], total_batch_max_bytes=10)
    assert made.takes(Message("T", b"x" * 10), None)
    assert not made.takes(Message("T", b"x" * 11), None)


def test_sends_from_threads_are_joined_too(rmq_cluster: Any) -> None:
    sizes = Sizes()
    with rmq.Producer("b", auto_batch=True, hooks=[sizes]) as made:
        futures = [made.send_async(Message("T", b"%d" % i)) for i in range(50)]
        told = {future.result().msg_id for future in futures} | {made.send(Message("T", b"last")).msg_id}
    assert len(told) == 51
    assert {message.msg_id for message in rmq_cluster.messages("T")} == told
    assert len(sizes.seen) < 20
