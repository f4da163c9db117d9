"""What of the commit log is known to be damaged, and how that is kept apart from consumers.

The queue entries that point to damaged records become blank, as recovery leaves them: a pull goes past them, an offset
id and a key find nothing, and no message moves to another offset. The log itself is not touched. The parts, and what
queues have left out behind a lost end of the log, are noted in ``{root}/scrub.json``, which Java does not know, so that
a later start can tell them from entries that are missing.

A list that lacks something does no harm: with it the sizes of entries do not add up, and recovery reads the log. One
that has changed would make blank what is good: it has a sum (:mod:`rmq.broker.store.kept_file`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from contextlib import aclosing

from rmq.broker.store import kept_file
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.queues.files import BLANK_ENTRY
from rmq.broker.store.queues.pointing import entries_into, overwrite, piece_end
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import Queue
from rmq.broker.store.trouble import Trouble
from rmq.protocol.numbers import is_whole
from rmq.runtime.world import World

__all__ = ["DamagedParts"]

log = logging.getLogger(__name__)

#: The last millisecond that has a date.
_LATEST = 253_402_300_799_999

#: Queues looked at before the loop goes on.
_AT_ONCE = 50
#: Places that a line of the log names.
_TOLD = 5
#: Entries made blank with one write.
_MOST_BLANK = 1024


class DamagedParts:
    """The damaged parts of one store, and where the scrub is.

    :param root: ``storePathRootDir``.
    """

    def __init__(self, world: World, root: str, queues: QueueTable) -> None:
        self._files = world.files
        self._offload = world.offload
        self._queues = queues
        self.path = os.path.join(root, "scrub.json")
        self._trouble = Trouble(world.clock, log, "writing scrub.json", "what a scrub found is not known to a restart")
        self.parts: list[Damage] = []
        #: Indexes whose messages were lost with the end of the log, and which nobody is to get again, as the file says:
        #: topic, queue id, first, and behind the last.
        self.left_out: list[tuple[str, int, int, int]] = []
        #: Where the scrub goes on, -1 = between two passes; and when the last one began, ms.
        self.position = -1
        self.began_ms = 0

    def load(self) -> None:
        """Read the file; what is not there or makes no sense is as if nothing were known. Blocks."""
        try:
            read = kept_file.decode(self._files.read(self.path))
            parts = sorted(Damage(start, end) for start, end in read["damaged"])
            position, began = read["position"], read["began"]
            left_out = [(topic, number, first, end) for topic, number, first, end in read.get("left_out", [])]
            if not (
                all(is_whole(part.start) and is_whole(part.end) and part.start < part.end for part in parts)
                and is_whole(position, least=-1)
                and is_whole(began, _LATEST)
                and all(type(topic) is str and all(map(is_whole, numbers)) for topic, *numbers in left_out)
            ):
                raise ValueError("it holds other numbers than offsets and a time")
            self.parts, self.position, self.began_ms, self.left_out = parts, position, began, left_out
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("%s cannot be used (%s); the commit log is checked anew", self.path, error)
            self.parts, self.position, self.began_ms, self.left_out = [], -1, 0, []

    @property
    def bytes(self) -> int:
        """Damaged bytes that are known."""
        return sum(part.end - part.start for part in self.parts)

    def bytes_in(self, start: int, end: int) -> int:
        """Damaged bytes from one commit-log offset to another."""
        return sum(max(0, min(end, part.end) - max(start, part.start)) for part in self.parts)

    def forget_from(self, end: int) -> bool:
        """The log ends there: what comes is not what was damaged. Whether anything was; then :meth:`save` is due."""
        before = self.parts
        self.parts = [part for part in before if part.end <= end]
        return self.parts != before

    def add(self, found: Iterable[Damage], log_start: int) -> bool:
        """Know of further parts, and forget those that retention took; whether that changed anything."""
        before = self.parts
        merged: list[Damage] = []
        for part in sorted({*before, *found}):
            if part.end <= log_start:
                continue
            if merged and part.start <= merged[-1].end:
                merged[-1] = Damage(merged[-1].start, max(part.end, merged[-1].end))
            else:
                merged.append(part)
        self.parts = merged
        return merged != before

    def tell(self, found: Iterable[Damage], commit_log: CommitLog) -> None:
        """Say in the log what of this is not known yet."""
        new = [part for part in sorted(found) if self.bytes_in(*part) < part.end - part.start]
        if not new:
            return
        places = [
            f"{file.path} at {part.start - file.start}"
            for part in new[:_TOLD]
            if (file := commit_log.segment_of(part.start)) is not None
        ]
        log.critical(
            "%d damaged places of the commit log, %d bytes, were skipped: %s; the messages there are lost, all others "
            "are where they were; have the disk checked",
            len(new), sum(part.end - part.start for part in new), ", ".join(places + ["..."] * (len(new) > _TOLD)),
        )  # fmt: skip

    async def save(self) -> None:
        """Write the file; what cannot be written is found again by the next pass."""
        self.left_out = [
            (queue.topic, queue.id, first, end)
            for queue, ranges in self._queues.left_out.items()
            for first, end in ranges
            if end >= queue.min
        ]
        damaged = [list(part) for part in self.parts]
        content = {"position": self.position, "began": self.began_ms, "damaged": damaged, "left_out": self.left_out}
        try:
            await self._offload(self._files.write_atomic, self.path, kept_file.encode(content))
        except OSError as error:
            self._trouble.failed(error)
        else:
            self._trouble.over()

    async def set_aside(self, part: Damage) -> int:
        """Make every entry that points into a damaged part blank, in whatever queue; how many there were."""
        count = 0
        for number, queue in enumerate(list(self._queues)):
            count += await self._blank(queue, part)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        if count:
            self._queues.cuts += 1  # what pulls keep of entries is void
        return count

    async def _blank(self, queue: Queue, part: Damage) -> int:
        """The entries of one queue, those that lie side by side in one go."""
        count = first = behind = 0
        async with aclosing(entries_into(self._queues, queue, *part)) as entries:
            async for at, _ in entries:
                if first < behind == at < min(first + _MOST_BLANK, piece_end(self._queues, queue, first)):
                    behind += 1
                    continue
                if not await self._make_blank(queue, first, behind):
                    return count
                count += behind - first
                first, behind = at, at + 1
        return count + behind - first if await self._make_blank(queue, first, behind) else count

    async def _make_blank(self, queue: Queue, first: int, behind: int) -> bool:
        blank = BLANK_ENTRY * (behind - first)
        return not blank or await overwrite(self._queues, self._offload, queue, first, blank)
