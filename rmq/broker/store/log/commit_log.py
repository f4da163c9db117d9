"""The commit log: one byte sequence over files of one size; every record of the broker is in it, in order.

Offsets are absolute: a file's name is the offset of its first byte. The rest of a file that the next record does not
fit in begins with a blank record (store-and-broker.md 2.2): total size i4, magic i4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct

from rmq.broker.store.log.append import Place
from rmq.broker.store.log.checksums import Checksums
from rmq.broker.store.log.files import LogFile, LogFiles
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.memory_tail import MemoryTail
from rmq.broker.store.refusal import FORBIDDEN, NO_SPACE, remedy
from rmq.broker.store.settings import StoreSettings
from rmq.protocol.errors import StoreError
from rmq.protocol.record import BLANK_MAGIC
from rmq.runtime.world import File, World

__all__ = ["BLANK_SIZE", "CommitLog"]

log = logging.getLogger(__name__)

BLANK_SIZE = 8
_blank = Struct(">ii").pack
#: Reads from the disk at a time; two of the eight threads stay free for flushes.
_COLD_READS = 6
#: Neighbouring spans closer than this are read in one go: copying is cheaper than another system call.
_NEAR = 4096
#: But never more than this at once.
_FAR = 256 << 10


class CommitLog:
    """Where records are written and read. All methods run on the loop; what may block is a coroutine.

    :param world: files and threads.
    :param settings: paths and sizes.
    """

    def __init__(self, world: World, settings: StoreSettings) -> None:
        self._offload = world.offload
        self.files = LogFiles(world.files, settings)
        self.file_size = settings.commit_log_file_size
        #: Of what stands beside the bodies.
        self.checksums = Checksums(world, settings, self)
        #: First readable byte and next byte to write.
        self.start = 0
        self.end = 0
        #: This process wrote what lies from here on; what lies before it was found.
        self.written_from = 0
        #: 0, or why appends are refused: bits of :class:`Gate`.
        self.gate = Gate.SHUT_DOWN
        #: Bytes that still fit into the current file, the blank record kept back.
        self.room = self.file_size - BLANK_SIZE
        #: Store time of the newest record, ms.
        self.stamp = 0
        #: Called with the start of a file that has just become the current one.
        self.on_roll: list[Callable[[int], None]] = []
        #: Called with a reason that is new: a bit of :class:`Gate`.
        self.on_closed: list[Callable[[int], None]] = []
        self._files: list[LogFile] = []
        self._current: LogFile | None = None
        self._file: File | None = None
        self._base = 0
        self._spare: LogFile | None = None
        #: Whose view was asked for last: a backlog is read from one file for long.
        self._viewed: LogFile | None = None
        self._preparing = asyncio.Lock()
        #: Files in which refused messages may lie, and the position from which on there must be zeros; pinned.
        self._unclear: dict[LogFile, int] = {}
        self._tail = MemoryTail()
        self._cold = asyncio.Semaphore(_COLD_READS)

    def gate_reason(self) -> str:
        """Why the gate is closed, in words."""
        return Gate.reason(self.gate)

    # -- writing ---------------------------------------------------------------------------------------------------

    @property
    def place(self) -> Place:
        """Where the next record goes."""
        return self.end, self.room, self.file_size

    def put(self, pieces: Sequence[bytes]) -> None:
        """Write records at the end, a piece a file (:class:`Packed`): all of them or none.

        :raises OSError: nothing of them is kept; the gate may now be closed.
        """
        before = self.end
        try:
            for number, piece in enumerate(pieces):
                if number:
                    self.roll()
                if piece:
                    self.write(piece)
        except BaseException:
            self.rewind(before)
            raise

    def write(self, data: bytes) -> None:
        """Write ``data`` at the end; it lies in one file (see ``room``).

        :raises OSError: nothing of it is kept; the gate may now be closed.
        """
        end = self.end
        self._write(data)
        self._tail.add(end, data)

    def _write(self, data: bytes | memoryview) -> None:
        file = self._file
        if file is None:
            file = self._enter(self._next_start())
        try:
            file.pwrite(data, self.end - self._base)
        except OSError as error:
            self._write_failed(error)
            raise
        size = len(data)
        self.end += size
        self.room -= size

    def roll(self) -> None:
        """End the current file with a blank record and go to the next one.

        :raises OSError: the blank record or the next file could not be written; the log is as before.
        """
        if self._file is None:
            self._enter(self._next_start())
        left = self._base + self.file_size - self.end
        if left == self.file_size:
            return
        following = self._base + self.file_size
        file = self._file
        assert file is not None
        try:
            following_file = self._open_following(following)
        except OSError as error:
            if error.errno in FORBIDDEN or error.errno in NO_SPACE:
                self._refuse(error)
            raise
        if left:
            blank = _blank(left, BLANK_MAGIC)
            try:
                file.pwrite(blank, self.end - self._base)
            except OSError as error:
                self._spare = following_file
                self._write_failed(error)
                raise
            self._tail.add(self.end, blank)
        self._adopt(following_file)

    def append_raw(self, offset: int, data: bytes | memoryview, kept: bool = True) -> None:
        """Write replicated bytes, which may not cross a file's end, at exactly ``offset``.

        :param kept: in memory, too; otherwise nothing of what lies before is any more.
        :raises StoreError: ``offset`` is neither the end of the log nor the start of the file behind it.
        """
        following = self._next_start()
        if offset != self.end or self._current is None:
            if offset != following and self._files:
                raise StoreError(f"replicated bytes are for offset {offset}, the log ends at {self.end}")
            self._adopt(self._open_following(offset - offset % self.file_size))
            if offset > self.end:
                # The first bytes of an empty slave: its log begins here.
                self.start = self.end = offset
                self.room = self._base + self.file_size - offset - BLANK_SIZE
        elif offset == following:
            self._adopt(self._open_following(following))
        if offset + len(data) > self._base + self.file_size:
            raise StoreError(f"{len(data)} replicated bytes at {offset} cross the end of a file")
        if kept:
            self.write(bytes(data))
        else:
            self._write(data)
            if self._tail.size:
                self._tail.clear()

    def _write_failed(self, error: OSError) -> None:
        """Half a write may be there, perhaps with whole records nobody was told of: make it zeros again."""
        self._refuse(error)
        if self._current is not None:
            self._must_be_clear(self._current, self.end - self._base)
            self._clear_now()

    def _refuse(self, error: OSError) -> None:
        if error.errno in NO_SPACE:
            self.close_gate(Gate.DISK_FULL)
        else:
            log.error("the commit log could not be written at offset %d (%s)%s", self.end, error, remedy(error))
            self.close_gate(Gate.WRITE_FORBIDDEN if error.errno in FORBIDDEN else Gate.NOT_WRITABLE)

    def rewind(self, to: int) -> None:
        """Take back what was written from ``to`` on: pieces that failed half-way leave nothing.

        Closes the gate when that does not work, since a restart would find those records.
        """
        if to == self.end or self._current is None:
            return
        self._viewed = None
        while self._base > to and len(self._files) > 1:
            left = self._files.pop()
            self._must_be_clear(left, 0)
            if self._spare is not None:
                self._spare.shared.drop()
            self._spare = left
            self._current = self._files[-1]
            self._file = self._current.file
            self._base = self._current.start
        self.end = max(to, self._base)
        self.room = self._base + self.file_size - self.end - BLANK_SIZE
        self._tail.cut(self.end)
        self._must_be_clear(self._current, self.end - self._base)
        self._clear_now()

    def _must_be_clear(self, file: LogFile, position: int) -> None:
        if file not in self._unclear:
            file.shared.pin()
        self._unclear[file] = position

    def _is_clear(self, file: LogFile) -> None:
        del self._unclear[file]
        file.shared.unpin()

    def _clear_now(self) -> None:
        for file, position in list(self._unclear.items()):
            try:
                self.files.zero_from(file, position)
            except OSError as error:
                log.error(
                    "%s could not be cleared behind offset %d (%s)%s",
                    file.path, file.start + position, error, remedy(error),
                )  # fmt: skip
                passes = error.errno in FORBIDDEN or error.errno in NO_SPACE
                self.close_gate(Gate.WRITE_FORBIDDEN if passes else Gate.NOT_WRITABLE)
            else:
                self._is_clear(file)

    async def clear(self) -> bool:
        """Try again to make zeros of what refused messages have left (the gate is closed); whether that is done."""
        for file, position in list(self._unclear.items()):
            try:
                await self._offload(self.files.zero_from, file, position)
            except OSError:
                return False
            if file in self._unclear:
                self._is_clear(file)
        return True

    def close_gate(self, bit: int) -> None:
        """Refuse appends for the reason ``bit``; logged when it is news."""
        if not self.gate & bit:
            self.gate |= bit
            log.error("messages are refused from now on: %s", Gate.reason(bit))
            for listener in self.on_closed:
                listener(bit)

    def open_gate(self, bit: int) -> None:
        """Take a reason back."""
        if self.gate & bit:
            self.gate &= ~bit
            log.info("no longer a reason to refuse messages: %s", Gate.reason(bit))

    # -- files -----------------------------------------------------------------------------------------------------

    def _next_start(self) -> int:
        return self._base + self.file_size if self._current is not None else self.end - self.end % self.file_size

    def _open_following(self, start: int) -> LogFile:
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.start == start:
                return spare
            if not self._files:
                self._remove_early(spare)
            spare.shared.drop()
        return self.files.create(start)

    def _enter(self, start: int) -> File:
        self._adopt(self._open_following(start))
        assert self._file is not None
        return self._file

    def _adopt(self, file: LogFile) -> None:
        self._files.append(file)
        self._current = file
        self._file = file.file
        self._base = file.start
        if len(self._files) == 1:
            self.start = max(self.start, file.start)
        self.end = max(self.end, file.start)
        self.room = file.start + self.file_size - self.end - BLANK_SIZE
        for hook in self.on_roll:
            hook(file.start)

    async def prepare(self) -> None:
        """Have the next file ready, allocated and forced to disk, before it is needed.

        :raises OSError: it cannot be made; the roll will try again.
        """
        if self._preparing.locked() or self._spare is not None:
            return
        async with self._preparing:
            start = self._next_start()
            made: list[LogFile] = []
            try:
                await self._offload(lambda: made.append(self.files.prepare(start, lambda: self._is_in(start))))
            finally:
                # A stop may cancel this while it is made: the file is there all the same, and for the stop to remove.
                for file in made:
                    self._keep_prepared(file)

    def _is_in(self, start: int) -> bool:
        """Whether the log goes on in the file that begins at ``start``, or behind it."""
        return self._current is not None and self._current.start >= start

    def _keep_prepared(self, made: LogFile) -> None:
        if self._spare is None and made.start == self._next_start():
            self._spare = made
            return
        current = self._current
        # The step came first and made the same file itself.
        if current is not None and current.start == made.start:
            current.entry_synced = current.entry_synced or made.entry_synced
        elif self._files and made.start < self._files[0].start:
            self._remove_early(made)
        made.shared.drop()

    def _remove_early(self, file: LogFile) -> None:
        """A file was made ready for an empty log, which then began behind it: a start would find it full of zeros."""
        try:
            self.files.remove(file)
        except OSError as error:
            log.error("%s is no part of the log and could not be removed (%s): remove it", file.path, error)

    @property
    def prepared(self) -> bool:
        """Whether the next file is there."""
        return self._spare is not None

    def adopt_loaded(self, files: list[LogFile]) -> None:
        """Take over the files found at start. The end is that of the last one, until :meth:`settle` says better."""
        self._files = files
        self._current = None
        self._file = None
        self.start = files[0].start if files else 0
        self.end = files[-1].start + self.file_size if files else 0

    async def settle(self, end: int) -> None:
        """Make ``end`` the end of the log: later files go, later bytes become zeros.

        :param end: where the next record goes; 0 for an empty log.
        """
        self._tail.clear()
        self._viewed = None
        for file in list(self._unclear):
            self._is_clear(file)
        if self._spare is not None:
            self._spare.shared.drop()
            self._spare = None
        keep = [file for file in self._files if file.start < end or (file.start == end == self.start)]
        for file in reversed(self._files[len(keep) :]):
            await self._offload(self.files.remove, file)
            file.shared.drop()
        self._files = keep
        self.end = end
        if not keep:
            self._current = None
            self._file = None
            self.start = end
            self.room = self.file_size - BLANK_SIZE
            return
        last = keep[-1]
        self._current = last
        self._file = last.file
        self._base = last.start
        position = end - last.start
        if position < self.file_size:
            await self._offload(self.files.zero_from, last, position)
        self.room = self.file_size - position - BLANK_SIZE

    async def truncate(self, to: int) -> None:
        """Cut everything from ``to`` on (replication, Raft): ``Store.truncate`` takes the rest of the store with it.

        :raises StoreError: ``to`` lies outside the log.
        """
        if not self.start <= to <= self.end:
            raise StoreError(f"the log holds {self.start} to {self.end} and cannot be cut at {to}")
        async with self._preparing:
            if self._spare is not None:
                # It would be found without the files before it.
                await self._offload(self.files.remove, self._spare)
            await self.settle(to)

    async def vacate(self) -> None:
        """Have an empty log lose its files, too: it may begin anywhere then.

        :raises StoreError: it is not empty.
        """
        if self.end > self.start:
            raise StoreError(f"the log holds {self.start} to {self.end} and cannot begin anew")
        async with self._preparing:
            if self._spare is not None:
                await self._offload(self.files.remove, self._spare)
                self._spare.shared.drop()
                self._spare = None
            for file in reversed(self._files):
                await self._offload(self.files.remove, file)
                file.shared.drop()
            self._tail.clear()
            self._files, self._viewed, self._current, self._file = [], None, None, None
            self.room = self.file_size - BLANK_SIZE

    @property
    def segments(self) -> Sequence[LogFile]:
        """The files, oldest first."""
        return self._files

    def segment_of(self, offset: int) -> LogFile | None:
        """The file that holds ``offset``."""
        if not self._files:
            return None
        at = (offset - self._files[0].start) // self.file_size
        return self._files[at] if 0 <= at < len(self._files) else None

    async def remove_first(self) -> bool:
        """Delete the oldest file, never the last one; whether there was one to delete."""
        if len(self._files) < 2:
            return False
        first = self._files.pop(0)
        self._viewed = None
        self.start = self._files[0].start
        first.shared.drop()
        await self._offload(self.files.remove, first)
        return True

    async def close(self, *, remove_unused: bool) -> None:
        """Close every file; an unused prepared one is deleted on a clean stop, as Java does."""
        for file in list(self._unclear):
            log.error("%s could not be cleared: messages that were refused may be there at the next start", file.path)
            self._is_clear(file)
        spare, self._spare = self._spare, None
        opened, self._files = self._files, []
        self._current = None
        self._file = None
        try:
            if spare is not None and remove_unused:
                await self._offload(self.files.remove, spare)
        finally:
            for file in opened if spare is None else [*opened, spare]:
                file.shared.drop()

    # -- reading ---------------------------------------------------------------------------------------------------

    def has_written(self, offset: int) -> bool:
        """Whether what lies from ``offset`` on is kept as this process wrote it: no disk has had a hand in it."""
        return offset >= self._tail.first

    def written(self, offset: int, size: int) -> bytes | None:
        """``size`` bytes as this process wrote them, or None when they are not kept."""
        return self._tail.read(offset, size)

    def pieces(self, offset: int, size: int) -> list[bytes] | None:
        """The same in the pieces in which they were written."""
        return self._tail.pieces(offset, size)

    def read(self, offset: int, size: int) -> bytes | None:
        """Bytes from memory or the page cache.

        :returns: None when they are cold; fewer than ``size`` bytes (perhaps none) when the log does not hold them all
            in one file.
        """
        if offset >= self._tail.first:
            data = self._tail.read(offset, size)
            if data is not None:
                return data
        file = self._readable(offset, size)
        return b"" if file is None else file.file.pread_hot(size, offset - file.start)

    def _readable(self, offset: int, size: int) -> LogFile | None:
        if offset < self.start or offset + size > self.end or size < 0:
            return None
        file = self.segment_of(offset)
        return file if file is not None and offset + size <= file.start + self.file_size else None

    async def read_cold(self, offset: int, size: int) -> bytes:
        """The same from wherever they are; fewer than ``size`` bytes when the log does not hold them."""
        data = self.read(offset, size)
        if data is not None:
            return data
        async with self._cold:
            file = self._readable(offset, size)
            if file is None:
                return b""
            shared = file.shared
            try:
                return await self._offload(shared.pin().pread, size, offset - file.start)
            finally:
                shared.unpin()

    def view(self, first: int, end: int) -> tuple[memoryview, int] | None:
        """The file that holds the bytes from ``first`` to ``end``, when they are in memory and in one file.

        :returns: a view of the file, in which only these bytes may be looked at, and the offset of its first byte;
            None: :meth:`read_many` is the other way.
        """
        if first < self.start or end > self.end:
            return None
        file = self._viewed
        if file is None or first < file.start or end > file.start + self.file_size:
            file = self._readable(first, end - first)
            if file is None:
                return None
            self._viewed = file
        start = file.start
        view = file.shared.file.hot_view(end - first, first - start)
        return None if view is None else (view, start)

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """The bytes of each (offset, size), offsets ascending: one pull's records.

        :returns: None when any is cold; an item is shorter than asked where the log does not hold it.
        """
        if not spans:
            return []
        if spans[0][0] >= self._tail.first:
            found = self._tail.read_many(spans)
            if found is not None:
                return found
        found = []
        for lo, hi, group in self._groups(spans):
            if hi - lo == group[0][1]:
                data = self.read(lo, hi - lo)
                if data is None:
                    return None
                found.append(data)
                continue
            data = self.read(lo, hi - lo)
            if data is None:
                return None
            if len(data) == hi - lo:
                found += [data[offset - lo : offset - lo + size] for offset, size in group]
                continue
            for offset, size in group:
                piece = self.read(offset, size)
                if piece is None:
                    return None
                found.append(piece)
        return found

    async def read_many_cold(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The same from wherever they are."""
        found: list[bytes] = []
        for lo, hi, group in self._groups(spans):
            data = await self.read_cold(lo, hi - lo)
            if len(data) == hi - lo:
                found += [data[offset - lo : offset - lo + size] for offset, size in group]
            else:
                found += [await self.read_cold(offset, size) for offset, size in group]
        return found

    def _groups(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Spans that lie close together in one file, as (low, high, spans)."""
        groups: list[tuple[int, int, list[tuple[int, int]]]] = []
        lo, size = spans[0]
        hi = lo + size
        group = [spans[0]]
        file_end = lo - lo % self.file_size + self.file_size
        for span in spans[1:]:
            offset, size = span
            if 0 <= offset - hi <= _NEAR and offset + size - lo <= _FAR and offset + size <= file_end:
                group.append(span)
                hi = offset + size
            else:
                groups.append((lo, hi, group))
                lo = offset
                hi = offset + size
                group = [span]
                file_end = lo - lo % self.file_size + self.file_size
        groups.append((lo, hi, group))
        return groups
