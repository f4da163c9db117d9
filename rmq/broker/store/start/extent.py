"""How much of the commit log a start has to check: what can have been lost, and what queues do not cover.

Whether the last stop was clean only says how many files are checked; a wrong checkpoint changes nothing but that, and
never to fewer (reliability.md I10, I11, W17, W18). What was forced to disk in this very boot of the machine needs no
check; if a file is not the one that was noted, unchanged but by later messages, nothing of it is believed. What the
disk does not give is checked from there on.
"""

from __future__ import annotations

import logging

from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.records import check
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.start.reading import Reading
from rmq.broker.store.start.recovered import LastStop
from rmq.protocol.record import FIXED_SIZE, is_blank, store_time
from rmq.runtime.world import Offload

__all__ = ["Extent"]

log = logging.getLogger(__name__)

#: Files checked after an unclean stop: more than can be waiting for a flush.
_FILES = 3
#: ms from a message's store time until it is written.
_WRITTEN_WITHIN = 50
#: Bytes of a record up to its store time.
_STAMPED = 80


class Extent:
    """What one start has to check."""

    def __init__(self, offload: Offload, disk: OnDisk, reading: Reading, last_stop: LastStop) -> None:
        self._offload = offload
        self._log = disk.log
        self._checkpoint = disk.checkpoint
        self._damaged = disk.damaged
        self._deletions = disk.deletions
        self._reading = reading
        self._clean, self._forced, _ = last_stop
        self._segment = segment_size(disk.log.file_size)

    async def sure_until(self, files: list[LogFile], covered: dict[int, int]) -> tuple[int, int] | None:
        """The first record that is to be checked when what was forced to disk is not, and the segment it is in.

        None: that is not known, or queues do not cover what is before it.
        """
        last = self._forced - 1
        at = (last - files[0].start) // self._log.file_size
        if self._forced <= files[0].start or at >= len(files):
            return None
        file = files[at]
        segment = last - last % self._segment
        start = file.start + self.covered(covered, file.start, segment)
        if start < segment or await self.first_wrong(files[:at], covered) is not None:
            return None
        for older in files[await self.first_to_check(files) : at]:
            if not await self._is_unchanged(older):
                return None
        limit = file.start + self._log.file_size - start
        head = await self._reading.peek(file, 4, start - file.start)
        length = int.from_bytes(head, "big", signed=True)
        if not FIXED_SIZE <= length <= limit:
            return None
        record = await self._reading.peek(file, length, start - file.start)
        return (start, segment) if record and check(record, 0, start, limit) == length else None

    async def as_written(self, files: list[LogFile], stamp: int) -> bool:
        """Whether the file in which what was forced ends has not been changed but by the messages in it.

        :param stamp: store time of the newest message, ms.
        """
        at = (self._forced - 1 - files[0].start) // self._log.file_size
        if self._clean:
            return await self._is_unchanged(files[at])
        if at + 1 < len(files) and any(first := await self._reading.peek(files[at + 1], _STAMPED, 0)):
            stamp = store_time(first.ljust(_STAMPED, b"\0"))  # written together with the end of the one before it
        return await self._is_unchanged(files[at], (stamp + _WRITTEN_WITHIN) * 1_000_000)

    async def first_to_check(self, files: list[LogFile]) -> int:
        """Which file the check begins with; a checkpoint can only make it an earlier one."""
        if self._clean:
            return len(files) - 1
        used = len(files)
        while used > 1 and (head := await self._reading.peek(files[used - 1], 8, 0)) and not any(head):
            used -= 1  # made in advance, nothing in it yet
        first = max(0, used - _FILES)
        oldest = self._checkpoint.oldest
        while first > 0 and oldest > 0:
            data = await self._reading.peek(files[first], 128, 0)
            if len(data) == 128 and 0 < store_time(data) <= oldest:
                break
            first -= 1
        return first

    async def first_wrong(self, files: list[LogFile], covered: dict[int, int]) -> int | None:
        """The first complete file that queues do not cover: their entries must end where its blank record begins."""
        size = self._log.file_size
        for at, file in enumerate(files):
            sizes = self.covered(covered, file.start, file.start + size)
            if sizes == size:
                continue  # known to be nothing but damage
            if sizes <= size - 8:
                blank = await self._reading.peek(file, 8, sizes)
                if is_blank(blank, 0, size - sizes):
                    continue
            log.info("consume queues do not cover %s; they are checked from there", file.path)
            return at
        return None

    def covered(self, covered: dict[int, int], start: int, stop: int) -> int:
        """Bytes of some segments that are in queues or known to be damaged."""
        sizes = sum(covered.get(segment, 0) for segment in range(start, stop, self._segment))
        return sizes + self._damaged.bytes_in(start, stop) + self._deletions.bytes_in(start, stop)

    async def _is_unchanged(self, file: LogFile, last_write_ns: int = -1) -> bool:
        if await self._offload(self._checkpoint.unchanged, file.start, file.path, last_write_ns):
            return True
        log.info("%s is not known to be as it was left; more of the commit log is checked", file.path)
        return False
