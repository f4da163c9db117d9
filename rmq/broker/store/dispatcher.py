"""Fills queues and index from the commit log: at start, and wherever the append did not do it itself.

Idempotent by commit-log offset: what a queue or the index has already is skipped. A record that is not the next of its
queue waits until it is known what it is (:mod:`rmq.broker.store.queues.misfits`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from struct import pack

from rmq.broker.store.index.feed import IndexFeed
from rmq.broker.store.index.putting import IndexStopped
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.records import Derived, TagsRule, derive
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.queues.files import BLANK_ENTRY
from rmq.broker.store.queues.misfits import Misfits
from rmq.broker.store.queues.multi_dispatch import Copy, MultiDispatch
from rmq.broker.store.queues.sequence import Claim, Verdict
from rmq.broker.store.state import ENTRY, Queue
from rmq.broker.store.told import Told
from rmq.broker.store.told_spans import ToldSpans
from rmq.protocol.errors import StoreError
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.runtime.world import Offload

__all__ = ["Dispatcher"]

log = logging.getLogger(__name__)

_entry = ENTRY.pack
#: Tags whose codes are kept, and the bytes of the longest of them.
_MOST_TAGS = 4096
_LONGEST_TAGS = 256
#: Bytes of the log put as they were told before the loop gets its turn: a millisecond.
_TOLD_IN_A_TURN = 1 << 20
#: Entries of a queue, so that every byte of its files has a number.
_MOST_ENTRIES = 1 << 58
#: Records of the watched topic before the loop gets its turn.
_TOLD_AT_ONCE = 50


class Dispatcher:
    """Reads records in order and hands out what is derived from them.

    :param disk: what was deleted does not come into queues again; places of records that are known to be damaged stay
        empty.
    :param rule: tags codes.
    :param multi_dispatch: or None when ``enableMultiDispatch`` is off.
    """

    def __init__(
        self,
        offload: Offload,
        disk: OnDisk,
        rule: TagsRule,
        multi_dispatch: MultiDispatch | None = None,
    ) -> None:
        self._log = disk.log
        self._queues = disk.queues
        self._deletions = disk.deletions
        self._damaged = disk.damaged
        self.misfits = Misfits(offload, disk.queues, self._misfit)
        #: What a leader has told of the log's end.
        self.told = ToldSpans(disk, self.misfits)
        #: Records found to be damaged by the places they claim, for who keeps the list.
        self.damages: list[Damage] = []
        self._feed = None if disk.index is None else IndexFeed(disk.index)
        self._rule = rule
        #: From TAGS on to the end of the properties -> tags code.
        self._tags: dict[bytes, int] = {}
        self.multi_dispatch = multi_dispatch
        #: Next record to dispatch, and where the log is to be dispatched no further: behind what a group has committed.
        self.position = 0
        self.limit = 1 << 62
        #: The index lacks messages from here on.
        self.index_from = 0
        #: Told when the index takes no keys any more; it gets none from here then.
        self.index_stopped: Callable[[IndexStopped], None] | None = None
        #: Told of each record of a topic when it is its turn: behind all before it, and before all behind it.
        self._watched = ""
        self._on_watched: Callable[[int, bytes], None] | None = None
        #: Queues that have got entries nobody was told of yet.
        self._touched: dict[Queue, None] = {}

    def watch(self, topic: str, told: Callable[[int, bytes], None]) -> None:
        """Be told of each record of a topic when it is its turn.

        :param told: gets its commit-log offset, and the record. It may delete queues, and does not raise.
        """
        self._watched, self._on_watched = topic, told
        self.told.watched = topic

    @property
    def behind(self) -> int:
        """Bytes that ought to be dispatched and are not yet."""
        return max(0, min(self._log.end, self.limit) - max(self.position, self._log.start))

    @property
    def done(self) -> bool:
        """Whether all of the log is dispatched, committed or not."""
        return self.position >= self._log.end or not self._log.segments

    def log_ends(self, to: int) -> None:
        """The log is cut back to ``to``: what comes there is dispatched again."""
        self.position = min(self.position, to)
        self.misfits.log_ends(to)
        self.told.log_ends(to)

    async def advance(
        self, reader: LogReader, limit: int, dispatched: Callable[[Run | Told, list[Queue]], None] | None = None
    ) -> int:
        """Dispatch the good records of the next ``limit`` bytes; how many bytes were passed.

        Damage is reported by the reader and skipped.

        :param dispatched: called with each run, or what was told of a span, and the queues that have got entries.
        :raises OSError: the log, or a queue that is to be cut, cannot be read; what was dispatched stays so.
        """
        # The log of a slave begins where its master's did when it was first connected, or retention was faster.
        start = max(self.position, self._log.start)
        stop = min(self._log.end, start + limit, self.limit)
        if await self._put_told(start, stop, dispatched):
            return self.position - start
        stop = min(stop, self.told.next_after(start + 1))
        touched = self._touched
        async for run in reader.runs(start, stop):
            await self.put(run, touched)
            if self._feed is not None and run.base + run.end > self.index_from:
                await self._put_keys(self._feed, run)
            self.position = run.base + run.end
            if dispatched is not None:
                dispatched(run, list(touched))
            touched.clear()
        self.position = reader.position
        return self.position - start

    async def _put_told(
        self, start: int, stop: int, dispatched: Callable[[Run | Told, list[Queue]], None] | None
    ) -> bool:
        """Put what was told of the log from ``start`` on; whether any of it was."""
        if self.multi_dispatch is not None:
            return False
        at = turn = start
        touched = self._touched
        while (told := self.told.take(at, stop)) is not None:
            try:
                if not self.told.put(told, self.index_from, touched):
                    break
            except IndexStopped as stopped:
                if self.index_stopped is None:
                    raise
                self.index_stopped(stopped)
            at = self.position = told.end
            if dispatched is not None:
                dispatched(told, list(touched))
            touched.clear()
            if at - turn >= _TOLD_IN_A_TURN:
                turn = at
                await asyncio.sleep(0)
                stop = min(stop, self._log.end)
        return at > start

    async def _put_keys(self, feed: IndexFeed, run: Run) -> None:
        try:
            await feed.put_all(run, self.index_from)
        except IndexStopped as stopped:
            if self.index_stopped is None:
                raise
            self.index_stopped(stopped)

    async def put(self, run: Run, touched: dict[Queue, None]) -> None:
        """Put a run's records into their queues: most are simply the next of theirs.

        :param touched: gets the queues that have got entries.
        """
        data, base, records = run.data, run.base, run.records
        multi_dispatch = self.multi_dispatch
        plain = (
            multi_dispatch is None
            and self._queues.unit_code is None
            and not (self._damaged.parts and self._damaged.bytes_in(base, base + run.end))
        )
        done = told = 0
        while done < len(records):
            if plain and (done := self._put_plain(run, done, touched)) == len(records):
                break
            at, size, sys_flag, queue_id, _, topic, text = records[done]
            done += 1
            # Prepared and rolled-back messages are in no queue (store-and-broker.md 3.2).
            if sys_flag & 0x4:
                continue
            properties = data[text : at + size]
            try:
                copies = [] if multi_dispatch is None else multi_dispatch.copies(properties, topic, queue_id)
                found = derive(data, at, self._rule)
                touched.update(dict.fromkeys(await self._put_in_all(found, copies, base + at, size, properties)))
            except OSError:
                raise
            except Exception as error:  # a record from nowhere costs itself: a start reads it, and those behind it
                log.error("record at %d is in no queue: %s: %s", base + at, type(error).__name__, error)
            if topic == self._watched and self._on_watched is not None:
                self._on_watched(base + at, bytes(data[at : at + size]))
                told += 1
                if not told % _TOLD_AT_ONCE:
                    await asyncio.sleep(0)
                for queue in [one for one in touched if self._queues.get(one.topic, one.id) is not one]:
                    del touched[queue]

    def _put_plain(self, run: Run, first: int, touched: dict[Queue, None]) -> int:
        """Put records from number ``first`` on while each is the next of a queue that is there, and nothing is special.

        :returns: the number of the first that is not, or how many there are.
        """
        data, base, records = run.data, run.base, run.records
        find, known = data.find, self._tags
        is_dead = self._deletions.is_dead
        #: Queue -> the next index, and offset, size and tags code of its new entries.
        new: dict[tuple[str, int], list[int]] = {}
        nexts: dict[tuple[str, int], int] = {}
        done = first
        for at, size, sys_flag, queue_id, index, topic, text in islice(records, first, None):
            if not sys_flag & 0x4:
                key = (topic, queue_id)
                if index != nexts.get(key):
                    if is_dead(topic, base + at):
                        done += 1
                        continue
                    queue = self._queues.get(topic, queue_id)
                    if key in nexts or queue is None or topic in (SCHEDULE_TOPIC, self._watched):
                        break
                    if index != queue.next or base + at < queue.max_phys or queue in self.misfits:
                        break
                    new[key] = []
                end = at + size
                tags_at = find(b"TAGS\1", text, end)
                code = 0
                if tags_at >= 0:
                    if tags_at > text and data[tags_at - 1] != 2:
                        break
                    # Mostly nothing but what is the same in many messages follows the tag.
                    told = known.get(data[tags_at:end])
                    if told is None:
                        told = self._rule.code(data, tags_at, end)
                        if told is None:
                            break
                        if len(known) < _MOST_TAGS and end - tags_at <= _LONGEST_TAGS:
                            known[data[tags_at:end]] = told
                    code = told
                nexts[key] = index + 1
                new[key] += (base + at, size, code)
            done += 1
        for (topic, queue_id), entries in new.items():
            queue = self._queues.get(topic, queue_id)
            if queue is not None and entries:
                count = len(entries) // 3
                queue.tail += pack(">" + "qiq" * count, *entries)
                queue.next += count
                queue.bytes_put += sum(entries[1::3])
                queue.max_phys = entries[-3] + entries[-2]
                self._queues.note([queue], count)
                touched[queue] = None
        return done

    async def _put_in_all(
        self, found: Derived, copies: list[Copy], offset: int, size: int, properties: bytes
    ) -> list[Queue]:
        """Put a record into its queue and into the others that it names; the queues that got it."""
        others = [
            found._replace(topic=copy.topic, queue_id=copy.queue_id, queue_offset=copy.queue_offset) for copy in copies
        ]
        got = [await self._put(one, offset, size, properties, own=one is found) for one in (found, *others)]
        return [queue for queue in got if queue is not None]

    async def _put(
        self, found: Derived, offset: int, size: int, properties: bytes, *, own: bool = True
    ) -> Queue | None:
        """Put one entry; the queue, if it has got any.

        :param own: it is the record's own queue.
        """
        if self._deletions.is_dead(found.topic, offset):
            return None
        index = found.queue_offset
        if not 0 <= index < _MOST_ENTRIES or (self._damaged.parts and self._damaged.bytes_in(offset, offset + size)):
            index = -1
        claim = Claim(index, offset, size, found.tags_code, found.store_timestamp, properties, own)
        try:
            queue = self._queues.get_or_create(found.topic, found.queue_id)
        except StoreError as error:
            self._tell(claim, f"it is in no queue: {error}")
            return None
        if offset + size <= queue.max_phys:
            return None
        if 0 <= index < queue.next:
            await self._queues.take_place(queue, index)
        if index == queue.next and queue not in self.misfits:
            await self._place(queue, claim)
        elif (verdict := self.misfits.take(queue, claim)) is None or not verdict.good:
            return None
        else:
            await self._obey(queue, verdict)
        return queue

    async def _obey(self, queue: Queue, verdict: Verdict) -> None:
        """Do with a queue what became clear about the records that have waited."""
        if verdict.anew:
            index = verdict.good[0].number
            log.warning(
                "%r begins anew at %d with the record at %d: its topic was deleted and made again",
                queue, index, verdict.good[0].offset,
            )  # fmt: skip
            await self._queues.cut(queue, index)
            if index != queue.next:
                await self._queues.restart(queue, index)
        for claim in verdict.good:
            await self._place(queue, claim)

    async def _place(self, queue: Queue, claim: Claim) -> None:
        """Give a record its entry, and blank ones to what is missing before it."""
        new = _entry(claim.offset, claim.size, claim.tags_code)  # before anything is changed
        entries = 1
        gap = claim.number - queue.next
        if gap and queue.next == queue.min:
            await self._queues.restart(queue, claim.number)
        elif gap:
            log.error("%r lacks %d entries before the record at %d; they stay empty", queue, gap, claim.offset)
            queue.tail += BLANK_ENTRY * gap
            entries += gap
        code = claim.tags_code
        if self._queues.unit_code is not None and claim.own:  # as an append, and Java
            code = self._queues.unit_code(queue, code, claim.store_timestamp, claim.properties)
        queue.tail += new if code == claim.tags_code else _entry(claim.offset, claim.size, code)
        queue.next = claim.number + 1
        queue.max_phys = claim.offset + claim.size
        if claim.own:
            queue.bytes_put += claim.size
        self._queues.note([queue], entries)

    async def settle(self, lost: Iterable[Damage], *, final: bool = True) -> list[Queue]:
        """Decide about the records that are not the next of their queue.

        :param lost: parts of the log whose records are not known.
        :param final: the log ends here; otherwise more of it may come and tell.
        :returns: queues that have got entries.
        :raises OSError: a queue cannot be read or written.
        """
        if not self.misfits:
            return []
        return await self.misfits.settle(self._obey, [*self._damaged.parts, *lost], self._log.start, final=final)

    def _misfit(self, queue: Queue, claim: Claim) -> None:
        self._tell(claim, f"it says that it is entry {claim.number} of {queue.topic}-{queue.id}, which it is not")

    def _tell(self, claim: Claim, why: str) -> None:
        """A record is damaged where no checksum covers it; what is known already is not told again."""
        part = Damage(claim.offset, claim.offset + claim.size)
        if not claim.own:
            log.error("the record at %d names a queue where it has no place: %s", claim.offset, why)
        elif part not in self.damages and self._damaged.bytes_in(*part) == 0:
            self.damages.append(part)
            file = self._log.segment_of(claim.offset)
            log.critical(
                "%s is damaged at %d: the head of the message at commit log offset %d (%d bytes) is not what was "
                "stored: %s. That message is lost, all others stay where they are",
                "the commit log" if file is None else file.path, claim.offset - (0 if file is None else file.start),
                claim.offset, claim.size, why,
            )  # fmt: skip
