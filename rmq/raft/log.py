"""What one member has of the log: the terms of it, what is stored, what is its leader's, and what is committed."""

from __future__ import annotations

from collections.abc import Callable

from rmq.raft.effects import Begin, Commit, Cut, Effect, Reset, Write
from rmq.raft.messages import Append, Install
from rmq.raft.position import LogsParted, Position, TermPath

__all__ = ["RaftLog"]


class RaftLog:
    """Of one member, whether it leads or follows.

    :param path: its terms; all of it is stored.
    :param do: takes what is to be done, in that order.
    """

    def __init__(self, path: TermPath, do: Callable[[Effect], None]) -> None:
        self.path = path
        #: Everything before it stays for ever; found out anew after a start.
        self.commit = path.start
        #: What is durable of the log, in whole records: what the member is elected for, and what is counted.
        self.stored = path.last
        #: The log is its leader's up to here; None before that is known in this term.
        self._same: Position | None = None
        self._do = do

    @property
    def match(self) -> Position | None:
        """What is both the leader's and stored here, which the leader may count; None while that is not known."""
        return None if self._same is None else min(self.stored, self._same)

    def new_term(self) -> None:
        """Who leads next may have another log."""
        self._same = None

    # -- what a leader says of its own

    def take(self, message: Append) -> bool:
        """Go on as the leader's log does; False, and nothing is changed, where this one lacks what it goes on behind.

        :raises LogsParted: the leader takes back what is committed.
        """
        path, before, after = self.path, message.before, message.after
        goes_on = before == path.last  # as nearly always: nothing of it is here
        if not goes_on and not path.contains(before):
            return False
        if after != before and (goes_on or not path.contains(after)):
            # All that it has of the span stays, so that a message that was overtaken takes nothing away.
            keep = before
            if not goes_on:
                if path.contains(Position(after.term, before.end)):
                    keep = path.nearest(after) or before
                self.cut(keep)
            if after.term > keep.term:
                self.begin(after.term)
            if after.end > keep.end:
                path.grow(after.end)
                if keep.end == before.end:
                    self._do(Write(before.end, after, message.data, message.crc))
                else:
                    self._do(Write(keep.end, after, message.data[keep.end - before.end :]))
        self._is_same(after, message.commit)
        return True

    def install(self, message: Install) -> bool:
        """Begin where the leader's log does; False, and nothing is changed, where more than that is committed here."""
        path, at = self.path, message.at
        if not path.contains(at):
            if at.end < self.commit:
                return False  # what it begins with has been here, and was deleted
            path.reset(at)
            self.stored = at
            self._do(Reset(at))
        self._is_same(at, message.commit)
        return True

    def _is_same(self, at: Position, commit: int) -> None:
        """The log is the leader's up to here, who has committed so much."""
        if self._same is None or at > self._same:
            self._same = at
        self.committed(min(commit, self._same.end))

    # -- changes

    def cut(self, keep: Position) -> None:
        """What comes behind a position here goes.

        :raises LogsParted: that is committed.
        """
        if keep == self.path.last:
            return
        if keep.end < self.commit:
            raise LogsParted(f"a leader takes back what is committed: the log from {keep} up to {self.commit}")
        self.path.cut(keep)
        self.stored = min(self.stored, keep)
        self._do(Cut(keep))

    def begin(self, term: int) -> None:
        """A term begins where the log ends."""
        self._do(Begin(self.path.begin(term)))
        self.stored = self.path.through(self.stored)

    def store(self, at: Position) -> bool:
        """It is durable up to a position where a record ends; whether that is news. What was cut away is nothing."""
        if not self.path.contains(at) or at <= self.stored:
            return False
        self.stored = self.path.through(at)
        return True

    def committed(self, end: int) -> None:
        """Everything before ``end`` is committed, if that is not known."""
        if end > self.commit:
            self.commit = end
            self._do(Commit(end))

    def forget(self, start: int) -> None:
        """What comes before ``start`` was deleted.

        :raises LogsParted: that is not committed.
        """
        if start > self.commit:
            raise LogsParted(f"the log is committed up to {self.commit}, and was deleted up to {start}")
        self.path.forget(start)
        # It was committed by what others have stored, and is gone here: nothing of it is stored later.
        self.stored = max(self.stored, self.path.first)
