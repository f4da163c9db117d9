"""What may be acknowledged and what may be seen: one pure structure, events and time in, released answers out.

``visible = min(appended, flushed if sync_flush, max(replicated, waived) if sync_master)`` and it never goes back. A
message is acknowledged when its ``need`` is met, or honestly with another code when its time is over or a flush
failed (design.md section 4; field reports W4, W5 of reliability.md).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from rmq.broker.store.state import Queue

__all__ = ["FLUSH", "REPLICA", "Durability", "Unacknowledged"]

log = logging.getLogger(__name__)

#: Bits of ``need``.
FLUSH: Final = 1
REPLICA: Final = 2

_FLUSH_DISK_TIMEOUT: Final = 10
_SLAVE_NOT_AVAILABLE: Final = 11
_FLUSH_SLAVE_TIMEOUT: Final = 12

#: (connection, bytes to send).
Answers = list[tuple[Any, bytes]]


class Unacknowledged(NamedTuple):
    """Answers that wait for the log to be as durable as ``need`` says, up to ``end``."""

    end: int
    need: int
    #: Until when the disk has time, and until when the replicas; monotonic seconds.
    flush_by: float
    replica_by: float
    #: When it is looked at again: the first of the two that it waits for.
    due: float
    answers: Answers
    #: Builds the answers for another outcome: FLUSH_DISK_TIMEOUT (10), SLAVE_NOT_AVAILABLE (11) or
    #: FLUSH_SLAVE_TIMEOUT (12).
    otherwise: Callable[[int], Answers]


class Durability:
    """The marks of the log and who waits for them.

    :param sync_flush: only what is on disk is visible.
    :param sync_master: only what a replica has, or was waived, is visible.
    :param replicas: how many distinct replicas must have it.
    """

    #: What those are answered whose messages are cut away; 0: what they waited for was too late.
    cut_code = 0

    def __init__(self, *, sync_flush: bool = False, sync_master: bool = False, replicas: int = 1) -> None:
        self.sync_flush = sync_flush
        self.sync_master = sync_master
        self.appended = 0
        self.flushed = 0
        #: What ``replicas`` distinct replicas have.
        self.replicated = 0
        #: End of what was answered with 11 or 12: a dead slave does not stop consumers. A flush is never waived.
        self.waived = 0
        self.failed = False
        self.visible = 0
        #: Called with queues whose visible end has moved.
        self.on_visible: Callable[[list[Queue]], None] | None = None
        self._needed_replicas = replicas
        self._reports: dict[Hashable, int] = {}
        # In log order each, and due in that order: who waits, and before them those for whom one of two times is over.
        self._waiting: deque[Unacknowledged] = deque()
        self._half: deque[Unacknowledged] = deque()
        self._ledger: deque[tuple[int, list[tuple[Queue, int]]]] = deque()

    def begin(self, end: int) -> None:
        """Start from a recovered log that is on disk up to ``end``; all of it is visible."""
        self.appended = self.flushed = self.waived = self.visible = end

    def set_sync_master(self, on: bool) -> None:
        """The broker has become a SYNC_MASTER, or is none any more; what it had before waits for no replica."""
        self.sync_master = on
        self.waive(self.appended)
        self._advance()

    @property
    def oldest(self) -> Unacknowledged | None:
        """Who has waited longest."""
        return next((waiting[0] for waiting in (self._half, self._waiting) if waiting), None)

    @property
    def deadline(self) -> float | None:
        """When :meth:`on_tick` is due, monotonic seconds."""
        return min((waiting[0].due for waiting in (self._half, self._waiting) if waiting), default=None)

    def on_appended(self, end: int, touched: list[Queue]) -> None:
        """The log has grown to ``end``; ``touched`` queues have new entries."""
        self.appended = end
        if not self.sync_flush and not self.sync_master and not self.failed and not self._ledger:
            self.visible = end
            for queue in touched:
                queue.visible = queue.next
            if self.on_visible is not None:
                self.on_visible(touched)
            return
        self.on_dispatched(end, touched)

    def on_dispatched(self, end: int, touched: list[Queue]) -> None:
        """What lies before ``end`` is in queues: ``touched`` have got new entries, some time after it was appended."""
        if touched:
            self._ledger.append((end, [(queue, queue.next) for queue in touched]))
        self._advance()

    def log_ends(self, to: int) -> Answers:
        """The log is cut back to ``to``, and the queues are already: no mark stays ahead.

        :returns: answers for those who have waited for what is gone.
        """
        self.appended, self.flushed, self.replicated, self.waived, self.visible = (
            min(at, to) for at in (self.appended, self.flushed, self.replicated, self.waived, self.visible)
        )
        self._reports = {replica: min(at, to) for replica, at in self._reports.items()}
        self._ledger = deque(
            (min(end, to), [(queue, min(index, queue.next)) for queue, index in queues]) for end, queues in self._ledger
        )

        def judge(entry: Unacknowledged) -> Answers | Unacknowledged:
            if entry.end <= to:
                return entry
            late = _FLUSH_SLAVE_TIMEOUT if entry.need & REPLICA else _FLUSH_DISK_TIMEOUT
            return _instead(entry, self.cut_code or late)

        released = self._judge_each(judge)
        self._advance()
        return released

    def hold(
        self,
        end: int,
        need: int,
        flush_by: float,
        replica_by: float,
        answers: Answers,
        otherwise: Callable[[int], Answers],
    ) -> Answers:
        """Keep answers until the log is durable up to ``end``; one entry a tick.

        :param need: FLUSH, REPLICA or both.
        :param flush_by: until when the disk has time, and
        :param replica_by: until when the replicas; monotonic seconds.
        :returns: what can be sent at once: empty, unless the need is met already or can never be.
        """
        due = min(flush_by if need & FLUSH else replica_by, replica_by if need & REPLICA else flush_by)
        if self._waiting:
            due = max(due, self._waiting[-1].due)
        entry = Unacknowledged(end, need, flush_by, replica_by, due, answers, otherwise)
        if self.failed and need & FLUSH and end > self.flushed:
            return otherwise(_FLUSH_DISK_TIMEOUT)
        if self._met(entry):
            return answers
        self._waiting.append(entry)
        return []

    def on_flushed(self, to: int) -> Answers:
        """Everything up to ``to`` is on disk."""
        if self.failed or to <= self.flushed:
            return []
        self.flushed = to
        return self._release()

    def on_replica(self, replica: Hashable, to: int) -> Answers:
        """The replica with this id has everything up to ``to``. Two connections of one replica count once."""
        if to <= self._reports.get(replica, -1):
            return []
        self._reports[replica] = to
        if len(self._reports) < self._needed_replicas:
            return []
        mark = sorted(self._reports.values(), reverse=True)[self._needed_replicas - 1]
        if mark <= self.replicated:
            return []
        self.replicated = mark
        return self._release()

    def replica_gone(self, replica: Hashable) -> None:
        """The replica does not report any more. What it had stays replicated."""
        self._reports.pop(replica, None)

    def on_no_replica(self) -> Answers:
        """There are not enough replicas any more, and that is known: nobody waits for one.

        :returns: SLAVE_NOT_AVAILABLE (11) for those who did; who waits for a flush as well hears it after that.
        """

        def judge(held: Unacknowledged) -> Answers | Unacknowledged:
            if not held.need & REPLICA or held.end <= self.replicated:
                return held
            answers = _instead(held, _SLAVE_NOT_AVAILABLE)
            if held.need & FLUSH and held.end > self.flushed:
                return held._replace(need=FLUSH, answers=answers)
            return answers

        released = self._judge_each(judge)
        self.waive(self.appended)
        return released

    def waive(self, end: int) -> None:
        """What lies before ``end`` was answered with SLAVE_NOT_AVAILABLE (11): do not keep it from consumers."""
        if end > self.waived:
            self.waived = end
            self._advance()

    def on_tick(self, now: float) -> Answers:
        """Answer those whose time is over.

        :param now: monotonic seconds.
        """
        released: Answers = []
        for waiting in (self._half, self._waiting):
            while waiting and waiting[0].due <= now:
                judged = self._overdue(waiting.popleft(), now)
                if isinstance(judged, Unacknowledged):
                    self._half.append(judged)
                else:
                    released += judged
        return released

    def _overdue(self, entry: Unacknowledged, now: float) -> Answers | Unacknowledged:
        """The answers of one whose time is over, or what it waits for yet: disk and replicas have times of their own.

        When both are late Java's combination tells of the replica (store-and-broker.md 2.9).
        """
        if self._met(entry):
            return entry.answers
        needs_flush = entry.need & FLUSH and entry.end > self.flushed
        if entry.need & REPLICA and entry.end > self.replicated:
            if entry.replica_by <= now:
                self.waive(entry.end)
                return _instead(entry, _FLUSH_SLAVE_TIMEOUT)
            answers = _instead(entry, _FLUSH_DISK_TIMEOUT) if needs_flush else entry.answers
            need, due = REPLICA, entry.replica_by
        elif needs_flush and entry.flush_by > now:
            answers, need, due = entry.answers, FLUSH, entry.flush_by
        else:
            return _instead(entry, _FLUSH_DISK_TIMEOUT)
        if self._half:
            due = max(due, self._half[-1].due)
        return entry._replace(need=need, answers=answers, due=due)

    def on_fsync_error(self) -> Answers:
        """A flush failed: nothing becomes visible any more, and who waits for the disk is told the truth."""
        self.failed = True

        def judge(entry: Unacknowledged) -> Answers | Unacknowledged:
            if entry.need & FLUSH and entry.end > self.flushed:
                return _instead(entry, _FLUSH_DISK_TIMEOUT)
            return entry

        return self._judge_each(judge)

    def _judge_each(self, judge: Callable[[Unacknowledged], Answers | Unacknowledged]) -> Answers:
        """Put each who waits in the place of what ``judge`` makes of it; the answers of those that wait no longer."""
        released: Answers = []
        for waiting in (self._half, self._waiting):
            for _ in range(len(waiting)):
                judged = judge(waiting.popleft())
                if isinstance(judged, Unacknowledged):
                    waiting.append(judged)
                else:
                    released += judged
        return released

    def _met(self, entry: Unacknowledged) -> bool:
        if entry.need & FLUSH and entry.end > self.flushed:
            return False
        return not (entry.need & REPLICA and entry.end > self.replicated)

    def _release(self) -> Answers:
        self._advance()
        released: Answers = []
        for waiting in (self._half, self._waiting):
            while waiting and self._met(waiting[0]):
                released += waiting.popleft().answers
        return released

    def _advance(self) -> None:
        """Move ``visible`` and with it the queues' ends."""
        if self.failed:
            return
        visible = self.appended
        if self.sync_flush:
            visible = min(visible, self.flushed)
        if self.sync_master:
            visible = min(visible, max(self.replicated, self.waived))
        if visible > self.visible:
            self.visible = visible
        else:
            visible = self.visible
        ledger = self._ledger
        moved: dict[Queue, None] = {}
        while ledger and ledger[0][0] <= visible:
            for queue, end in ledger.popleft()[1]:
                if end > queue.visible:
                    # The queue may have begun anew meanwhile.
                    queue.visible = min(end, queue.next)
                    moved[queue] = None
        if moved and self.on_visible is not None:
            self.on_visible(list(moved))


def _instead(entry: Unacknowledged, code: int) -> Answers:
    """The answers for another outcome. Whoever cannot build one leaves his own client without, and nobody else."""
    try:
        return entry.otherwise(code)
    except Exception:
        log.exception("an answer with code %d could not be built", code)
        return []
