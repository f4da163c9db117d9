"""Checks the records of the newest part of the log, and says what there is of good ones.

The log ends behind the last good record. Where good records follow bad bytes, the bad bytes are reported and skipped;
nothing behind them is cut. What was forced to disk in this very boot of the machine is checked from where that ends, at
the offset that the sums of the queues give; if it is not all there, nothing of it is believed.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.start.extent import Extent
from rmq.broker.store.start.filling import Filling
from rmq.broker.store.start.queue_loader import QueueLoader, segment_size
from rmq.broker.store.start.reading import Reading
from rmq.broker.store.start.recovered import LastStop, Recovered
from rmq.broker.store.start.tally import Tally

__all__ = ["Checked", "Checking"]

log = logging.getLogger(__name__)


class Checked(NamedTuple):
    """What was read of the log.

    :param reader: that has read it to its end.
    :param sums: what there is of good records.
    :param segment: the first that ``sums`` has all of.
    :param fill: queues had nothing of it, and were filled on the way.
    :param in_doubt: after an unclean stop, nobody knows from here on whether it ever was on disk.
    """

    reader: LogReader
    sums: Tally
    segment: int
    fill: bool
    in_doubt: int


class Checking:
    """The check of one start.

    :param light: whether light message queues are added up.
    """

    def __init__(
        self,
        disk: OnDisk,
        dispatcher: Dispatcher,
        reading: Reading,
        extent: Extent,
        filling: Filling,
        last_stop: LastStop,
        found: Recovered,
        *,
        light: bool,
    ) -> None:
        self._log = disk.log
        self._deletions = disk.deletions
        self._damaged = disk.damaged
        self._dispatcher = dispatcher
        self._reading = reading
        self._extent = extent
        self._filling = filling
        self._forced = last_stop.forced
        self._found = found
        self._segment = segment_size(disk.log.file_size)
        self._light = light
        self._queues = disk.queues

    async def run(self, files: list[LogFile], loader: QueueLoader) -> Checked:
        """Check what has to be checked.

        :param files: of the log, one at least.
        :raises OSError: a disk error.
        """
        checked = await self._check_forced(files, loader) or await self._check_files(files, loader)
        self._found.compared_from = max(self._found.checked_from, checked.reader.crc_from)
        return checked if checked.in_doubt >= 0 else checked._replace(in_doubt=self._found.compared_from)

    async def _check_forced(self, files: list[LogFile], loader: QueueLoader) -> Checked | None:
        """Check what is behind that which was forced to disk in this boot; None: that cannot be believed."""
        since = await self._extent.sure_until(files, loader.covered)
        lack = self._queues.light_lack_from
        if since is None or (lack is not None and lack < since[0]):
            return None
        start, segment = since
        self._found.checked_from = start
        reader = self._reading.reader()
        sums = await self._scan(reader, start, files[-1].start + self._log.file_size, fill=False)
        if self._found.damages or reader.position < self._forced or not sums.there:
            log.warning(
                "not all of the commit log that was on disk up to %d is there; more of it is checked", self._forced
            )
            return None
        if not await self._extent.as_written(files, reader.stamp):
            return None
        return Checked(reader, sums, segment, fill=False, in_doubt=self._forced)

    async def _check_files(self, files: list[LogFile], loader: QueueLoader) -> Checked:
        """Check whole files, back to the first that queues do not cover."""
        first = await self._extent.first_to_check(files)
        unsure = files[first].start
        lacking = self._lacking(files, first)
        wrong = await self._extent.first_wrong(files[:lacking], loader.covered)
        if wrong is None and lacking < first:
            wrong = lacking
        if wrong is not None:
            first = wrong
        while True:
            start = self._found.checked_from = files[first].start
            reader = self._reading.reader()
            # What is older was on disk long before the stop; it is read for the queues' sake.
            reader.crc_from = min(unsure, start) if wrong is None else unsure
            fill = not any(at >= start for at in (*loader.covered, *loader.light))
            sums = await self._scan(reader, start, files[-1].start + self._log.file_size, fill=fill)
            if sums.there or not first:
                return Checked(reader, sums, start, fill, in_doubt=-1)
            first -= 1

    def _lacking(self, files: list[LogFile], first: int) -> int:
        """The file with the first record that light queues are known to lack; ``first`` if that is before it."""
        lack = self._queues.light_lack_from
        if lack is None:
            return first
        return min(first, max(0, (lack - files[0].start) // self._log.file_size))

    async def _scan(self, reader: LogReader, start: int, stop: int, *, fill: bool) -> Tally:
        """Check records, and add up good ones.

        :param fill: no queue has anything from ``start`` on: put the good records into them on the way.
        """
        multi_dispatch = self._dispatcher.multi_dispatch
        sums = Tally(self._segment, self._deletions, self._damaged, multi_dispatch, light=self._light)
        async for run in reader.runs(start, stop):
            sums.add(run)
            await self._log.checksums.cover(run)
            self._filling.progress("checking the commit log", run.base + run.end - start, stop - start)
            if fill:
                await self._dispatcher.put(run, {})
                await self._filling.relieve()
        return sums
