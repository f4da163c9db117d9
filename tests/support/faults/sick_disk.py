"""A disk that cannot read some places of a store, until it is well again."""

from __future__ import annotations

import errno
import os
from typing import Any

from rmq.broker.store.store import Store

__all__ = ["Sick"]


class Sick:
    """Makes reads of a running store fail with EIO.

    :param offsets: of records of the commit log.
    """

    def __init__(self, store: Store, *offsets: int) -> None:
        self._offsets = set(offsets)
        self._entries: set[tuple[str, int, int]] = set()
        log, queues = store.log, store.queues
        hot, cold, entries = log.read, log.read_cold, queues.entries_cold

        async def read_cold(offset: int, size: int) -> bytes:
            if offset in self._offsets:
                raise _fault("/store/commitlog/0")
            return await cold(offset, size)

        async def entries_cold(queue: Any, index: int, count: int) -> bytes:
            if any((queue.topic, queue.id, at) in self._entries for at in range(index, index + count)):
                raise _fault(f"/store/consumequeue/{queue.topic}")
            return await entries(queue, index, count)

        log.read = lambda offset, size: None if offset in self._offsets else hot(offset, size)  # type: ignore[method-assign]
        log.read_cold = read_cold  # type: ignore[method-assign]
        queues.entries_cold = entries_cold  # type: ignore[method-assign]

    def entries(self, topic: str, *indexes: int, queue_id: int = 0) -> None:
        """Queue entries that cannot be read from now on."""
        self._entries.update((topic, queue_id, index) for index in indexes)

    def heal(self) -> None:
        """Everything can be read again."""
        self._offsets.clear()
        self._entries.clear()


def _fault(path: str) -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO), path)
