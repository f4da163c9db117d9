"""The message trace that clients write: each kind of record, what is not traced, and trouble on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rmq.aio import (
    ConnectFailed,
    ConsumeResult,
    Hook,
    Message,
    MessageExt,
    Producer,
    ResponseError,
    SendHookContext,
    TransactionProducer,
    TransactionState,
)
from rmq.client.trace import Tracer
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    Sent,
    TraceRecord,
    TransactionEnded,
    decode,
)
from rmq.protocol.trace import Recalled as RecalledRecord
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time, one_world

TOPIC = "RMQ_SYS_TRACE_TOPIC"


def how(s: Scene, **options: Any) -> Any:
    return {"namesrv": s.cluster.namesrv_addr, "world": s.cluster.world, "enable_msg_trace": True, **options}


async def traced(s: Scene, topic: str = TOPIC) -> tuple[list[TraceRecord], list[MessageExt]]:
    """All records of a topic, and its messages."""
    messages: list[MessageExt] = []
    async with s.puller("reads_traces") as puller:
        for queue in await puller.fetch_subscribe_message_queues(topic):
            end = await puller.max_offset(queue)
            for offset in range(end):
                messages += (await puller.pull(queue, "*", offset, 1)).messages
    return [record for message in messages for record in decode(message.body)], messages


@in_virtual_time
async def test_a_send_of_each_kind_is_told_of() -> None:
    async with scene(traceTopicEnable="true") as s:
        async with Producer("traced", **how(s)) as producer:
            one = await producer.send(Message("T", b"12345", tags="A", keys="k1 k2"))
            batch = await producer.send([Message("T", b"a", keys="b0"), Message("T", b"bb")])
            late = await producer.send(Message("T", b"late", delay=3600))
            assert late.recall_handle is not None
            await producer.recall_message("T", late.recall_handle)
            await producer.send_oneway(Message("T", b"said nothing of"))
        records, messages = await traced(s)
        assert [type(record) for record in records] == [Sent, Sent, Sent, Sent, RecalledRecord]
        first = records[0]
        assert isinstance(first, Sent)
        assert (first.group, first.topic, first.msg_id, first.tags, first.keys) == (
            "traced",
            "T",
            one.msg_id,
            "A",
            "k1 k2",
        )
        assert (first.store_host, first.body_length, first.kind, first.ok) == (
            s.cluster.broker_addr,
            5,
            MessageKind(0),
            True,
        )
        assert (first.offset_msg_id, first.region) == (one.offset_msg_id, "DefaultRegion")
        # Each message of a batch has a record of its own, so that it is found by its own id.
        assert [(r.msg_id, r.keys, r.body_length) for r in records[1:3] if isinstance(r, Sent)] == [
            (batch.msg_id.split(",")[0], "b0", 1), (batch.msg_id.split(",")[1], None, 2),
        ]  # fmt: skip
        assert isinstance(records[3], Sent)
        assert records[3].kind is MessageKind.DELAY
        # All left in one message, found by the ids and the keys of all.
        assert len(messages) == 1
        assert messages[0].keys is not None
        assert {one.msg_id, "k1", "k2", "b0", *batch.msg_id.split(",")} <= set(messages[0].keys.split())


@in_virtual_time
async def test_transactions_are_told_of_by_their_half_and_by_their_end() -> None:
    async with scene(traceTopicEnable="true", transactionTimeOut="1000", transactionCheckInterval="1000") as s:
        asked: list[str] = []

        def check(message: MessageExt) -> TransactionState:
            asked.append(message.msg_id)
            return TransactionState.COMMIT

        async with TransactionProducer("tx", check, **how(s)) as producer:
            done = await producer.send_in_transaction(Message("T", b"1", keys="a"), lambda _: TransactionState.ROLLBACK)
            open_ = await producer.send_in_transaction(Message("T", b"2", keys="b"), lambda _: TransactionState.UNKNOWN)
            await eventually(lambda: asked, 200)
            await asyncio.sleep(1)
        records, _ = await traced(s)
        halves = [record for record in records if isinstance(record, Sent)]
        ends = [record for record in records if isinstance(record, TransactionEnded)]
        assert [(half.msg_id, half.kind) for half in halves] == [
            (done.msg_id, MessageKind.HALF), (open_.msg_id, MessageKind.HALF),
        ]  # fmt: skip
        assert [(end.msg_id, end.topic, end.keys, end.state, end.from_check, end.transaction_id) for end in ends] == [
            (done.msg_id, "T", "a", "ROLLBACK_MESSAGE", False, done.transaction_id),
            (open_.msg_id, "T", "b", "UNKNOW", False, open_.transaction_id),
            (open_.msg_id, "T", "b", "COMMIT_MESSAGE", True, open_.transaction_id),
        ]


@in_virtual_time
async def test_listener_calls_are_told_of_with_how_they_ended() -> None:
    async with scene(traceTopicEnable="true", messageDelayLevel="1s 1s 1s 1s") as s:
        ids = await s.send(2)
        consumer = s.consumer("reads", enable_msg_trace=True)
        calls: list[str] = []

        @consumer.on("T")
        async def take(message: MessageExt) -> ConsumeResult:
            calls.append(message.msg_id)
            await asyncio.sleep(0.25)
            if message.msg_id == ids[1] and calls.count(ids[1]) < 3:
                if calls.count(ids[1]) < 2:
                    raise ValueError("once")
                return ConsumeResult.RECONSUME_LATER
            return ConsumeResult.SUCCESS

        async with consumer:
            await eventually(lambda: calls.count(ids[1]) == 3, 100)
            await asyncio.sleep(1)
        records, _ = await traced(s)
        begun = {record.request: record for record in records if isinstance(record, ConsumeBegun)}
        ends = [record for record in records if isinstance(record, ConsumeEnded)]
        told = [(end.msg_id, end.ok, end.outcome, begun[end.request].tries) for end in ends]
        assert sorted(told) == sorted([
            (ids[0], True, ConsumeOutcome.SUCCESS, 0),
            (ids[1], False, ConsumeOutcome.EXCEPTION, 0),
            (ids[1], False, ConsumeOutcome.FAILED, 1),
            (ids[1], True, ConsumeOutcome.SUCCESS, 2),
        ])  # fmt: skip
        assert len(begun) == 4
        assert all(end.group == "reads" and end.cost == 250 and begun[end.request].group == "reads" for end in ends)


@in_virtual_time
async def test_what_is_polled_is_told_of_with_what_became_of_it() -> None:
    async with scene(traceTopicEnable="true") as s:
        await s.topic(queues=1)
        ids = await s.send(3)
        lite = s.lite("reads", enable_msg_trace=True, pull_batch_size=1)
        lite.subscribe("T")
        async with lite:
            assert [message.msg_id for message in await lite.poll()] == ids[:1]  # consumed with what comes next
            async for message in lite:
                assert message.msg_id == ids[1]
                break
            async for message in lite:  # another loop is given again what that one broke off with
                if message.msg_id == ids[2]:
                    break
        async with s.puller("pulls", enable_msg_trace=True) as puller:
            [queue] = await puller.fetch_subscribe_message_queues("T")
            await puller.pull(queue, "*", 2)
        records, _ = await traced(s)
        told = [(ids.index(end.msg_id), end.group, end.ok) for end in records if isinstance(end, ConsumeEnded)]
        assert told[:3] == [(0, "reads", True), (1, "reads", False), (1, "reads", True)]
        assert told[3:] == [(2, "reads", False), (2, "pulls", True)]
        assert sum(isinstance(record, ConsumeBegun) for record in records) == len(told)


@in_virtual_time
async def test_traces_are_not_traced_and_a_topic_of_ones_own_takes_them() -> None:
    async with scene() as s:
        async with Producer("traced", **how(s, customized_trace_topic="MyTraces", namespace="NS")) as producer:
            await producer.send(Message("MyTraces2", b"is traced: only the topic itself is not"))
        consumer = s.consumer("reads", enable_msg_trace=True, customized_trace_topic="MyTraces")
        seen: list[MessageExt] = []
        consumer.subscribe("MyTraces")
        consumer.register_message_listener(seen.append)
        async with consumer:
            await eventually(lambda: seen)
            await asyncio.sleep(2)
        records, messages = await traced(s, "MyTraces")
        # Neither the topic nor the group of a record has the namespace, and the trace topic has none either.
        assert [(record.group, record.topic) for record in records if isinstance(record, Sent)] == [
            ("traced", "MyTraces2")
        ]
        assert len(records) == len(messages) == 1


@in_virtual_time
async def test_hooks_of_requests_see_the_traces_requests_and_no_other_hook_does() -> None:
    """They may sign them."""
    seen: list[tuple[str, str]] = []

    class Sees(Hook):
        def before_request(self, address: str, command: Command) -> None:
            if command.code == RequestCode.SEND_MESSAGE_V2:
                seen.append(("request", (command.ext or {}).get("b") or ""))

        def before_send(self, context: SendHookContext) -> None:
            seen.append(("send", context.queue.topic))

    async with scene(traceTopicEnable="true") as s:
        async with Producer("traced", **how(s, hooks=[Sees()])) as producer:
            await producer.send(Message("T", b"x"))
        assert seen == [("send", "T"), ("request", "T"), ("request", TOPIC)]


@in_virtual_time
async def test_a_cloud_has_a_trace_topic_a_region() -> None:
    async with scene(regionId="north") as s:
        async with Producer("traced", **how(s, access_channel="CLOUD")) as producer:
            await producer.send(Message("T", b"x"))
        records, _ = await traced(s, "rmq_sys_TRACE_DATA_north")
        assert [record.region for record in records if isinstance(record, Sent)] == ["north"]


@in_virtual_time
async def test_a_trace_topic_that_nobody_has_costs_no_message_and_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Field case B114."""
    async with scene(autoCreateTopicEnable="false") as s:
        await s.topic()
        async with Producer("traced", **how(s)) as producer:
            for _ in range(5):
                assert (await producer.send(Message("T", b"x"))).ok
                await asyncio.sleep(2)
            told = [line for line in caplog.messages if "traceTopicEnable" in line]
            assert len(told) == 1
            assert "the messages themselves are not" in told[0]


class Sender:
    """Takes trace messages, or does not."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.fails: list[BaseException] = []
        self.stopped = False

    async def start(self) -> None:
        if self.fails:
            raise self.fails.pop(0)

    async def send(self, message: Message, *, timeout: float | None = None) -> Any:
        self.taken.append(message)

    async def shutdown(self) -> None:
        self.stopped = True


def record(number: int, keys: str | None = None) -> Sent:
    return Sent(1, "R", "g", "T", f"ID{number}", None, keys, "h:1", 1, 1, MessageKind.NORMAL, "OFF")


def found(messages: Sequence[Message]) -> list[str]:
    return [one.msg_id for message in messages for one in decode(message.body) if isinstance(one, Sent)]


@in_virtual_time
async def test_records_wait_for_others_and_messages_are_bounded() -> None:
    """Field case B115: neither body nor keys outgrow what a broker takes."""
    tracer, sender = Tracer("g", "TR", one_world()), Sender()
    tracer.start(sender)
    tracer.put("R", record(0))
    assert 0.5 <= await eventually(lambda: sender.taken) < 0.6
    for number in range(1, 2000):
        keys = " ".join(f"key-{number}-{i}" for i in range(50))
        tracer.put("R", record(number, keys), keys)
    await tracer.stop()
    assert found(sender.taken) == [f"ID{number}" for number in range(2000)]
    assert max(len(message.body) for message in sender.taken) <= 118_000
    assert max(len((message.keys or "").encode()) for message in sender.taken) <= 30_000
    assert (tracer.sent, tracer.lost, sender.stopped) == (2000, 0, True)


@in_virtual_time
async def test_brokers_that_are_away_are_waited_for_and_what_does_not_fit_is_counted() -> None:
    """Field case B115: each record is sent, or counted."""
    tracer, sender = Tracer("g", "TR", one_world()), Sender()
    sender.fails = [ConnectFailed("away"), ResponseError(2, "busy"), ResponseError(16, "no permission")]
    tracer.start(sender)
    tracer.put("R", record(0))
    await asyncio.sleep(2)
    assert (tracer.sent, tracer.lost) == (0, 0)
    await asyncio.sleep(1)
    assert (tracer.sent, tracer.lost) == (0, 1)  # refused for good
    for number in range(10_000):
        tracer.put("R", record(number))
    await tracer.stop()
    assert tracer.lost == 1 + 10_000 - 8_192
    assert (tracer.sent, len(found(sender.taken))) == (8_192, 8_192)


@in_virtual_time
async def test_records_of_long_keys_wait_in_smaller_numbers() -> None:
    """A message's keys may have 32 KB: thousands of those would fill the memory while brokers are away."""
    tracer, sender = Tracer("g", "TR", one_world()), Sender()
    sender.fails = [ConnectFailed("away")] * 100
    tracer.start(sender)
    keys = "k" * 30_000
    for number in range(2_000):
        tracer.put("R", record(number, keys), keys)
    tracer.put("R", record(2_000))  # others still do
    await asyncio.sleep(0)
    assert (tracer.lost, len(tracer._waiting)) == (2_000 - 1_024, 1_025)
    await tracer.stop()


@in_virtual_time
async def test_the_end_of_a_client_waits_some_seconds_for_brokers_that_are_away() -> None:
    tracer, sender, loop = Tracer("g", "TR", one_world()), Sender(), asyncio.get_running_loop()
    sender.fails = [ConnectFailed("away")] * 100
    tracer.start(sender)
    tracer.put("R", record(0))
    began = loop.time()
    await tracer.stop()
    assert 4 < loop.time() - began < 7
    assert (tracer.lost, sender.stopped) == (1, True)
    tracer.put("R", record(1))  # after the end it is nobody's
