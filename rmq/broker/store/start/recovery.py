"""Brings log, queues and index to one state at start. The commit log alone decides which.

1. Read the queues, adding up what they say is in each segment of the log.
2. Find the first segment, from the oldest on, where that is not what is there.
3. Check the records of the newest files, or from that segment on if it is older: the log ends behind the last good one.
   What was forced to disk in this very boot of the machine needs no such check: then it begins in the segment where
   that ends, at the offset that the sums of the queues give. If what was forced is not all there, or a file is not the
   one that was noted, unchanged but by later messages, nothing of it is believed.
   Where good records follow bad bytes, the bad bytes are reported and skipped; nothing behind them is cut.
   What deleted topics held is in no queue; it is added up apart, too (:mod:`rmq.broker.store.queues.deletions`).
   Light message queues are added up apart, for their entries point to records that other queues hold, too; while
   multi-dispatch is off they are left as they are.
4. Cut queues back to the first segment that differs and dispatch again from there. Where queues have nothing at all of
   what is checked, they are filled on the way.
5. Bring the index up to the log, or leave that to the running broker when it takes long.

What the disk does not give costs the records in it, and no more: whether it is good is not known, so it is checked from
there on where the question is how much to check, and passed over where records are read. Queue entries that point there
stay. Where the log ends within it or behind it nobody knows, unless a clean stop noted that: then nothing is cut away.

Whether the last stop was clean only says how many files are checked; a wrong checkpoint changes nothing but that, and
never to fewer (reliability.md I10, I11, W17, W18).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.log.exchanged import refuse_exchanged
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.records import check
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.open_files import open_each_aside
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.misfits import Former
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.refusal import BAD_PLACE, SPOILT
from rmq.broker.store.start.kept_entries import KeptEntries
from rmq.broker.store.start.lost_tail import LostTail, expect_ends, furthest, leave_room, newly_left_out
from rmq.broker.store.start.progress import Progress
from rmq.broker.store.start.queue_loader import QueueLoader, segment_size
from rmq.broker.store.start.remade import remade
from rmq.broker.store.start.tally import Tally
from rmq.broker.store.state import Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.record import FIXED_SIZE, is_blank, store_time

__all__ = ["LastStop", "Recovered", "Recovery"]

log = logging.getLogger(__name__)

#: Files checked after an unclean stop: more than can be waiting for a flush.
_FILES = 3
_DISPATCH = 32 << 20
#: ms from a message's store time until it is written.
_WRITTEN_WITHIN = 50
#: Bytes of a record up to its store time.
_STAMPED = 80
#: Bytes of entries that wait in memory meanwhile.
_PENDING = 4 << 20


@dataclass(slots=True)
class Recovered:
    """What a start found, for logs, metrics and tests."""

    clean: bool = True
    start: int = 0
    end: int = 0
    #: Records were checked from here on.
    checked_from: int = 0
    #: Checksums of bodies were compared from here on: what is older was on disk long before the stop.
    compared_from: int = 0
    #: Queues were built anew from here on.
    dispatched_from: int = 0
    damages: list[Damage] = field(default_factory=list)
    #: Queues did not have the messages that the log has.
    queues_wrong: bool = False
    #: Entries of queues that were on disk and pointed elsewhere.
    wrong_entries: int = 0
    #: What the disk does not give, from the last good record before it to the first behind it.
    unreadable: list[Damage] = field(default_factory=list)
    #: Behind the end of the log: what was known to be there and is not.
    lost: Damage | None = None


class LastStop(NamedTuple):
    """How the life before ended."""

    #: There was no ``abort`` file.
    clean: bool
    #: The log was forced to disk up to here since the machine was booted; -1 when that is not known.
    forced: int
    #: The same in whatever boot, -1 after a clean stop.
    noted: int


class Recovery:
    """One start of the store.

    :param disk: no queue covers what earlier lives found damaged, nor what deleted topics held.
    """

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        writer: QueueWriter,
        index: IndexBuild | None,
        dispatcher: Dispatcher,
        last_stop: LastStop,
    ) -> None:
        self._world = ground.world
        self._offload = ground.world.offload
        self._log = disk.log
        self._queues = disk.queues
        self._writer = writer
        self._index = index
        self._checkpoint = disk.checkpoint
        self._dispatcher = dispatcher
        self._clean, self._forced, self._noted = last_stop
        self._damaged = disk.damaged
        self._deletions = disk.deletions
        self._crc = ground.settings.check_crc_on_recover
        self._index_at_start = ground.settings.index_at_start
        self._segment = segment_size(disk.log.file_size)
        #: Light message queues are filled here, or there are some from before.
        self._light = self._fills_light = dispatcher.multi_dispatch is not None
        #: Told how far it is.
        self.progress: Progress = lambda what, done, total: None
        self._found = Recovered()
        #: Places met by whoever read the log in this start.
        self._places = UnreadablePlaces(disk.log.file_size)
        self._kept = KeptEntries(disk.queues, ground.world.offload, self._segment)
        #: Segment -> offset of the first good record that begins in it.
        self._first_records: dict[int, int] = {}
        #: Segment -> bytes of deleted topics' records, by what was checked.
        self._dead: dict[int, int] = {}

    async def run(self) -> Recovered:
        """Leave everything as if the process had never stopped.

        :raises StoreError: the log itself cannot be read, or its end cannot.
        :raises OSError: a disk error.
        """
        commit_log = self._log
        commit_log.adopt_loaded(
            await open_each_aside(
                self._offload, commit_log.files.open_all, self._noted, close=lambda file: file.shared.drop()
            )
        )
        files, size = list(commit_log.segments), commit_log.file_size
        found = self._found = Recovered(clean=self._clean, start=commit_log.start)
        loader = QueueLoader(
            self._world, self._queues, self._deletions, commit_log.start, commit_log.file_size, self._read_at
        )
        await loader.load()
        self._dispatcher.misfits.former = loader.former
        expect_ends(loader.former, self._damaged, self._deletions, self._queues)
        await self._writer.sweep()
        self._light = self._light or bool(loader.light)
        index_reached = 0
        if self._index is not None:
            await self._index.open(clean=self._clean)
            # A wrong header may say anything.
            index_reached = self._index.reached if files and self._index.reached <= files[-1].start + size else 0
        reader = self._reader()
        segment = 0
        there: dict[int, int] = {}
        light: dict[int, int] = {}
        differs: int | None = None
        fill = False
        end = 0
        in_doubt = 0
        if files:
            since = await self._sure_until(files, loader.covered)
            if since is not None:
                found.checked_from, segment = since
                there, light = await self._scan(reader, found.checked_from, files[-1].start + size, fill=False)
                if found.damages or reader.position < self._forced or not there:
                    log.warning(
                        "not all of the commit log that was on disk up to %d is there; more of it is checked",
                        self._forced,
                    )  # fmt: skip
                    since = None
                elif not await self._as_written(files, reader.stamp):
                    since = None
            if since is None:
                reader, there, light, fill = await self._check_files(files, loader)
                segment = found.checked_from
            found.compared_from = max(found.checked_from, reader.crc_from)
            in_doubt = found.compared_from if since is None else self._forced
            end = self._end(reader, files)
            await self._offload(refuse_exchanged, files, commit_log.file_size, end, found.damages)
            self._deletions.measured(segment, self._dead)
            await self._keep_entries()
            if not fill:
                differs = self._first_difference(there, self._kept.apart(loader.covered), segment)
                found.queues_wrong = differs is not None
            if self._fills_light and not fill:
                other = self._first_difference(light, self._kept.apart(loader.light, light=True), segment)
                differs = other if differs is None else differs if other is None else min(differs, other)
        await commit_log.settle(end)
        await commit_log.checksums.log_begins(commit_log.start)
        await commit_log.checksums.log_ends(end)
        commit_log.stamp = reader.stamp
        found.end = end
        found.damages.sort()

        if not self._fills_light:
            await loader.cut_light(end)
        found.dispatched_from = end
        if differs is not None:
            await loader.cut_from(differs, light=self._fills_light)
            self._kept.put_first()
            firsts = [offset for segment, offset in self._first_records.items() if segment >= differs]
            found.dispatched_from = min(firsts, default=end)
        former = dict(loader.former)
        await self._dispatch(found.dispatched_from)
        if fill:
            found.dispatched_from = found.checked_from
        lost: Collection[Queue] = ()
        if fill or differs is not None:
            made = await remade(
                self._queues, self._offload, self._read_at, former, loader.ends, self._checkpoint.logics
            )
            found.wrong_entries = made.tell()
            found.queues_wrong = found.queues_wrong and not any(made)
            lost = made.lacking if loader.claims else list(self._queues) if made.lacking else ()
        if self._index is not None:
            await self._fill_index(self._index, loader, former, found)
        for queue in self._queues:
            queue.visible = queue.next
        await self._force(found.checked_from, in_doubt)
        found.lost = self._lost_tail(found.end, loader, index_reached)
        if lost:
            # What claims a place that it has not is known by that.
            parts = [part for part in found.damages if part not in self._dispatcher.damages]
            leave_room(self._queues, lost, [*parts, found.lost] if found.lost else parts, former)
        self._report(found)
        return found

    async def _force(self, checked_from: int, in_doubt: int) -> None:
        """See to it that what is served is on disk.

        What an earlier process of this boot could not force there, the system may take for written. After another boot
        everything was read from the disk.

        :param in_doubt: after an unclean stop, nobody knows from here on whether it ever was there.
        """
        written = self._clean or (self._noted >= 0 > self._forced)
        size, files = self._log.file_size, self._log.files
        for file in self._log.segments:
            if not written and file.start + size > in_doubt:
                start, end = max(0, in_doubt - file.start), min(size, self._log.end - file.start)
                await self._offload(files.sync_again, file, start, end)
            elif file.start + size > checked_from:
                await self._offload(files.sync, file)

    def _lost_tail(self, end: int, loader: QueueLoader, index: int) -> Damage | None:
        """What is missing behind the end of the log, told.

        :param index: commit-log offset behind the newest record that the index had.
        """
        count = newly_left_out(self._dispatcher.misfits.left_out, self._damaged)
        known = self._checkpoint.clean_end if self._clean else -1
        queues = furthest(loader.claims, loader.covered.keys() | loader.light.keys(), self._segment, end, known)
        tail = LostTail(end, queues if count else 0, index, max(known, self._checkpoint.forced_once))
        return tail.told(self._log, count)

    def _reader(self) -> LogReader:
        """For what may have been lost lately: the log may end in it."""
        reader = LogReader(self._world, self._log, crc=self._crc)
        self._join(reader)
        if self._clean:
            reader.clean_end = self._checkpoint.clean_end
        return reader

    def _join(self, reader: LogReader) -> None:
        """One of the readers of this start: each thing that is bad is met once."""
        reader.damages = self._found.damages
        reader.passed_over = self._found.unreadable
        reader.unreadable = self._places
        reader.at_rest = True

    async def _peek(self, file: LogFile, size: int, position: int) -> bytes:
        """Bytes of a file; none where the disk does not give them."""
        return await self._offload(self._read_at, file.start + position, size)

    def _read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the log, of one file; none where there are none, or the disk does not give them. Blocks."""
        file = self._log.segment_of(offset)
        try:
            return b"" if file is None else file.file.pread(size, offset - file.start)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            return b""

    async def _keep_entries(self) -> None:
        """Know of every entry that points to what could not be read up to now."""
        parts = self._found.unreadable
        parts.sort(key=lambda part: (part.start, -part.end))
        # The same place was met from further back: a damaged record lies before it.
        parts[:] = [part for at, part in enumerate(parts) if not at or part.end > parts[at - 1].end]
        self._kept = KeptEntries(self._queues, self._offload, self._segment)
        await self._kept.note(parts)

    def _end(self, reader: LogReader, files: list[LogFile]) -> int:
        """Where the log ends: behind the last record that can be read, unless there may be more of it.

        :raises StoreError: nobody knows.
        """
        last = files[-1].start + self._log.file_size
        noted = reader.clean_end
        places, at = self._places, reader.end
        if not places.touch(at, noted if noted >= at else last):
            return at
        if noted >= at:
            self._found.unreadable.append(Damage(at, noted))
            return noted
        start = max(at, next(start for start, end in places.ranges if end > at))
        file = self._log.segment_of(start)
        assert file is not None
        raise StoreError(
            f"{file.path} cannot be read at {start - file.start}, and no message is found behind offset {at}: where "
            "the commit log ends is not known after this stop, and nothing is cut away: have the disk checked; to go "
            "on without what cannot be read, put a copy of the file in its place that has zeros there"
        )

    async def _sure_until(self, files: list[LogFile], covered: dict[int, int]) -> tuple[int, int] | None:
        """The first record that is to be checked when what was forced to disk is not, and the segment it is in.

        None: that is not known, or queues do not cover what is before it.
        """
        last = self._forced - 1
        at = (last - files[0].start) // self._log.file_size
        if self._forced <= files[0].start or at >= len(files):
            return None
        file = files[at]
        segment = last - last % self._segment
        start = file.start + self._covered(covered, file.start, segment)
        if start < segment or await self._first_wrong(files[:at], covered) is not None:
            return None
        for older in files[await self._first_to_check(files) : at]:
            if not await self._is_unchanged(older):
                return None
        limit = file.start + self._log.file_size - start
        head = await self._peek(file, 4, start - file.start)
        length = int.from_bytes(head, "big", signed=True)
        if not FIXED_SIZE <= length <= limit:
            return None
        record = await self._peek(file, length, start - file.start)
        return (start, segment) if record and check(record, 0, start, limit) == length else None

    async def _as_written(self, files: list[LogFile], stamp: int) -> bool:
        """Whether the file in which what was forced ends has not been changed but by the messages in it.

        :param stamp: store time of the newest message, ms.
        """
        at = (self._forced - 1 - files[0].start) // self._log.file_size
        if self._clean:
            return await self._is_unchanged(files[at])
        if at + 1 < len(files) and any(first := await self._peek(files[at + 1], _STAMPED, 0)):
            stamp = store_time(first.ljust(_STAMPED, b"\0"))  # written together with the end of the one before it
        return await self._is_unchanged(files[at], (stamp + _WRITTEN_WITHIN) * 1_000_000)

    async def _is_unchanged(self, file: LogFile, last_write_ns: int = -1) -> bool:
        if await self._offload(self._checkpoint.unchanged, file.start, file.path, last_write_ns):
            return True
        log.info("%s is not known to be as it was left; more of the commit log is checked", file.path)
        return False

    async def _check_files(
        self, files: list[LogFile], loader: QueueLoader
    ) -> tuple[LogReader, dict[int, int], dict[int, int], bool]:
        """Check whole files, back to the first that queues do not cover: what :meth:`_scan` gives of them.

        :returns: and, at last, whether queues had nothing of them, and were filled on the way.
        """
        first = await self._first_to_check(files)
        unsure = files[first].start
        wrong = await self._first_wrong(files[:first], loader.covered)
        if wrong is not None:
            first = wrong
        while True:
            start = self._found.checked_from = files[first].start
            reader = self._reader()
            # What is older was on disk long before the stop; it is read for the queues' sake.
            reader.crc_from = min(unsure, start) if wrong is None else unsure
            fill = not any(at >= start for at in (*loader.covered, *loader.light))
            there, light = await self._scan(reader, start, files[-1].start + self._log.file_size, fill=fill)
            if there or not first:
                return reader, there, light, fill
            first -= 1

    async def _first_to_check(self, files: list[LogFile]) -> int:
        """Which file the check begins with; a checkpoint can only make it an earlier one."""
        if self._clean:
            return len(files) - 1
        used = len(files)
        while used > 1 and (head := await self._peek(files[used - 1], 8, 0)) and not any(head):
            used -= 1  # made in advance, nothing in it yet
        first = max(0, used - _FILES)
        oldest = self._checkpoint.oldest
        while first > 0 and oldest > 0:
            data = await self._peek(files[first], 128, 0)
            if len(data) == 128 and 0 < store_time(data) <= oldest:
                break
            first -= 1
        return first

    async def _first_wrong(self, files: list[LogFile], covered: dict[int, int]) -> int | None:
        """The first complete file that queues do not cover: their entries must end where its blank record begins."""
        size = self._log.file_size
        for at, file in enumerate(files):
            sizes = self._covered(covered, file.start, file.start + size)
            if sizes == size:
                continue  # known to be nothing but damage
            if sizes <= size - 8:
                blank = await self._peek(file, 8, sizes)
                if is_blank(blank, 0, size - sizes):
                    continue
            log.info("consume queues do not cover %s; they are checked from there", file.path)
            return at
        return None

    def _covered(self, covered: dict[int, int], start: int, stop: int) -> int:
        """Bytes of some segments that are in queues or known to be damaged."""
        sizes = sum(covered.get(segment, 0) for segment in range(start, stop, self._segment))
        return sizes + self._damaged.bytes_in(start, stop) + self._deletions.bytes_in(start, stop)

    async def _scan(
        self, reader: LogReader, start: int, stop: int, *, fill: bool
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Check records; bytes of good ones that are in queues, and in light message queues, by segment.

        :param fill: no queue has anything from ``start`` on: put the good records into them on the way.
        """
        multi_dispatch = self._dispatcher.multi_dispatch
        sums = Tally(self._segment, self._deletions, self._damaged, multi_dispatch, light=self._light)
        self._first_records, self._dead = sums.first_records, sums.dead
        async for run in reader.runs(start, stop):
            sums.add(run)
            await self._log.checksums.cover(run)
            self.progress("checking the commit log", run.base + run.end - start, stop - start)
            if fill:
                await self._dispatcher.put(run, {})
                await self._relieve()
        return sums.there, sums.light

    async def _relieve(self) -> None:
        """Write entries when they are many; thousands of small queues are left to the running broker."""
        if self._queues.pending >= _PENDING:
            try:
                await self._writer.write(everything=True)
            except OSError as error:
                if error.errno not in SPOILT:
                    raise  # a bad file of one queue costs that queue, and was told

    @staticmethod
    def _first_difference(there: Mapping[int, int], covered: Mapping[int, int], checked_from: int) -> int | None:
        wrong = [
            segment
            for segment in set(there) | {segment for segment in covered if segment >= checked_from}
            if there.get(segment, 0) != covered.get(segment, 0)
        ]
        return min(wrong, default=None)

    async def _fill_index(
        self, index: IndexBuild, loader: QueueLoader, former: Mapping[Queue, Former], found: Recovered
    ) -> None:
        """Bring the index up to the log when that is quick; it is done behind the running broker otherwise.

        :param former: what queues were.
        """
        if index.begin() > self._index_at_start:
            log.info("the index is not complete; it is brought up to the commit log while the broker runs")
            return
        known = len(found.damages)
        self._join(index.reader)
        await index.run()
        if len(found.damages) > known:
            # The index had to be filled from before what was checked, and that is damaged: so are the queues there.
            damaged = min(damage.start for damage in found.damages[known:])
            found.dispatched_from = damaged - damaged % self._log.file_size
            await self._keep_entries()
            # Where they ended is to be known again.
            loader.former.update((queue, Former(was.reach)) for queue, was in former.items())
            await loader.cut_from(found.dispatched_from, light=self._fills_light)
            self._kept.put_first()
            await self._dispatch(found.dispatched_from)

    async def _dispatch(self, start: int) -> None:
        """Fill queues from ``start`` on."""
        dispatcher = self._dispatcher
        dispatcher.position = start
        reader = LogReader(self._world, self._log, crc=self._crc)
        self._join(reader)
        while dispatcher.position < self._log.end:
            if not await dispatcher.advance(reader, _DISPATCH):
                break
            self.progress("filling consume queues", dispatcher.position - start, self._log.end - start)
            await self._relieve()
        dispatcher.position = self._log.end
        await dispatcher.settle([*self._found.damages, *self._found.unreadable])
        found = self._found.damages
        found += [part for part in dispatcher.damages if part not in found]
        await self._kept.put_back()
        await self._kept.reserve()
        if self._kept.moved:
            # Nothing else knows what they say. A disk that has no room now is told by those who write later.
            with contextlib.suppress(OSError):
                await self._writer.write(everything=True)
                await self._writer.sync()

    def _report(self, found: Recovered) -> None:
        log.info(
            "commit log %d to %d after %s stop: records checked from %d, queues built from %d",
            found.start, found.end, "a clean" if found.clean else "an unclean", found.checked_from,
            found.dispatched_from,
        )  # fmt: skip
        if found.clean and found.queues_wrong:
            # After an unclean one they may lack what was in memory.
            log.error(
                "consume queues did not say what is in the commit log from offset %d on, although the last stop was a "
                "clean one: they were made anew from there; if nobody changed or removed their files, have the disk "
                "checked", found.dispatched_from,
            )  # fmt: skip
        # The dispatcher has told of those that it found itself.
        self._damaged.tell([part for part in found.damages if part not in self._dispatcher.damages], self._log)
