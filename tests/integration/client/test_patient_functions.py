"""An application's functions may take their time: nothing of the SDK waits on its loop for one of them.

In virtual time a function waits by :func:`on_loop`, which only a thread can: one that is called on the loop fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pytest

import rmq
from rmq.aio import ConsumeHookContext, Hook, Message, MessageExt, MessageQueue, Producer, SendHookContext
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout
from rmq.runtime.lockstep import on_loop
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


@pytest.mark.parametrize("kind", ["push", "lite", "pull"])
def test_the_listener_of_queues(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            told: list[int] = []

            def waits(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
                on_loop(asyncio.sleep(5))
                told.append(len(mine))

            if kind == "push":
                push = consumer = s.consumer(message_queue_listener=waits)
                push.on("T")(lambda message: None)
            elif kind == "lite":
                consumer = s.lite(message_queue_listener=waits)
                consumer.subscribe("T")
            else:
                consumer = s.puller(message_queue_listener=waits, register_topics=["T"])
            async with consumer:
                await eventually(lambda: told)
            assert told[0] == 4

    run()


class Waits(Hook):
    """Waits wherever it is called for a send, and says what it was called for."""

    def __init__(self, seconds: float = 0.5) -> None:
        self.seconds = seconds
        self.called: list[str] = []

    def _wait(self, what: str) -> None:
        on_loop(asyncio.sleep(self.seconds))
        self.called.append(what)

    def extra_properties(self, message: Message | MessageExt) -> Mapping[str, str]:
        self._wait("extra")
        return {"let": "go along"}

    def check_send(self, context: SendHookContext) -> None:
        self._wait("check")

    def before_send(self, context: SendHookContext) -> None:
        self._wait("before")

    def after_send(self, context: SendHookContext) -> None:
        self._wait(f"after {'well' if context.error is None else 'badly'}")


ALL = ["extra", "check", "before", "after well"]


def producer(s: Scene, *hooks: Hook, **options: Any) -> Producer:
    return Producer("waiting", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, hooks=hooks, **options)


async def stored_of(s: Scene) -> AsyncIterator[MessageExt]:
    async with s.puller("looks") as puller:
        for queue in await puller.fetch_subscribe_message_queues("T"):
            for message in (await puller.pull(queue, "*", 0)).messages:
                yield message


@pytest.mark.parametrize("how", ["send", "batch", "send_async", "send_oneway", "request", "auto_batch"])
def test_hooks_of_sends(how: str) -> None:
    """Others go on meanwhile: five sends take the time of one."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            hook = Waits()
            async with producer(s, hook, auto_batch=how == "auto_batch", send_msg_timeout=8) as made:

                async def one() -> object:
                    match how:
                        case "batch":
                            return await made.send([Message("T", b"1"), Message("T", b"2")])
                        case "send_async":
                            return await made.send_async(Message("T", b"1"))
                        case "send_oneway":
                            return await made.send_oneway(Message("T", b"1"))
                        case "request":
                            with pytest.raises(rmq.ReplyTimeout):
                                await made.request(Message("T", b"1"))
                            return None
                    return await made.send(Message("T", b"1"))

                began = s.cluster.world.clock.monotonic()
                await asyncio.gather(*(one() for _ in range(5)))
                assert how == "request" or s.cluster.world.clock.monotonic() - began < 3.5
            assert set(hook.called) == set(ALL)
            stored = [message async for message in stored_of(s)]
            assert len(stored) == (10 if how == "batch" else 5)
            assert {message.properties["let"] for message in stored} == {"go along"}

    run()


@pytest.mark.parametrize("hangs", ["check_send", "after_send"])
def test_a_hook_that_does_not_return_costs_its_own_send_alone(hangs: str) -> None:
    class Hangs(Hook):
        def check_send(self, context: SendHookContext) -> None:
            self._wait("check_send", context)

        def after_send(self, context: SendHookContext) -> None:
            self._wait("after_send", context)

        def _wait(self, where: str, context: SendHookContext) -> None:
            if where == hangs and context.messages[0].keys == "hangs":
                on_loop(asyncio.sleep(1e6))

    @in_virtual_time
    async def run() -> None:
        async with scene() as s, producer(s, Hangs()) as made:
            first = made.send_async(Message("T", b"1", keys="hangs"))
            assert (await made.send(Message("T", b"2"))).ok
            if hangs == "after_send":
                assert (await first).ok
            else:
                with pytest.raises(RequestTimeout, match=r"a hook of waiting did not return in 1\.\d* s"):
                    await first

    run()


class WaitsOtherwise(Hook):
    """Waits wherever it is called for anything but a send."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def _wait(self, what: str) -> None:
        on_loop(asyncio.sleep(0.01))
        self.called.add(what)

    def filter_messages(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Iterable[MessageExt]:
        self._wait("filter")
        return messages[:1]

    def before_consume(self, context: ConsumeHookContext) -> None:
        self._wait("before listener")

    def after_consume(self, context: ConsumeHookContext) -> None:
        self._wait("after listener")

    def before_request(self, address: str, command: Command) -> None:
        command.ext = {**(command.ext or {}), "signed": "yes"}
        self._wait("before request")

    def after_response(self, address: str, command: Command, answer: Command | None) -> None:
        self._wait("after answer" if answer is not None else "after nothing")


@pytest.mark.usefixtures("listeners")
@pytest.mark.parametrize("orderly", [False, True])
def test_hooks_of_pulls_listeners_and_requests(orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s, producer(s, WaitsOtherwise()) as made:
            hook, got = WaitsOtherwise(), list[bytes]()
            consumer = s.consumer(hooks=[hook], orderly=orderly)

            @consumer.on("T")
            async def handle(message: MessageExt) -> None:
                got.append(message.body)

            async with consumer:
                queue = (await made.send(Message("T", b"1"))).message_queue
                await made.send_oneway(Message("T", b"2"), queue=queue)
                await eventually(lambda: got)
                await eventually(lambda: "after listener" in hook.called)
            assert got[0] == b"1"
            told = {"filter", "before listener", "after listener", "before request", "after answer", "after nothing"}
            assert hook.called | made._settings.hooks[0].called == told  # type: ignore[attr-defined]

    run()


@in_virtual_time
async def test_a_hook_of_requests_that_does_not_return_is_passed_over() -> None:
    class Hangs(Hook):
        def before_request(self, address: str, command: Command) -> None:
            if command.code == RequestCode.SEND_MESSAGE_V2:
                on_loop(asyncio.sleep(1e6))

    async with scene() as s, producer(s, Hangs(), send_msg_timeout=8) as made:
        assert (await made.send(Message("T", b"1"))).ok


def test_what_blocking_clients_call_for_others_runs_on_their_own_threads(rmq_cluster: Any) -> None:
    """A selector of a topic whose route is not known yet, of a oneway send and of a request."""
    waited: list[str] = []

    def first(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        rmq_cluster.advance(seconds=0.01)
        waited.append(str(arg))
        return queues[0]

    with rmq.Producer("waiting") as made:
        assert made.send(Message("T", b"1"), selector=first, arg="unknown").message_queue.queue_id == 0
        assert made.send(Message("T", b"1"), selector=first, arg="known").ok
        made.send_oneway(Message("T", b"1"), selector=first, arg="oneway")
        assert made.send_async(Message("T", b"1"), selector=first, arg="async").result().ok
    assert waited == ["unknown", "known", "oneway", "async"]
