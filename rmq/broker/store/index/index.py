"""The index of messages by key: what goes into its newest file, and how a key is found.

Putting is on the hot path and touches memory only. Files are made, written and forced to disk in the background.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from rmq.broker.store.index.chains import offset_of, offsets_in, read_entry
from rmq.broker.store.index.checking import IndexCheck
from rmq.broker.store.index.cutting import cut
from rmq.broker.store.index.file import INDEX_ENTRY, INDEX_ENTRY_SIZE, IndexFile
from rmq.broker.store.index.files import IndexFiles
from rmq.broker.store.index.writing import IndexWriter
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.runtime.world import World

__all__ = ["Index"]

#: Entries that are read at once where many have changed.
_MOST_CHANGED = 8192


class Index:
    """Keys to commit-log offsets.

    :param world: files, threads, the wall clock for the names of files.
    :param settings: sizes and paths.
    :param checkpoint: gets the end time of every full file once it is on disk.
    """

    def __init__(self, world: World, settings: StoreSettings, checkpoint: Checkpoint) -> None:
        self._disk = IndexFiles(world, settings)
        self._files = self._disk.all
        self._offload = world.offload
        #: Brings it to disk.
        self.writer = IndexWriter(self._disk, checkpoint)
        #: What a start believes of it.
        self.start = IndexCheck(self._disk, checkpoint)

    # -- putting ---------------------------------------------------------------------------------------------------

    def put_many(self, hashes: list[tuple[int, int]], stamp: int) -> None:
        """Add keys.

        :param hashes: (non-negative hash of ``topic#key``, commit-log offset), offsets ascending.
        :param stamp: the messages' store time, ms.
        :raises OSError: too many wait to be written, and cannot be.
        """
        files = self._files
        self._check_takes()
        size = len(hashes)
        at = files[-1].put_many(hashes, 0, stamp) if files else 0
        while at < size:
            self._disk.begin()
            at = files[-1].put_many(hashes, at, stamp)

    def put_columns(self, hashes: list[int], offsets: list[int], stamp: int) -> None:
        """:meth:`put_many` of hashes, and the offset of each: quicker where there are many."""
        files = self._files
        self._check_takes()
        size = len(hashes)
        at = files[-1].put_columns(hashes, offsets, 0, stamp) if files else 0
        while at < size:
            self._disk.begin()
            at = files[-1].put_columns(hashes, offsets, at, stamp)

    def put_entries(self, entries: bytes, stamp: int) -> None:
        """:meth:`put_many` of entries as another index has them.

        :param entries: their hashes are not negative, their offsets ascend.
        """
        files = self._files
        self._check_takes()
        size = len(entries) // INDEX_ENTRY_SIZE
        at = files[-1].put_entries(entries, 0, stamp) if files else 0
        while at < size:
            self._disk.begin()
            at = files[-1].put_entries(entries, at, stamp)

    def _check_takes(self) -> None:
        refused = self.writer.refuses
        if refused is not None:
            raise OSError(refused.errno, refused.strerror, refused.filename)

    def put(self, value: int, offset: int, stamp: int) -> None:
        """Add one key."""
        self.put_many([(value, offset)], stamp)

    def newest(self, count: int) -> bytes | None:
        """The entries of the last keys that were put, just now; None when another file has the first of them."""
        return self._files[-1].newest(count) if count and self._files else b""

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
        return self._disk.newest

    @property
    def waiting(self) -> int:
        """Bytes of entries that are in memory only."""
        return self._disk.waiting

    @property
    def checked(self) -> bool:
        """Nothing that an unclean stop left is in the way of putting."""
        return self._disk.checked

    # -- taking away -----------------------------------------------------------------------------------------------

    async def cut(self, to: int) -> None:
        """:func:`cut`."""
        await cut(self._disk, self.writer, to)

    async def discard_all(self) -> None:
        """Begin the index anew."""
        async with self._disk.lock:
            names = [file.name for file in self._files]
            self.close()
            await self._disk.discard(names)
            self.start.noted = None

    async def delete_expired(self, log_start: int) -> int:
        """Delete files that point before the log only, never the newest one; how many."""
        count = 0
        async with self._disk.lock:
            while (
                self._disk.checked
                and len(self._files) > 1
                and self._files[0].end_offset < log_start
                and self._files[0] not in self._disk.unsealed
            ):
                file = self._files.pop(0)
                file.close()
                await self._disk.discard([file.name])
                count += 1
        return count

    def close(self) -> None:
        """Close its files."""
        self._disk.close()

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

        Those before it that do not follow one another have changed on the disk; they may be of such a message, too.

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
            if (first := await self._changed_before(file, low, offset)) < file.on_disk:
                return file, first
        return None

    async def _changed_before(self, file: IndexFile, number: int, offset: int) -> int:
        """The first of the entries before ``number`` that are none of a message before ``offset``."""
        count, before = 64, number
        while before > 1 and count <= _MOST_CHANGED:
            first = max(1, before - count)
            data = await self.read_entries(file, first, before - first)
            good = [
                n for n, entry in enumerate(INDEX_ENTRY.iter_unpack(data), first)
                if file.begin_offset <= entry[1] < offset
            ]  # fmt: skip
            if good:
                return good[-1] + 1
            before, count = first, 2 * count
        return before if before == 1 else number

    async def read_entries(self, file: IndexFile, number: int, count: int) -> bytes:
        """Entries of a file from a number on, of those that are on disk; past the page cache as far as that goes.

        :raises OSError: it cannot be read.
        """
        count = min(count, file.on_disk - number)
        return await self.read_bytes(file, file.entry_position(number), count * INDEX_ENTRY_SIZE) if count > 0 else b""

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
        async with self._disk.lock:
            if file in self._files and file.shared is not None and self._disk.checked:
                await self._offload(file.shared.file.pwrite, data, position)

    async def correct(self, file: IndexFile, right: dict[str, int]) -> bool:
        """Have a file's header say something else, on disk at once where it is full; whether that was done.

        :param right: names of its fields, and what they are.
        :raises OSError: it cannot be written.
        """
        async with self._disk.lock:
            if file not in self._files or file.shared is None or not self._disk.checked:
                return False
            for name, value in right.items():
                setattr(file, name, value)
            if self.is_whole(file):
                await self._offload(file.shared.file.pwrite, file.header().encode(), 0)
            else:
                file.forced = max(1, min(file.forced, file.count - 1))  # it is written with the next force
            return True

    def is_whole(self, file: IndexFile) -> bool:
        """Whether all of a full file is on disk, its slots, too."""
        return not file.filling and file not in self._disk.unsealed and not file.unfinished

    def __iter__(self) -> Iterator[IndexFile]:
        return iter(self._files)
