"""The service that calls listeners in order, by itself and in virtual time, with listeners of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rmq.client.consumer.listeners import Listener
from rmq.client.consumer.orderly import OrderlyService
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Listening
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.settings import PushConsumerSettings
from rmq.runtime.tasks import TaskOwner
from tests.support.scenes.client import as_plain
from tests.support.virtual import in_virtual_time, one_world

QUEUE = MessageQueue("T", "b", 0)
KINDS = pytest.mark.parametrize("kind", [lambda function: function, as_plain], ids=["coroutine", "plain"])
Kind = Callable[[Callable[..., Any]], Callable[..., Any]]


class Scene:
    """A service, the queue it consumes, and what it tells."""

    def __init__(self, kind: Kind, *, locks: bool = False, suspend: float = 1.0, most: int = -1) -> None:
        self.loop = asyncio.get_running_loop()
        self.world = one_world()
        self.tasks = TaskOwner("test")
        self.seen: list[int] = []
        self.settled: list[int] = []
        self.counted: list[tuple[int, int]] = []
        self.buried: list[int] = []
        self.failing: set[int] = set()
        self.seconds = 0.0
        listener = Listener(kind(self._handle))
        self.pq = ProcessQueue(QUEUE, 0)
        listening = Listening(
            clock=self.world.clock, tasks=self.tasks, pool=self.world.pool(4, "listener"), pick=lambda topic: listener,
            settled=lambda pq, offset: self.settled.append(offset),
            on_consume=lambda topic, ok, failed, seconds: self.counted.append((ok, failed)),
            on_failed=lambda error: None,
        )  # fmt: skip
        settings = PushConsumerSettings(suspend_current_queue_time=suspend, max_reconsume_times=most)
        self.service = OrderlyService(listening, settings, self._bury, self._relock if locks else None)
        self.service.open(self.pq)

    async def _handle(self, message: MessageExt) -> bool:
        self.seen.append(message.queue_offset)
        await asyncio.sleep(self.seconds)
        return message.queue_offset not in self.failing

    async def _bury(self, message: MessageExt) -> bool:
        self.buried.append(message.queue_offset)
        return True

    async def _relock(self, queue: MessageQueue) -> bool:
        return False

    def submit(self, *offsets: int) -> None:
        messages = []
        for offset in offsets:
            message = MessageExt()
            message.topic, message.body, message.queue_offset, message.properties = "T", b"x", offset, {}
            message.broker_name, message.queue_id, message.reconsume_times = "b", 0, 0
            messages.append(message)
        self.pq.put(messages)
        self.service.submit(self.pq, messages)

    async def close(self) -> float:
        """Give the queue up; the seconds until its worker has ended."""
        began = self.loop.time()
        self.pq.dropped = True
        worker = self.service.close(self.pq)
        assert worker is not None
        await asyncio.wait_for(worker, 100)
        await self.tasks.close()
        return self.loop.time() - began


@KINDS
@in_virtual_time
async def test_a_queue_is_consumed_in_order_and_woken_when_messages_come(kind: Kind) -> None:
    scene = Scene(kind)
    await asyncio.sleep(1)
    scene.submit(0, 1)
    await asyncio.sleep(1)
    scene.submit(2)
    await asyncio.sleep(1)
    assert scene.seen == [0, 1, 2]
    assert scene.settled == [1, 2, 3]
    assert scene.counted == [(1, 0)] * 3
    await scene.close()


@KINDS
@pytest.mark.parametrize("doing", ["nothing", "resting", "waiting for the lock"])
@in_virtual_time
async def test_a_queue_given_up_ends_its_worker_at_once(kind: Kind, doing: str) -> None:
    scene = Scene(kind, locks=doing == "waiting for the lock", suspend=30.0)
    scene.failing = {0}
    await asyncio.sleep(1)
    if doing != "nothing":
        scene.submit(0)
    await asyncio.sleep(1)
    assert scene.seen == ([0] if doing == "resting" else [])
    assert await scene.close() <= (0.1 if doing == "waiting for the lock" else 0)


@KINDS
@in_virtual_time
async def test_a_call_under_way_is_waited_for_and_is_the_last(kind: Kind) -> None:
    scene = Scene(kind)
    scene.seconds = 5.0
    scene.submit(0, 1)
    await asyncio.sleep(1)
    assert (scene.pq.running, scene.service.busy) == (1, 1)
    assert await scene.close() == 4.0
    assert scene.seen == [0]
    assert scene.settled == [1]
    assert (scene.pq.running, scene.service.busy) == (0, 0)
    assert scene.service.close(scene.pq) is None


@KINDS
@pytest.mark.parametrize("seconds", [0.0, 5.0], ids=["idle", "busy"])
@in_virtual_time
async def test_a_stop_waits_for_calls_and_for_nothing_else(kind: Kind, seconds: float) -> None:
    scene = Scene(kind)
    scene.seconds = seconds
    scene.submit(0, 1)
    await asyncio.sleep(1)
    began = scene.loop.time()
    assert await scene.service.drain(2) == (1 if seconds else 0)
    assert scene.loop.time() - began == (2 if seconds else 0)
    assert await scene.service.drain(100) == 0
    assert scene.loop.time() - began == (4 if seconds else 0)
    assert scene.seen == ([0] if seconds else [0, 1])
    await scene.tasks.close()


@KINDS
@in_virtual_time
async def test_what_was_tried_too_often_is_buried_and_the_queue_goes_on(kind: Kind) -> None:
    scene = Scene(kind, most=2)
    scene.failing = {0}
    scene.submit(0, 1)
    await asyncio.sleep(0.5)
    assert scene.seen == [0], "the queue rests"
    await asyncio.sleep(5)
    assert scene.seen == [0, 0, 0, 1]
    assert scene.buried == [0]
    assert scene.settled == [1, 2]
    await scene.close()


@in_virtual_time
async def test_a_listener_on_a_thread_may_end_after_its_consumer() -> None:
    """Nobody waits for its result any more, and nothing is said of that."""
    scene = Scene(as_plain)
    scene.seconds = 5.0
    scene.submit(0)
    await asyncio.sleep(1)
    await scene.tasks.close()
    await asyncio.sleep(10)
    assert scene.seen == [0]
    assert scene.settled == []


@in_virtual_time
async def test_a_queue_that_was_never_opened_is_closed_without_ado() -> None:
    scene = Scene(as_plain)
    other = ProcessQueue(MessageQueue("T", "b", 1), 0)
    assert scene.service.close(other) is None
    assert await scene.close() == 0, "before its worker has begun"
