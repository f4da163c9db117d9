"""Settling popped messages at their brokers: acknowledged, or invisible for another time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rmq.client.consumer.pop.queue import Open
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bit_set
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ResponseError, RMQError, TransportError
from rmq.protocol.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from rmq.protocol.pop import ORDERED, Handle
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner

__all__ = ["Acks"]

log = logger(__name__)

#: Messages of one request, and requests of one message each at the same time.
_BATCH = 256
_SIDE_BY_SIDE = 16
#: Offsets from a pop's first that a bit set names; what is farther is acknowledged by itself.
_LONGEST_BITS = 8_192
#: Seconds before acknowledgements that got no answer are sent again.
_AGAIN = 1.0


class Acks:
    """Of one group. Acknowledgements that come while some are under way to their broker go together in the next."""

    def __init__(self, instance: ClientInstance, group: str, tasks: TaskOwner) -> None:
        self._instance = instance
        self._group = group
        self._tasks = tasks
        self._clock = instance.world.clock
        self._waiting: dict[str, list[Open]] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        #: Brokers that take one acknowledgement a request.
        self._one_by_one: set[str] = set()

    def ack(self, settled: Sequence[Open]) -> None:
        """Messages are done: their brokers are told soon. What they are not told of in time comes again."""
        for held in settled:
            broker = held.handle.broker_name
            self._waiting.setdefault(broker, []).append(held)
            if broker not in self._sending and not self._tasks.closed:
                self._sending[broker] = self._tasks.spawn(self._send(broker), f"acknowledge {broker}")

    async def drain(self, limit: float) -> None:
        """Wait until brokers were told of all, or ``limit`` seconds."""
        if self._sending:
            await asyncio.wait(set(self._sending.values()), timeout=limit)

    async def _send(self, broker: str) -> None:
        try:
            while waiting := self._waiting.pop(broker, None):
                for some in _parts(waiting, _BATCH):
                    try:
                        await self._tell(broker, some)
                    except RMQError as error:
                        if not _may_be_taken(error):
                            self._refused(broker, len(some), error)
                            continue
                        now = self._clock.monotonic()
                        left = [held for held in some if held.until > now]
                        log.log(
                            self._instance.outages.level(error),
                            "group %s: %s is not told of %d messages that are done, %d of them are tried again: %s",
                            self._group, broker, len(some), len(left), error,
                        )  # fmt: skip
                        if left:
                            self._waiting.setdefault(broker, []).extend(left)
                        await asyncio.sleep(_AGAIN)
        finally:
            self._sending.pop(broker, None)

    def _refused(self, broker: str, count: int, error: RMQError) -> None:
        expired = isinstance(error, ResponseError) and error.code == ResponseCode.NO_MESSAGE
        log.log(
            logging.DEBUG if expired else logging.WARNING,
            "group %s: %s does not take %d acknowledgements, their messages may come again: %s",
            self._group, broker, count, error,
        )  # fmt: skip

    async def _tell(self, broker: str, some: Sequence[Open]) -> None:
        address = await self._instance.find_master(MessageQueue(some[0].topic, broker, -1))
        alone = [held for held in some if not _goes_in_a_batch(held.handle)]
        together = [held for held in some if _goes_in_a_batch(held.handle)]
        if len(together) == 1 or broker in self._one_by_one:
            alone, together = [*together, *alone], []
        if together:
            body = BatchAckMessageRequestBody(acks=self._batches(together), broker_name=broker).encode()
            try:
                await self._instance.call(address, RequestCode.BATCH_ACK_MESSAGE, None, body)
            except ResponseError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._one_by_one.add(broker)
                    alone += together
                elif _may_be_taken(error):
                    raise
                else:
                    self._refused(broker, len(together), error)
        for few in _parts(alone, _SIDE_BY_SIDE):
            for result in await asyncio.gather(*(self._one(address, held) for held in few), return_exceptions=True):
                if isinstance(result, ResponseError) and not _may_be_taken(result):
                    self._refused(broker, 1, result)
                elif isinstance(result, BaseException):
                    raise result

    async def _one(self, address: str, held: Open) -> None:
        handle = held.handle
        header = AckMessageRequest(
            consumer_group=self._group,
            topic=held.lies_in(self._group),
            queue_id=handle.queue_id,
            extra_info=str(handle),
            offset=handle.offset,
            bname=handle.broker_name,
        )
        await self._instance.call(address, RequestCode.ACK_MESSAGE, header)

    def _batches(self, some: Sequence[Open]) -> list[BatchAck]:
        """One item for what one pop took of one queue."""
        pops: dict[tuple[str, Handle], list[int]] = {}
        for held in some:
            handle = held.handle
            pop = Handle(
                handle.start, handle.pop_time, handle.invisible, handle.revive_queue, handle.mark, handle.broker_name,
                handle.queue_id, 0,
            )  # fmt: skip
            pops.setdefault((held.topic, pop), []).append(handle.offset - handle.start)
        return [
            BatchAck(
                consumer_group=self._group,
                topic=topic,
                retry=pop.mark,
                start_offset=pop.start,
                queue_id=pop.queue_id,
                revive_queue_id=pop.revive_queue,
                pop_time=pop.pop_time,
                invisible_time=pop.invisible,
                bit_set=bit_set(bits),
            )
            for (topic, pop), bits in pops.items()
        ]

    async def change_all(self, some: Sequence[Open], seconds: float) -> None:
        """:meth:`change` of several. :raises RMQError: it did not work for one of them."""
        for few in _parts(some, _SIDE_BY_SIDE):
            results = await asyncio.gather(*(self.change(held, seconds) for held in few), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def change(self, held: Open, seconds: float) -> None:
        """Have a message invisible for another time from now on; ``held`` has the new handle then.

        :raises RMQError: it did not work: the message comes again when its invisible time is over.
        """
        handle = held.handle
        address = await self._instance.find_master(MessageQueue(held.topic, handle.broker_name, -1))
        header = ChangeInvisibleTimeRequest(
            consumer_group=self._group,
            topic=held.lies_in(self._group),
            queue_id=handle.queue_id,
            extra_info=str(handle),
            offset=handle.offset,
            invisible_time=int(seconds * 1000),
            bname=handle.broker_name,
        )
        reply = await self._instance.call(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        answer = reply.header(ChangeInvisibleTimeResponse)
        start = handle.start if handle.revive_queue == ORDERED else handle.offset
        held.handle = Handle(
            start, answer.pop_time, answer.invisible_time, answer.revive_qid, handle.mark, handle.broker_name,
            handle.queue_id, handle.offset,
        )  # fmt: skip
        held.until = self._clock.monotonic() + seconds


def _parts(some: Sequence[Open], most: int) -> list[Sequence[Open]]:
    return [some[at : at + most] for at in range(0, len(some), most)]


def _may_be_taken(error: RMQError) -> bool:
    """Whether another try may do: nobody answered, or one that leads no more, and its successor takes them."""
    return isinstance(error, TransportError) or error.code == ResponseCode.SERVICE_NOT_AVAILABLE


def _goes_in_a_batch(handle: Handle) -> bool:
    return handle.revive_queue != ORDERED and 0 <= handle.offset - handle.start < _LONGEST_BITS
