"""The index against the log: every key of every record is in it, and nothing else.

Entries stand in the order of the log, so one walk over both compares them. The slots of each file are built anew from
its entries and compared with those on disk.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence

from rmq.broker.store.index.file import HEADER_SIZE, INDEX_ENTRY, INDEX_ENTRY_SIZE, IndexFile, IndexHeader
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.log.records import Derived
from rmq.broker.store.open_files import SharedFile, open_aside
from rmq.broker.store.stopped.findings import Finding, unread_bytes, unreadable, within
from rmq.broker.store.stopped.pages import read_pages
from rmq.broker.store.stopped.stopped_store import StoppedStore

__all__ = ["IndexCheck", "open_index"]

_entry = INDEX_ENTRY.iter_unpack
_BLOCK = 52_000 * INDEX_ENTRY_SIZE
_END = 1 << 62


async def open_index(store: StoppedStore) -> tuple[list[IndexFile], list[Finding]]:
    """The index files of a store, open, oldest first; and what is wrong with those that cannot be opened."""
    settings = store.settings
    directory = os.path.join(store.root, "index")
    found: list[IndexFile] = []
    wrong: list[Finding] = []
    try:
        names = await store.world.offload(store.files.list, directory)
    except OSError as error:
        return [], [unreadable("index", directory, error)]
    for name in names:
        path = os.path.join(directory, name)
        if not (len(name) == 17 and name.isascii() and name.isdigit()):
            wrong.append(Finding("index", "foreign", path, "no index file", False))
            continue
        file = IndexFile(name, path, settings.index_slots, settings.index_entries)
        try:
            size = await store.world.offload(store.files.size, path)
            opened = await open_aside(store.world.offload, store.files.open, path)
        except OSError as error:
            wrong.append(unreadable("index", path, error))
            continue
        if size != file.size:
            wrong.append(
                Finding("index", "size", path, f"{size} bytes, {file.size} are expected with maxHashSlotNum="
                        f"{settings.index_slots} and maxIndexNum={settings.index_entries}: set what it was made with")
            )  # fmt: skip
            opened.close()
            continue
        file.shared = SharedFile(opened)
        head, bad = await store.world.offload(read_pages, opened, HEADER_SIZE, 0)
        if bad:
            wrong.append(unread_bytes("index", path, *bad[0]))
            file.close()
            continue
        header = IndexHeader.decode(head)
        if not 0 <= header.next <= file.capacity or header.begin_offset > header.end_offset:
            wrong.append(Finding("index", "header", path, "its header cannot be right"))
            file.close()
            continue
        file.adopt(header)
        found.append(file)
    return found, wrong


class IndexCheck:
    """One check.

    :param add: gets what is found.
    :param unread: what of the log the disk did not give, up to the record that is looked at, ascending.
    """

    def __init__(self, store: StoppedStore, add: Callable[[Finding], None], unread: Sequence[Damage] = ()) -> None:
        self._store = store
        self._add = add
        self._unread = unread
        self._hashers: dict[str, KeyHasher] = {}
        self._files: list[IndexFile] = []
        self._items: AsyncIterator[tuple[int, int, int, IndexFile, int]] = self._entries()
        #: The next entry: its commit-log offset and hash, what it says of the time of its message, its file and number.
        self._at = _END
        self._hash = self._seconds = self._number = 0
        self._file: IndexFile | None = None
        self._before = -1
        #: Commit-log offsets: the first and the last record without an entry, those of entries without a record.
        self._lacking: tuple[int, int] | None = None
        self._strange: tuple[int, int] | None = None
        self._mistimed: tuple[int, int] | None = None
        self._whole = True
        self.keys = 0

    @property
    def files(self) -> int:
        return len(self._files)

    async def begin(self) -> None:
        """Open the files and check each by itself."""
        self._files, wrong = await open_index(self._store)
        for finding in wrong:
            self._add(finding)
        self._whole = not any(finding.damage for finding in wrong)
        for file in self._files:
            await self._check_file(file)
        await self._step()

    async def record(self, found: Derived, offset: int, *, lacking: bool = True) -> None:
        """A record that has keys.

        :param lacking: whether it is damage when it has no entries.
        """
        while self._at < offset:
            await self._pass()
        hasher = self._hashers.get(found.topic)
        if hasher is None:
            if len(self._hashers) > 4096:
                self._hashers.clear()
            hasher = self._hashers[found.topic] = KeyHasher(found.topic)
        met: set[int] = set()
        while self._at == offset:
            met.add(self._hash)
            if self._file is not None:
                self._compare_times(self._file, found.store_timestamp, offset)
            await self._step()
        self._before = offset
        if not met and not lacking:
            return
        if not met.issuperset(map(hasher, found.keys)):
            self._lacking = (self._lacking[0] if self._lacking else offset, offset)
        elif self._lacking:
            self._report_lacking()

    def _compare_times(self, file: IndexFile, stamp: int, offset: int) -> None:
        """What entry and header say of a message's store time, and of where the first and the last one are."""
        if self._seconds != file.seconds_of(stamp):
            self._mistimed = (self._mistimed[0] if self._mistimed else offset, offset)
        wrong = self._number == 1 and (file.begin_timestamp, file.begin_offset) != (stamp, offset)
        # Where a start has followed the entries, the end is known to the second.
        if wrong or (
            self._number == file.count - 1
            and (file.end_offset != offset or not 0 <= file.end_timestamp - stamp <= 1000)
        ):  # fmt: skip
            self._add(
                Finding("index", "header", file.path, "its header does not say of its first and last message when they "
                        "were stored, and where", start=offset, end=offset + 1)
            )  # fmt: skip

    async def finish(self) -> None:
        """The log has been read."""
        while self._at < _END:
            await self._pass()
        if self._lacking:
            self._report_lacking()
        if self._strange:
            self._report_strange()
        if self._mistimed:
            first, last = self._mistimed
            self._add(
                Finding("index", "time", os.path.join(self._store.root, "index"), "entries of messages from the first "
                        "to the last of these offsets tell other store times", start=first, end=last + 1)
            )  # fmt: skip

    def close(self) -> None:
        """Close the index files."""
        for file in self._files:
            file.close()

    async def _pass(self) -> None:
        """Leave an entry behind that no record has asked for: its record is deleted, or was put twice, or never was."""
        offset = self._at
        if offset >= self._store.start and offset != self._before and not within(self._unread, offset):
            self._strange = (self._strange[0] if self._strange else offset, offset)
        await self._step()

    async def _step(self) -> None:
        try:
            self._at, self._hash, self._seconds, self._file, self._number = await anext(self._items)
        except StopAsyncIteration:
            self._at = _END
        else:
            self.keys += 1

    async def _entries(self) -> AsyncIterator[tuple[int, int, int, IndexFile, int]]:
        for file in self._files:
            shared = file.shared
            assert shared is not None
            position, end = file.entry_position(1), file.entry_position(max(1, file.count))
            while position < end:
                want = min(_BLOCK, end - position)
                data, bad = await self._store.world.offload(read_pages, shared.file, want, position)
                if len(data) < INDEX_ENTRY_SIZE:
                    break
                whole = data[: len(data) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE]
                for at, (value, offset, seconds, _) in enumerate(_entry(whole)):
                    first = position + at * INDEX_ENTRY_SIZE
                    if not any(lo < first + INDEX_ENTRY_SIZE and first < hi for lo, hi in bad):
                        yield offset, value, seconds, file, (first - file.entry_position(0)) // INDEX_ENTRY_SIZE
                position += _BLOCK

    def _report_lacking(self) -> None:
        assert self._lacking is not None
        first, last = self._lacking
        self._lacking = None
        if not self._whole:
            return  # they may be in the file that could not be read
        self._add(
            Finding("index", "entry", os.path.join(self._store.root, "index"), "keys of records from the first to the "
                    "last of these offsets are not in the index", start=first, end=last + 1)
        )  # fmt: skip

    def _report_strange(self) -> None:
        assert self._strange is not None
        first, last = self._strange
        self._add(
            Finding("index", "dangling", os.path.join(self._store.root, "index"), "entries point to places between "
                    "these where no record with keys is", start=first, end=last + 1)
        )  # fmt: skip

    def _unread_of(self, file: IndexFile, bad: list[tuple[int, int]]) -> None:
        """What the disk does not give of a file: keys may be there."""
        self._whole = False
        for start, end in bad:
            self._add(unread_bytes("index", file.path, start, end))

    # -- one file --------------------------------------------------------------------------------------------------

    async def _check_file(self, file: IndexFile) -> None:
        """Whether entries follow from each other, and whether the slots on disk lead to them."""
        shared = file.shared
        assert shared is not None
        offload = self._store.world.offload
        was = file.header()
        if file.unfinished:
            self._add(Finding("index", "unfinished", file.path, "the broker ended before it was written whole"))
            return
        file.adopt(was._replace(slot_count=0, end_offset=was.begin_offset, next=1))
        file.open_slots()
        try:
            while file.count < was.next:
                first = file.count
                want = min(_BLOCK // INDEX_ENTRY_SIZE, was.next - first)
                data, bad = await offload(read_pages, shared.file, want * INDEX_ENTRY_SIZE, file.entry_position(first))
                if bad:
                    self._unread_of(file, bad)
                    return
                if not file.verify(first, data) or len(data) < want * INDEX_ENTRY_SIZE:
                    self._add(
                        Finding("index", "entry", file.path, "entries from this number on do not follow from those "
                                "before them", start=file.count, end=was.next)
                    )  # fmt: skip
                    return
            slots = file.slots_now()
            for number in range(file.slot_pieces()):
                size, position = file.piece(number)
                data, bad = await offload(read_pages, shared.file, size, position)
                if bad:
                    self._unread_of(file, bad)
                    return
                if data != (file.slot_piece(slots, number) or bytes(size)):
                    self._add(Finding("index", "slots", file.path, "its slots do not lead to its entries"))
                    return
            if file.slot_count != was.slot_count:
                self._add(
                    Finding("index", "header", file.path, f"its header counts {was.slot_count} used slots, there are "
                            f"{file.slot_count}")
                )  # fmt: skip
        finally:
            file.drop_slots()
            file.adopt(was)
