"""Reads a topic between two places, in the order in which its messages were stored, without a group's offsets."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, TypeVar

from rmq.cli.messages.places import Place, resolve
from rmq.cli.mqadmin.absent import departed
from rmq.client.admin import AdminClient
from rmq.client.admin.answers import side_by_side
from rmq.client.consumer.pull import PullConsumer
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import PullStatus
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ClientError, RequestTimeout, RMQError, TransportError
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock, World

__all__ = ["Chosen", "find_queues", "left_brokers", "read"]

#: Messages that wait to be printed while a topic is followed: whoever prints slowly slows the pulls.
_AHEAD = 256
#: Queues that are asked at a time.
_SIDE_BY_SIDE = 16
#: Seconds in which a group may elect another leader, for who reads what there is and for who follows; and between two
#: tries.
_ELECTION, _FOLLOWED, _AGAIN = 5.0, 30.0, 0.2
#: Seconds after which a broker that ends before a queue's end has said its last word on it.
_SETTLED = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is read.

    :param queue: this queue id alone, of each broker.
    :param broker: this broker alone.
    :param follow: go on with what comes after the end.
    """

    topic: str
    expression: str = "*"
    sql: bool = False
    begin: Place = field(default_factory=Place)
    end: Place = field(default_factory=Place)
    zone: tzinfo | None = None
    queue: int | None = None
    broker: str | None = None
    follow: bool = False


async def find_queues(world: World, client: Mapping[str, Any], topic: str) -> None:
    """Have a look at who serves a topic before a member of a group begins: members wait for whoever is not there.

    :param client: a client's arguments.
    :raises RMQError: no name server answers, none knows the topic, or none of its brokers answers.
    """
    async with AdminClient(world=world, **client) as looking:
        queues = await looking.fetch_subscribe_message_queues(topic)
        one_each = {queue.broker_name: queue for queue in queues}
        answers = await side_by_side(one_each, lambda name: looking.max_offset(one_each[name]))
        if not answers.found:
            answers.whole()


async def left_brokers(world: World, client: Mapping[str, Any]) -> dict[str, str]:
    """Brokers that have left the name servers without a word, by name, and what is known of it."""
    async with AdminClient(world=world, **client) as looking:
        return await departed(looking, on_purpose=False)


async def read(
    world: World, consumer: PullConsumer, chosen: Chosen, missing: dict[str, str] | None = None
) -> AsyncGenerator[MessageExt]:
    """The messages.

    :param missing: gets brokers that do not answer, and why: what the others have is read then. None: that is an error.
    :raises ClientError: the topic has no such queue. :raises RMQError: a broker refuses or does not answer; with
        ``missing``, none of them does.
    """
    queues = [
        queue
        for queue in await consumer.fetch_subscribe_message_queues(chosen.topic)
        if chosen.queue in (None, queue.queue_id) and chosen.broker in (None, queue.broker_name)
    ]
    if not queues:
        which = f"queue {chosen.queue}" if chosen.queue is not None else "queue"
        where = f" on broker {chosen.broker}" if chosen.broker is not None else ""
        remedy = f"mqadmin topicStatus -t {chosen.topic} lists them"
        raise ClientError(f"the topic {chosen.topic} has no {which}{where}: {remedy}")
    clock, now = world.clock, world.clock.now_ms()
    some = asyncio.Semaphore(_SIDE_BY_SIDE)

    def lacks(queue: MessageQueue, error: TransportError) -> None:
        if missing is None:
            raise error
        missing.setdefault(queue.broker_name, str(error))

    async def bounds(queue: MessageQueue) -> _Span:
        begin, since = await resolve(consumer, queue, chosen.begin, now, chosen.zone)
        end, until = await resolve(consumer, queue, chosen.end, now, chosen.zone)
        if until is not None:
            # Up to the newest: the times of messages say where it ends.
            end = await consumer.max_offset(queue)
        return _Span(consumer, clock, chosen, queue, begin, end, since, until)

    async def span(queue: MessageQueue) -> _Span | TransportError:
        async with some:
            try:
                return await _through_elections(lambda: bounds(queue), clock)
            except TransportError as error:
                lacks(queue, error)
                return error

    found = await asyncio.gather(*(span(queue) for queue in queues))
    spans = [one for one in found if isinstance(one, _Span)]
    if not spans:
        raise next(one for one in found if isinstance(one, TransportError))
    heap: list[tuple[int, str, int, int, _Span]] = []

    async def push(one: _Span) -> None:
        try:
            await one.push(heap)
        except TransportError as error:
            lacks(one.queue, error)
            spans.remove(one)

    for one in [*spans]:
        await push(one)
    while heap:
        *_, one = heapq.heappop(heap)
        yield one.waiting.popleft()
        await push(one)
    if chosen.follow:
        async with aclosing(_follow(spans)) as coming:
            async for message in coming:
                yield message


async def _through_elections(ask: Callable[[], Awaitable[T]], clock: Clock, limit: float = _ELECTION) -> T:
    """What ``ask`` gives, asked again for ``limit`` seconds where there is nobody, or one that follows.

    :raises RMQError: as ``ask``.
    """
    until = clock.monotonic() + limit
    while True:
        try:
            return await ask()
        except RMQError as error:
            gone = isinstance(error, TransportError) and (limit > _ELECTION or not isinstance(error, RequestTimeout))
            if not gone and error.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
                raise
            if clock.monotonic() >= until:
                raise
        await asyncio.sleep(_AGAIN)


@dataclass(slots=True, eq=False)
class _Span:
    """One queue's part: from the next offset to the end, by offset and by time."""

    consumer: PullConsumer
    clock: Clock
    chosen: Chosen
    queue: MessageQueue
    next: int
    end: int
    since: int | None
    until: int | None
    #: Since when a broker has been saying that the queue ends before its end.
    ended: float | None = None
    waiting: deque[MessageExt] = field(default_factory=deque)

    async def push(self, heap: list[tuple[int, str, int, int, _Span]]) -> None:
        """Put the queue's next message where it belongs among those of others; nothing when it is through."""
        while not self.waiting and self.next < self.end:
            await self._pull()
        if self.waiting:
            first = self.waiting[0]
            place = (self.queue.broker_name, self.queue.queue_id, first.queue_offset)
            heapq.heappush(heap, (first.store_timestamp, *place, self))

    async def _pull(self) -> None:
        result = await _through_elections(
            lambda: self.consumer.pull(self.queue, self.chosen.expression, self.next, sql=self.chosen.sql), self.clock
        )
        for message in result.messages:
            if message.queue_offset >= self.end or (self.until is not None and message.store_timestamp >= self.until):
                self.next = self.end
                return
            if self.since is None or message.store_timestamp >= self.since:
                self.waiting.append(message)
        if result.next_begin_offset > self.next:
            self.next, self.ended = result.next_begin_offset, None
            return
        now = self.clock.monotonic()
        self.ended = now if self.ended is None else self.ended
        if now - self.ended >= _SETTLED:  # what it asked for went away, and nothing is there to go on with
            self.next = self.end
        else:  # a leader that was elected a moment ago does not show yet all that there is
            await asyncio.sleep(_AGAIN)

    async def follow(self, out: asyncio.Queue[MessageExt | RMQError]) -> None:
        """Hand over what comes, and in the end what went wrong."""
        try:
            while True:
                result = await _through_elections(
                    lambda: self.consumer.pull_block_if_not_found(
                        self.queue, self.chosen.expression, self.next, sql=self.chosen.sql
                    ),
                    self.clock,
                    _FOLLOWED,
                )
                for message in result.messages:
                    if self.since is None or message.store_timestamp >= self.since:
                        await out.put(message)
                if result.status is not PullStatus.NO_NEW_MSG:
                    self.next = result.next_begin_offset
        except RMQError as error:
            await out.put(error)


async def _follow(spans: list[_Span]) -> AsyncGenerator[MessageExt]:
    """What comes from now on, as it comes; the first queue that fails ends it."""
    out: asyncio.Queue[MessageExt | RMQError] = asyncio.Queue(_AHEAD)
    owner = TaskOwner("rmq.consume")
    try:
        for one in spans:
            owner.spawn(one.follow(out), str(one.queue))
        while True:
            came = await out.get()
            if isinstance(came, RMQError):
                raise came
            yield came
    finally:
        await owner.close()
