"""A handler of Python's logging that ships records to a topic (Java: the appenders of rocketmq-logappender).

With ``dictConfig``::

    handlers:
      rocketmq:
        class: rmq.integrations.logging.RocketMQHandler
        topic: app-logs
        namesrv: 127.0.0.1:9876
        formatter: json
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Unpack

from rmq.client.checks import check_topic, seconds, typed
from rmq.client.message import Message
from rmq.client.producer import Producer
from rmq.client.settings import Duration, ProducerOptions
from rmq.protocol.errors import ClientError, RMQError, TransportError
from rmq.runtime.background import LoopThread
from rmq.runtime.pool import Post
from rmq.runtime.world import World

__all__ = ["RocketMQHandler"]

#: Records that are sent in one batch, and bytes of their texts.
_BATCH, _BATCH_BYTES = 256, 1 << 20
#: Java's appenders mark what they ship so: LOG4J_APPENDER and the like.
_MARK = {"APPENDER_TYPE": "PYTHON_LOGGING"}
#: Seconds before a cluster that is away is tried again; what comes meanwhile waits, as far as it fits.
_PAUSE = 1.0


@typed(inner=("emit",))
class RocketMQHandler(logging.Handler):
    """Ships log records from a thread of its own; whoever logs never waits, whatever the cluster does.

    A record is a message: its text, formatted, is the body; ``tags`` and ``keys`` may name fields of the record. What
    does not fit into the queue while the cluster is slow or away is lost, and counted. Records of this SDK itself are
    left out, as they would make others. Nothing is connected before the first record; forked children begin anew.

    :param topic: where records go.
    :param group: the producer group.
    :param tags: one tag, with fields in ``%`` form: ``%(levelname)s``.
    :param keys: the same, for ``query_message``: ``%(name)s``.
    :param capacity: records that wait at most.
    :param close_timeout: how long :meth:`close`, and so the end of the process, waits for what was not sent yet.
    :param own_records: ship what the SDK's own loggers (``rmq``) say, too.
    :param options: see :class:`~rmq.client.settings.ProducerOptions`.
    :raises ClientError: a name or a setting cannot be used.
    """

    def __init__(
        self,
        topic: str,
        *,
        group: str = "rmq_logs",
        tags: str | None = None,
        keys: str | None = None,
        level: int | str = logging.NOTSET,
        capacity: int = 10_000,
        close_timeout: Duration = 5.0,
        own_records: bool = False,
        world: World | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(level)
        check_topic(topic)
        if capacity < 1:
            raise ClientError(f"capacity is {capacity!r}: give the number of records that may wait, at least 1")
        self._topic = topic
        self._tags = tags
        self._keys = keys
        self._capacity = capacity
        self._close_timeout = seconds(close_timeout, "close_timeout")
        self._own_records = own_records
        self._world = world or World.real()
        self._make: Callable[[], Producer] = lambda: Producer(group, world=world, **options)
        self._make()  # a name or a setting that cannot be used is refused here, not in a thread
        self._shipping: _Shipping | None = None
        self._closed = False
        #: Records that a broker has stored, and those given up: the queue was full, no broker takes them, or the end
        #: came first.
        self.sent: int = 0
        self.lost: int = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record into the queue; never waits, never raises."""
        if not self._own_records and (record.name == "rmq" or record.name.startswith("rmq.")):
            return
        try:
            message = Message(
                self._topic,
                self.format(record),
                tags=_filled(self._tags, record),
                keys=_filled(self._keys, record),
                properties=_MARK,
            )
        except Exception:  # a format that does not fit the record
            self.handleError(record)
            return
        if self._closed:
            self.lost += 1
            return
        shipping = self._shipping
        if shipping is None or shipping.pid != self._world.identity.pid:
            shipping = self._shipping = _Shipping(self._make(), self._told, self._world.identity.pid)
            atexit.register(self.close)  # before the end of its thread, which was registered before
        if not shipping.put(message, self._capacity):
            self.lost += 1

    def _told(self, sent: int, lost: int) -> None:
        self.sent += sent
        self.lost += lost

    def flush(self) -> None:
        """Wait until what waits is sent, at most ``close_timeout``; not called for each record."""
        shipping = self._shipping
        if shipping is not None and shipping.pid == self._world.identity.pid:
            shipping.flush(self._close_timeout)

    def close(self) -> None:
        """Send what waits, within ``close_timeout``, and end; what is logged later is lost."""
        self.acquire()
        try:
            self._closed = True
            shipping, self._shipping = self._shipping, None
        finally:
            self.release()
        if shipping is not None and shipping.pid == self._world.identity.pid:
            atexit.unregister(self.close)
            shipping.close(self._close_timeout)
        super().close()


def _filled(text: str | None, record: logging.LogRecord) -> str | None:
    return text if text is None or "%" not in text else text % record.__dict__


class _Shipping:
    """The queue, and the thread that empties it, of one process."""

    def __init__(self, producer: Producer, told: Callable[[int, int], None], pid: int) -> None:
        self.pid = pid
        self._producer = producer
        self._told = told
        self._waiting: deque[Message] = deque()
        self._thread = LoopThread("rmq-logging")
        self._wake, self._idle, self._post = self._thread.call(self._begin())

    async def _begin(self) -> tuple[asyncio.Event, asyncio.Event, Post]:
        wake, idle = asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._ship(wake, idle), name="rmq-logging")
        return wake, idle, Post(asyncio.get_running_loop())

    def put(self, message: Message, capacity: int) -> bool:
        """:returns: whether there was room."""
        if len(self._waiting) >= capacity:
            return False
        self._waiting.append(message)
        try:
            self._post(self._wake.set)
        except RuntimeError:  # the interpreter ends, and its loop has
            return False
        return True

    async def _ship(self, wake: asyncio.Event, idle: asyncio.Event) -> None:
        while True:
            if not self._waiting:
                idle.set()
                await wake.wait()
            wake.clear()
            idle.clear()
            if batch := self._batch():
                await self._send(batch)

    def _batch(self) -> list[Message]:
        batch: list[Message] = []
        size = 0
        while self._waiting and len(batch) < _BATCH:
            size += len(self._waiting[0].body)
            if batch and size > _BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: list[Message]) -> None:
        """Send a batch. A bad record costs itself alone; while the cluster is away, all wait for it."""
        try:
            await self._producer.start()
            await self._producer.send(batch if len(batch) > 1 else batch[0])
        except ClientError:
            if len(batch) > 1:
                for message in batch:
                    await self._send([message])
            else:
                self._told(0, 1)
        except RMQError as error:
            if isinstance(error, TransportError) or error.retriable:
                self._waiting.extendleft(reversed(batch))
                await asyncio.sleep(_PAUSE)
            else:
                self._told(0, len(batch))
        else:
            self._told(len(batch), 0)

    def flush(self, timeout: float) -> None:
        self._wait(self._emptied(), timeout)

    async def _emptied(self) -> None:
        while self._waiting or not self._idle.is_set():
            self._idle.clear()
            self._wake.set()
            await self._idle.wait()

    def close(self, timeout: float) -> None:
        self._wait(self._emptied(), timeout)
        self._wait(self._end(), timeout)
        self._told(0, len(self._waiting))
        self._thread.stop()

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._producer.shutdown()

    def _wait(self, work: Coroutine[object, object, None], timeout: float) -> None:
        """At most so long: a log that cannot be shipped holds no process up."""
        try:
            self._thread.call(work, timeout)
        except (TimeoutError, RuntimeError, asyncio.CancelledError):
            return
