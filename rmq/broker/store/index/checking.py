"""What a start believes of the index that it finds; the rest is built anew from the commit log."""

from __future__ import annotations

import asyncio
import logging

from rmq.broker.store.index.cutting import load_slots, take_back
from rmq.broker.store.index.file import HEADER_SIZE, INDEX_ENTRY, INDEX_ENTRY_SIZE, IndexFile, IndexHeader
from rmq.broker.store.index.files import IndexFiles
from rmq.broker.store.open_files import SharedFile, open_aside
from rmq.broker.store.refusal import SPOILT, told
from rmq.broker.store.spoilt import bury
from rmq.broker.store.start.checkpoint import Checkpoint

__all__ = ["IndexCheck"]

log = logging.getLogger(__name__)

_entry = INDEX_ENTRY.unpack
_VERIFY = 1 << 20
#: Entries looked at in one go: some milliseconds.
_ENTRIES_AT_ONCE = 10_000


class IndexCheck:
    """Opens an index, and throws away what cannot be trusted.

    :param checkpoint: says where the last clean stop left it.
    """

    def __init__(self, files: IndexFiles, checkpoint: Checkpoint) -> None:
        self._files = files
        self._offload = files.offload
        self._checkpoint = checkpoint
        #: Where the last clean stop says that the index ended.
        self.noted: int | None = None

    async def open(self, *, clean: bool) -> None:
        """Open what is there; :meth:`check` says what of it can be used.

        :param clean: the last stop was clean.
        """
        names = [
            name for name in await self._offload(self._files.world.files.list, self._files.directory)
            if len(name) == 17 and name.isascii() and name.isdigit()
        ]  # fmt: skip
        for at, name in enumerate(names):
            file = self._files.named(name)
            try:
                fits = await self._open(file)
            except BaseException:
                file.close()
                raise
            if not fits or (self._files.all and not _follows(file, self._files.all[-1])):
                log.warning("index file %s does not fit; it and what follows is built anew", file.path)
                file.close()
                if not await self._files.discard(names[at:]):
                    self._files.close()
                    await self._offload(bury, self._files.world.files, self._files.root, self._files.directory)
                break
            self._files.all.append(file)
        if clean:
            self.noted = self._checkpoint.indexed_to(*self._files.newest)
            lacks = self.noted is None and self._checkpoint.has_index
        else:
            lacks = self._checkpoint.index > max((file.end_timestamp for file in self._files.all), default=0)
        if lacks:
            log.error(
                "the index in %s is not what had been brought to disk there, says checkpoint: what is missing is made "
                "anew from the commit log; if nobody changed or removed its files, have the disk checked",
                self._files.directory,
            )  # fmt: skip
        self._files.checked = self.noted is not None or not self._files.all

    @property
    def known_end(self) -> int:
        """Commit-log offset up to which nothing is missing, as far as a clean stop or headers tell."""
        if self.noted is not None:
            return self.noted
        return self._files.all[-1].end_offset if self._files.all else 0

    @property
    def unchecked(self) -> int:
        """Bytes of entries that :meth:`check` has to look at, as far as headers tell."""
        return 0 if self._files.checked else sum(INDEX_ENTRY_SIZE * file.count for file in self._files.all[-2:])

    async def check(self) -> tuple[int, int] | None:
        """Throw away what cannot be trusted after an unclean stop; takes long when there is much.

        Until it is done nothing can be put, and nothing is written or deleted.

        :returns: a commit-log offset where a record begins, and the offset (there or behind) from which on messages
            may be missing; None when any may be.
        """
        if self.noted is not None:
            last = self._files.all[-1] if self._files.all else None
            if last is not None and not last.full and not last.filling:  # else it was cut, and they are newer in memory
                await load_slots(self._offload, last)
            return self.noted, self.noted
        for file in self._files.all[-2:]:
            if file not in self._files.all or (file.full and not file.unfinished and await self._whole(file)):
                continue
            if file.full and not file.unfinished:
                log.critical(
                    "index file %s was whole, and is not: its slots are made anew from its entries, and what else is "
                    "wrong from the commit log; have the disk checked", file.path,
                )  # fmt: skip
            await self._reopen(file)
        self._files.checked = True
        if not self._files.all:
            return None
        # A full file may lack keys of its last message: that message is put again, as Java does.
        end = self._files.all[-1].end_offset
        return end, end if self._files.all[-1].full else end + 1

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
        files = self._files.world.files
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
            data = await self._offload(shared.file.pread, want * INDEX_ENTRY_SIZE, file.entry_position(first))
            if not file.verify(first, data) or len(data) < want * INDEX_ENTRY_SIZE:
                break
            first += want
            await asyncio.sleep(0)
        following = self._files.all[self._files.all.index(file) + 1 :]
        found = file.count
        if following and found == file.capacity:
            entry = await self._offload(shared.file.pread, INDEX_ENTRY_SIZE, file.entry_position(found - 1))
            file.end_timestamp = min(was.end_timestamp, file.begin_timestamp + 1000 * _entry(entry)[2] + 999)
            self._files.unsealed.append(file)
            return
        if following or found < was.next:
            log.warning("index file %s: entries from %d on are built anew", file.path, found)
        await take_back(self._offload, file, file.end_offset)
        if file.count <= 1:
            following.insert(0, file)
        else:
            await self._offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
        await self._files.discard([item.name for item in following])
        for item in following:
            item.close()
            self._files.all.remove(item)


def _follows(file: IndexFile, before: IndexFile) -> bool:
    """Whether a file can come behind another one: that has entries, and none of a later message."""
    return before.count > 1 and (file.count <= 1 or file.begin_offset >= before.end_offset)
