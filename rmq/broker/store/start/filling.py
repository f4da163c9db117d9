"""Queues and index brought up to the log by a start.

Queue entries that point to what the disk does not give stay: nothing can make them anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.misfits import Former
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.refusal import SPOILT
from rmq.broker.store.start.kept_entries import KeptEntries
from rmq.broker.store.start.progress import Progress
from rmq.broker.store.start.queue_loader import QueueLoader, segment_size
from rmq.broker.store.start.reading import Reading
from rmq.broker.store.start.recovered import Recovered
from rmq.broker.store.state import Queue

__all__ = ["Filling"]

log = logging.getLogger(__name__)

_DISPATCH = 32 << 20
#: Bytes of entries that wait in memory meanwhile.
_PENDING = 4 << 20


class Filling:
    """What one start puts into queues and index."""

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        writer: QueueWriter,
        dispatcher: Dispatcher,
        reading: Reading,
        found: Recovered,
    ) -> None:
        self._offload = ground.world.offload
        self._log = disk.log
        self._queues = disk.queues
        self._writer = writer
        self._dispatcher = dispatcher
        self._reading = reading
        self._found = found
        self._index_at_start = ground.settings.index_at_start
        self._segment = segment_size(disk.log.file_size)
        #: Light message queues are filled here.
        self.fills_light = dispatcher.multi_dispatch is not None
        #: Told how far it is.
        self.progress: Progress = lambda what, done, total: None
        #: What queues say of places that cannot be read.
        self.kept = KeptEntries(disk.queues, self._offload, self._segment)

    async def keep_entries(self) -> None:
        """Know of every entry that points to what could not be read up to now."""
        parts = self._found.unreadable
        parts.sort(key=lambda part: (part.start, -part.end))
        # The same place was met from further back: a damaged record lies before it.
        parts[:] = [part for at, part in enumerate(parts) if not at or part.end > parts[at - 1].end]
        self.kept = KeptEntries(self._queues, self._offload, self._segment)
        await self.kept.note(parts)

    async def dispatch(self, start: int) -> None:
        """Fill queues from ``start`` on."""
        dispatcher = self._dispatcher
        dispatcher.position = start
        reader = self._reading.reader_of_good()
        while dispatcher.position < self._log.end:
            if not await dispatcher.advance(reader, _DISPATCH):
                break
            self.progress("filling consume queues", dispatcher.position - start, self._log.end - start)
            await self.relieve()
        dispatcher.position = self._log.end
        await dispatcher.settle([*self._found.damages, *self._found.unreadable])
        found = self._found.damages
        found += [part for part in dispatcher.damages if part not in found]
        await self.kept.put_back()
        await self.kept.reserve()
        if self.kept.moved:
            # Nothing else knows what they say. A disk that has no room now is told by those who write later.
            with contextlib.suppress(OSError):
                await self._writer.write(everything=True)
                await self._writer.sync()

    async def relieve(self) -> None:
        """Write entries when they are many; thousands of small queues are left to the running broker."""
        if self._queues.pending >= _PENDING:
            try:
                await self._writer.write(everything=True)
            except OSError as error:
                if error.errno not in SPOILT:
                    raise  # a bad file of one queue costs that queue, and was told

    async def fill_index(self, index: IndexBuild, loader: QueueLoader, former: Mapping[Queue, Former]) -> None:
        """Bring the index up to the log when that is quick; it is done behind the running broker otherwise.

        :param former: what queues were.
        """
        if index.begin() > self._index_at_start:
            log.info("the index is not complete; it is brought up to the commit log while the broker runs")
            return
        found = self._found
        known = len(found.damages)
        self._reading.join(index.reader)
        await index.run()
        if len(found.damages) > known:
            # The index had to be filled from before what was checked, and that is damaged: so are the queues there.
            damaged = min(damage.start for damage in found.damages[known:])
            found.dispatched_from = damaged - damaged % self._log.file_size
            await self.keep_entries()
            # Where they ended is to be known again.
            loader.former.update((queue, Former(was.reach)) for queue, was in former.items())
            await loader.cut_from(found.dispatched_from, light=self.fills_light)
            self.kept.put_first()
            await self.dispatch(found.dispatched_from)
