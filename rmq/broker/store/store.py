"""The store as the broker sees it: puts the parts together, starts and stops them, and takes and gives messages.

Everything appended flows one way: append -> log, queue tails, index -> durability -> the queues' visible ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from rmq.broker.store.beside import AppendBeside
from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.care.forbidden import ForbiddenWrites
from rmq.broker.store.care.full_disk import FullDisk
from rmq.broker.store.care.index_scrub import IndexScrub
from rmq.broker.store.care.mending import Mending
from rmq.broker.store.care.ownership import Ownership
from rmq.broker.store.care.queue_scrub import QueueScrub
from rmq.broker.store.care.retention import Retention
from rmq.broker.store.care.scrub import Scrub
from rmq.broker.store.care.upkeep import Upkeep
from rmq.broker.store.catch_up import CatchUp
from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.events import StoreEvents
from rmq.broker.store.index.index import Index
from rmq.broker.store.index.indexing import Indexing
from rmq.broker.store.index.key_search import Found, KeySearch
from rmq.broker.store.log.acknowledgements import Acknowledgements
from rmq.broker.store.log.append import Packed, Replicated, pack
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.durability import Answers, Durability
from rmq.broker.store.log.flush import LogFlusher
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.group_durability import GroupDurability
from rmq.broker.store.log.records import TagsRule
from rmq.broker.store.log.stamps import stamped
from rmq.broker.store.messages import Messages
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.buried import BuriedQueues
from rmq.broker.store.queues.deletions import Deletion, Deletions
from rmq.broker.store.queues.ext_queues import BitMap, ExtQueueTable, queue_table
from rmq.broker.store.queues.multi_dispatch import MultiDispatch
from rmq.broker.store.queues.search import QueueSearch
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.refusal import unusable
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.start.lost_tail import reserve
from rmq.broker.store.start.markers import Markers
from rmq.broker.store.start.opening import Opening
from rmq.broker.store.start.progress import Progress
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.start.recovered import Recovered
from rmq.broker.store.state import Put, Queue, Span
from rmq.broker.store.telling import Telling
from rmq.broker.store.told import Told
from rmq.broker.store.truncation import Truncation
from rmq.protocol.errors import StoreError
from rmq.protocol.record import FIXED_SIZE, store_time
from rmq.runtime.ending import Stop, end_each
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["Store"]

log = logging.getLogger(__name__)

#: Seconds between two looks whose store this is.
_OWNERSHIP_PAUSE = 1.0


class Store:
    """Commit log, consume queues and index of one broker.

    ``await load()`` recovers and needs no more than the directory; ``await start()`` opens the gate; ``await stop()``
    leaves a directory that the next start, ours or Java's, finds clean.

    :param send: sends answers that durability has released; by default ``conn.send(data)`` of each.
    """

    def __init__(self, world: World, settings: StoreSettings, send: Callable[[Answers], None] | None = None) -> None:
        self._world = world
        self._offload = world.offload
        self._now_ms = world.clock.now_ms
        self.settings = settings
        self.tasks = TaskOwner("store")
        self._markers = Markers(world.files, settings.root)
        self._loaded = False
        self.checkpoint = Checkpoint(world.files, os.path.join(settings.root, "checkpoint"))
        self.log = CommitLog(world, settings)
        self.queues = queue_table(world, settings)
        #: The queues, when they have units in ``consumequeue_ext``; else None.
        self.ext = self.queues if isinstance(self.queues, ExtQueueTable) else None
        self.index = Index(world, settings, self.checkpoint) if settings.index_enable else None
        #: Decides instead of replicas, where a group does; else None.
        self._of_group = GroupDurability(sync_flush=settings.sync_flush) if settings.group else None
        self.durability = self._of_group or Durability(
            sync_flush=settings.sync_flush, sync_master=settings.sync_master, replicas=settings.ack_slaves
        )
        #: Answers that wait until what was configured has happened.
        self.acks = Acknowledgements(world.clock, settings, self.durability, send)
        self.events = StoreEvents()
        self._telling: Telling | None = None
        self.tags = TagsRule(settings.delays_ms)
        self.writer = QueueWriter(world, self.queues, self.tasks)
        self.flusher = LogFlusher(world, self.log, settings, self.tasks, self.events)
        self.multi_dispatch = (
            MultiDispatch(self.queues, lmq=settings.lmq, most_lmq=settings.most_lmq)
            if settings.multi_dispatch
            else None
        )
        units = None if self.ext is None else self.ext.ext
        #: Appends where more comes along with a message than the entry in its queue; else None.
        self._beside = (
            None
            if units is None and self.multi_dispatch is None
            else AppendBeside(self.log, settings, units, self.multi_dispatch, self.commit)
        )
        segment = segment_size(settings.commit_log_file_size)
        #: Which topics were deleted, and up to where the log holds what is left of them.
        self.deletions = Deletions(world, settings.root, segment)
        self._buried = BuriedQueues(
            world.offload, self.queues, self.deletions, segment, shared=settings.multi_dispatch
        )  # fmt: skip
        self.writer.before_sweep = self._buried.count
        #: What of the log is known to be damaged, and who looks for more.
        self.damaged = DamagedParts(world, settings.root, self.queues)
        ground = StoreGround(world, settings, self.tasks)
        disk = OnDisk(self.log, self.queues, self.index, self.checkpoint, self.deletions, self.damaged)
        self.dispatcher = Dispatcher(world.offload, disk, self.tags, self.multi_dispatch)
        self.indexing = Indexing(ground, disk, self.dispatcher)
        self.search = QueueSearch(self.log, self.queues, self.checkpoint.steps)
        self.scrub = Scrub(world, self.log, settings, self.damaged, lambda: self.flusher.flushed)
        self.mending = Mending(ground, disk, self.scrub, self.tags, lambda: self.dispatcher.position)
        self.messages = Messages(disk, self.durability, self.mending)
        #: Compares queues when the scrub reads the log.
        self.queue_scrub = QueueScrub(world.clock, self.queues, self.damaged, self.deletions, self.tags, self.mending)
        self.scrub.compares.append(self.log.checksums.cover)
        self.scrub.on_begin.append(self.queue_scrub.begin)
        self.scrub.compares.append(self.queue_scrub.compare)
        #: Compares the index when the scrub reads the log.
        self.index_scrub = (
            None if self.index is None else IndexScrub(world.clock, self.index, self.indexing.hasher, self.messages.at)
        )
        if self.index_scrub is not None:
            self.scrub.on_begin.append(self.index_scrub.begin)
            self.scrub.on_end.append(self.index_scrub.end)
            self.scrub.compares.append(self.index_scrub.compare)
        self.retention = Retention(world, settings, self.log, self.queues, self.index, self.deletions)
        self.retention.shown = lambda: self.durability.visible
        self._full_disk = FullDisk(world.clock, self.log, self.retention, self.tasks)
        self._forbidden = ForbiddenWrites(world.clock, self.log, self.tasks)
        self._catch_up = CatchUp(ground, disk, self.dispatcher, self.durability, self.writer, self._went_back)
        self._opening = Opening(ground, disk, self.writer, self.indexing.build, self.dispatcher)
        self._ownership = Ownership(world, settings.root, self._markers, self.log)
        #: The rhythms behind it.
        self.upkeep = Upkeep(
            ground, disk, self.writer, self.indexing.build, self.flusher, self.retention, self.scrub, self._ownership
        )
        self._truncation = Truncation(
            disk, self.writer, self.dispatcher, self._catch_up, self.indexing.build, self.durability, self.flusher,
            self.upkeep,
        )  # fmt: skip
        self.recovered = Recovered()
        #: Shows how far a long recovery is; the log says so in any case.
        self.show_progress: Progress | None = None
        self.indexing.on_behind = self.upkeep.build_index
        self.events.flushed += [self.acks.flushed, self.upkeep.flushed]
        self.events.flush_failed += [self.upkeep.flush_failed, self.acks.flush_failed]

    # -- life ------------------------------------------------------------------------------------------------------

    async def load(self) -> Recovered:
        """Lock the directory and recover what is in it.

        :raises StoreError: another broker uses it, or its files cannot be read.
        """
        try:
            await self._offload(self._markers.take_lock)
            clean = await self._offload(self._markers.was_clean)
            self.recovered = await self._opening.run(
                clean=clean, boot=self._world.identity.boot_id(), show_progress=self.show_progress
            )
            self.indexing.loaded()
            self.durability.begin(self.log.end)
            self.log.written_from = self.log.end
            self.scrub.met_at_start(self.recovered.unreadable)
            self.mending.remade += self.recovered.wrong_entries
        except BaseException as error:
            await self._give_up()
            if isinstance(error, OSError):
                raise unusable(self.settings.root, error) from error
            raise
        self._loaded = True
        return self.recovered

    def reserve(self, reached: Mapping[tuple[str, int], int]) -> None:
        """:func:`reserve`, of a store that is loaded and not started."""
        reserve(self.queues, reached, self.log.end)

    async def abandon(self) -> None:
        """Let go of a store that was loaded and is not to be started: it stays as it was found."""
        if self._loaded:
            self._loaded = False
            await self._give_up()

    async def _give_up(self, *, started: bool = False) -> None:
        await self.log.close(remove_unused=started)
        self.queues.close()
        if self.index is not None:
            self.index.close()
        await self._offload(self._markers.release_lock)

    async def start(self) -> None:
        """Take messages.

        :raises StoreError: files cannot be written; the store is left as it was found.
        """
        clean = await self._offload(self._markers.was_clean)
        try:
            await self._offload(self._markers.set_abort)
            await self.deletions.saved()
            await self.upkeep.begin()
        except OSError as error:
            if clean:
                with contextlib.suppress(OSError):
                    await self._offload(self._markers.clear_abort)
            await self._give_up(started=True)
            self._loaded = False
            raise unusable(self.settings.root, error) from error
        self.upkeep.run()
        self.tasks.every(_OWNERSHIP_PAUSE, self._ownership.look, "ownership")
        changed = self.damaged.add(self.recovered.damages, self.log.start) or self._opening.parts_changed
        if changed or self.queues.left_out or self.damaged.left_out:
            await self.damaged.save()
        await self.retention.check_disk()
        self.log.gate &= ~Gate.SHUT_DOWN

    async def stop(self) -> bool:
        """Refuse messages, bring everything to disk, and leave the directory clean if that worked.

        :returns: False when something failed on the way: the next start recovers the store.
        """
        self.log.gate |= Gate.SHUT_DOWN
        self.acks.close()
        self.indexing.retry()
        await self.tasks.close()
        if not self._loaded:
            return True
        self._loaded = False
        clean = False
        # A slave's queues may trail what its master has sent: the next start goes on with them.
        dispatched = self.dispatcher.done

        async def finish() -> None:
            nonlocal clean
            clean = await self.upkeep.finish(dispatched=dispatched)

        async def close_log() -> None:
            await self.log.close(remove_unused=clean)

        parts: dict[str, Stop] = {"the upkeep": finish, "the commit log": close_log, "the queues": self.queues.close}
        if self.index is not None:
            parts["the index"] = self.index.close
        closed = await end_each("the store", parts)
        ended = await end_each(
            "the store",
            {
                "the mark of an unclean stop": lambda: self._clear_abort(clean and closed and dispatched),
                "the lock of the folder": lambda: self._offload(self._markers.release_lock),
            },
        )
        return clean and closed and ended

    async def _clear_abort(self, clean: bool) -> None:
        if not self.indexing.complete:
            log.info("the index is not complete; the next start goes on with it")
        elif clean:
            await self._offload(self._markers.clear_abort)

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(
        self, puts: Sequence[Put], now_ms: int | None = None, *, together: bool = False, keys_later: bool = False
    ) -> Span:
        """Append messages; what may be acknowledged, and when, is what ``durability`` says.

        :param now_ms: wall clock; asked for when not given.
        :param together: a batch, which lies in one file.
        :param keys_later: the caller calls :meth:`FreshKeys.put` before it returns to the loop; ``puts`` stay as
            they are till then.
        :raises PartlyAppended: some are stored already, of those that name the queues of others (multi-dispatch).
        :raises StoreError: the gate is closed, or a record is too large.
        :raises OSError: the disk refused; the messages are not stored.
        """
        commit_log = self.log
        stamp = self._now_ms() if now_ms is None else now_ms
        if self._beside is not None:
            return self._beside.append(puts, stamp, together=together, keys_later=keys_later)
        if stamp < commit_log.stamp:
            stamp = stamped(stamp, commit_log.stamp)
        sums = self.settings.checksums_on_append and self.settings.checksums
        packed = pack(puts, commit_log.place, stamp, together=together, sums=sums)
        return self.commit(packed, keys_later=keys_later)

    def append_raw(self, offset: int, data: bytes | memoryview, *, kept: bool = True) -> None:
        """Append bytes of another broker's log, cut anywhere, exactly where they are in that log.

        They do what bytes that were sent do: consumers see whole records as soon as these are as durable as configured.

        :param data: they lie in one file.
        :param kept: in memory, too, for who reads them soon.
        :raises StoreError: the gate is closed, for another reason than that this is a slave; ``offset`` is neither the
            end of the log nor the start of the file behind it; or they cross a file's end.
        :raises OSError: the disk refused; nothing is changed.
        """
        self.commit(Replicated(offset, data, kept))

    async def truncate(self, to: int) -> None:
        """Cut the log back, and with it queues, index, and the marks of what is on disk and what is visible.

        :param to: commit-log offset where a record begins, or half of one.
        :raises StoreError: ``to`` lies outside the log.
        :raises OSError: the disk refused; it may be called again.
        """
        self.acks.send(await self._truncation.run(to))
        self._catch_up.wake()

    async def show(self, end: int) -> None:
        """A store that a group decides about, loaded and not started: the log is known to be committed up to ``end``.

        :raises OSError: a queue cannot be read.
        """
        if self._of_group is not None:
            hidden: list[tuple[Queue, int, int]] = []
            for queue in self.queues:
                # What is lost here at the end of a queue others of the group may have, and show.
                seen = self.queues.known_end(queue)
                if queue.max_phys > end:
                    hidden.append((queue, await self._truncation.behind(queue, end), seen))
                elif seen < queue.visible:
                    queue.visible = max(queue.min, seen)
            self._of_group.show(end, hidden)
            self.dispatcher.limit = end

    def committed(self, end: int) -> None:
        """The group that decides about this store has everything before ``end``, where a record ends."""
        if self._of_group is not None and end > self._of_group.replicated:
            self.dispatcher.limit = end
            self.acks.send(self._of_group.on_committed(end))
            if self.dispatcher.behind:
                self._catch_up.wake()

    def tell(self, tell: Callable[[Told], None] | None) -> None:
        """Have somebody told what queues and index get of each append, for who follows; None: nobody any more.

        Of some appends nothing is told: of what lies in two files, or goes into more than queues and index.
        """
        self._telling = None if tell is None else Telling(tell)
        self.indexing.fresh.told = None if self._telling is None else self._telling.indexed

    def told(self, told: Told) -> None:
        """A leader tells of a span of the log that is here: it gets into queues as it was told, when it may be seen.

        What does not fit the bytes is read from the log.
        """
        self.dispatcher.told.add(told)

    def proves(self, told: Told, data: bytes | memoryview, crc: int | None = None) -> bool:
        """Whether what a leader tells of a span is right, and queues get it as it is told.

        :param data: its bytes.
        :param crc: their CRC-32, where it is known.
        """
        return self.multi_dispatch is None and self.dispatcher.told.fits(told, data, crc)

    def commit(self, packed: Packed | Replicated, *, keys_later: bool = False) -> Span:
        """Write what was packed and move everything that follows from it: whatever is appended ends here.

        :param keys_later: :meth:`FreshKeys.put` follows before anything else runs on the loop.
        :raises StoreError: the gate is closed, or it was packed for another place.
        :raises OSError: the disk refused; nothing is changed.
        """
        commit_log = self.log
        if commit_log.gate and not (commit_log.gate == Gate.SLAVE and isinstance(packed, Replicated)):
            raise StoreError(f"the store takes no messages: {commit_log.gate_reason()}")
        if isinstance(packed, Replicated):
            commit_log.append_raw(*packed)
            self.durability.on_appended(commit_log.end, [])
            self.flusher.appended()
            self._catch_up.wake()
            return Span(packed.at, commit_log.end, [], [])
        at, pieces, stamp, deltas, puts, offsets, sums = packed
        if at != commit_log.end or at != self.dispatcher.position:
            raise StoreError(
                f"records for offset {at} of a log that ends at {commit_log.end} and is in queues up to "
                f"{self.dispatcher.position}"
            )
        if len(pieces) == 1:
            commit_log.write(pieces[0])
        else:
            commit_log.put(pieces)
        if sums:
            commit_log.checksums.appended(at, pieces, sums, offsets[-1][1])
        if stamp < commit_log.stamp:
            self._went_back(offsets[0][1], stamp)
        commit_log.stamp = stamp
        touched: list[Queue] = []
        entries = 0
        for queue, data, count, size, behind in deltas:
            queue.tail += data
            queue.next += count
            queue.bytes_put += size
            queue.max_phys = behind
            entries += count
            touched.append(queue)
        fresh = self.indexing.fresh
        if self._telling is not None and self._beside is None and len(pieces) == 1:
            indexed = fresh.index is not None
            if indexed or self.index is None:
                self._telling.appended(at, pieces[0], stamp, deltas, keys=indexed)
        fresh.add(puts, offsets, stamp)
        if not keys_later:
            fresh.put()
        queues = self.queues
        queues.note(touched, entries)
        end = self.dispatcher.position = commit_log.end
        if queues.pending > 1 << 20:
            self.writer.check()
        self.durability.on_appended(end, touched)
        if self.settings.sync_master:
            self.acks.appended_as_sync_master(end)
        self.flusher.appended()
        for tell in self.events.appended:
            tell()
        # What ``Span(...)`` makes, without its call.
        return tuple.__new__(Span, (offsets[0][1], end, offsets, touched))

    def delete_topic(
        self, topic: str, counter: int = 0, timestamp: int = 0, *, existed: bool = False, end: int | None = None
    ) -> None:
        """Take away all messages of a topic, for good once ``deletions.saved()`` has returned.

        :param counter: with
        :param timestamp: the data version of topics.json without the topic.
        :param existed: messages may wait for it although it has none itself.
        :param end: commit-log offset where it ends; the end of the log when not given. A queue that goes further is of
            a topic that was made anew.
        """
        queues = self.queues.all(topic)
        end = self.log.end if end is None else end
        if existed or any(queue.max_phys > self.log.start for queue in queues):
            self.deletions.note(topic, Deletion(end, counter, timestamp))
            self._buried.count_tails(queues, end)
        for queue in queues:
            if queue.max_phys <= end:
                self.queues.drop_queue(queue)
        self.indexing.hashers.forget(topic)

    def destination(self, topic: str, queue_id: int, waited_at: int) -> Queue:
        """The queue for a message that has waited.

        :param waited_at: the commit-log offset where it did.
        :raises TopicDeleted: it is to be dropped.
        :raises StoreError: a topic or queue id that no queue can have.
        """
        self.deletions.check_alive(topic, waited_at)
        return self.queues.get_or_create(topic, queue_id)

    async def _keep_step(self) -> None:
        with contextlib.suppress(OSError):  # the next checkpoint has it, or says why not
            await self._offload(self.checkpoint.save)

    @property
    def bit_map(self) -> BitMap | None:
        """Makes the bit map that is kept of a message (:class:`ExtUnits`); set before :meth:`load`."""
        return None if self.ext is None else self.ext.ext.bit_map

    @bit_map.setter
    def bit_map(self, made_by: BitMap | None) -> None:
        if self.ext is not None:
            self.ext.ext.bit_map = made_by

    def stamp(self, now_ms: int) -> int:
        """The store time an append at ``now_ms`` would give."""
        return stamped(now_ms, self.log.stamp)

    def _went_back(self, offset: int, stamp: int) -> None:
        """Store times follow a clock that was far ahead."""
        self.checkpoint.went_back(offset, stamp)
        if not self.tasks.closed:
            self.tasks.spawn(self._keep_step(), "clock step")
        log.warning(
            "store times were %.0f s ahead of the clock, and follow it back from offset %d on; "
            "messages that were stored meanwhile keep theirs",
            (self.log.stamp - stamp) / 1000, offset,
        )  # fmt: skip

    def durable_end(self) -> int:
        """Offset before which everything is on disk, and stays there."""
        return self.flusher.flushed if self._of_group is None else min(self.flusher.flushed, self._of_group.replicated)

    def disk_ratios(self) -> tuple[float, float, float]:
        """Used shares of the disks of commit log, consume queues and index, as last seen."""
        return self.retention.log_ratio, self.retention.queue_ratio, self.retention.queue_ratio

    async def force(self) -> None:
        """:meth:`Upkeep.force`."""
        await self.upkeep.force()

    # -- reading ---------------------------------------------------------------------------------------------------

    async def query_message(self, topic: str, key: str, limit: int, begin: int, end: int, size: int = 1 << 62) -> Found:
        """:meth:`KeySearch.find`."""
        self.indexing.retry()  # who asks in the tick of a send finds what it stored
        search = KeySearch(self.index, self.indexing.hasher, self.messages.at, self.deletions.end_of)
        return await search.find(topic, key, limit, begin, end, size)

    async def offset_by_time(self, queue: Queue, time: int, *, upper: bool = False) -> int:
        """:meth:`QueueSearch.offset_by_time`."""
        return await self.search.offset_by_time(queue, time, upper=upper)

    async def earliest_time(self, queue: Queue) -> int:
        """:meth:`QueueSearch.earliest_time`."""
        return await self.search.earliest_time(queue)

    async def oldest_time(self) -> int:
        """Store time of the oldest record, ms; -1 when there is none."""
        data = await self.log.read_cold(self.log.start, 80) if self.log.end - self.log.start >= FIXED_SIZE else b""
        return store_time(data) if len(data) == 80 else -1
