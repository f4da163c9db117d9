"""A member with a log and a disk: carries out what its node says, one effect after the other, as a broker will.

A record is a byte that says how long it is, and random bytes: any two are different.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from rmq.raft.effects import Became, Begin, Commit, Cut, Effect, LedOn, Reset, Role, Save, Send, Write
from rmq.raft.members import Members
from rmq.raft.messages import Append, AppendReply, Message, TimeoutNow, VoteReply
from rmq.raft.node import RaftNode
from rmq.raft.position import Position, TermPath

if TYPE_CHECKING:
    from tests.support.raft.simulation import Simulation

__all__ = ["Bugs", "SimMember"]


class Bugs(NamedTuple):
    """What a driver may do wrong."""

    #: A vote is sent before it is on the disk.
    vote_unsynced: bool = False
    #: What a leader takes back stays in the log.
    no_cut: bool = False
    #: A term is noted some time, not before its first byte.
    term_unsynced: bool = False
    #: What was written counts as stored.
    stored_early: bool = False
    #: Whom it has voted for is not known after a restart.
    vote_forgotten: bool = False
    #: A member whose disk was lost votes as if it had promised nothing.
    wiped_votes: bool = False
    #: That it has come back without its disk is not known after a restart.
    returning_forgotten: bool = False
    #: A word of the disk that was lost is believed after one of the disk that has taken its place.
    old_disk_heard: bool = False


class SimMember:
    """One member; ``now`` is its own clock's."""

    def __init__(self, sim: Simulation, members: Members, random: Random, bugs: Bugs) -> None:
        self.sim = sim
        self.members = members
        self.name = members.me
        self._random = random
        self._bugs = bugs
        #: The clock's rate and offset.
        skew = random.choice((1.1, 1.1, 1.4))
        self._rate, self._offset = random.uniform(1 / skew, skew), random.uniform(0, 1000)
        if sim.deaths.given:
            self._rate = 1.0
        #: Counts its disks; and the newest of each other member that was heard.
        self.disk = 0
        self.disks: dict[str, int] = {}
        #: When what was heard last of the others that vote was sent.
        self.heard: dict[str, float] = {}
        #: Its disk takes no more for so long.
        self.full_until = 0.0
        #: Term -> who would elect it in that.
        self._asked_for: dict[int, set[str]] = {}
        self.log = bytearray()
        self.start = 0
        #: Where records end.
        self.ends: list[int] = []
        #: What is on the disk: term, vote, terms of the log, and how much of that.
        self.hard: tuple[int, str | None] = (0, None)
        self._returning = 0
        self._kept = self.hard
        self.path = TermPath([Position(0, 0)], 0, 0)
        self._kept_starts = self.path.starts
        self.synced = 0
        self.committed = 0
        #: The term in which it leads, once it has carried that out.
        self.leads: int | None = None
        self._elected = 0.0
        self.node: RaftNode | None = None
        self.paused_until = 0.0
        #: How often it has led on, since an heir has not.
        self.kept = 0
        self.slow = 0.0
        self._effects: deque[Effect] = deque()
        self._doing: Effect | None = None
        self._syncing: Position | None = None
        #: Counts lives, so that what was under way in an earlier one comes to nothing.
        self._life = 0
        self._timer = 0.0
        self.begin()

    # -- life

    def now(self) -> float:
        return self.sim.time * self._rate + self._offset

    def begin(self) -> None:
        """Start, with what is on the disk."""
        whole = self.ends[-1] if self.ends else self.start
        del self.log[whole:]
        self.synced = whole
        self.path = TermPath(self.path.starts, self.start, whole)
        self._effects.clear()
        self._doing = self._syncing = None
        self.leads = None
        self.committed = min(self.committed, whole)
        self._life += 1
        term, vote = self.hard
        if self._bugs.vote_forgotten:
            vote = None
        if self._bugs.returning_forgotten:
            self._returning = 0 if self._returning < 0 else -self._returning
        path = TermPath(self.path.starts, self.start, whole)
        self.node = RaftNode(
            self.members, path, max(term, path.last.term), vote, self.now(), self._random.random, abs(self._returning)
        )
        self._asked_for.clear()
        self.heard.clear()
        self._timer = float("inf")
        self._arm()

    def kill(self, *, power: bool) -> None:
        """End; without power, of what is not synced only some is there again."""
        if self.node is None:
            return
        self.node = None
        doing, self._doing = self._doing, None
        if doing is not None and self._random.random() < 0.5:
            self._change(doing)
        if power:
            if self._bugs.vote_unsynced:
                self.hard = (self.hard[0], self._kept[1] if self.hard[0] == self._kept[0] else None)
            if self._bugs.term_unsynced:
                self.path = TermPath(self._kept_starts, self.start, self.path.end)
            self._lose(self._random.randint(min(self.synced, len(self.log)), len(self.log)))

    def wipe(self) -> None:
        """It has ended: another disk takes the place of the one that it had."""
        self.disk += 1
        self._returning = 0 if self._bugs.wiped_votes else self.disk
        self.log.clear()
        self.ends.clear()
        self.start = self.synced = self.committed = 0
        self.hard = self._kept = (0, None)
        self.path = TermPath([Position(0, 0)], 0, 0)
        self._kept_starts = self.path.starts
        self.disks.clear()

    @property
    def returning(self) -> bool:
        """Whether it has lost its disk, and is not counted yet."""
        return self._returning != 0

    def _lose(self, end: int) -> None:
        del self.log[end:]
        del self.ends[bisect_right(self.ends, end) :]
        self.synced = min(self.synced, end)
        self.path = TermPath(self.path.starts, self.start, end)

    # -- events

    def _later(self, delay: float, what: Callable[[], None]) -> None:
        life = self._life

        def come() -> None:
            if self.node is None or life != self._life:
                return
            if self.sim.time < self.paused_until:
                self.sim.at(self.paused_until, come)
            else:
                what()

        self.sim.at(self.sim.time + delay, come)

    def _arm(self) -> None:
        if self.node is None:
            return
        due = max((self.node.due - self._offset) / self._rate, self.sim.time + 0.001)
        if due < self._timer:
            self._timer = due
            self._later(due - self.sim.time, self._tick)

    def _tick(self) -> None:
        if self.sim.time + 1e-9 < self._timer:
            return
        self._timer = float("inf")
        if self.node is not None:
            if self.now() >= self.node.due:
                self._do(self.node.tick(self.now()))
            self._arm()

    def receive(self, message: Message, disk: int, sent: float) -> None:
        """A message has come, of a member with its so manyeth disk, which has sent it then."""
        self._later(0.0, lambda: self._step(message, disk, sent))

    def _step(self, message: Message, disk: int, sent: float) -> None:
        source = message.source
        if self.node is None or (disk < self.disks.get(source, 0) and not self._bugs.old_disk_heard):
            return  # the connection was closed when the newer one was heard
        self.disks[source] = disk
        if not (isinstance(message, AppendReply) and message.returning):
            self.heard[source] = max(self.heard.get(source, 0.0), sent)
        if isinstance(message, VoteReply) and message.pre and message.granted:
            self._asked_for.setdefault(message.term, {self.name}).add(source)
        elif isinstance(message, TimeoutNow):
            self._asked_for[message.term + 1] = set(self.members.voters)
        self._do(self.node.step(message, self.now()))

    def transfer(self, to: str) -> None:
        """Give the lead away."""
        if self.node is not None and self.sim.time >= self.paused_until:
            self._do(self.node.transfer(to, self.now()))

    def lose(self, other: str) -> None:
        """The connection of another member has ended."""
        node = self.node
        if node is not None:
            self._later(0.001, lambda: self._do(node.lost(other, self.now())))

    @property
    def surely_leads(self) -> bool:
        """Whether it thinks that nobody else can lead; one that stands still thinks nothing."""
        return self.node is not None and self.sim.time >= self.paused_until and self.node.surely_leads(self.now())

    def retain(self, share: float) -> None:
        """Delete the oldest part of what is committed."""
        if self.node is None:
            return
        known = [end for end in self.ends if self.start < end <= min(self.node.commit, self.synced)]
        if known:
            start = known[int(share * len(known))]
            self.node.deleted(start)
            self.path.forget(start)
            self.start = start

    def send(self, records: int) -> bool:
        """A producer sends; False where nothing is taken."""
        node = self.node
        if node is None or self.sim.time < self.paused_until or self.leads != node.term or not node.takes_messages:
            return False
        if self.sim.time > self.paused_until + 0.1:
            since = self.sim.time - 2.1 * self.members.election / self._rate
            heard = 1 + sum(self.heard.get(one, 0.0) > since for one in self.members.voters if one != self.name)
            fresh = since < self._elected
            self.sim.check(fresh or heard >= self.members.majority, f"{self.name} leads, and hears no majority")
        for _ in range(records):
            size = self._random.randint(4, 9)
            self._append(bytes([size]) + self._random.randbytes(size - 1))
        self.path.grow(len(self.log))
        node.appended(len(self.log))
        self._sync()
        self._do(node.spread())
        return True

    # -- effects

    def _do(self, effects: list[Effect]) -> None:
        self._effects += effects
        self._work()
        if self.node is not None:
            self._arm()

    def _work(self) -> None:
        while self._effects and self._doing is None and self.node is not None:
            effect = self._effects.popleft()
            if not isinstance(effect, Send | Commit | Became | LedOn):
                if self.sim.time < self.full_until:
                    self.sim.end(self, power=False, back=1.0)
                    return
                if self.sim.may_die(self):
                    return
            if isinstance(effect, Save | Begin | Cut | Reset) and self.slow:
                self._doing = effect
                self._later(self._random.expovariate(1 / self.slow), self._done)
                return
            self._change(effect)

    def _done(self) -> None:
        doing, self._doing = self._doing, None
        if doing is not None:
            self._change(doing)
            self._work()

    def _change(self, effect: Effect) -> None:
        match effect:
            case Save(term, vote, returning):
                if vote == self.name and (term, vote) != self.hard:
                    ready = len(self._asked_for.get(term, {self.name})) >= self.members.majority
                    ready = ready or self.leads == term - 1  # it leads on, where an heir has not taken the lead
                    self.sim.check(ready, f"{self.name} campaigns in term {term}, and no majority would elect it")
                    self.sim.campaigned = max(self.sim.campaigned, term)
                if returning == 0:
                    self._returning = 0
                self.hard = (term, vote)
                if self._random.random() < 0.5:
                    self._kept = self.hard
            case Begin(at):
                assert at.end == len(self.log)
                self.path.begin(at.term)
                if self._random.random() < 0.5:
                    self._kept_starts = self.path.starts
                self.sim.check_logs(self)
            case Cut(to):
                self._cut(to)
            case Reset(at):
                self.log[:] = bytes(at.end)
                self.ends.clear()
                self.start = self.synced = at.end
                self.path.reset(at)
                self._kept_starts = self.path.starts
                self._syncing = None
            case Write(start, after, data):
                if not self._bugs.no_cut:
                    assert start == len(self.log), (start, len(self.log))
                    assert len(data) == after.end - start
                self._append(data)
                self.path.grow(max(after.end, len(self.log)))
                self.sim.check_logs(self)
                self._sync()
            case Send(to, message):
                if isinstance(message, Append) and message.after.end > message.before.end:
                    if message.before.end < self.start:
                        return  # deleted since: the member asks again
                    data = bytes(self.log[message.before.end : message.after.end])
                    message = replace(message, data=data)
                self.sim.send(self.name, to, message)
                self.sim.said(self, message)
            case Commit(end):
                self.committed = max(self.committed, end)
                self.sim.check_commit(self, end)
                self.sim.said(self, effect)
            case LedOn():
                self.kept += 1
            case Became(role, term, _):
                self.leads = term if role is Role.LEADER else None
                self._elected = self.sim.time
                if role is Role.LEADER:
                    self.sim.check_leader(self, term)
                    self.sim.said(self, effect)

    def _cut(self, to: Position) -> None:
        if self._bugs.no_cut:
            self.path = TermPath([one for one in self.path.starts if one.term <= to.term], self.start, len(self.log))
            return
        self.sim.check(to.end >= self.committed, f"{self.name} cuts to {to} what is committed up to {self.committed}")
        self.path.cut(to)
        del self.log[to.end :]
        del self.ends[bisect_right(self.ends, to.end) :]
        self.synced = min(self.synced, to.end)

    def _append(self, data: bytes) -> None:
        self.log += data
        at = self.ends[-1] if self.ends else self.start
        while at < len(self.log) and (at := at + self.log[at]) <= len(self.log):
            self.ends.append(at)

    def _whole(self) -> Position:
        return self.path.through(Position(0, self.ends[-1] if self.ends else self.start))

    def _sync(self) -> None:
        """Sync the log: one at a time, what is written meanwhile with the next one."""
        if self._bugs.stored_early:
            self._later(0.0, lambda: self._stored(self._whole()))
        if self._syncing is None:
            self._syncing = self._whole()
            delay = self._random.uniform(0.001, 0.01) + (self._random.expovariate(1 / self.slow) if self.slow else 0)
            self._later(delay, self._synced)

    def _synced(self) -> None:
        at, self._syncing = self._syncing, None
        if at is None:
            return
        if self.path.contains(at):
            self.synced = max(self.synced, at.end)
        self._stored(at)
        if self._whole().end > self.synced:
            self._sync()

    def _stored(self, at: Position) -> None:
        if self.node is not None:
            self._do(self.node.stored(at))
