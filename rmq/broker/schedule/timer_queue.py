"""Reads the queue that timer messages wait in, and that of the marks which say what is dealt with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue
from rmq.protocol.errors import ProtocolError
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.names import TIMER_DONE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from rmq.broker.store.store import Store
    from rmq.remoting.limits import Rationed

__all__ = ["TimerQueue"]

log = logging.getLogger(__name__)

#: Entries read at a time, and those that are read beside one whose place is asked for.
_ENTRIES = 1024
_NEIGHBOURS = 128

_entry = ENTRY.unpack_from


class TimerQueue:
    """Entries and messages by index. Reads off the loop; what cannot be read costs itself alone.

    :param notes: who is told of entries that are skipped.
    """

    def __init__(self, store: Store, notes: Rationed) -> None:
        self._store = store
        self._notes = notes
        self._chunk = (0, b"")  # entries last read, and the index of the first

    @property
    def queue(self) -> Queue | None:
        """None as long as nothing has waited."""
        return self._store.queues.get(TIMER_TOPIC, 0)

    @property
    def marks(self) -> Queue | None:
        return self._store.queues.get(TIMER_DONE_TOPIC, 0)

    async def entries(self, queue: Queue, index: int, count: int) -> bytes | OSError:
        """Some entries, at least one; the error when not even that one can be read."""
        count = min(_ENTRIES, count)
        while True:
            try:
                data = await self._store.queues.entries_cold(queue, index, count)
            except OSError as error:
                if count == 1:
                    return error
                count = 1
                continue
            return data if len(data) >= ENTRY_SIZE else OSError(f"there is no entry {index} in its file")

    async def place(self, queue: Queue, index: int) -> tuple[int, int, int]:
        """Where the record of an entry lies, its size, and the entry's code; neighbours are read together.

        :raises OSError: it cannot be read.
        """
        first, data = self._chunk
        at = (index - first) * ENTRY_SIZE
        if not 0 <= at < len(data) - ENTRY_SIZE + 1:
            if index < queue.min:
                return -1, 0, 0
            found = await self.entries(queue, index, min(_NEIGHBOURS, queue.visible - index))
            if isinstance(found, OSError):
                raise found
            data = found
            self._chunk = (index, data)
            at = 0
        return _entry(data, at)

    async def raw(self, index: int, position: int, size: int) -> bytes:
        """The message of an entry; nothing when it is gone, or lost."""
        queue = self.queue
        return b"" if queue is None else await self._store.messages.of_entry(queue, index, position, size)

    async def records(self, queue: Queue, index: int) -> AsyncIterator[tuple[int, MessageRecord]]:
        """Messages from ``index`` on, without those that cannot be read."""
        while index < queue.next:
            data = await self.entries(queue, index, queue.next - index)
            if isinstance(data, OSError):
                self._skipped(queue, index, data)
                index += 1
                continue
            for at in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
                position, size, _ = _entry(data, at)
                try:
                    record = decode_record(await self._store.messages.of_entry(queue, index, position, size))
                except (ProtocolError, OSError) as error:
                    self._skipped(queue, index, error)
                else:
                    yield index, record
                index += 1
            await asyncio.sleep(0)

    def _skipped(self, queue: Queue, index: int, error: Exception) -> None:
        self._notes.say(log.error, "entry %d of %r cannot be read and is skipped: %s", index, queue, error)

    async def first_mark(self, marks: Queue, queue: Queue, floor: int) -> int:
        """Index of the first mark that may speak of messages from ``floor`` on: it lies behind it in the log."""
        first = await self._position(queue, floor)
        low, high = marks.min, marks.next
        while low < high:
            middle = (low + high) // 2
            if await self._position(marks, middle) < first:
                low = middle + 1
            else:
                high = middle
        return low

    async def _position(self, queue: Queue, index: int) -> int:
        try:
            entry = await self._store.queues.entries_cold(queue, index, 1)
        except OSError:
            return -1
        return int.from_bytes(entry[:8], "big") if len(entry) == ENTRY_SIZE else -1
