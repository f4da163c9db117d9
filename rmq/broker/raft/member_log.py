"""The log of a member: what its store holds, where terms begin in it, and where records end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rmq.broker.raft.record_ends import RecordEnds
from rmq.broker.raft.sidecar import Kept, Sidecar
from rmq.broker.raft.spans import Spans
from rmq.broker.raft.wire import Say
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.records import LARGEST
from rmq.broker.store.store import Store
from rmq.broker.store.told import Told
from rmq.protocol.errors import StoreError
from rmq.raft.messages import Append
from rmq.raft.position import LogsParted, Position, TermPath

__all__ = ["BROKEN", "MemberLog"]

log = logging.getLogger(__name__)

#: A store that cannot keep what it is given takes part in nothing: others lead, and are counted.
BROKEN = (
    Gate.NOT_READABLE | Gate.NOT_WRITABLE | Gate.DISK_FULL | Gate.FSYNC_FAILED | Gate.WRITE_FORBIDDEN | Gate.NOT_OWNED
)


class MemberLog:
    """One member's.

    :param store: loaded.
    :param kept: what a start has found beside it.
    :param send: to a member; what cannot be sent now is lost.
    :param on_disk: counted is what is on the disk, not what is written (``flushDiskType=SYNC_FLUSH``).
    """

    def __init__(self, store: Store, sidecar: Sidecar, kept: Kept, send: Say, *, on_disk: bool) -> None:
        self._store = store
        self._log = store.log
        self._sidecar = sidecar
        self._on_disk = on_disk
        #: Told up to where the log is committed, and where it was cut back to.
        self.on_committed: list[Callable[[int], None]] = []
        self.on_cut: list[Callable[[int], None]] = []
        #: Bytes that the others have sent.
        self.taken = 0
        self._path = _path_of(kept.starts, self._log.start, self._log.end, empty=not self._log.segments)
        self._spans = Spans(self._log, send)
        self._ends = RecordEnds(self._log.file_size, self._path.end)
        self._noted = kept.commit
        #: Up to where the group has said that its log is committed.
        self._said = 0

    # -- the node's beginning

    async def cut_torn(self) -> None:
        """Take nothing for stored behind the first hole in what was not known to be on the disk.

        A plain broker keeps good records behind a torn one. A member would say that it has all of them.

        :raises OSError: the disk refused.
        """
        store = self._store
        parts = {*store.recovered.damages, *store.damaged.parts}
        holes = [part.start for part in parts if self._noted <= part.start < self._log.end]
        if holes:
            log.warning(
                "the log is torn at %d, and its last %d bytes are taken from the group again",
                min(holes), self._log.end - min(holes),
            )  # fmt: skip
            await self._truncate(min(holes))

    async def begin(self) -> TermPath:
        """The terms of what is there, all of which gets to the disk first.

        :raises StoreError: the store cannot keep what it is given.
        :raises OSError: the disk refused.
        """
        store, commit_log = self._store, self._log
        if commit_log.gate & BROKEN:
            raise StoreError(commit_log.gate_reason())
        at = self._in_queues()
        self._ends.begin(at)
        async for piece in self._spans.read(at, commit_log.end):
            at += len(piece)
            self._ends.written(at, piece)
        if commit_log.segments and commit_log.end > self._ends.last:
            await self._truncate(self._ends.last)
            self._ends.begin(self._ends.last)
        empty = not commit_log.segments
        self._path = _path_of(self._path.starts, commit_log.start, commit_log.end, empty=empty)
        if empty:
            self._ends.begin(self._path.end)
        while self._on_disk and store.flusher.flushed < commit_log.end:
            if store.flusher.failed:
                raise StoreError(commit_log.gate_reason())
            store.flusher.request()
            await asyncio.sleep(0.01)
        return TermPath(self._path.starts, self._path.start, self._path.end)

    def _in_queues(self) -> int:
        """Behind the last record that is in a queue: behind it there may be more, and half of one."""
        return max(self._log.start, *(queue.max_phys for queue in self._store.queues), 0)

    def whole(self, at: int) -> int:
        """Behind the record, or the blank one, that begins at an offset; behind the longest where nobody can tell."""
        size = int.from_bytes(self._log.read(at, 4) or b"", "big")
        return at + (size if 8 <= size <= LARGEST else LARGEST)

    @property
    def known(self) -> int:
        """Behind what its node knows of."""
        return self._path.end

    def is_of(self, term: int, *ends: int) -> bool:
        """Whether a term's leader has put records at all of these places, as far as is known."""
        return all(self._path.contains(Position(term, end)) for end in ends)

    async def note(self) -> None:
        """What is committed, and on the disk here, may be shown right after the next start, and has no holes then."""
        end = self._store.durable_end()
        if end > self._noted:
            try:
                await self._sidecar.save_commit(end)
            except OSError as error:
                log.warning("how far the log is committed could not be noted: %s", error)
            else:
                self._noted = end

    # -- what the store has done

    def appended(self, end: int) -> Position:
        """A leader's store has appended whole records; the last position."""
        self._path.grow(end)
        self._ends.whole(end)
        return self._path.last

    def flushed(self, to: int) -> Position | None:
        """It is on the disk up to ``to``: up to which position that is records; None where nobody can tell."""
        end = self._ends.before(to)
        return self._path.through(Position(0, end)) if end >= 0 else None

    def deleted(self) -> None:
        """Retention has taken what lay before its start."""
        self._path.forget(self._log.start)

    # -- what the node says

    def send(self, to: str, message: Append) -> Coroutine[Any, Any, None] | None:
        """Send records, or say what is to be waited for."""
        return self._spans.send(to, message)

    def committed(self, end: int, *, whole: bool) -> None:
        """The group has everything before ``end``.

        :param whole: records end there; otherwise perhaps within one.
        """
        self._said = end
        known = end if whole else self._ends.before(end)
        if known >= 0:
            self._ends.committed(known)
            self._store.committed(known)
            for tell in self.on_committed:
                tell(known)

    def write(
        self,
        start: int,
        after: Position,
        data: bytes | memoryview,
        told: Sequence[Told] = (),
        crc: int | None = None,
    ) -> Position:
        """Take bytes of the leader's log; up to where they are records.

        :param told: what it has told of them, in their order, in the term that they are of.
        :param crc: their CRC-32, where it is known.
        :raises StoreError: the store does not take them.
        :raises OSError: the disk refused.
        """
        view = memoryview(data)
        told = [self._proven(one, view, start, crc) for one in told]
        # Where all of it is as it was told, nobody reads it to put it into queues, or to find out where records end.
        whole = self._ends.last == start and _tile(told, start, after.end)
        size, at, done = self._log.file_size, start, 0
        while done < len(view):
            part = view[done : done + size - at % size]
            self._store.append_raw(at, part, kept=not whole)
            at += len(part)
            done += len(part)
        self.taken += done
        self._path.grow(after.end)
        if whole:
            self._ends.whole(after.end)
        else:
            self._ends.written(after.end, data)
        for one in told:
            if self.is_of(after.term, one.start, one.end):
                self._store.told(one)
        return self._path.through(Position(0, self._ends.last))

    def _proven(self, told: Told, data: memoryview, start: int, crc: int | None) -> Told:
        """The same, if it fits what is written; of a span that has begun before that is found out later."""
        at = told.start - start
        whole = told.end - told.start == len(data)
        if at >= 0 and self._store.proves(told, data[at : told.end - start], crc if whole else None):
            return told._replace(proven=True)
        return told

    async def begin_term(self, at: Position) -> None:
        """:raises OSError: that is not on the disk."""
        await self._sidecar.save_terms((*self._path.starts, at))
        self._path.begin(at.term)

    async def cut(self, to: Position, *, whole: bool) -> None:
        """Take back what the leader does not have.

        :param whole: as of :meth:`committed`.
        :raises LogsParted: that was committed.
        :raises OSError: the disk refused.
        """
        committed = min(self._noted, self._log.end)
        if to.end < committed:
            raise LogsParted(f"a leader takes back what is committed: the log from {to} up to {committed}")
        if to.end < self._log.end:
            await self._truncate(to.end)
            at = self._ends.before(to.end)
            if at < 0:
                at = self._in_queues()
            pieces = [piece async for piece in self._spans.read(at, to.end)]
            self._ends.cut(at)
            for piece in pieces:
                at += len(piece)
                self._ends.written(at, piece)
            # Where records end before that was not known when it was said that they are committed.
            self.committed(self._said, whole=whole)
        self._path.cut(to)
        await self._sidecar.save_terms(self._path.starts)

    async def _truncate(self, to: int) -> None:
        await self._store.truncate(to)
        for tell in self.on_cut:
            tell(to)

    async def reset(self, at: Position) -> None:
        """Begin where the leader's log does.

        :raises LogsParted: there is a log here.
        :raises OSError: the disk refused.
        """
        if self._log.end > self._log.start:
            raise LogsParted(
                f"this member lacks what the others have deleted already: its log ends at {self._log.end}, and the "
                f"leader's begins at {at.end}; start it with an empty store, and it gets the group's"
            )
        if self._log.segments:
            await self._log.vacate()
        await self._sidecar.save_terms((at,))
        self._path.reset(at)
        self._ends.begin(at.end)


def _tile(told: Sequence[Told], start: int, end: int) -> bool:
    """Whether spans that are proven follow each other from ``start`` to ``end``."""
    for one in told:
        if not one.proven or one.start != start:
            return False
        start = one.end
    return start == end


def _path_of(starts: tuple[Position, ...], start: int, end: int, *, empty: bool) -> TermPath:
    """The terms of the log that a start has found."""
    if empty:  # it begins where the first bytes are to go
        start = end = starts[0].end
    return TermPath(starts, start, end)
