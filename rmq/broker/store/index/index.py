"""The index of messages by key: which files there are, what goes into the newest, and how a key is found.

Putting is on the hot path and touches memory only. Files are made, written and forced to disk in the background.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime
from struct import Struct

from rmq.broker.store.again import write_again
from rmq.broker.store.index.chains import offset_of, offsets_in, read_entry
from rmq.broker.store.index.file import ENTRY, HEADER_SIZE, IndexFile, IndexHeader
from rmq.broker.store.open_files import SharedFile, open_aside
from rmq.broker.store.refusal import SPOILT, told
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.spoilt import bury, make_way
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.trouble import Trouble
from rmq.runtime.world import File, World

__all__ = ["Index"]

log = logging.getLogger(__name__)

_entry = Struct(">iqii").unpack
_VERIFY = 1 << 20
#: Bytes of entries that may wait in memory when they cannot be written.
_MOST_WAITING = 64 << 20
#: Entries looked at in one go: some milliseconds.
_ENTRIES_AT_ONCE = 10_000
#: Files made later are all named after one moment of the year 9998: a name has four digits for the year.
_LATEST_NAME = 253_370_764_800_000


class Index:
    """Keys to commit-log offsets.

    :param world: files, threads, the wall clock for the names of files.
    :param settings: sizes and paths.
    :param checkpoint: gets the end time of every full file once it is on disk.
    """

    def __init__(self, world: World, settings: StoreSettings, checkpoint: Checkpoint) -> None:
        self._world = world
        self._offload = world.offload
        self._root = settings.root
        self._directory = os.path.join(settings.root, "index")
        self._slots = settings.index_slots
        self._capacity = settings.index_entries
        self._checkpoint = checkpoint
        self._files: list[IndexFile] = []
        #: Full files with parts that are not on disk yet, oldest first.
        self._unsealed: list[IndexFile] = []
        self._lock = asyncio.Lock()
        #: Where the last clean stop says that the index ended.
        self._noted: int | None = None
        self._trouble = Trouble(world.clock, log, "writing the index", "its entries stay in memory and are tried again")
        #: Why entries could not be written when that was tried last; and it takes no more of them until they are.
        self.failed: OSError | None = None
        self._is_full = False
        #: Nothing that an unclean stop left is in the way of putting.
        self.checked = True

    # -- putting ---------------------------------------------------------------------------------------------------

    def put_many(self, hashes: list[tuple[int, int]], stamp: int) -> None:
        """Add keys.

        :param hashes: (non-negative hash of ``topic#key``, commit-log offset), offsets ascending.
        :param stamp: the messages' store time, ms.
        :raises OSError: too many wait to be written, and cannot be.
        """
        if self._is_full and self.failed is not None:
            raise OSError(self.failed.errno, self.failed.strerror, self.failed.filename)
        files = self._files
        size = len(hashes)
        at = files[-1].put_many(hashes, 0, stamp) if files else 0
        while at < size:
            self._begin_file()
            at = files[-1].put_many(hashes, at, stamp)

    def put(self, value: int, offset: int, stamp: int) -> None:
        """Add one key."""
        self.put_many([(value, offset)], stamp)

    def _begin_file(self) -> None:
        last = self._files[-1] if self._files else None
        name = self._name()
        if last is not None:
            if last.filling:
                self._unsealed.append(last)
            name = max(name, str(int(last.name) + 1))
        made = IndexFile(name, os.path.join(self._directory, name), self._slots, self._capacity)
        made.open_slots()
        if last is not None:
            made.begin_timestamp = made.end_timestamp = last.end_timestamp
            made.begin_offset = made.end_offset = last.end_offset
        self._files.append(made)

    def _name(self) -> str:
        """Local time to the millisecond, 17 digits."""
        now = min(self._world.clock.now_ms(), _LATEST_NAME)
        return datetime.fromtimestamp(now // 1000).strftime("%Y%m%d%H%M%S") + f"{now % 1000:03d}"

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def files(self) -> list[IndexFile]:
        """Oldest first."""
        return self._files

    @property
    def end(self) -> tuple[int, int]:
        """End time and end offset of the newest file; zeros when there is none."""
        return (self._files[-1].end_timestamp, self._files[-1].end_offset) if self._files else (0, 0)

    @property
    def position(self) -> tuple[int, int]:
        """Name (as a number) and next entry of the newest file: what a clean stop notes."""
        return (int(self._files[-1].name), self._files[-1].count) if self._files else (0, 0)

    @property
    def waiting(self) -> int:
        """Bytes of entries that are in memory only."""
        return sum(file.waiting for file in {*self._unsealed, *self._files[-1:]})

    # -- writing ---------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Write waiting entries; bring full files to disk and tell the checkpoint.

        :raises OSError: what could not be written is kept.
        """
        async with self._lock:
            if not self.checked:
                return
            try:
                await self._write()
            except OSError as error:
                self.failed = error
                self._is_full = self.waiting > _MOST_WAITING
                raise
            self.failed, self._is_full = None, False

    async def try_write(self) -> bool:
        """:meth:`write`; an error is told in the log. Whether it worked."""
        try:
            await self.write()
        except OSError as error:
            self._trouble.failed(error)
            return False
        self._trouble.over()
        return True

    async def force(self) -> None:
        """Bring everything to disk, the slot table of the newest file, too, and tell the checkpoint.

        :raises OSError: some of it may not be there; the checkpoint says no more than before.
        """
        async with self._lock:
            if not self.checked:
                return
            await self._write()
            if self._files and self._files[-1].filling and self._files[-1].count > self._files[-1].forced:
                await self._force(self._files[-1])

    async def _write(self) -> None:
        while self._unsealed:
            file = self._unsealed[0]
            await self._force(file)
            self._unsealed.pop(0)
            file.drop_slots()
            await self._offload(self._checkpoint.save)
        if self._files and self._files[-1].filling:
            await self._write_entries(self._files[-1])

    async def _write_entries(self, file: IndexFile) -> None:
        if file.waiting:
            shared = await self._made(file)
            position, data = file.take_buffer()
            await self._offload(shared.file.pwrite, data, position)
            file.written(len(data))

    async def _force(self, file: IndexFile) -> None:
        """Make the file on disk whole up to now.

        While its slots are being written they agree with no header: one that says so is on disk first, and Java throws
        the file away if that is what it finds.
        """
        shared = await self._made(file)
        if file.in_doubt:
            await self._offload(write_again, shared.file, 0, file.size)
        try:
            header = await self._force_made(file, shared)
        except OSError:
            file.in_doubt = True
            raise
        file.in_doubt = False
        file.forced = header.next
        self._checkpoint.index = max(self._checkpoint.index, header.end_timestamp)

    async def _force_made(self, file: IndexFile, shared: SharedFile) -> IndexHeader:
        if file.forced > 1 and self._checkpoint.index > file.begin_timestamp:
            # Should the power fail meanwhile, Java throws the file away: the time vouches for those before it alone.
            self._checkpoint.index = file.begin_timestamp
            await self._offload(self._checkpoint.save)
        await self._offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
        await self._offload(shared.file.datasync)
        # Keys go on being put: what is written is the state of this moment.
        header = file.header()
        slots = file.slots_now()
        await self._write_entries(file)
        for number in range(file.slot_pieces()):
            piece = file.slot_piece(slots, number)
            if piece is not None:
                await self._offload(shared.file.pwrite, piece, file.piece(number)[1])
        await self._offload(shared.file.datasync)
        await self._offload(shared.file.pwrite, header.encode(), 0)
        await self._offload(shared.file.datasync)
        return header

    async def _made(self, file: IndexFile) -> SharedFile:
        """The open file; it is made when it is not there yet."""
        if file.shared is None:
            head = file.header(unfinished=True).encode()
            file.shared = SharedFile(await open_aside(self._offload, self._make, file.path, file.size, head))
        return file.shared

    def _make(self, path: str, size: int, header: bytes) -> File:
        files = self._world.files
        files.mkdir(self._directory)
        file = files.open(path, create=True)
        try:
            file.allocate(size)
            file.pwrite(header, 0)
            files.sync_dir(self._directory)
        except BaseException:
            file.close()
            raise
        return file

    # -- start and stop --------------------------------------------------------------------------------------------

    async def open(self, *, clean: bool) -> None:
        """Open what is there; :meth:`check` says what of it can be used.

        :param clean: the last stop was clean.
        """
        names = [
            name for name in await self._offload(self._world.files.list, self._directory)
            if len(name) == 17 and name.isascii() and name.isdigit()
        ]  # fmt: skip
        for at, name in enumerate(names):
            file = IndexFile(name, os.path.join(self._directory, name), self._slots, self._capacity)
            try:
                fits = await self._open(file)
            except BaseException:
                file.close()
                raise
            if not fits or (self._files and file.count > 1 and file.begin_offset < self._files[-1].end_offset):
                log.warning("index file %s does not fit; it and what follows is built anew", file.path)
                file.close()
                if not await self._discard(names[at:]):
                    self.close()
                    await self._offload(bury, self._world.files, self._root, self._directory)
                break
            self._files.append(file)
        if clean:
            last = (int(self._files[-1].name), self._files[-1].count) if self._files else (0, 0)
            self._noted = self._checkpoint.indexed_to(*last)
        self.checked = self._noted is not None or not self._files

    @property
    def known_end(self) -> int:
        """Commit-log offset up to which nothing is missing, as far as a clean stop or headers tell."""
        return self.end[1] if self._noted is None else self._noted

    @property
    def unchecked(self) -> int:
        """Bytes of entries that :meth:`check` has to look at, as far as headers tell."""
        return 0 if self.checked else sum(ENTRY * file.count for file in self._files[-2:])

    async def check(self) -> tuple[int, int] | None:
        """Throw away what cannot be trusted after an unclean stop; takes long when there is much.

        Until it is done nothing can be put, and nothing is written or deleted.

        :returns: a commit-log offset where a record begins, and the offset (there or behind) from which on messages
            may be missing; None when any may be.
        """
        if self._noted is not None:
            if self._files and not self._files[-1].full:
                await self._load_slots(self._files[-1])
            return self._noted, self._noted
        for file in self._files[-2:]:
            if file in self._files and not (file.full and not file.unfinished and await self._whole(file)):
                await self._reopen(file)
        self.checked = True
        if not self._files:
            return None
        # A full file may lack keys of its last message: that message is put again, as Java does.
        end = self._files[-1].end_offset
        return end, end if self._files[-1].full else end + 1

    async def _whole(self, file: IndexFile) -> bool:
        """Whether a full file is all on disk: as many slots as its header says, and no lost page of entries."""
        shared = file.shared
        assert shared is not None
        used = 0
        for number in range(file.slot_pieces()):
            used += file.used_slots(await self._offload(shared.file.pread, *file.piece(number)))
        if used != file.slot_count:
            return False
        position = file.entry_position(1)
        end = file.entry_position(file.count)
        hole = bytes(4096)
        while position < end:
            data = await self._offload(shared.file.pread, min(_VERIFY, end - position), position)
            if hole in data:
                return False
            position += _VERIFY - 2 * len(hole)
        return True

    async def _open(self, file: IndexFile) -> bool:
        try:
            return await self._adopt(file)
        except OSError as error:
            if error.errno not in SPOILT:
                raise
            log.error("%s; the index is made of the commit log from there on", told(error, file.path))
            return False

    async def _adopt(self, file: IndexFile) -> bool:
        files = self._world.files
        size = await self._offload(files.size, file.path)
        if size != file.size:
            log.warning("index file %s has %d bytes, not %d", file.path, size, file.size)
            return False
        file.shared = SharedFile(await open_aside(self._offload, files.open, file.path))
        header = IndexHeader.decode(await self._offload(file.shared.file.pread, HEADER_SIZE, 0))
        if not 0 <= header.next <= file.capacity or header.begin_offset > header.end_offset:
            log.warning("index file %s has a header that cannot be right", file.path)
            return False
        file.adopt(header)
        return True

    async def _load_slots(self, file: IndexFile) -> None:
        shared = file.shared
        assert shared is not None
        file.open_slots()
        for number in range(file.slot_pieces()):
            file.load_slot_piece(number, await self._offload(shared.file.pread, *file.piece(number)))

    async def _reopen(self, file: IndexFile) -> None:
        """Rebuild a file's slots from its entries, as far as these are good, without its last message.

        That message may lack keys; the log has them all.
        """
        shared = file.shared
        assert shared is not None
        was = file.header()
        file.adopt(was._replace(slot_count=0, end_offset=was.begin_offset, next=1))
        file.open_slots()
        # A crash may have kept the header from telling of the last entries: look as far as there are any.
        first = 1
        while was.begin_timestamp > 0 and first < file.capacity:
            want = min(_ENTRIES_AT_ONCE, file.capacity - first)
            data = await self._offload(shared.file.pread, want * ENTRY, file.entry_position(first))
            if not file.verify(first, data) or len(data) < want * ENTRY:
                break
            first += want
            await asyncio.sleep(0)
        following = self._files[self._files.index(file) + 1 :]
        found = file.count
        if following and found == file.capacity:
            entry = await self._offload(shared.file.pread, ENTRY, file.entry_position(found - 1))
            file.end_timestamp = min(was.end_timestamp, file.begin_timestamp + 1000 * _entry(entry)[2] + 999)
            self._unsealed.append(file)
            return
        if following or found < was.next:
            log.warning("index file %s: entries from %d on are built anew", file.path, found)
        await self._take_back(file, file.end_offset)
        if file.count <= 1:
            following.insert(0, file)
        else:
            await self._offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
        await self._discard([item.name for item in following])
        for item in following:
            item.close()
            self._files.remove(item)

    async def _take_back(self, file: IndexFile, to: int) -> None:
        """Take away the entries of messages from commit-log offset ``to`` on; all entries are in the file."""
        shared = file.shared
        assert shared is not None
        while file.count > 1:
            first = max(1, file.count - 64)
            data = await self._offload(shared.file.pread, (file.count - first) * ENTRY, file.entry_position(first))
            if file.take_back(first, data, to):
                break

    async def cut(self, to: int) -> None:
        """Take away the keys of messages from commit-log offset ``to`` on; no key is put meanwhile.

        :raises OSError: it may be called again.
        """
        async with self._lock:
            if not self.checked:
                return  # :meth:`check` says what can be used, and the log has an end then
            while self._files and (self._files[-1].count <= 1 or self._files[-1].begin_offset >= to):
                gone = self._files[-1]
                await self._discard([gone.name])
                gone.close()
                self._files.pop()
                if gone in self._unsealed:
                    self._unsealed.remove(gone)
            if not self._files or self._files[-1].end_offset < to:
                return
            file = self._files[-1]
            shared = await self._made(file)
            # From here to the next time it is forced, slots and entries on disk do not fit.
            await self._offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
            if not file.filling:
                await self._load_slots(file)
            if file in self._unsealed:
                self._unsealed.remove(file)
            await self._write_entries(file)
            await self._take_back(file, to)
            slots = file.slots_now()
            for number in range(file.slot_pieces()):
                size, position = file.piece(number)
                # Pieces without an entry are never written: one that had some must not keep them.
                if file.slot_piece(slots, number) is None and any(
                    await self._offload(shared.file.pread, size, position)
                ):
                    await self._offload(shared.file.pwrite, bytes(size), position)
            await self._offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
            file.forced = 1

    async def discard_all(self) -> None:
        """Begin the index anew."""
        async with self._lock:
            names = [file.name for file in self._files]
            self.close()
            await self._discard(names)
            self._noted = None

    async def _discard(self, names: list[str]) -> bool:
        """Take files away; False when the disk does not let one go."""
        free = True
        for name in names:
            path = os.path.join(self._directory, name)
            free = await self._offload(make_way, self._world.files, self._root, path) and free
        return free

    async def delete_expired(self, log_start: int) -> int:
        """Delete files that point before the log only, never the newest one; how many."""
        count = 0
        async with self._lock:
            while (
                self.checked
                and len(self._files) > 1
                and self._files[0].end_offset < log_start
                and self._files[0] not in self._unsealed
            ):
                file = self._files.pop(0)
                file.close()
                await self._discard([file.name])
                count += 1
        return count

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []
        self._unsealed = []

    # -- finding ---------------------------------------------------------------------------------------------------

    async def query(self, value: int, limit: int, begin: int, end: int) -> list[int]:
        """The first ``limit`` of :meth:`offsets`."""
        found: list[int] = []
        async with aclosing(self.offsets(value, begin, end)) as offsets:
            async for offset in offsets:
                if len(found) >= limit:
                    break
                found.append(offset)
        return found

    async def offsets(self, value: int, begin: int, end: int) -> AsyncGenerator[int]:
        """Offsets of messages whose key has this hash, newest first (store-and-broker.md 4.3).

        Different keys may share a hash: whoever reads the messages compares.

        :param begin: earliest and
        :param end: latest store time, ms.
        """
        for file in reversed(self._files):
            if file.begin_timestamp <= end and file.end_timestamp >= begin and file.count > 1:
                async with aclosing(offsets_in(self._offload, file, value, begin, end)) as offsets:
                    async for offset in offsets:
                        yield offset
            if file.begin_timestamp < begin:
                return

    # -- comparing -------------------------------------------------------------------------------------------------

    async def first_of(self, offset: int) -> tuple[IndexFile, int] | None:
        """The first entry on disk of a message at a commit-log offset or behind: its file and number.

        :raises OSError: a file cannot be read.
        """
        for file in self._files:
            low, high = 1, file.on_disk
            if high <= 1 or (file.full and file.end_offset < offset):
                continue
            while low < high:
                middle = (low + high) // 2
                if offset_of(await read_entry(self._offload, file, middle)) < offset:
                    low = middle + 1
                else:
                    high = middle
            if low < file.on_disk:
                return file, low
        return None

    async def read_entries(self, file: IndexFile, number: int, count: int) -> bytes:
        """Entries of a file from a number on, of those that are on disk; past the page cache as far as that goes.

        :raises OSError: it cannot be read.
        """
        count = min(count, file.on_disk - number)
        return await self.read_bytes(file, file.entry_position(number), count * ENTRY) if count > 0 else b""

    async def read_bytes(self, file: IndexFile, position: int, size: int) -> bytes:
        """Bytes of a file as they are on disk; none when it is closed.

        :raises OSError: it cannot be read.
        """
        shared = file.shared
        if shared is None or file not in self._files:
            return b""
        try:
            return await self._offload(shared.pin().pread_aside, size, position)
        finally:
            shared.unpin()

    async def rewrite(self, file: IndexFile, position: int, data: bytes) -> None:
        """Put other bytes in the place of some that are on disk: entries, or slots of a full file.

        :raises OSError: it cannot be written.
        """
        async with self._lock:
            if file in self._files and file.shared is not None and self.checked:
                await self._offload(file.shared.file.pwrite, data, position)

    def is_whole(self, file: IndexFile) -> bool:
        """Whether all of a full file is on disk, its slots, too."""
        return not file.filling and file not in self._unsealed and not file.unfinished

    def __iter__(self) -> Iterator[IndexFile]:
        return iter(self._files)
