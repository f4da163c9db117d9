"""Groups under every fault that a machine has, from a seed; what Raft promises is looked at after each step.

Election safety (one leader a term), log matching (what two logs both have, they have the same before it), leader
completeness (a leader has what earlier ones committed) and state-machine safety (an offset that is committed is the
same for all). When the faults are over there is a leader, and everybody has its log.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from rmq.raft.effects import Became, Commit
from rmq.raft.members import Members
from rmq.raft.messages import AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.position import LogsParted
from tests.support.raft.member import Bugs, SimMember

__all__ = ["Deaths", "Simulation", "Unsafe", "run"]

#: Seconds of faults, and of quiet after them.
_FAULTS, _QUIET = 10.0, 12.0


class Unsafe(AssertionError):
    """A promise is broken; the text says which, and the seed."""


class Deaths(NamedTuple):
    """How likely a life has members end where it hurts most; without it a bug there is met by few lives."""

    #: Right behind a word about votes,
    at_vote: float = 0.0
    #: or behind a vote that was given: it is back at once, with what is on the disk, and may be asked again.
    voted: float = 0.0
    #: A leader with the first messages of its term, which nobody else has.
    at_crown: float = 0.0
    #: A leader that has just said what is committed, with everything that it has sent and nobody has got,
    at_commit: float = 0.0
    #: or who follows, and has just said what it has stored.
    followers: float = 0.0
    #: and all of them, without power.
    blackout: float = 0.0
    #: Everybody is cut off until everybody wants to lead, so that two do in one term.
    duels: bool = False
    #: Messages are under way for long, and overtake each other.
    late: bool = False
    #: Other faults come, too.
    faults: bool = True
    #: Disks are slow from the beginning.
    slow: bool = False
    #: Before any change of a disk.
    anywhere: float = 0.0
    #: Who ends so loses its disk, too.
    wiped: float = 0.0
    #: The lead is given away all the while, and whom it is given to may hear of that too late. Clocks go alike, and who
    #: lives hears of who ends: while one surely leads nobody else does.
    given: bool = False


#: Lives take them in turn.
_DEATHS = (
    Deaths(), Deaths(at_vote=0.1), Deaths(voted=0.8, duels=True, late=True),
    Deaths(at_crown=0.6, at_commit=0.5, late=True, faults=False),
    Deaths(blackout=0.1, slow=True), Deaths(anywhere=0.02), Deaths(at_vote=0.1, wiped=0.5),
    Deaths(voted=0.8, duels=True, late=True, wiped=0.7), Deaths(at_commit=0.3, followers=0.05, wiped=0.8, late=True),
)  # fmt: skip


class Simulation:
    """A group on a network of its own."""

    def __init__(self, seed: int, bugs: Bugs = Bugs(), deaths: Deaths | None = None) -> None:  # noqa: B008
        self.deaths = deaths or _DEATHS[seed % len(_DEATHS)]
        self.random = random = Random(seed)
        self.seed = seed
        self.time = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        voters = tuple("abcde"[: random.choice((3, 3, 3, 5))])
        learners = ("z",) if random.random() < 0.2 else ()
        preferred = random.choice(((), (), ("a",)))
        self.members: dict[str, SimMember] = {}
        for me in (*voters, *learners):
            of_me = Members(
                me,
                voters,
                learners,
                preferred,
                election=1.0,
                heartbeat=0.25,
                span=24,
                window=96,
                near=100,
                patience=3.0,
            )
            self.members[me] = SimMember(self, of_me, random, bugs)
        self.voters = voters
        self.cut: set[tuple[str, str]] = set()
        self.loss = random.choice((0.0, 0.0, 0.02, 0.1))
        self.doubled = random.choice((0.0, 0.05))
        self.jitter = random.choice((0.002, 0.02, 0.2))
        #: Disks of a majority may be lost, too.
        self.reckless = random.random() < 0.05
        if self.deaths.late:
            self.jitter = 0.2
        self.leaders: dict[int, str] = {}
        #: What is committed, and up to where the leader of each term has committed.
        self.log = bytearray()
        self.commits: dict[int, int] = {}
        #: The highest term in which somebody wanted to be elected.
        self.campaigned = 0

    # -- time and network

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Do something then."""
        self._count += 1
        heappush(self._events, (time, self._count, what))

    def send(self, source: str, to: str, message: Message) -> None:
        """A message goes out, and comes some time, once or not."""
        random, member = self.random, self.members[source]
        asks = isinstance(message, VoteRequest | VoteReply) and message.pre
        self.check(asks or message.term <= self.campaigned, f"{source} names term {message.term}: nobody began it")
        disk, sent = member.disk, self.time
        for _ in range(2 if random.random() < self.doubled else 1):
            if (source, to) not in self.cut and random.random() >= self.loss:
                delay = 0.001 + random.expovariate(1 / self.jitter)
                if self.deaths.given and isinstance(message, TimeoutNow):
                    delay += random.choice((0.0, 1.0, 1.0)) + random.random()
                self.at(self.time + delay, lambda: self._arrive(source, to, message, disk, sent))

    def _arrive(self, source: str, to: str, message: Message, disk: int, sent: float) -> None:
        if (source, to) not in self.cut:
            self.members[to].receive(message, disk, sent)

    def until(self, time: float) -> None:
        """Let it go on."""
        while self._events and self._events[0][0] <= time:
            self.time, _, what = heappop(self._events)
            try:
                what()
            except (LogsParted, AssertionError) as error:
                raise Unsafe(f"seed {self.seed}, {self.time:.3f} s: {error}") from error
        self.time = time

    # -- faults

    def fault(self) -> None:
        """One of them, to some of them."""
        random = self.random
        names = list(self.members)
        member = self.members[random.choice(names)]
        match random.randrange(14):
            case 0 | 1:
                self.end(member, power=random.random() < 0.7)
            case 2:
                for one in self.members.values():
                    self.end(one, power=True)
            case 3:
                self.cut |= {(member.name, to) for to in names}
            case 4:
                self.cut |= {(source, member.name) for source in names}
            case 5:
                some = set(random.sample(names, len(names) // 2))
                self.cut |= {(one, other) for one in names for other in names if (one in some) != (other in some)}
            case 6:
                self.cut.clear()
            case 7:
                member.paused_until = max(member.paused_until, self.time + random.uniform(0.1, 3.0))
            case 8:
                member.slow = random.choice((0.0, 0.01, 0.3))
            case 9:
                member.transfer(random.choice(self.voters))
            case 10:
                member.retain(random.random())
            case 11:
                self.end(member, power=True, wiped=True)
            case 12:
                member.full_until = self.time + random.uniform(0.1, 2.0)
            case 13:
                self.cut |= {(one, to) for one in names for to in names if random.random() < 0.3}

    def end(self, member: SimMember, *, power: bool, back: float | None = None, wiped: bool = False) -> None:
        """A member ends, and comes back some time, or after so many seconds, or without its disk.

        As long as a majority keeps its disks the group goes on; few lives have it lose those, too.
        """
        if member.node is not None:
            member.kill(power=power)
            for other in self.members.values() if self.deaths.given else ():
                other.lose(member.name)
            if wiped:
                away = sum(self.members[one].returning for one in self.voters if one != member.name) + 1
                if len(self.voters) - away > len(self.voters) // 2 or self.reckless:
                    member.wipe()
            self.at(self.time + (self.random.choice((0.02, 0.5, 2.0)) if back is None else back), member.begin)

    def duel(self) -> None:
        """Nobody hears anybody, for as long as everybody needs to want the lead."""
        for one in self.members.values():
            self.isolate(one, 2.0)

    def isolate(self, member: SimMember, seconds: float) -> None:
        """Nobody hears a member for a while; what it has sent is lost."""
        ways = {(member.name, to) for to in self.members}
        self.cut |= ways
        self.at(self.time + seconds, lambda: self.cut.difference_update(ways))

    def said(self, member: SimMember, what: Message | Became | Commit) -> None:
        """A member has sent, or done, what it may end behind."""
        chance, deaths = self.random.random(), self.deaths
        wiped = deaths.wiped > 0 and self.random.random() < deaths.wiped
        match what:
            case VoteReply(granted=True, pre=False) if chance < deaths.voted:
                self.end(member, power=True, back=0.02, wiped=wiped)
            case VoteRequest() | VoteReply() if chance < deaths.at_vote:
                self.end(member, power=True, wiped=wiped)
            case AppendReply() if chance < deaths.followers:
                self.end(member, power=True, back=0.02, wiped=wiped)
            case Became() if chance < deaths.at_crown:
                member.send(1)
                self.end(member, power=False)
            case Commit() if member.leads is not None and chance < deaths.at_commit:
                self.end(member, power=False)
                self.isolate(member, 2.0)
            case Commit() if chance < deaths.blackout:
                for one in self.members.values():
                    self.end(one, power=True)

    def may_die(self, member: SimMember) -> bool:
        """Whether a member ends before it changes its disk."""
        if self.deaths.anywhere and self.random.random() < self.deaths.anywhere:
            self.end(member, power=self.random.random() < 0.7)
            return True
        return False

    def give(self) -> None:
        """Whoever leads gives the lead to somebody."""
        for member in self.members.values():
            member.transfer(self.random.choice(self.voters))
        if self.time < _FAULTS:
            self.at(self.time + self.random.expovariate(2), self.give)

    def produce(self) -> None:
        """Whoever leads gets messages."""
        for member in self.members.values():
            member.send(self.random.randint(1, 4))
        self.at(self.time + self.random.expovariate(8), self.produce)

    # -- promises

    def check(self, holds: bool, what: str) -> None:
        """:raises Unsafe: it does not hold."""
        if not holds:
            raise Unsafe(what)

    def check_leader(self, member: SimMember, term: int) -> None:
        """A member leads."""
        for other in self.members.values() if self.deaths.given else ():
            sure = other is not member and other.surely_leads
            self.check(not sure, f"{member.name} leads in term {term}, and {other.name} thinks that it surely does")
        known = self.leaders.setdefault(term, member.name)
        self.check(known == member.name, f"{known} and {member.name} both lead in term {term}")
        end = max((end for of, end in self.commits.items() if of < term), default=0)
        same = member.log[member.start : end] == self.log[member.start : end]
        self.check(same, f"{member.name} leads in term {term} without what is committed up to {end}")

    def check_commit(self, member: SimMember, end: int) -> None:
        """A member says that everything before ``end`` is committed."""
        log = member.log
        if member.leads is not None:
            self.commits[member.leads] = max(self.commits.get(member.leads, 0), end)
        self.check(end <= len(log), f"{member.name} has committed up to {end}, and its log ends at {len(log)}")
        known = min(end, len(self.log))
        same = log[member.start : known] == self.log[member.start : known]
        self.check(same, f"{member.name} has committed another log than others before {end}")
        if end > len(self.log) >= member.start:
            self.log += log[len(self.log) : end]

    def check_logs(self, member: SimMember) -> None:
        """A log has changed: up to where it and another have the same position, they are the same."""
        for other in self.members.values():
            if other is not member:
                common = other.path.nearest(member.path.last)
                while common is not None and not member.path.contains(common):
                    lower = member.path.nearest(common)
                    common = None if lower is None else other.path.nearest(lower)
                if common is not None:
                    start = max(member.start, other.start)
                    same = member.log[start : common.end] == other.log[start : common.end]
                    self.check(same, f"{member.name} and {other.name} both have {common}, and differ before it")

    def is_quiet(self) -> bool:
        """Whether everybody follows one leader, nearly to its end."""
        leader = next(
            (one for one in self.members.values() if one.node is not None and one.leads == one.node.term), None
        )
        return leader is not None and all(
            one.node is not None
            and not one.returning
            and one.node.term == leader.leads
            and len(leader.log) - one.committed < 100
            for one in self.members.values()
        )

    def check_end(self) -> None:
        """The faults have been over for a while."""
        leaders = [one for one in self.members.values() if one.node is not None and one.leads == one.node.term]
        if sum(not self.members[one].returning for one in self.voters) <= len(self.voters) // 2:
            self.check(not any(one.send(1) for one in leaders), "a majority has lost its disks, and somebody leads")
            return
        newest = max((one for one in leaders), key=lambda one: one.leads or 0, default=None)
        if newest is None:
            raise Unsafe(f"seed {self.seed}: nobody leads, {_QUIET} s after the last fault")
        for one in self.members.values():
            counted = not (one.returning and one.members.votes)
            self.check(counted, f"seed {self.seed}: {one.name} has everything, and is not counted again")
            start = max(one.start, newest.start)
            same = one.committed == len(newest.log) and one.log[start:] == newest.log[start:]
            has = f"{one.name} has {one.path.last}, committed {one.committed}"
            of_leader = f"the leader {newest.name} has {newest.path.last}"
            self.check(same, f"seed {self.seed}: {has}, {_QUIET} s after the last fault, and {of_leader}")


def run(seed: int, bugs: Bugs = Bugs(), deaths: Deaths | None = None) -> Simulation:  # noqa: B008
    """One life of a group.

    :param deaths: instead of those that a seed has.
    :raises Unsafe: a promise was broken.
    """
    sim = Simulation(seed, bugs, deaths)
    random = sim.random
    sim.at(0.5, sim.produce)
    if sim.deaths.given:
        sim.at(0.5, sim.give)
    at = 2.0
    for member in sim.members.values():
        member.slow = 0.3 if sim.deaths.slow else 0.0
    while at < _FAULTS and sim.deaths.faults:
        sim.at(at, sim.duel if sim.deaths.duels and random.random() < 0.5 else sim.fault)
        at += random.expovariate(1 / random.choice((0.1, 0.8)))
    sim.until(_FAULTS)
    sim.cut.clear()
    sim.loss = 0.0
    sim.deaths = Deaths()
    sim.jitter = min(sim.jitter, 0.02)
    for member in sim.members.values():
        member.slow = member.full_until = 0.0
    while sim.time < _FAULTS + _QUIET - 2 and not sim.is_quiet():
        sim.until(sim.time + 0.5)
    sim.produce = lambda: None  # type: ignore[method-assign]
    sim.until(sim.time + 2)
    try:
        sim.check_end()
    except Unsafe:
        if sim.time >= _FAULTS + _QUIET:
            raise
        sim.until(_FAULTS + _QUIET)
        sim.check_end()
    return sim
