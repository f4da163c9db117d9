"""How a key is found in one index file: by the chain of entries of its slot, newest first (store-and-broker.md 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from struct import Struct

from rmq.broker.store.index.file import INDEX_ENTRY, INDEX_ENTRY_SIZE, IndexFile
from rmq.runtime.world import Offload

__all__ = ["offset_of", "offsets_in", "read_entry"]

_int = Struct(">i").unpack
_entry = INDEX_ENTRY.unpack
_offset = Struct(">4xq8x").unpack
#: Entries of one chain looked at in one query: a cycle in a damaged file ends there.
_CHAIN_LIMIT = 1 << 20
#: Entries of a chain after which the loop gets its turn: about a millisecond.
_CHAIN_TURN = 500


async def offsets_in(offload: Offload, file: IndexFile, value: int, begin: int, end: int) -> AsyncGenerator[int]:
    """Commit-log offsets of messages with a key of this hash, newest first.

    :param begin: earliest and
    :param end: latest store time, ms.
    """
    slot = value % file.slots
    number = file.head(slot)
    if number is None:
        number = int(_int(await _bytes(offload, file, file.slot_position(slot), 4))[0])
    for step in range(1, _CHAIN_LIMIT):
        if number <= 0 or number >= file.count:
            return
        entry = file.buffered(number)
        if entry is None:
            entry = await read_entry(offload, file, number)
        key, offset, seconds, before = _entry(entry)
        if seconds < 0:
            return
        time = file.begin_timestamp + 1000 * seconds
        if key == value and begin <= time <= end:
            yield offset
        # Chains go back in time and in number; anything else is damage.
        if before >= number or time < begin:
            return
        number = before
        if step % _CHAIN_TURN == 0:
            await asyncio.sleep(0)


async def read_entry(offload: Offload, file: IndexFile, number: int) -> bytes:
    """An entry that is on disk; zeros where there is none."""
    return await _bytes(offload, file, file.entry_position(number), INDEX_ENTRY_SIZE)


def offset_of(entry: bytes) -> int:
    """The commit-log offset that an entry names."""
    return int(_offset(entry)[0])


async def _bytes(offload: Offload, file: IndexFile, position: int, size: int) -> bytes:
    shared = file.shared
    if shared is None:
        return bytes(size)
    data = shared.file.pread_hot(size, position)
    if data is None:
        try:
            data = await offload(shared.pin().pread, size, position)
        finally:
            shared.unpin()
    return data.ljust(size, b"\0")
