"""Groups under kills, power cuts, cuts of the network, lost and late messages: Raft's promises hold at each step.

A few dozen lives here, 100,000 with `make torture`. Each planted bug is found by the life that is named with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from rmq.raft.leading import Leading
from rmq.raft.messages import VoteRequest
from rmq.raft.node import RaftNode
from rmq.raft.position import LogsParted, Position
from tests.support.raft.member import Bugs
from tests.support.raft.simulation import Unsafe, run

_TORTURE = float(os.environ.get("RMQ_TORTURE", "0"))
#: Lives that one test has.
_PIECE = 20


@pytest.mark.parametrize("first", range(0, max(3 * _PIECE, round(100_000 * _TORTURE)), _PIECE))
def test_lives(first: int) -> None:
    for seed in range(first, first + _PIECE):
        run(seed)


# -- planted bugs


def forgotten_cut(patch: pytest.MonkeyPatch) -> None:
    """What a leader takes back stays."""
    patch.setattr(RaftNode, "_cut", lambda self, keep: None)


def any_log_will_do(patch: pytest.MonkeyPatch) -> None:
    """Votes for who has less."""
    asked = RaftNode._asked

    def believing(self: RaftNode, request: VoteRequest, now: float) -> None:
        stored, self._stored = self._stored, Position(0, 0)
        asked(self, request, now)
        self._stored = stored

    patch.setattr(RaftNode, "_asked", believing)


def two_votes(patch: pytest.MonkeyPatch) -> None:
    """A vote is forgotten as soon as it is given."""
    asked = RaftNode._asked

    def forgetful(self: RaftNode, request: VoteRequest, now: float) -> None:
        if not request.pre:
            self.vote = None
        asked(self, request, now)

    patch.setattr(RaftNode, "_asked", forgetful)


def a_minority_decides(patch: pytest.MonkeyPatch) -> None:
    """What one member has is committed."""

    def most(self: Leading, stored: Position) -> int:
        places = [stored, *(one.match for one in self.progress.values())]
        return max(at.end if at is not None and at.term == self._term else -1 for at in places)

    patch.setattr(Leading, "committed", most)


def what_is_not_the_same_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The leader's commit is believed of a log that may be another one."""
    is_same = RaftNode._is_same

    def believing(self: RaftNode, at: Position, commit: int) -> None:
        is_same(self, at, commit)
        self._committed(min(commit, self.path.end))

    patch.setattr(RaftNode, "_is_same", believing)


def what_an_earlier_term_left_is_counted(patch: pytest.MonkeyPatch) -> None:
    """What a majority has is committed, of whatever term it is (the schedule of Raft's figure 8)."""

    def any_term(self: Leading, stored: Position) -> int:
        places = (stored if one == self._members.me else self.progress[one].match for one in self._members.voters)
        ends = sorted((-1 if at is None else at.end for at in places), reverse=True)
        return ends[self._members.majority - 1]

    patch.setattr(Leading, "committed", any_term)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (forgotten_cut, 0), (any_log_will_do, 1), (two_votes, 8), (a_minority_decides, 3),
        (what_is_not_the_same_is_committed, 1), (what_an_earlier_term_left_is_counted, 3768),
    ],
)  # fmt: skip
def test_a_bug_of_the_node_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((Unsafe, LogsParted)):
        run(seed)


@pytest.mark.parametrize(
    ("bugs", "seed"),
    [
        (Bugs(no_cut=True), 0), (Bugs(term_unsynced=True), 0), (Bugs(vote_unsynced=True), 362),
        (Bugs(stored_early=True), 19),
    ],
    ids=str,
)  # fmt: skip
def test_a_bug_of_the_driver_is_found(bugs: Bugs, seed: int) -> None:
    with pytest.raises((Unsafe, LogsParted)):
        run(seed, bugs)
