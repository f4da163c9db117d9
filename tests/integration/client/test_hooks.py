"""What applications hang into clients: who is told what, in which order, and that one that fails costs itself alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import rmq
from rmq.aio import (
    ClientError,
    ConsumeHookContext,
    ConsumeResult,
    Hook,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendHookContext,
)
from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from rmq.testing.simloop import SimLoop
from rmq.testing.simworld import Simulation
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


class Told(Hook):
    """Writes down what it is told."""

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name = name
        self.seen = seen

    def check_send(self, context: SendHookContext) -> None:
        self.seen.append((self.name, "check"))

    def before_send(self, context: SendHookContext) -> None:
        context.data[self.name] = len(context.messages)
        self.seen.append((self.name, "before"))

    def after_send(self, context: SendHookContext) -> None:
        ended = context.error if context.result is None else context.result.message_queue == context.queue
        self.seen.append((self.name, context.data[self.name], ended))


class Fails(Hook):
    """Raises wherever it is called and does not refuse."""

    def before_send(self, context: SendHookContext) -> None:
        raise ValueError("before")

    def after_send(self, context: SendHookContext) -> None:
        raise SystemExit("after")

    def filter_messages(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Iterable[MessageExt]:
        raise ValueError("filter")

    def before_consume(self, context: ConsumeHookContext) -> None:
        raise ValueError("before")

    def after_consume(self, context: ConsumeHookContext) -> None:
        raise ValueError("after")

    def before_request(self, address: str, command: Command) -> None:
        raise ValueError("request")

    def after_response(self, address: str, command: Command, answer: Command | None) -> None:
        raise ValueError("response")


def producer(s: Scene, *hooks: Hook, **options: Any) -> Producer:
    return Producer("hooked", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, hooks=hooks, **options)


@in_virtual_time
async def test_sends_are_told_in_the_order_of_the_hooks() -> None:
    async with scene() as s:
        seen: list[Any] = []
        async with producer(s, Told("a", seen), Fails(), Told("b", seen), namespace="NS") as made:
            await made.send(Message("T", b"1"))
            once = [("a", "check"), ("b", "check"), ("a", "before"), ("b", "before"), ("a", 1, True), ("b", 1, True)]
            assert seen == once
            seen.clear()
            await made.send_async(Message("T", b"2"))
            assert seen == once
            seen.clear()
            await made.send_oneway(Message("T", b"3"))
            assert seen == [*once[:4], ("a", 1, None), ("b", 1, None)]
            seen.clear()
            await made.send([Message("T", b"4"), Message("T", b"5")])
            assert seen[-1] == ("b", 2, True)


@in_virtual_time
async def test_every_attempt_is_told_and_why_it_failed() -> None:
    async with scene() as s:
        seen: list[Any] = []
        async with producer(s, Told("a", seen)) as made:
            await made.send(Message("T", b"1"))
            seen.clear()
            made._client.routes.broker_addrs["broker-0"] = {0: "10.0.0.1:1"}
            await made.send(Message("T", b"2"))
        assert [type(one[2]) for one in seen if len(one) == 3] == [type(seen[2][2]), bool]
        assert seen[2][2].address == "10.0.0.1:1"


@pytest.mark.parametrize("error", [ClientError("not for you"), KeyError("rule")])
@in_virtual_time
async def test_a_check_refuses_and_nothing_is_sent(error: Exception) -> None:
    class Refuses(Hook):
        def check_send(self, context: SendHookContext) -> None:
            if context.queue.topic == "T":
                raise error

    async with scene() as s:
        seen: list[Any] = []
        async with producer(s, Refuses(), Told("b", seen)) as made:
            for send in (made.send, made.send_async, made.send_oneway):
                with pytest.raises(ClientError, match=r"not for you|refuses the message: KeyError: 'rule'"):
                    await send(Message("T", b"1"))
            assert seen == []
            await made.send(Message("Other", b"1"))
        assert (await s.admin.topic_stats("T")).offset_table
        assert all(one.max_offset == 0 for one in (await s.admin.topic_stats("T")).offset_table.values())


@pytest.mark.usefixtures("listeners")
@in_virtual_time
async def test_listeners_are_told_around_and_messages_are_left_out() -> None:
    class Sees(Hook):
        def filter_messages(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Iterable[MessageExt]:
            return [message for message in reversed(messages) if message.keys != "k1"]

        def before_consume(self, context: ConsumeHookContext) -> None:
            context.data["keys"] = [message.keys for message in context.messages]

        def after_consume(self, context: ConsumeHookContext) -> None:
            seen.append((context.group, context.data["keys"], context.result, len(context.failed), context.error))

    async with scene() as s:
        seen: list[Any] = []
        got: list[str | None] = []
        consumer: PushConsumer = s.consumer(hooks=[Fails(), Sees()])
        lost = ValueError("no")

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.keys)
            if message.keys == "k2" and not message.reconsume_times:
                raise lost

        await s.send(3)
        async with consumer:
            await eventually(lambda: len(seen) == 3)
            await consumer.persist_offsets()
            assert sum((await s.diff()).values()) == 0  # what was left out counts as consumed
        assert sorted(got[:2], key=str) == ["k0", "k2"]
        assert ("g", ["k0"], ConsumeResult.SUCCESS, 0, None) in seen
        assert ("g", ["k2"], ConsumeResult.RECONSUME_LATER, 1, lost) in seen
        assert seen[2][1:3] == (["k2"], ConsumeResult.SUCCESS)


@in_virtual_time
async def test_requests_are_told_and_may_carry_more() -> None:
    class Marks(Hook):
        def before_request(self, address: str, command: Command) -> None:
            command.ext = {**(command.ext or {}), "mark": "1"}

        def after_response(self, address: str, command: Command, answer: Command | None) -> None:
            codes.append((command.code, (command.ext or {})["mark"], None if answer is None else answer.code))

    async with scene() as s:
        codes: list[Any] = []
        async with producer(s, Fails(), Marks()) as made:
            await made.send(Message("T", b"1"))
        assert {(105, "1", 0), (310, "1", 0)} <= set(codes)


def test_blocking_clients_are_told_the_same() -> None:
    simulation, seen, got = Simulation(loop=SimLoop()), list[Any](), list[Any]()
    world, time = simulation.node("here").world, simulation.bridge()
    cluster = Cluster("/cluster", world=world)
    time.run(cluster.start())
    hooks = [Fails(), Told("a", seen)]
    with rmq.Producer("p", namesrv=cluster.namesrv_addr, world=world, hooks=hooks) as made:
        made.send(Message("T", b"1"))
        made.send_async(Message("T", b"2")).result()
        made.send_oneway(Message("T", b"3"))
        assert seen == [*[("a", "check"), ("a", "before"), ("a", 1, True)] * 2, *seen[:2], ("a", 1, None)]
        consumer = rmq.PushConsumer("g", namesrv=cluster.namesrv_addr, world=world, hooks=hooks)
        consumer.on("T")(lambda message: got.append(message.body))
        with consumer:
            time.advance(1)
    assert sorted(got) == [b"1", b"2", b"3"]
    time.run(cluster.stop())
    time.close()


def test_what_is_no_hook_is_refused() -> None:
    with pytest.raises(ClientError, match=r"hooks is .*: give objects of"):
        Producer("g", hooks=[print])  # type: ignore[arg-type]


@in_virtual_time
async def test_what_hooks_let_go_along_reaches_the_listener_and_leaves_the_message_alone() -> None:
    class Adds(Hook):
        def __init__(self, extra: Any) -> None:
            self.extra = extra

        def extra_properties(self, message: Message | MessageExt) -> Any:
            if isinstance(self.extra, BaseException):
                raise self.extra
            return self.extra

    bad = [ValueError("no"), None, {"KEYS": "x"}, {"a": 1}, {"": "x"}, {"a": "\x01"}, {"a": "x" * 5000}]
    hooks = (Adds({"trace": "7", "own": "hook's"}), *map(Adds, bad))
    async with scene() as s:
        options: Any = {"namesrv": s.cluster.namesrv_addr, "world": s.cluster.world, "hooks": hooks}
        sent = [Message("T", b"%d" % number, properties={"own": "mine"}) for number in range(3)]
        seen: list[MessageExt] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def take(message: MessageExt) -> None:
            seen.append(message)

        async with Producer("adds", **options) as producer, consumer:
            await producer.send(sent[0])
            await producer.send(sent[1:])
            await eventually(lambda: len(seen) == 3)
        assert all(message.properties == {"own": "mine"} for message in sent)
        for message in seen:
            assert (message.properties["trace"], message.properties["own"]) == ("7", "mine")
            assert "a" not in message.properties


class Own(BaseException):
    """Of the application's own."""


@pytest.mark.parametrize("raised", [Own(), SystemExit(3), asyncio.CancelledError(), GeneratorExit(), StopIteration()])
@in_virtual_time
async def test_whatever_a_quick_hook_raises_costs_it_alone(raised: BaseException) -> None:
    """It is called on the loop, between the answers to others."""
    called: set[str] = set()

    class Raises(Hook):
        quick = True

        def after_send(self, context: SendHookContext) -> None:
            called.add("after_send")
            raise raised

        def before_consume(self, context: ConsumeHookContext) -> None:
            called.add("before_consume")
            raise raised

        def filter_messages(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Iterable[MessageExt]:
            called.add("filter_messages")
            raise raised

        def after_response(self, address: str, command: Command, answer: Command | None) -> None:
            called.add("after_response")
            raise raised

    async with scene() as s:
        got: list[bytes] = []
        consumer = s.consumer(hooks=[Raises()])
        consumer.on("T")(lambda message: got.append(message.body))
        producer = Producer("raises", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, hooks=[Raises()])
        async with consumer, producer:
            results = await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(4)))
            assert all(result.ok for result in results)
            await eventually(lambda: len(got) == 4)
    assert called == {"after_send", "before_consume", "filter_messages", "after_response"}
