"""The files of an index: which there are, and how one comes and goes."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime

from rmq.broker.store.index.file import IndexFile
from rmq.broker.store.open_files import SharedFile, open_aside
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.spoilt import make_way
from rmq.runtime.world import File, World

__all__ = ["IndexFiles"]

#: Files made later are all named after one moment of the year 9998: a name has four digits for the year.
_LATEST_NAME = 253_370_764_800_000


class IndexFiles:
    """What an index consists of; putting, writing, checking and cutting share it.

    :param world: files, threads, the wall clock for the names of files.
    :param settings: sizes and paths.
    """

    def __init__(self, world: World, settings: StoreSettings) -> None:
        self.world = world
        self.offload = world.offload
        self.root = settings.root
        self.directory = os.path.join(settings.root, "index")
        self._slots = settings.index_slots
        self._capacity = settings.index_entries
        #: Oldest first.
        self.all: list[IndexFile] = []
        #: Full files with parts that are not on disk yet, oldest first.
        self.unsealed: list[IndexFile] = []
        #: Held by who writes, cuts or deletes.
        self.lock = asyncio.Lock()
        #: Nothing that an unclean stop left is in the way of putting.
        self.checked = True

    @property
    def newest(self) -> tuple[int, int]:
        """Name (as a number) and next entry of the newest file; zeros when there is none."""
        return (int(self.all[-1].name), self.all[-1].count) if self.all else (0, 0)

    @property
    def waiting(self) -> int:
        """Bytes of entries that are in memory only."""
        return sum(file.waiting for file in {*self.unsealed, *self.all[-1:]})

    def named(self, name: str) -> IndexFile:
        """A file of that name, whether it is there or not."""
        return IndexFile(name, os.path.join(self.directory, name), self._slots, self._capacity)

    def begin(self) -> None:
        """One more file, in memory."""
        last = self.all[-1] if self.all else None
        name = self._name()
        if last is not None:
            if last.filling:
                self.unsealed.append(last)
            name = max(name, str(int(last.name) + 1))
        made = self.named(name)
        made.open_slots()
        if last is not None:
            made.begin_timestamp = made.end_timestamp = last.end_timestamp
            made.begin_offset = made.end_offset = last.end_offset
        self.all.append(made)

    def _name(self) -> str:
        """Local time to the millisecond, 17 digits."""
        now = min(self.world.clock.now_ms(), _LATEST_NAME)
        return datetime.fromtimestamp(now // 1000).strftime("%Y%m%d%H%M%S") + f"{now % 1000:03d}"

    async def made(self, file: IndexFile) -> SharedFile:
        """The open file; it is made when it is not there yet."""
        if file.shared is None:
            head = file.header(unfinished=True).encode()
            file.shared = SharedFile(await open_aside(self.offload, self._make, file.path, file.size, head))
        return file.shared

    def _make(self, path: str, size: int, header: bytes) -> File:
        files = self.world.files
        files.mkdir(self.directory)
        file = files.open(path, create=True)
        try:
            file.allocate(size)
            file.pwrite(header, 0)
            files.sync_dir(self.directory)
        except BaseException:
            file.close()
            raise
        return file

    async def discard(self, names: list[str]) -> bool:
        """Take files away; False when the disk does not let one go."""
        free = True
        for name in names:
            path = os.path.join(self.directory, name)
            free = await self.offload(make_way, self.world.files, self.root, path) and free
        return free

    def close(self) -> None:
        """Close what is open, and forget all of them."""
        for file in self.all:
            file.close()
        self.all.clear()
        self.unsealed.clear()
