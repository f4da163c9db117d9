"""One message of the store: by the entry that its queue has for it, or by where it lies in the log."""

from __future__ import annotations

from rmq.broker.store.care.mending import Mending
from rmq.broker.store.log.durability import Durability
from rmq.broker.store.log.records import check
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.queues.fitting import fits, is_size
from rmq.broker.store.state import PLACE, Queue
from rmq.protocol.record import FIXED_SIZE, fields, topic_of

__all__ = ["Messages"]

_place = PLACE.unpack
_owner = fields("queue_id", "queue_offset", "sys_flag")


class Messages:
    """Compares what is read before anybody gets it, and has put right what does not fit."""

    def __init__(self, disk: OnDisk, durability: Durability, mending: Mending) -> None:
        self._log = disk.log
        self._queues = disk.queues
        self._damaged = disk.damaged
        self._durability = durability
        self._mending = mending

    async def of_entry(self, queue: Queue, index: int, offset: int, size: int) -> bytes:
        """The message that an entry of a queue stands for; nothing when it is gone, or lost.

        :param offset: where the entry at ``index`` points to, and
        :param size: what it says of the record's size.
        :raises OSError: it cannot be read now.
        """
        for again in (False, True):
            if is_blank(offset, size):
                return b""
            record = await self._log.read_cold(offset, size) if is_size(size) else b""
            if (
                record
                and fits(queue, index, offset, size, record, crc=True)
                and not await self._differs(offset, record)
            ):
                return record
            if again or not queue.min <= index < queue.next:
                return b""
            if not await self._mending.settled(queue, [index]):
                raise TimeoutError(f"what {queue!r} has at {index} is looked for in the commit log")
            entry = await self._queues.entries_cold(queue, index, 1)
            offset, size = _place(entry) if entry else (0, 0)
        return b""

    async def _differs(self, offset: int, record: bytes) -> bool:
        """Whether something beside the body of a good record is not as it was."""
        return bool(await self._log.checksums.differing((offset,), (record,)))

    async def at(self, offset: int) -> bytes | None:
        """The bytes of the good, visible record at ``offset``, or None."""
        commit_log = self._log
        if not commit_log.start <= offset < self._durability.visible:
            return None
        head = await commit_log.read_cold(offset, 4)
        size = int.from_bytes(head, "big", signed=True)
        limit = commit_log.file_size - offset % commit_log.file_size
        if len(head) < 4 or not FIXED_SIZE <= size <= limit:
            return None
        if self._damaged.parts and self._damaged.bytes_in(offset, offset + size):
            return None
        data = await commit_log.read_cold(offset, size)
        if check(data, 0, offset, limit) != size or not await self._is_its_queues(data, offset):
            return None
        return data

    async def _is_its_queues(self, record: bytes, offset: int) -> bool:
        """Whether a record is the message that it says: its queue has an entry for that, which tells of changes."""
        differs = await self._differs(offset, record)
        queue_id, index, sys_flag = _owner(record, 0)
        queue = self._queues.get(topic_of(record), queue_id)
        if queue is None or sys_flag & 0x4 or index < queue.min:
            return not differs  # no queue has it, or not any more
        for again in (True,) if differs else (False, True):
            if index >= queue.next or (again and not await self._mending.settled(queue, [index])):
                return False
            entry = await self._queues.entries_cold(queue, index, 1)
            if not entry or _place(entry)[0] == offset:
                return True
        return False
