"""Groups under kills, power cuts, lost and full disks, cuts of the network, late messages: Raft's promises hold.

A few dozen lives here, 100,000 with `make torture`. Each planted bug is found by the life that is named with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from rmq.raft.election import Election
from rmq.raft.leading import Leading
from rmq.raft.log import RaftLog
from rmq.raft.messages import Append, AppendReply, Install, VoteRequest
from rmq.raft.node import RaftNode
from rmq.raft.position import LogsParted, Position
from tests.support.raft.member import Bugs
from tests.support.raft.simulation import Deaths, Unsafe, run

_TORTURE = float(os.environ.get("RMQ_TORTURE", "0"))
#: Lives that one test has.
_PIECE = 20


@pytest.mark.parametrize("first", range(0, max(3 * _PIECE, round(100_000 * _TORTURE)), _PIECE))
def test_lives(first: int) -> None:
    for seed in range(first, first + _PIECE):
        run(seed)


@pytest.mark.parametrize("late", [False, True], ids=["soon", "late"])
@pytest.mark.parametrize("first", range(0, max(_PIECE, round(20_000 * _TORTURE)), _PIECE))
def test_lives_in_which_the_lead_is_given_away(first: int, late: bool) -> None:
    """While somebody surely leads nobody else does, also where an heir hears of it when it is none any more."""
    for seed in range(first, first + _PIECE):
        run(seed, deaths=Deaths(given=True, late=late))


@pytest.mark.parametrize("seed", [52328, 63025])
def test_a_member_that_has_deleted_more_than_its_leader_is_told_the_rest(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", [1_032_396])
def test_a_member_that_has_deleted_all_that_is_committed_says_so(seed: int) -> None:
    run(seed)


# -- planted bugs


def forgotten_cut(patch: pytest.MonkeyPatch) -> None:
    """What a leader takes back stays."""
    patch.setattr(RaftLog, "cut", lambda self, keep: None)


def any_log_will_do(patch: pytest.MonkeyPatch) -> None:
    """Votes for who has less."""
    answer = Election.answer

    def believing(self: Election, request: VoteRequest, stored: Position, now: float) -> None:
        answer(self, request, Position(0, 0), now)

    patch.setattr(Election, "answer", believing)


def a_longer_log_will_do(patch: pytest.MonkeyPatch) -> None:
    """Votes for who has more bytes, of an earlier term."""
    answer = Election.answer

    def counting(self: Election, request: VoteRequest, stored: Position, now: float) -> None:
        stored = Position(0 if request.last.end >= stored.end else request.last.term + 1, stored.end)
        answer(self, request, stored, now)

    patch.setattr(Election, "answer", counting)


def two_votes(patch: pytest.MonkeyPatch) -> None:
    """A vote is forgotten as soon as it is given."""
    answer = Election.answer

    def forgetful(self: Election, request: VoteRequest, stored: Position, now: float) -> None:
        if not request.pre:
            self.vote = None
        answer(self, request, stored, now)

    patch.setattr(Election, "answer", forgetful)


def a_minority_decides(patch: pytest.MonkeyPatch) -> None:
    """What one member has is committed."""

    def most(self: Leading, stored: Position) -> int:
        places = [stored, *(one.match for one in self.progress.values())]
        return max(at.end if at is not None and at.term == self._term else -1 for at in places)

    patch.setattr(Leading, "committed", most)


def what_is_not_the_same_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The leader's commit is believed of a log that may be another one."""
    is_same = RaftLog._is_same

    def believing(self: RaftLog, at: Position, commit: int) -> None:
        is_same(self, at, commit)
        self.committed(min(commit, self.path.end))

    patch.setattr(RaftLog, "_is_same", believing)


def what_an_earlier_term_left_is_counted(patch: pytest.MonkeyPatch) -> None:
    """What a majority has is committed, of whatever term it is (the schedule of Raft's figure 8)."""

    def any_term(self: Leading, stored: Position) -> int:
        places = (stored if one == self._members.me else self.progress[one].match for one in self._members.voters)
        ends = sorted((-1 if at is None else at.end for at in places), reverse=True)
        return ends[self._members.majority - 1]

    patch.setattr(Leading, "committed", any_term)


def nobody_is_heard(patch: pytest.MonkeyPatch) -> None:
    """A leader leads on without a majority."""
    patch.setattr(Leading, "has_majority", lambda self, now: True)


def an_answer_is_as_new_as_it_comes(patch: pytest.MonkeyPatch) -> None:
    """What was answered before a leader stood still is heard after it, and has it lead on (R09)."""
    heard = Leading.heard

    def late(self: Leading, reply: AppendReply, now: float, commit: int) -> Append | Install | None:
        told = heard(self, reply, now, commit)
        self.progress[reply.source].heard = now
        return told

    patch.setattr(Leading, "heard", late)


def nobody_is_asked_first(patch: pytest.MonkeyPatch) -> None:
    """A member that was cut off comes back with a higher term, and deposes the leader."""
    patch.setattr(RaftNode, "_ask_around", lambda self, now: self._campaign(now))


def to_ask_begins_a_term(patch: pytest.MonkeyPatch) -> None:
    """So does one that only asks whether it would be elected."""
    ask_around = RaftNode._ask_around

    def higher(self: RaftNode, now: float) -> None:
        ask_around(self, now)
        self._election.term += 1

    patch.setattr(RaftNode, "_ask_around", higher)


def an_heir_that_was_told_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A leader leads on in its term, in which nobody would protect it from the heir."""

    def leads_on(self: RaftNode, leading: Leading, heir: str, now: float) -> None:
        leading.heir = None

    patch.setattr(RaftNode, "_lead_on", leads_on)


def who_was_lost_is_as_sure(patch: pytest.MonkeyPatch) -> None:
    """A member whose connection has ended counts for as long as its last word would."""
    patch.setattr(Leading, "is_sure", Leading.has_majority)


@pytest.mark.parametrize(("plant", "seed"), [(an_heir_that_was_told_is_forgotten, 77), (who_was_lost_is_as_sure, 156)])
def test_a_leader_that_is_wrongly_sure_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Unsafe, match="thinks that it surely does"):
        run(seed, deaths=Deaths(given=True))


def who_has_nothing_is_heard(patch: pytest.MonkeyPatch) -> None:
    """A leader leads on by the words of members that have lost their disks."""

    def all_of_them(self: Leading, now: float) -> bool:
        members = self._members
        heard = [one == members.me or now - self.progress[one].heard < members.election for one in members.voters]
        return sum(heard) >= members.majority

    patch.setattr(Leading, "has_majority", all_of_them)


def whoever_comes_back_is_counted(patch: pytest.MonkeyPatch) -> None:
    """A member that has lost its disk is, before it has anything."""
    patch.setattr(Leading, "admits", lambda self, one, commit: self.progress[one].returning != 0)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (forgotten_cut, 3), (any_log_will_do, 0), (a_longer_log_will_do, 720), (two_votes, 4), (a_minority_decides, 0),
        (what_is_not_the_same_is_committed, 30), (nobody_is_heard, 1), (an_answer_is_as_new_as_it_comes, 179),
        (nobody_is_asked_first, 0), (to_ask_begins_a_term, 0), (who_has_nothing_is_heard, 179),
        (whoever_comes_back_is_counted, 134),
    ],
)  # fmt: skip
def test_a_bug_of_the_node_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((Unsafe, LogsParted)):
        run(seed)


def test_what_an_earlier_term_left_is_never_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders that are gone with what they have sent, and those that come back with it."""
    deaths = Deaths(at_crown=0.6, at_commit=0.5, late=True, faults=False)
    run(386, deaths=deaths)
    what_an_earlier_term_left_is_counted(monkeypatch)
    with pytest.raises(Unsafe, match="leads in term 4 without what is committed"):
        run(386, deaths=deaths)


@pytest.mark.parametrize(
    ("bugs", "seed"),
    [
        (Bugs(no_cut=True), 3), (Bugs(term_unsynced=True), 1), (Bugs(vote_unsynced=True), 74),
        (Bugs(stored_early=True), 13), (Bugs(vote_forgotten=True), 74), (Bugs(wiped_votes=True), 13),
        (Bugs(returning_forgotten=True), 97),
    ],
    ids=str,
)  # fmt: skip
def test_a_bug_of_the_driver_is_found(bugs: Bugs, seed: int) -> None:
    with pytest.raises((Unsafe, LogsParted)):
        run(seed, bugs)
