"""Records that are not the next of their queue: they wait here until it is known what they are.

:mod:`rmq.broker.store.queues.sequence` judges one queue. What a record of it lacks another may have too much: one bit
in a queue id or a topic puts a record into the other's line, where it may even fit. So at the end of the log the gaps
of queues are held against the claims that found no place, and against the entries of queues whose names are a bit away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from rmq.broker.store.log.reader import Damage
from rmq.broker.store.queues.files import BLANK_ENTRY, is_blank
from rmq.broker.store.queues.pointing import overwrite
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.queues.sequence import MOST_WAITING, Claim, Verdict, decide, kin, weigh
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, PLACE, Queue
from rmq.runtime.world import Offload

__all__ = ["Former", "Misfits"]

_entry = ENTRY.pack
_pair = PLACE.unpack_from
_pairs = PLACE.iter_unpack
#: Gaps and claims without a place that are held against each other; what is more stays as it was judged first.
_MOST = 1000
_FOREVER = 1 << 62


class Former(NamedTuple):
    """What a queue was before it is made anew."""

    #: As many entries it had, from 0 on.
    reach: int = 0
    #: Index of the first of those that are kept, and they.
    first: int = 0
    entries: bytes = b""

    def points_to(self, index: int) -> tuple[int, int] | None:
        """Commit-log offset and size that an entry had; None when it is not known or was blank."""
        at = (index - self.first) * ENTRY_SIZE
        if not 0 <= at < len(self.entries):
            return None
        offset, size = _pair(self.entries, at)
        return None if is_blank(offset, size) else (offset, size)

    def bytes_in(self, start: int, end: int) -> int:
        """Bytes of the records that its entries had in a part of the log."""
        return sum(
            size for offset, size in _pairs(self.entries) if start <= offset < end and not is_blank(offset, size)
        )


class _Gap(NamedTuple):
    queue: Queue
    #: Indexes that have no record.
    start: int
    end: int
    #: The commit-log offsets between which they should be.
    low: int
    high: int
    #: The queue has nothing before: what lies there may have been in files that are gone.
    head: bool = False


_NOTHING = Former()


class Misfits:
    """The claims that wait, of all queues.

    :param told: called once with each record that is found to be damaged: the queue that it names, and what it claims.
    """

    def __init__(self, offload: Offload, queues: QueueTable, told: Callable[[Queue, Claim], None]) -> None:
        self._offload = offload
        self._queues = queues
        self._told = told
        self.former: dict[Queue, Former] = {}
        #: Entries that queues had and that nothing in the log accounts for.
        self.left_out: dict[Queue, int] = {}
        self._waiting: dict[Queue, list[Claim]] = {}
        self._gaps: list[_Gap] = []
        self._strays: list[tuple[Queue, Claim]] = []
        #: The log does not begin at 0: nor need queues.
        self._begins_late = False
        queues.on_dropped.append(self._dropped)

    def __contains__(self, queue: Queue) -> bool:
        """Whether claims of a queue wait: then every further record of it is to be judged here."""
        return queue in self._waiting

    def wait_behind(self, queue: Queue, end: int) -> bool:
        """Whether claims of a queue wait whose records lie at ``end`` or behind."""
        return any(claim.offset >= end for claim in self._waiting.get(queue, ()))

    def __bool__(self) -> bool:
        """Whether there is anything to decide about."""
        return bool(self._waiting or self._strays or self._gaps or self.former)

    def log_ends(self, to: int) -> None:
        """The log is cut back to ``to``."""
        for queue, waiting in list(self._waiting.items()):
            waiting[:] = [claim for claim in waiting if claim.offset < to]
            if not waiting:
                del self._waiting[queue]
        self._gaps = [gap for gap in self._gaps if gap.high <= to]
        self._strays = [(queue, claim) for queue, claim in self._strays if claim.offset < to]

    def take(self, queue: Queue, claim: Claim) -> Verdict | None:
        """What is to be done with a record and those that have waited; None = it waits."""
        waiting = self._waiting.get(queue, [])
        verdict = weigh(
            queue.next, queue.max_phys, waiting, claim,
            confirmed=(not claim.number or claim.number > queue.next) and self._confirmed(queue, claim),
            empty=queue.next == queue.min,
        )  # fmt: skip
        if verdict is not None:
            self._waiting.pop(queue, None)
            self._note(queue, verdict)
            return verdict
        self._waiting[queue] = waiting
        waiting.append(claim)
        if len(waiting) > MOST_WAITING:
            self._stray(queue, waiting.pop(0))
        return None

    def _confirmed(self, queue: Queue, claim: Claim) -> bool:
        return self.former.get(queue, _NOTHING).points_to(claim.number) == (claim.offset, claim.size)

    def _note(self, queue: Queue, verdict: Verdict) -> None:
        """What is missing before good claims, and what found no place."""
        good, bad = verdict.good, verdict.bad
        missing = 0 if verdict.anew or not good else good[-1].number + 1 - queue.next - len(good)
        for claim in bad:
            if missing:
                self._told(queue, claim)
            else:
                self._stray(queue, claim)
        if missing <= len(bad):
            return
        end, low = queue.next, queue.max_phys
        head = queue.next == queue.min
        for claim in good:
            if claim.number > end and len(self._gaps) < _MOST and not (head and self._begins_late):
                self._gaps.append(_Gap(queue, end, claim.number, low, claim.offset, head))
            end, low, head = claim.number + 1, claim.offset + claim.size, False

    def _stray(self, queue: Queue, claim: Claim) -> None:
        if len(self._strays) < _MOST:
            self._strays.append((queue, claim))
        else:
            self._told(queue, claim)

    def _dropped(self, queue: Queue) -> None:
        self._waiting.pop(queue, None)
        self.former.pop(queue, None)
        self._gaps = [gap for gap in self._gaps if gap.queue is not queue]
        self._strays = [stray for stray in self._strays if stray[0] is not queue]

    # -- the end of the log ----------------------------------------------------------------------------------------

    async def settle(
        self,
        put: Callable[[Queue, Verdict], Awaitable[None]],
        lost: Iterable[Damage],
        log_start: int,
        *,
        final: bool,
    ) -> list[Queue]:
        """No more records come, or not now: decide about what waits.

        :param put: has a queue do what a verdict says.
        :param lost: parts of the log whose records are not known.
        :param log_start: where the log begins.
        :param final: decide about all of it, whatever may come.
        :returns: queues that have got entries.
        :raises OSError: a queue cannot be read or written.
        """
        parts = list(lost)
        touched: list[Queue] = []
        self._begins_late = log_start > 0
        if self._begins_late:
            self._gaps = [gap for gap in self._gaps if not gap.head]

        def explained(low: int, high: int) -> bool:
            return any(part.end > low and part.start < high for part in parts)

        def is_lost(queue: Queue, claim: Claim) -> bool:
            known = self._queues.left_out.get(queue, [])
            return any(end == claim.number for _, end in known) or explained(queue.max_phys, claim.offset)

        left: dict[Queue, int] = {}
        for queue, waiting in list(self._waiting.items()):
            former = self.former.get(queue, _NOTHING)
            begins = queue.next == queue.min and (log_start > 0 or queue.max_phys > 0)
            alone = queue.next == queue.min and len(waiting) == 1 and former.reach <= waiting[0].number
            if alone and not is_lost(queue, waiting[0]) and self._elsewhere(queue, waiting[0]):
                verdict = Verdict([], waiting)
            else:
                verdict = decide(
                    queue.next, max(queue.max_phys, log_start), waiting,
                    explained=partial(is_lost, queue), reach=former.reach, begins=begins,
                )  # fmt: skip
            if not final and not verdict.good:
                continue
            del self._waiting[queue]
            self._note(queue, verdict)
            await put(queue, verdict)
            touched.append(queue)
            if final and not verdict.good:
                left[queue] = len(verdict.bad)
        strays, self._strays = self._strays, []
        for queue, claim in strays:
            if await self._place_of(queue, claim) and queue in left:
                left[queue] -= 1
        for gap in self._gaps:
            if not explained(gap.low, gap.high) and not any(gap.low < claim.offset < gap.high for _, claim in strays):
                await self._look_for(gap)
        self._gaps.clear()
        for queue, count in left.items():
            # Each has an entry here that nobody else is to get.
            if count or queue.next > queue.min or queue.files.starts:
                self._queues.leave_out(queue, queue.next + count)
            elif queue not in self.former:
                self._queues.drop_queue(queue)  # nothing was ever in it
        for queue, former in self.former.items():
            if count := self._queues.leave_out(queue, former.reach):
                self.left_out[queue] = count
        self.former.clear()
        return touched

    def _elsewhere(self, queue: Queue, claim: Claim) -> bool:
        """Whether the only claim of a queue that has nothing else is what another one lacks.

        Where the rest of the queue may have been in files that are gone, that it would be the next of another one says
        nothing: queues that take turns are often as long as each other.
        """
        late, gaps = self._begins_late, self._lacking(queue, claim.number)
        return any(gap.low < claim.offset < gap.high and not (late and gap.high == _FOREVER) for gap in gaps)

    def _lacking(self, queue: Queue, index: int) -> Iterator[_Gap]:
        """Of the queues whose names are a bit away from this one's, those that have no record for an index."""
        if index < 0:
            return
        for name in kin(queue.topic, queue.id):
            other = self._queues.get(*name)
            if other is None or (other.next == other.min and other not in self.former):
                continue
            if other.next == index:
                yield _Gap(other, index, index + 1, other.max_phys, _FOREVER)
            for gap in self._gaps:
                if gap.queue is other and gap.start <= index < gap.end:
                    yield gap

    async def _place_of(self, queue: Queue, claim: Claim) -> bool:
        """Find what a claim without a place is: the record of another queue, or this one's whose place another has.

        :returns: it is another queue's.
        """
        number = claim.number
        there, _ = await self._pointed(queue, number)
        was = self.former.get(queue, _NOTHING).points_to(number)
        own = elsewhere = there >= 0 and was == (claim.offset, claim.size)
        for gap in self._lacking(queue, number):
            inside, other_inside = (gap.low < offset < gap.high for offset in (claim.offset, there))
            if other_inside and was is None:
                own = not inside or await self._takes_turns(queue, number, gap)
            if (other_inside and own) or inside:
                elsewhere = True
                if gap.high == _FOREVER:
                    self._queues.leave_out(gap.queue, gap.end)
                break
        if own and claim.own:
            await self._swap(queue, claim)
        else:
            self._told(queue, claim)
        return elsewhere

    async def _takes_turns(self, queue: Queue, number: int, gap: _Gap) -> bool:
        """Two records claim an entry, and either may be the other queue's: the queues take turns as they did before.

        Where there is nothing before, as they do behind it.
        """
        before, _ = await self._pointed(queue, number - 1)
        if before >= 0:
            return gap.low <= before
        behind, _ = await self._pointed(queue, number + 1)
        return gap.high <= behind

    async def _pointed(self, queue: Queue, index: int) -> tuple[int, int]:
        """Commit-log offset and size that an entry has; -1 when there is none."""
        if not queue.min <= index < queue.next:
            return -1, 0
        entry = await self._queues.entries_cold(queue, index, 1)
        if len(entry) < ENTRY_SIZE:
            return -1, 0
        offset, size = _pair(entry)
        return (-1, 0) if is_blank(offset, size) else (offset, size)

    async def _swap(self, queue: Queue, claim: Claim) -> None:
        """Give a claim the entry that another record has."""
        offset, size = await self._pointed(queue, claim.number)
        code = claim.tags_code
        if self._queues.unit_code is not None:
            code = self._queues.unit_code(queue, code, claim.store_timestamp, claim.properties)
        await overwrite(self._queues, self._offload, queue, claim.number, _entry(claim.offset, claim.size, code))
        queue.max_phys = max(queue.max_phys, claim.offset + claim.size)
        self._told(queue, Claim(claim.number, offset, size, 0, 0, b""))

    async def _look_for(self, gap: _Gap) -> None:
        """What a queue lacks may be the only record of a queue that was never there, or the last of another topic's."""
        for name in kin(gap.queue.topic, gap.queue.id):
            other = self._queues.get(*name)
            if other is None or not gap.start <= other.next - 1 < gap.end:
                continue
            index = other.next - 1
            offset, size = await self._pointed(other, index)
            if not gap.low < offset < gap.high or self.former.get(other, _NOTHING).points_to(index) == (offset, size):
                continue
            claim = Claim(index, offset, size, 0, 0, b"")
            if other.next - other.min == 1 and other not in self.former:
                self._queues.drop_queue(other)
            elif other.topic != gap.queue.topic:
                await overwrite(self._queues, self._offload, other, index, BLANK_ENTRY)
            else:
                continue
            self._told(other, claim)
            return
