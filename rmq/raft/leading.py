"""What a leader knows of the others: how far each is, whom it hears, and to whom it gives the lead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmq.raft.members import Members
from rmq.raft.messages import Append, AppendReply, Install
from rmq.raft.position import Position, TermPath

__all__ = ["Follower", "Leading", "Progress"]


class Follower(NamedTuple):
    """How another member looks to its leader."""

    #: It has the log up to here, stored; None before it has said so in this term.
    match: Position | None
    #: Seconds since it was asked what it has answered last.
    silent: float
    #: Whether it is counted: not while it has lost its disk and lacks something still.
    counted: bool


class Progress:
    """How far one member is."""

    def __init__(self, start: Position, now: float) -> None:
        #: It has everything up to here, stored; None before it has said so in this term.
        self.match: Position | None = None
        #: What it is sent goes on here.
        self.next = start
        #: It has this. Until that is known it is asked again and again, and sent no span behind the first.
        self.found = False
        #: When it was asked what it has answered last, by the leader's clock: an answer that lay about proves little.
        self.heard = now
        #: The latest that it had been asked when it said ``match``.
        self.asked = 0
        #: Not 0: it has come back with this disk in place of one that is lost, and is not counted; and when that was
        #: heard first.
        self.returning = 0
        self.joined = now
        #: When its connection has ended last: it may be another process since, that protects no leader.
        self.lost = -math.inf

    @property
    def unacknowledged(self) -> int:
        """Bytes that are on their way."""
        return 0 if self.match is None else self.next.end - self.match.end


class Leading:
    """A leader's own state, for one term.

    :param path: its log.
    :param before: where that ended before this term began.
    :param whole: as of :class:`~rmq.raft.node.RaftNode`.
    """

    def __init__(
        self,
        members: Members,
        term: int,
        path: TermPath,
        before: Position,
        now: float,
        whole: Callable[[int], int] = int,
    ) -> None:
        self._members = members
        self._whole = whole
        self._term = term
        self._path = path
        self.progress = {one: Progress(before, now) for one in members.others}
        #: When heartbeats are due, when a majority must have been heard, and when a preferred leader is looked for.
        self.heartbeat_at = now
        self.quorum_at = now + members.election
        self.preferred_at = now + members.election
        self._asked = now
        #: Whether a majority has the beginning of this term, so that everything that was ever committed is known here.
        self.settled = False
        #: Who gets the lead, until when; no messages are taken meanwhile.
        self.heir: str | None = None
        self.heir_until = 0.0
        self._heir_asked = 0.0
        self.told = False

    # -- sending

    def ask(self, now: float) -> None:
        """A word is asked for: what goes out from now on is answered with this time."""
        self._asked = now

    def spans(self, one: str, commit: int) -> Iterator[Append | Install]:
        """What goes to a member now; nothing while it has to say first where it goes on."""
        progress = self.progress[one]
        while progress.found and progress.next != self._path.last and self._has_room(progress):
            yield self._append(progress, commit, self._members.span)

    def _has_room(self, progress: Progress) -> bool:
        """Whether more may be on its way: what fills the window, and no less than a whole record."""
        if progress.unacknowledged < self._members.window:
            return True
        return progress.match is not None and progress.next.end < self._whole(progress.match.end)

    def first(self, one: str, commit: int) -> Append | Install:
        """Tells that the term has begun, to who has all that was before it."""
        return self._append(self.progress[one], commit, 1)

    def heartbeat(self, one: str, commit: int) -> Append | Install:
        """Tells that there is a leader; a member that lacks what it was sent so far answers with what it has."""
        return self._append(self.progress[one], commit, 0)

    def _append(self, progress: Progress, commit: int, most: int) -> Append | Install:
        path, me, before = self._path, self._members.me, progress.next
        if not path.contains(before):  # it was deleted meanwhile
            progress.found = False
            progress.next = path.first
            return self._install(commit)
        after = path.span(before, most) if most else before
        if progress.found:
            progress.next = after
        return Append(self._term, me, before, after, commit, asked=int(self._asked * 1e6))

    def _install(self, commit: int) -> Install:
        return Install(self._term, self._members.me, self._path.first, commit, int(self._asked * 1e6))

    # -- hearing

    def heard(self, reply: AppendReply, now: float, commit: int) -> Append | Install | None:
        """A member tells what it has; what it is to be told at once, when it lacks what it was sent."""
        progress = self.progress[reply.source]
        if reply.returning not in (0, progress.returning):
            # What the other disk had is nothing any more.
            progress = self.progress[reply.source] = Progress(self._path.last, now)
        progress.returning = reply.returning
        progress.heard = max(progress.heard, min(reply.asked / 1e6, now))
        match, path = reply.match, self._path
        if match is not None:
            if path.contains(match) and (progress.match is None or match > progress.match):
                progress.match = match
                progress.next = max(progress.next, match)
            progress.asked = max(progress.asked, reply.asked)
            progress.found = progress.found or progress.match is not None
            return None
        if reply.rejected is None:
            return None
        if progress.match is not None and reply.rejected <= progress.match:
            if reply.asked <= progress.asked:
                return None  # of a message that was overtaken
            progress.match = None  # it began anew without it: its machine has lost what was not on the disk
        if not progress.found and reply.rejected != progress.next:
            return None  # of one that went out before this place was asked for
        nearest = None if reply.nearest is None else path.nearest(reply.nearest)
        if nearest is None:
            progress.next = path.first
            progress.found = False
            return self._install(commit)
        progress.next = nearest if progress.match is None else max(nearest, progress.match)
        progress.found = False
        return self.heartbeat(reply.source, commit)

    def followers(self, now: float) -> dict[str, Follower]:
        """How each other member looks from here."""
        return {
            one: Follower(progress.match, now - progress.heard, not progress.returning)
            for one, progress in self.progress.items()
        }

    # -- deciding

    def committed(self, stored: Position) -> int:
        """Up to where a majority has stored the log of this term; -1 while it has not even its beginning.

        Earlier terms are not counted (Raft, section 5.4.2): what a majority has of them may still be replaced.

        :param stored: what this member has.
        """
        ends = []
        for one in self._members.voters:
            at = stored if one == self._members.me else self._counted(one)
            ends.append(at.end if at is not None and at.term == self._term else -1)
        end = sorted(ends, reverse=True)[self._members.majority - 1]
        self.settled = self.settled or end >= 0
        return end

    def _counted(self, one: str) -> Position | None:
        progress = self.progress[one]
        return None if progress.returning else progress.match

    def has_majority(self, now: float) -> bool:
        """Whether enough voters were heard lately."""
        return self._heard_by(lambda one: self.is_heard(one, now))

    def is_sure(self, now: float) -> bool:
        """Whether so many follow, and have heard of this leader so lately, each on the connection that it still has."""
        return self._heard_by(
            lambda one: self.can_lead(one, now) and self.progress[one].heard > self.progress[one].lost
        )

    def _heard_by(self, counts: Callable[[str], bool]) -> bool:
        members = self._members
        return sum(one == members.me or counts(one) for one in members.voters) >= members.majority

    def is_heard(self, one: str, now: float) -> bool:
        """Whether a member that votes was heard lately."""
        progress = self.progress[one]
        return not progress.returning and now - progress.heard < self._members.election

    def admits(self, one: str, commit: int) -> bool:
        """Whether a member that has lost its disk has back what that disk may have promised.

        It may have acknowledged what is committed, and voted in a term that has not begun yet. The first it has back
        when it has all that was committed before it came, which this leader knows once its own term is; that nobody
        was elected after it, and nobody asks to be with a vote of the lost disk, is known when every other voter has
        said since then that it follows in this term.
        """
        progress, members = self.progress[one], self._members
        if not progress.returning or one not in members.voters or not self.settled:
            return False
        match = progress.match
        if match is None or match.term != self._term or match.end < commit:
            return False
        others = [self.progress[other] for other in members.voters if other not in (one, members.me)]
        counted = [other for other in others if not other.returning]
        return len(counted) + 1 >= members.majority and all(other.heard > progress.joined for other in counted)

    # -- giving the lead

    def can_lead(self, one: str, now: float) -> bool:
        """Whether a voter is there to be given the lead."""
        return self.progress[one].match is not None and self.is_heard(one, now)

    def bequeath(self, heir: str, now: float) -> None:
        """Give the lead to a voter, once it has everything; for the time of an election it is waited for."""
        self.ask(now)
        self.heir, self.heir_until, self._heir_asked = heir, now + self._members.election, int(now * 1e6) / 1e6
        self.told = False

    def is_ready(self, now: float) -> bool:
        """Whether the heir is to be told now: it has everything, has said so since, and was not told.

        It gets the time of another election for its own.
        """
        if self.heir is None or self.told:
            return False
        progress = self.progress[self.heir]
        if progress.match != self._path.last or progress.heard < self._heir_asked:
            return False
        self.told, self.heir_until = True, now + self._members.election
        return True

    def lacks(self, one: str) -> int:
        """Bytes of the log that a member lacks, or may."""
        match = self.progress[one].match
        return self._path.end - (self._path.start if match is None else match.end)

    def preferred(self, now: float) -> str | None:
        """Who ought to lead instead, and could."""
        members = self._members
        if now < self.preferred_at or not members.preferred or members.me in members.preferred or self.heir is not None:
            return None
        # Of several, the one that has most (as in DLedger).
        near = [one for one in members.preferred if self.can_lead(one, now) and self.lacks(one) <= members.near]
        if not near:
            return None
        self.preferred_at = now + members.patience
        return min(near, key=self.lacks)
