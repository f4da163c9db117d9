"""Takes keys back: of messages that are cut off the commit log, or that may lack some."""

from __future__ import annotations

from rmq.broker.store.index.file import INDEX_ENTRY_SIZE, IndexFile
from rmq.broker.store.index.files import IndexFiles
from rmq.broker.store.index.writing import IndexWriter
from rmq.runtime.world import Offload

__all__ = ["cut", "load_slots", "take_back"]

#: Bytes of entries that are taken away in one write.
_ZEROED = 1 << 20


async def load_slots(offload: Offload, file: IndexFile) -> None:
    """Have the slots of a file in memory, as they are on disk."""
    shared = file.shared
    assert shared is not None
    file.open_slots()
    for number in range(file.slot_pieces()):
        file.load_slot_piece(number, await offload(shared.file.pread, *file.piece(number)))


async def take_back(offload: Offload, file: IndexFile, to: int) -> None:
    """Take away the entries of messages from commit-log offset ``to`` on; all entries are in the file."""
    shared = file.shared
    assert shared is not None
    while file.count > 1:
        first = max(1, file.count - 64)
        data = await offload(shared.file.pread, (file.count - first) * INDEX_ENTRY_SIZE, file.entry_position(first))
        if file.take_back(first, data, to):
            break


async def cut(files: IndexFiles, writer: IndexWriter, to: int) -> None:
    """Take away the keys of messages from commit-log offset ``to`` on; no key is put meanwhile.

    :raises OSError: it may be called again.
    """
    offload = files.offload
    async with files.lock:
        if not files.checked:
            return  # :meth:`check` says what can be used, and the log has an end then
        while files.all and (files.all[-1].count <= 1 or files.all[-1].begin_offset >= to):
            gone = files.all[-1]
            await files.discard([gone.name])
            gone.close()
            files.all.pop()
            if gone in files.unsealed:
                files.unsealed.remove(gone)
        if not files.all or files.all[-1].end_offset < to:
            return
        file = files.all[-1]
        shared = await files.made(file)
        # From here to the next time it is forced, slots and entries on disk do not fit.
        await offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
        if not file.filling:
            await load_slots(offload, file)
        if file in files.unsealed:
            files.unsealed.remove(file)
        await writer.write_entries(file)
        end = file.entry_position(file.count)
        await take_back(offload, file, to)
        # A start after a kill looks for entries behind those that the header tells of: these must not come back.
        for position in range(file.entry_position(file.count), end, _ZEROED):
            await offload(shared.file.pwrite, bytes(min(_ZEROED, end - position)), position)
        await offload(shared.file.datasync)
        slots = file.slots_now()
        for number in range(file.slot_pieces()):
            size, position = file.piece(number)
            # Pieces without an entry are never written: one that had some must not keep them.
            if file.slot_piece(slots, number) is None:
                there = await offload(shared.file.pread, size, position)
                if there != bytes(len(there)):
                    await offload(shared.file.pwrite, bytes(size), position)
        await offload(shared.file.pwrite, file.header(unfinished=True).encode(), 0)
        file.forced = 1
