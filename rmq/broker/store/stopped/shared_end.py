"""Finds how far a stopped store and its master have the same log, by asking for few records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.stopped.stopped_store import StoppedStore

__all__ = ["Ask", "shared_end"]

#: A master's record at a commit-log offset; None where it gives none.
Ask = Callable[[int], Awaitable[bytes | None]]
#: Neighbours that are asked for where the master gives none: that record's topic may be deleted there.
_NEIGHBOURS = 4


class _Place(NamedTuple):
    """A record."""

    offset: int
    size: int


async def shared_end(store: StoppedStore, ask: Ask, master_start: int) -> int | None:
    """The offset behind the last record that both have; None when they have none in common.

    Logs that parted are the same before one offset and never again behind it, so few questions find it: which file,
    then which record.

    :param ask: asks the master.
    :param master_start: where its log begins.
    :raises OSError: a file that cannot be read.
    """
    files = [(run, file.start) for run in store.runs for file in run.segments if file.start >= master_start]
    found = await _last(len(files), lambda at: _file_is_same(store, *files[at], ask))
    if found < 0:
        return None
    run, start = files[found]
    records = await _records(store, run, start, 1 << 62)
    same = await _last(len(records), lambda at: _is_same(run, records[at : at + _NEIGHBOURS], ask))
    return records[same].offset + records[same].size


async def _last(count: int, is_same: Callable[[int], Awaitable[bool]]) -> int:
    """The last number below ``count`` that is the same, when all before it are and none behind it is; -1 for none."""
    lo, hi = -1, count
    while hi - lo > 1:
        middle = (lo + hi) // 2
        if await is_same(middle):
            lo = middle
        else:
            hi = middle
    return lo


async def _file_is_same(store: StoppedStore, run: CommitLog, start: int, ask: Ask) -> bool:
    return await _is_same(run, await _records(store, run, start, _NEIGHBOURS), ask)


async def _is_same(run: CommitLog, records: Sequence[_Place], ask: Ask) -> bool:
    """Whether the master has the first of these, or says so of the next where it gives nothing."""
    for offset, size in records:
        theirs = await ask(offset)
        if theirs is not None:
            return theirs == await run.read_cold(offset, size)
    return False


async def _records(store: StoppedStore, run: CommitLog, start: int, most: int) -> list[_Place]:
    """The records of the file that begins at ``start``, or the first of them."""
    reader = LogReader(store.world, run)
    reader.unreadable = UnreadablePlaces(run.file_size)
    if most <= _NEIGHBOURS:
        reader.chunk = 64 << 10
    found: list[_Place] = []
    async for part in reader.runs(start, min(run.end, start + run.file_size)):
        found += [_Place(part.base + at, size) for at, size, *_ in part.records]
        if len(found) >= most:
            break
    return found[:most]
