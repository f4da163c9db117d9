"""Brings the index up to the commit log: at start when little is missing, otherwise behind the running broker.

The index is always that of a beginning of the log: keys are put in the log's order, and appends put none until the
build has met them. So a build that is killed goes on at the next start where the entries on disk end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from rmq.broker.store.index.feed import ROLLED_BACK, IndexFeed
from rmq.broker.store.index.index import Index
from rmq.broker.store.index.putting import IndexStopped
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.log.record_runs import Topics, take
from rmq.broker.store.log.records import check, index_keys
from rmq.broker.store.refusal import told
from rmq.protocol.record import is_blank
from rmq.runtime.world import World

__all__ = ["IndexBuild"]

log = logging.getLogger(__name__)

_STEP = 32 << 20
#: Checking a byte of entries takes as long as reading so many bytes of the log.
_CHECK_COST = 6
#: Bytes of the newest records put in one go at the end, so that no append comes between: at first, and at most.
_LEAST_AT_ONCE = 1 << 20
_MOST_AT_ONCE = 4 << 20
#: Keys put in that last go.
_MOST_KEYS_AT_ONCE = 40_000
#: Bytes of entries that may wait in memory.
_MOST_WAITING = 16 << 20
_SECONDS_BETWEEN_LINES = 10.0
#: Bytes read at a time where the disk is bad, and left out at first; and how often a place is tried before.
_LEAST_GAP = 4096
_TRIES = 3


class IndexBuild:
    """The way of one index from what a start finds to the end of the log.

    :param on_complete: called once when appends can put their keys themselves, with where the log ends then.
    :param crc: whether bodies' checksums are compared on the way.
    """

    def __init__(
        self, world: World, commit_log: CommitLog, index: Index, on_complete: Callable[[int], None], *, crc: bool
    ) -> None:
        self._world = world
        self._log = commit_log
        self._index = index
        self._feed = IndexFeed(index)
        self._topics: Topics = {}
        self._crc = crc
        #: Reads the log; what it finds damaged is in its ``damages``.
        self.reader = LogReader(world, commit_log, crc=crc)
        self._chunk = self.reader.chunk
        #: The index has all that lies before it in the log, or nothing is known yet.
        self.position = 0
        #: Appends put their keys themselves from now on.
        self.complete = False
        self._on_complete = on_complete
        #: Keys of messages before it are in the index already.
        self._from = 0
        self._recovered_end = 0
        self._begun = False
        #: Up to where the log was cut before it had begun.
        self._cut_to: int | None = None
        self._stopped = False
        self._at_once = _LEAST_AT_ONCE
        #: Held while keys are put: who cuts the log waits for it.
        self.turn = asyncio.Lock()
        self._told = 0.0
        #: Where the log could not be read, how often that was tried, and how much is left out should it stay so.
        self._bad = -1
        self._tries = 0
        self._gap = _LEAST_GAP

    async def open(self, *, clean: bool) -> None:
        """Open the index; the end of the log is not known yet."""
        await self._index.start.open(clean=clean)

    def begin(self) -> int:
        """The log is recovered; how much is to be done, in bytes of the log that could be read in the same time."""
        end = self._recovered_end = self._log.end
        known = max(self._log.start, self._index.start.known_end)
        return max(0, end - known) + _CHECK_COST * self._index.start.unchecked

    @property
    def stamp(self) -> int:
        """Store time up to which messages are found by key, ms; 0 while that is not known."""
        return self._index.end[0] if self._index.checked else 0

    @property
    def behind(self) -> int:
        """Bytes of the log that are not in the index."""
        return 0 if self.complete else max(0, self._log.end - max(self.position, self._log.start))

    def progress(self) -> str | None:
        """How far it is, in a sentence for whoever looks for a key; None when the index is complete."""
        if self.complete:
            return None
        if not self._index.checked:
            return "the index is being checked after an unclean stop: not every message is found by key yet"
        whole = max(1, self._log.end - self._log.start)
        done = 100 * (whole - self.behind) / whole
        text = f"the index is being rebuilt and {done:.1f} % done: "
        if self._index.writer.failed is not None:
            text = f"the index cannot be written ({told(self._index.writer.failed)}): "
        if not self.stamp:
            return text + "no message is found by key yet"
        until = datetime.fromtimestamp(self.stamp // 1000)
        return text + f"messages stored after {until:%Y-%m-%d %H:%M:%S} are not found by key yet"

    async def run(self) -> None:
        """Check what there is and put what is missing, until appends can go on.

        :raises OSError: the log could not be read; it may be called again.
        :raises IndexStopped: the index takes no keys; likewise.
        """
        begun = self._told = self._world.clock.monotonic()
        async with self.turn:
            if not self._begun:
                await self._settle_start()
                self._begun = True
            first = self.position
        while True:
            async with self.turn:
                try:
                    if self.complete or self._catch_up():
                        break
                    await self._step()
                except IndexStopped as stopped:
                    self.resume(stopped.offset)
                    raise
            self._tell()
        if self.position - first > _STEP:
            log.info(
                "the index is complete: the keys of %d bytes of the commit log were put into it in %.1f s",
                self.position - first, self._world.clock.monotonic() - begun,
            )  # fmt: skip

    def resume(self, offset: int) -> None:
        """The index has none of the keys of messages from ``offset`` on, where one begins, and took no more."""
        self.position = self._from = offset
        self.complete = False
        self._stopped = True

    @property
    def reached(self) -> int:
        """Commit-log offset before which the newest record begins that is in the index."""
        return self._index.end[1] + 1 if self._index.files else 0

    def retry(self) -> None:
        """Whether an index that had stopped takes keys again: put what is missing at once, if that is little."""
        if self._stopped and not self.complete and not self.turn.locked():
            try:
                self._catch_up()
            except IndexStopped as stopped:
                self.resume(stopped.offset)

    def log_ends(self, to: int) -> None:
        """The log is cut back to ``to``, and the index with it; what is not checked yet is cut when it is."""
        self.position, self._from = min(self.position, to), min(self._from, to)
        if not self._begun:
            self._cut_to = to if self._cut_to is None else min(self._cut_to, to)

    async def _settle_start(self) -> None:
        """Where to begin to read: what points behind the recovered end of the log is of no use."""
        index, end = self._index, self._recovered_end
        try:
            found = await index.start.check()
        except OSError as error:
            log.error("the index cannot be read: %s; it is built anew", told(error))
            found = None
        if found is not None and (found[0] > end or index.end[1] >= end > 0):
            log.warning("the index points behind the end of the commit log; it is built anew")
            found = None
        if found is not None and self._cut_to is not None:
            found = await self._cut_late(found, self._cut_to)
        try:
            gap = None if found is None else await self._uncovered()
        except OSError as error:
            log.error("whether the index lacks a file is not known: %s", told(error))
            gap = None
        if gap is not None:
            log.warning("no index file has the keys of the commit log behind %d; the index is built anew", gap)
            found = None
        if found is None:
            await index.discard_all()
            found = (self._log.start, self._log.start)
        start, self._from = found
        start = max(start, self._log.start)
        try:
            is_record = start >= end or await self._is_record(start)
        except OSError:
            is_record = False
        if not is_record:
            start -= start % self._log.file_size
        self.position = start

    async def _cut_late(self, found: tuple[int, int], to: int) -> tuple[int, int]:
        """Take away the keys of what was cut off the log before the index was checked.

        :param found: what the check has said; as this says it again.
        :raises OSError: a file cannot be read or written.
        """
        index, before = self._index, self._index.end[1]
        await index.cut(to)
        if max(found[0], before) < to:
            return found
        end = index.end[1] if index.files else self._log.start
        return end, end + bool(index.files)

    async def _uncovered(self) -> int | None:
        """Commit-log offset of a message with keys that lies before the first index file or between two, if any.

        A file was deleted or zeroed, then; between two whole ones lie only messages without keys, few as a rule.
        """
        covered = self._log.start - 1
        for file in self._index.files:
            if file.count > 1:
                reader = LogReader(self._world, self._log, crc=False)
                start = max(covered, self._log.start)
                async for run in reader.runs(start, max(start, file.begin_offset)):
                    for at, size, sys_flag, _, _, _, text in run.records:
                        if (
                            covered < run.base + at < file.begin_offset
                            and sys_flag & ROLLED_BACK != ROLLED_BACK
                            and index_keys(run.data, text, at + size)
                        ):
                            return run.base + at
                covered = max(covered, file.end_offset)
        return None

    async def _is_record(self, offset: int) -> bool:
        file = self._log.segment_of(offset)
        if file is None:
            return False
        limit = file.start + self._log.file_size - offset
        data = await self._log.read_cold(offset, min(limit, self._log.end - offset, 8))
        if len(data) < 8:
            return False
        data = await self._log.read_cold(offset, int.from_bytes(data[:4], "big", signed=True))
        return check(data, 0, offset, limit, crc=False) > 0

    async def _step(self) -> None:
        """Put the keys of the next part of the log."""
        start = max(self.position, self._log.start)
        stop = min(self._log.end, start + _STEP)
        reader = self.reader
        try:
            async for run in reader.runs(start, stop):
                await self._feed.put_all(run, self._from)
                self.position = run.base + run.end
                self._gap = _LEAST_GAP
        except OSError as error:
            self.position = max(self.position, reader.position)
            self._pass_over(error)
            return
        reader.chunk = self._chunk
        # Where no record is to be found, there are none up to the end that was seen.
        self.position = reader.position if reader.position > start or reader.half else stop
        await self._write()

    def _pass_over(self, error: OSError) -> None:
        """The log cannot be read behind the position: find out where exactly, and go on behind that.

        :raises OSError: it may be read when it is tried again, some time later.
        """
        if self.reader.chunk > _LEAST_GAP:
            self.reader.chunk = _LEAST_GAP
            return
        if self.position != self._bad:
            self._bad, self._tries = self.position, 0
        self._tries += 1
        if self._tries < _TRIES:
            raise error
        size = self._log.file_size
        self.position = min(self.position + self._gap, self.position - self.position % size + size)
        log.error(
            "the commit log cannot be read from %d to %d: %s; messages there are not found by key",
            self._bad, self.position, told(error),
        )  # fmt: skip
        # What lies behind is tried at once, in growing leaps: a bad region may be large.
        self._gap *= 2
        self._bad, self._tries = self.position, _TRIES - 1

    async def _write(self) -> None:
        writer = self._index.writer
        if not await writer.try_write() and self._index.waiting > _MOST_WAITING and writer.failed is not None:
            raise IndexStopped(self.position, writer.failed)

    def _catch_up(self) -> bool:
        """Put what is left in one go, if it is little and in memory; whether the index has everything now."""
        commit_log = self._log
        most = self._feed.keys + _MOST_KEYS_AT_ONCE
        while self.position < commit_log.end:
            start = self.position
            file_end = start - start % commit_log.file_size + commit_log.file_size
            size = min(commit_log.end, file_end) - start
            if start < commit_log.start or size > _MOST_AT_ONCE:
                return False
            data = commit_log.read(start, size) if size <= self._at_once else None
            if data is None or len(data) < size:
                # Appends may be faster than the steps that lead here.
                self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)
                return False
            at, verdict = 0, 1
            while verdict > 0 and at < size:
                run = take(data, at, start, start + size, file_end, self._topics, crc=self._crc)
                at, verdict = run.end, run.verdict
                done = self._feed.put(run, self._from, most - self._feed.keys)
                if done < start + at:
                    self.position = done
                    return False
            if is_blank(data, at, file_end - start - at):
                self.position = file_end
            elif commit_log.end < file_end and at - verdict > size:
                self.position = start + at
                break  # the rest of this record is still to come
            elif at:
                self.position = start + at
            else:
                return False
        self.complete = True
        self._stopped = False
        self._on_complete(self.position)
        return True

    def _tell(self) -> None:
        now = self._world.clock.monotonic()
        if now - self._told >= _SECONDS_BETWEEN_LINES:
            self._told = now
            log.info("%s", self.progress())
