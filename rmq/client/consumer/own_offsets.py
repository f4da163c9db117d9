"""Offsets in an application's own storage, which may be slow, fail, or never return: nothing waits for it for long."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from rmq.client.consumer.listeners import ends_task
from rmq.client.consumer.offsets import Table
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.offset_storage import OffsetStorage
from rmq.client.shown import shown, told
from rmq.protocol.errors import ClientError, RMQError
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.world import Pool

__all__ = ["OwnOffsetStore"]

log = logger(__name__)

#: Seconds that a call of the storage may take, and the wait for one before it.
_SECONDS = 10.0


class OwnOffsetStore(Table):
    """Keeps the offsets of one member where its application says."""

    def __init__(self, instance: ClientInstance, group: str, storage: OffsetStorage) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self._storage = storage
        self._pool: Pool | None = None
        self._calling = asyncio.Lock()
        #: A plain call that was given up: until it returns, none is made.
        self._hangs = False
        self._written: dict[MessageQueue, int] = {}
        self._failing = False

    async def open(self) -> None:
        self._pool = self._instance.world.pool(1, f"rmq-offsets-{self._group}")

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def remove(self, queue: MessageQueue) -> None:
        super().remove(queue)
        self._written.pop(queue, None)  # its next owner writes, too

    async def read(self, queue: MessageQueue) -> int:
        named = self._instance.namespace.queue(queue)
        offset = await self._call(lambda: self._storage.read(self._group, named), "read")
        if offset is None:
            return -1
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63:
            raise ClientError(f"{self._name('read')} gave {shown(offset)}: it must give an offset, or None")
        self._offsets.setdefault(queue, offset)
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> RMQError | None:
        known, written = self._offsets, self._written
        changed = {queue: known[queue] for queue in queues if known.get(queue, -1) not in (-1, written.get(queue))}
        if not changed:
            return None
        names = self._instance.namespace
        told = {names.queue(queue): offset for queue, offset in changed.items()}
        try:
            await self._call(lambda: self._storage.write(self._group, told), "write")
        except ClientError as error:
            if wait or not self._failing:  # once while it lasts
                again = "" if wait else ", they are tried again"
                log.warning("group %s: %d offsets were not kept%s: %s", self._group, len(changed), again, error)
            self._failing = True
            return error
        self._failing = False
        written.update({queue: offset for queue, offset in changed.items() if queue in known})
        return None

    async def _call(self, function: Callable[[], Any], what: str) -> Any:
        """:raises ClientError: it raised, or did not return in time."""
        try:
            async with patience.timeout(_SECONDS), self._calling:
                if self._hangs:
                    raise ClientError(f"{self._name(what)} was not called: the call before it does not return")
                if inspect.iscoroutinefunction(getattr(self._storage, what)):
                    return await function()
                return await self._on_thread(function, what)
        except TimeoutError:
            raise ClientError(f"{self._name(what)} did not return in {_SECONDS:g} s") from None
        except ClientError:
            raise
        except BaseException as error:
            if ends_task(error):
                raise
            raise ClientError(f"{self._name(what)} raised {told(error)}") from error

    async def _on_thread(self, function: Callable[[], Any], what: str) -> Any:
        pool = self._pool
        if pool is None:
            raise ClientError("the consumer is not started")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._hangs = True

        def done(result: Any, error: BaseException | None) -> None:
            self._hangs = False
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                failed = ClientError(f"{self._name(what)} raised {told(error)}")
                failed.__cause__ = error
                future.set_exception(failed)

        pool.submit(function, done)
        return await future

    def _name(self, what: str) -> str:
        return f"{what} of the offset store {type(inspect.unwrap(self._storage)).__name__}"  # type: ignore[arg-type]
