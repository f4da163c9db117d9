"""Brings an index to disk, behind those who put keys."""

from __future__ import annotations

import logging

from rmq.broker.store.again import write_again
from rmq.broker.store.index.file import IndexFile, IndexHeader
from rmq.broker.store.index.files import IndexFiles
from rmq.broker.store.open_files import SharedFile
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.trouble import Trouble

__all__ = ["IndexWriter"]

log = logging.getLogger(__name__)

#: Bytes of entries that may wait in memory when they cannot be written.
_MOST_WAITING = 64 << 20


class IndexWriter:
    """Writes what waits in memory.

    :param checkpoint: gets the end time of every full file once it is on disk.
    """

    def __init__(self, files: IndexFiles, checkpoint: Checkpoint) -> None:
        self._files = files
        self._offload = files.offload
        self._checkpoint = checkpoint
        #: Why entries could not be written when that was tried last.
        self.failed: OSError | None = None
        #: The same when so many wait that no more are taken until they are written.
        self.refuses: OSError | None = None
        self._trouble = Trouble(
            files.world.clock, log, "writing the index", "its entries stay in memory and are tried again"
        )

    async def write(self) -> None:
        """Write waiting entries; bring full files to disk and tell the checkpoint.

        :raises OSError: what could not be written is kept.
        """
        async with self._files.lock:
            if not self._files.checked:
                return
            try:
                await self._write()
            except OSError as error:
                self.failed = error
                self.refuses = error if self._files.waiting > _MOST_WAITING else None
                raise
            self.failed = self.refuses = None

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
        async with self._files.lock:
            if not self._files.checked:
                return
            await self._write()
            if (
                self._files.all
                and self._files.all[-1].filling
                and self._files.all[-1].count > self._files.all[-1].forced
            ):
                await self._force(self._files.all[-1])

    async def _write(self) -> None:
        while self._files.unsealed:
            file = self._files.unsealed[0]
            await self._force(file)
            self._files.unsealed.pop(0)
            file.drop_slots()
            await self._offload(self._checkpoint.save)
        if self._files.all and self._files.all[-1].filling:
            await self.write_entries(self._files.all[-1])

    async def write_entries(self, file: IndexFile) -> None:
        """Write the entries of a file that wait; its slots and its header stay as they are on disk."""
        if file.waiting:
            shared = await self._files.made(file)
            position, data = file.take_buffer()
            await self._offload(shared.file.pwrite, data, position)
            file.written(len(data))

    async def _force(self, file: IndexFile) -> None:
        """Make the file on disk whole up to now.

        While its slots are being written they agree with no header: one that says so is on disk first, and Java throws
        the file away if that is what it finds.
        """
        shared = await self._files.made(file)
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
        await self.write_entries(file)
        for number in range(file.slot_pieces()):
            piece = file.slot_piece(slots, number)
            if piece is not None:
                await self._offload(shared.file.pwrite, piece, file.piece(number)[1])
        await self._offload(shared.file.datasync)
        await self._offload(shared.file.pwrite, header.encode(), 0)
        await self._offload(shared.file.datasync)
        return header
