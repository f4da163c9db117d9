"""The service that calls listeners side by side, by itself and in virtual time: a pool that runs what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rmq.client.consumer.concurrent import ConcurrentService
from rmq.client.consumer.listeners import Listener
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Listening
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.settings import PushConsumerSettings
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Pool
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

QUEUE = MessageQueue("T", "b", 0)


def messages_of(count: int) -> list[MessageExt]:
    made = []
    for number in range(count):
        message = MessageExt()
        message.topic, message.body, message.queue_offset, message.properties = "T", b"x", number, {}
        message.broker_name, message.queue_id, message.reconsume_times = "b", 0, 0
        made.append(message)
    return made


class HandPool:
    """Keeps what is submitted until it is run."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        for work, done in self.waiting:
            done(work(), None)
        self.waiting.clear()


class Scene:
    """A service, the queue it consumes, and what it tells."""

    def __init__(self, timeout: float = 0.0) -> None:
        self.clock = Simulation(1).node("a").clock
        self.tasks = TaskOwner("test")
        self.pool = HandPool()
        self.seen: list[int] = []
        self.given_back: list[tuple[int, float]] = []
        self.pq = ProcessQueue(QUEUE, 0)
        listening = Listening(
            clock=self.clock, tasks=self.tasks, pool=cast(Pool, self.pool),
            pick=lambda topic: Listener(lambda message: self.seen.append(message.queue_offset)),
            settled=lambda pq, offset: None, on_consume=lambda topic, ok, failed, seconds: None,
            on_failed=lambda error: None,
        )  # fmt: skip
        self.service = ConcurrentService(listening, PushConsumerSettings(consume_timeout=timeout), self._give_back)

    async def _give_back(self, message: MessageExt, level: int) -> bool:
        self.given_back.append((message.queue_offset, self.clock.monotonic()))
        return True

    def submit(self, count: int) -> None:
        messages = messages_of(count)
        self.pq.put(messages)
        self.service.submit(self.pq, messages)

    def begin(self) -> Callable[[], None]:
        """The first call begins; what ends it is returned."""
        work, done = self.pool.waiting.pop(0)
        outcome = work()
        return lambda: done(outcome, None)


@pytest.mark.parametrize(("timeout", "late"), [(1.0, 0.1), (30.0, 3.0), (6000.0, 60.0)])
def test_a_call_is_given_up_soon_after_its_time(timeout: float, late: float) -> None:
    """Field case B044: the limit is the limit, and not twice that."""

    async def main() -> None:
        scene = Scene(timeout)
        scene.submit(1)
        began = scene.clock.monotonic()
        end = scene.begin()
        await asyncio.sleep(timeout - 0.01)
        assert scene.given_back == []
        await asyncio.sleep(late + 0.02)
        ((offset, when),) = scene.given_back
        assert offset == 0
        assert timeout <= when - began <= timeout + late
        end()  # what it says in the end does not count, and nobody waits for it any more
        assert await scene.service.drain(1000) == 0
        assert scene.clock.monotonic() - began < timeout + late + 1
        await scene.tasks.close()

    run(main())


def test_without_a_limit_a_call_may_take_for_ever() -> None:
    async def main() -> None:
        scene = Scene(0.0)
        scene.submit(1)
        scene.begin()
        await asyncio.sleep(100_000)
        assert scene.given_back == []
        await scene.tasks.close()

    run(main())


@pytest.mark.parametrize("why", ["dropped", "stopping"])
def test_what_waits_for_a_thread_is_left_for_the_next_owner(why: str) -> None:
    async def main() -> None:
        scene = Scene()
        scene.submit(3)
        scene.begin()()
        if why == "dropped":
            scene.pq.dropped = True
        else:
            await scene.service.drain(0)
        scene.pool.run()
        await asyncio.sleep(1)
        assert scene.seen == [0]
        assert list(scene.pq.messages) == [1, 2], "they were not settled"
        assert await scene.service.drain(10) == 0
        await scene.tasks.close()

    run(main())
