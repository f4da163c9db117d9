"""Sends that name one queue, or give a selector one arg, leave in the order in which they were called, though nobody
waits for one of them before the next: whatever holds one of them up (a hook that takes its time, a route that is not
known yet, a connection that has to be opened) holds up those behind it, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import rmq
from rmq.aio import Hook, Message, MessageExt, MessageQueue, Producer, SendHookContext, by_hash
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout
from rmq.runtime.lockstep import on_loop
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import in_virtual_time

#: Messages of one key.
COUNT = 12
#: Seconds that the first ones wait longer than those behind them.
STEP = 0.05


class Slow(Hook):
    """Takes the longer the earlier a message was sent, at one place."""

    def __init__(self, where: str) -> None:
        self.where = where

    def _wait(self, where: str, body: bytes | str) -> None:
        if where == self.where:
            on_loop(asyncio.sleep(STEP * (COUNT - int(body))))

    def extra_properties(self, message: Message | MessageExt) -> Mapping[str, str]:
        self._wait("extra_properties", message.body)
        return {}

    def check_send(self, context: SendHookContext) -> None:
        self._wait("check_send", context.messages[0].body)

    def before_send(self, context: SendHookContext) -> None:
        self._wait("before_send", context.messages[0].body)


class SlowRequests(Hook):
    """The same of requests; a class of its own, for hooks of requests alone."""

    def before_request(self, address: str, command: Command) -> None:
        if command.code == RequestCode.SEND_MESSAGE_V2:
            on_loop(asyncio.sleep(STEP * (COUNT - int(bytes(command.body)))))


def hook(where: str) -> list[Hook]:
    if where == "nothing":
        return []
    return [SlowRequests() if where == "before_request" else Slow(where)]


HOW = ["send", "send_async", "send_oneway"]


async def stored(s: Scene, topic: str = "T") -> dict[int, list[int]]:
    """Numbers by queue, in the order of the queue."""
    found: dict[int, list[int]] = {}
    async with s.puller("looks") as puller:
        for queue in await puller.fetch_subscribe_message_queues(topic):
            taken: list[MessageExt] = []
            while messages := (await puller.pull(queue, "*", len(taken))).messages:
                taken += messages
            found[queue.queue_id] = [int(message.body) for message in taken]
    return found


def made(s: Scene, where: str, **options: Any) -> Producer:
    return Producer("ordered", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, hooks=hook(where), **options)


def picks(queues: Sequence[MessageQueue], message: Message | MessageExt, arg: object) -> MessageQueue:
    return by_hash(queues, message, arg)  # type: ignore[arg-type]


#: What holds sends up, whether the route is known before, and how they are called.
CASES = [
    *((where, True, "each") for where in ("extra_properties", "check_send", "before_send", "before_request")),
    *((where, False, "each") for where in ("before_send", "before_request", "nothing")),
    ("check_send", True, "send"),
    ("check_send", True, "send_async"),
    ("extra_properties", False, "send_async"),
    ("before_request", True, "send_oneway"),
    ("before_send", True, "send_oneway"),
]


@pytest.mark.parametrize(("where", "known", "how"), CASES)
def test_sends_of_one_arg(where: str, known: bool, how: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s, made(s, where, send_msg_timeout=8) as producer:
            if known:
                queues = await producer.fetch_publish_message_queues("T")
                await producer.send(Message("T", b"99"), queue=queues[3])
            under_way: list[asyncio.Future[Any]] = []
            for number, kind in enumerate([how] * COUNT if how != "each" else HOW * (COUNT // len(HOW))):
                sending = getattr(producer, kind)(Message("T", str(number)), selector=picks, arg="a")
                under_way.append(asyncio.ensure_future(sending))
                await asyncio.sleep(0)
            await asyncio.gather(*under_way)
            await asyncio.sleep(1)
            got = await stored(s)
            assert [one for one in got.values() if one not in ([], [99])] == [list(range(COUNT))]

    run()


@in_virtual_time
async def test_one_that_hangs_is_waited_for_by_its_line_alone_and_others_go_on() -> None:
    """Until its hook has had its time; then those behind it leave."""

    class Hangs(Hook):
        def check_send(self, context: SendHookContext) -> None:
            if context.messages[0].body == b"0":
                on_loop(asyncio.sleep(1e6))

    async with scene() as s:
        producer = Producer("ordered", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, hooks=[Hangs()])
        async with producer:
            queues = await producer.fetch_publish_message_queues("T")
            loop = asyncio.get_running_loop()
            began, ended = loop.time(), dict[str, float]()

            def sent(name: str, **how: Any) -> asyncio.Future[Any]:
                return producer.send_async(
                    Message("T", name), lambda _: ended.__setitem__(name, loop.time() - began), **how
                )

            to = {"queue": queues[0]}
            under_way = [sent("0", **to), *(sent(str(number), **to) for number in range(1, 5))]
            under_way[2].cancel()
            others = [sent("5", queue=queues[1]), sent("6", selector=by_hash, arg="a"), sent("7")]
            await asyncio.gather(*under_way, *others, return_exceptions=True)
            assert isinstance(under_way[0].exception(), RequestTimeout)
            assert all(ended[name] < 0.5 for name in ("5", "6", "7"))
            assert all(1.4 < ended[name] < 2 for name in ("0", "1", "3", "4"))
            assert [number for number in (await stored(s))[0] if number < 5] == [1, 3, 4]
            assert not producer._sender._line._lasts, "lines are forgotten when everything has left"


@in_virtual_time
async def test_who_waits_behind_one_waits_no_longer_than_its_own_time() -> None:
    async with scene() as s, made(s, "check_send", send_msg_timeout=30) as producer:
        first = producer.send_async(Message("T", str(COUNT - 100)), selector=picks, arg=1)
        with pytest.raises(RequestTimeout, match=r"waited 0\.\d+ s for a send of the same queue or arg"):
            await producer.send(Message("T", str(COUNT)), selector=picks, arg=1, timeout=0.5)
        assert (await first).ok


@pytest.mark.parametrize("where", ["extra_properties", "before_send"])
def test_sends_that_are_joined_to_batches(where: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s, made(s, where, send_msg_timeout=8, auto_batch=True, batch_max_bytes=64) as producer:
            queue = (await producer.fetch_publish_message_queues("T"))[2]
            await asyncio.gather(*(producer.send(Message("T", str(number)), queue=queue) for number in range(COUNT)))
            assert (await stored(s))[2] == list(range(COUNT))

    run()


@pytest.mark.parametrize("kind", ["requests", "nothing"])
def test_sends_of_one_thread(rmq_cluster: Any, kind: str) -> None:
    """The first ones have to ask for a route and to connect; with hooks of requests each takes a thread."""
    hooks = [SlowRequests()] if kind == "requests" else []
    with rmq.Producer("ordered", hooks=hooks, send_msg_timeout=8) as producer:
        under_way = [
            producer.send_async(Message("T", str(number)), selector=picks, arg="a") for number in range(COUNT - 2)
        ]
        assert producer.send(Message("T", str(COUNT - 2)), selector=picks, arg="a").ok
        producer.send_oneway(Message("T", str(COUNT - 1)), selector=picks, arg="a")
        assert all(future.result().ok for future in under_way)
        rmq_cluster.advance(seconds=1)
        assert [message.body for message in rmq_cluster.messages("T")] == [b"%d" % number for number in range(COUNT)]


def test_sends_of_callbacks(rmq_cluster: Any) -> None:
    """A callback runs on a thread of the SDK's and sends as any other does."""
    with rmq.Producer("ordered") as producer:
        futures: list[Any] = []

        def go_on(_: Any) -> None:
            futures.extend(
                producer.send_async(Message("T", str(number)), selector=picks, arg="a") for number in range(1, COUNT)
            )

        producer.send_async(Message("T", "0"), go_on, selector=picks, arg="a").result()
        rmq_cluster.advance(seconds=1)
        assert [future.result().queue_offset for future in futures] == list(range(1, COUNT))
