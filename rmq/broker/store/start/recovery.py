"""Brings log, queues and index to one state at start. The commit log alone decides which.

1. Read the queues, adding up what they say is in each segment of the log.
2. Find the first segment, from the oldest on, where that is not what is there (:mod:`.extent`).
3. Check the records of the newest files, or from that segment on if it is older (:mod:`.checking`).
   What deleted topics held is in no queue; it is added up apart, too (:mod:`rmq.broker.store.queues.deletions`).
   Light message queues are added up apart, for their entries point to records that other queues hold, too; while
   multi-dispatch is off they are left as they are.
4. Cut queues back to the first segment that differs (:mod:`.evidence`) and dispatch again from there (:mod:`.filling`).
   Where queues have nothing at all of what is checked, they are filled on the way.
5. Bring the index up to the log, or leave that to the running broker when it takes long.
6. See to it that what is served is on disk, and tell what the log has lost behind its end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.log.exchanged import refuse_exchanged
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.open_files import open_each_aside
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.start.checking import Checked, Checking
from rmq.broker.store.start.evidence import Evidence, first_difference
from rmq.broker.store.start.extent import Extent
from rmq.broker.store.start.filling import Filling
from rmq.broker.store.start.lost_tail import expect_ends, leave_room, newly_left_out
from rmq.broker.store.start.progress import Progress
from rmq.broker.store.start.queue_loader import QueueLoader, segment_size
from rmq.broker.store.start.reading import Reading
from rmq.broker.store.start.recovered import LastStop, Recovered
from rmq.broker.store.start.remade import remade
from rmq.broker.store.state import Queue

__all__ = ["Recovery"]

log = logging.getLogger(__name__)


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
        self._ground = ground
        self._offload = ground.world.offload
        self._disk = disk
        self._log = disk.log
        self._queues = disk.queues
        self._damaged = disk.damaged
        self._writer = writer
        self._index = index
        self._dispatcher = dispatcher
        self._last_stop = last_stop
        #: Told how far it is.
        self.progress: Progress = lambda what, done, total: None

    async def run(self) -> Recovered:
        """Leave everything as if the process had never stopped.

        :raises StoreError: the log itself cannot be read, or its end cannot.
        :raises OSError: a disk error.
        """
        commit_log, disk = self._log, self._disk
        commit_log.adopt_loaded(
            await open_each_aside(
                self._offload, commit_log.files.open_all, self._last_stop.noted, close=lambda file: file.shared.drop()
            )
        )
        files = list(commit_log.segments)
        found = Recovered(clean=self._last_stop.clean, start=commit_log.start)
        evidence = Evidence(
            segment_size(commit_log.file_size),
            disk.checkpoint.clean_end if self._last_stop.clean else -1,
            disk.checkpoint.forced_once,
        )
        crc = self._ground.settings.check_crc_on_recover
        reading = Reading(self._ground.world, commit_log, found, crc=crc, clean_end=evidence.clean_end)
        loader = await self._load_queues(reading)
        evidence.covered, evidence.light, evidence.claims = loader.covered, loader.light, loader.claims
        evidence.index = await self._open_index(files)
        filling = Filling(self._ground, disk, self._writer, self._dispatcher, reading, found)
        filling.progress = self.progress
        extent = Extent(self._offload, disk, reading, self._last_stop)
        checking = Checking(
            disk, self._dispatcher, reading, extent, filling, self._last_stop, found,
            light=filling.fills_light or bool(loader.light),
        )  # fmt: skip
        checked: Checked | None = None
        differs: int | None = None
        end = 0
        if files:
            checked = await checking.run(files, loader)
            end = reading.end(checked.reader, files)
            await self._offload(refuse_exchanged, files, commit_log.file_size, end, found.damages)
            disk.deletions.measured(checked.segment, checked.sums.dead)
            await filling.keep_entries()
            differs = self._differs(checked, loader, filling, found)
        await commit_log.settle(end)
        await commit_log.checksums.log_begins(commit_log.start)
        await commit_log.checksums.log_ends(end)
        commit_log.stamp = 0 if checked is None else checked.reader.stamp
        found.end = end
        found.damages.sort()

        if not filling.fills_light:
            await loader.cut_light(end)
        found.dispatched_from = end
        if checked is not None and differs is not None:
            await loader.cut_from(differs, light=filling.fills_light)
            filling.kept.put_first()
            firsts = [offset for segment, offset in checked.sums.first_records.items() if segment >= differs]
            found.dispatched_from = min(firsts, default=end)
        former = dict(loader.former)
        await filling.dispatch(found.dispatched_from)
        fill = checked is not None and checked.fill
        if fill:
            found.dispatched_from = found.checked_from
        lost: Collection[Queue] = ()
        if fill or differs is not None:
            made = await remade(
                self._queues, self._offload, reading.read_at, former, loader.ends, disk.checkpoint.logics
            )
            found.wrong_entries = made.tell()
            found.queues_wrong = found.queues_wrong and not any(made)
            lost = made.lacking if loader.claims else list(self._queues) if made.lacking else ()
        if self._index is not None:
            await filling.fill_index(self._index, loader, former)
        for queue in self._queues:
            queue.visible = queue.next
        await self._force(found.checked_from, 0 if checked is None else checked.in_doubt)
        lacking = newly_left_out(self._dispatcher.misfits.left_out, self._damaged)
        found.lost = evidence.lost_tail(end, lacking).told(commit_log, lacking)
        if lost:
            # What claims a place that it has not is known by that.
            parts = [part for part in found.damages if part not in self._dispatcher.damages]
            leave_room(self._queues, lost, [*parts, found.lost] if found.lost else parts, former)
        self._report(found)
        return found

    async def _load_queues(self, reading: Reading) -> QueueLoader:
        deletions = self._disk.deletions
        loader = QueueLoader(
            self._ground.world, self._queues, deletions, self._log.start, self._log.file_size, reading.read_at
        )
        await loader.load()
        self._dispatcher.misfits.former = loader.former
        expect_ends(loader.former, self._damaged, deletions, self._queues)
        await self._writer.sweep()
        return loader

    async def _open_index(self, files: list[LogFile]) -> int:
        """Behind the newest record that the index knows."""
        if self._index is None:
            return 0
        await self._index.open(clean=self._last_stop.clean)
        # A wrong header may say anything.
        return self._index.reached if files and self._index.reached <= files[-1].start + self._log.file_size else 0

    @staticmethod
    def _differs(checked: Checked, loader: QueueLoader, filling: Filling, found: Recovered) -> int | None:
        """From which segment of the log on queues are made anew."""
        if checked.fill:
            return None
        sums, kept = checked.sums, filling.kept
        differs = first_difference(sums.there, kept.apart(loader.covered), checked.segment)
        found.queues_wrong = differs is not None
        if not filling.fills_light:
            return differs
        light = first_difference(sums.light, kept.apart(loader.light, light=True), checked.segment)
        return min((at for at in (differs, light) if at is not None), default=None)

    async def _force(self, checked_from: int, in_doubt: int) -> None:
        """See to it that what is served is on disk.

        What an earlier process of this boot could not force there, the system may take for written. After another boot
        everything was read from the disk.

        :param in_doubt: after an unclean stop, nobody knows from here on whether it ever was there.
        """
        written = self._last_stop.clean or (self._last_stop.noted >= 0 > self._last_stop.forced)
        size, files = self._log.file_size, self._log.files
        for file in self._log.segments:
            if not written and file.start + size > in_doubt:
                start, end = max(0, in_doubt - file.start), min(size, self._log.end - file.start)
                await self._offload(files.sync_again, file, start, end)
            elif file.start + size > checked_from:
                await self._offload(files.sync, file)

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
