"""Elections, replication and what is taken back, step by step: messages go where a test lets them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.protocol.errors import ConfigError
from rmq.raft.effects import Became, Begin, Commit, Cut, Effect, Reset, Role, Save, Send, Write
from rmq.raft.leading import Leading
from rmq.raft.members import Members
from rmq.raft.messages import Admit, Append, Install, Message, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.node import RaftNode
from rmq.raft.position import LogsParted, Position, TermPath


class Group:
    """Members whose disks are fast and whose clocks agree; ``wire`` is what is on its way."""

    def __init__(self, voters: str = "abc", learners: str = "", preferred: str = "") -> None:
        self.time = 0.0
        self.logs = {name: bytearray() for name in (*voters, *learners)}
        self.starts = dict.fromkeys(self.logs, 0)
        self.commits = dict.fromkeys(self.logs, 0)
        self.roles = dict.fromkeys(self.logs, Role.FOLLOWER)
        self.done: dict[str, list[Effect]] = {name: [] for name in self.logs}
        self.wire: list[tuple[str, str, Message]] = []
        self.away: set[str] = set()
        draws = {name: 0.3 * number for number, name in enumerate(self.logs)}
        self.nodes = {
            name: RaftNode(
                Members(name, tuple(voters), tuple(learners), tuple(preferred), heartbeat=0.25, span=4, window=64),
                TermPath([Position(0, 0)], 0, 0), 0, None, 0.0, lambda name=name: draws[name],  # type: ignore[misc]
            )
            for name in self.logs
        }  # fmt: skip

    def do(self, name: str, effects: list[Effect]) -> None:
        """Carry out effects as a broker will: in order, each on the disk before the next."""
        node, log = self.nodes[name], self.logs[name]
        for effect in effects:
            self.done[name].append(effect)
            match effect:
                case Cut(to):
                    del log[to.end - self.starts[name] :]
                case Reset(at):
                    log.clear()
                    self.starts[name] = at.end
                case Write(start, after, data):
                    assert start == self.starts[name] + len(log)
                    log += data
                    self.do(name, node.stored(after))
                case Send(to, message):
                    if isinstance(message, Append):
                        first = self.starts[name]
                        data = bytes(log[message.before.end - first : message.after.end - first])
                        message = replace(message, data=data)
                    self.wire.append((name, to, message))
                case Commit(end):
                    self.commits[name] = end
                case Became(role):
                    self.roles[name] = role
                case Save() | Begin():
                    continue

    def deliver(self) -> None:
        """Everything arrives, and what is answered to it, but with members that are away."""
        while self.wire:
            source, to, message = self.wire.pop(0)
            if not {source, to} & self.away:
                self.do(to, self.nodes[to].step(message, self.time))

    def run(self, seconds: float) -> None:
        """Time passes, and messages arrive at once."""
        until = self.time + seconds
        while (name := min(self.nodes, key=lambda one: self.nodes[one].due)) and self.nodes[name].due <= until:
            self.time = max(self.time, self.nodes[name].due)
            self.do(name, self.nodes[name].tick(self.time))
            self.deliver()
        self.time = until

    def append(self, name: str, data: bytes) -> None:
        """A leader's store appends a record."""
        self.logs[name] += data
        node = self.nodes[name]
        node.appended(self.starts[name] + len(self.logs[name]))
        self.do(name, node.spread())
        self.do(name, node.stored(node.path.last))

    def say(self, name: str, data: bytes) -> None:
        self.append(name, data)
        self.deliver()

    @property
    def leaders(self) -> list[str]:
        return [name for name, role in self.roles.items() if role is Role.LEADER]


def elected(**given: str) -> Group:
    """A group that ``a`` leads in term 1."""
    group = Group(**given)
    group.run(1.1)
    assert group.leaders == ["a"]
    assert {node.term for node in group.nodes.values()} == {1}
    return group


def test_the_first_that_waits_no_longer_leads_and_everybody_follows() -> None:
    group = elected()
    assert {node.leader for node in group.nodes.values()} == {"a"}
    group.run(30)
    assert (group.leaders, group.nodes["c"].term) == (["a"], 1)


def test_what_a_majority_has_stored_is_committed_everywhere() -> None:
    group = elected()
    group.away = {"c"}
    group.say("a", b"0123456789")
    group.run(0.3)
    assert (group.commits, bytes(group.logs["b"])) == ({"a": 10, "b": 10, "c": 0}, b"0123456789")
    group.away = {"b", "c"}
    group.say("a", b"alone")
    assert group.commits["a"] == 10
    group.away = set()
    group.run(0.6)
    assert set(group.commits.values()) == {15}
    assert {bytes(log) for log in group.logs.values()} == {b"0123456789alone"}


def test_a_member_that_was_cut_off_comes_back_without_deposing_the_leader() -> None:
    group = elected()
    group.away = {"c"}
    group.run(20)
    assert group.nodes["c"].term == 1  # it asked whether it would be elected, and raised nothing
    group.away = set()
    group.run(5)
    assert (group.leaders, group.nodes["a"].term) == (["a"], 1)


def test_a_leader_that_hears_no_majority_is_none_any_more() -> None:
    group = elected()
    group.away = {"a"}
    group.run(1.05)
    assert "a" not in group.leaders
    assert not group.nodes["a"].takes_messages
    with pytest.raises(LogsParted, match="does not lead"):
        group.nodes["a"].appended(5)


def test_what_nobody_counted_is_taken_back_and_the_new_leaders_log_is_everybodys() -> None:
    group = elected()
    group.say("a", b"all.")
    group.run(0.3)
    group.away = {"a"}
    group.append("a", b"lost")
    group.run(5)
    (leader,) = (name for name in group.leaders if name != "a")
    group.say(leader, b"kept")
    group.away = set()
    group.run(2)
    assert {bytes(log) for log in group.logs.values()} == {b"all.kept"}
    assert set(group.commits.values()) == {8}
    cuts = [effect for effect in group.done["a"] if isinstance(effect, Cut)]
    assert [cut.to for cut in cuts] == [Position(1, 4)]


def test_only_who_has_everything_that_is_committed_is_elected() -> None:
    group = elected()
    group.away = {"c"}
    group.say("a", b"data")
    group.run(0.3)
    group.away = {"a"}
    group.run(8)
    assert group.leaders[-1] == "b"
    refused = group.nodes["b"].step(VoteRequest(9, "c", Position(0, 0), False, told=True), group.time)
    votes = [one.message.granted for one in refused if isinstance(one, Send) and isinstance(one.message, VoteReply)]
    assert votes == [False]


def test_earlier_terms_are_not_counted() -> None:
    """Figure 8 of the paper: a majority has it, and it may still be replaced."""
    members = Members("a", ("a", "b", "c"))
    leading = Leading(
        members, 3, TermPath([Position(0, 0), Position(1, 0), Position(3, 10)], 0, 10), Position(1, 10), 0.0
    )
    leading.progress["b"].match = leading.progress["c"].match = Position(1, 10)
    assert leading.committed(Position(3, 10)) == -1
    leading.progress["b"].match = Position(3, 10)
    assert leading.committed(Position(3, 10)) == 10


def test_a_vote_is_kept_before_it_is_sent_and_given_once_a_term() -> None:
    node = Group().nodes["c"]
    first = node.step(VoteRequest(1, "a", Position(0, 0), False), 50.0)
    kinds = [type(effect) for effect in first if isinstance(effect, Save | Send)]
    assert kinds[-2:] == [Save, Send]
    assert next(one for one in reversed(first) if isinstance(one, Save)) == Save(1, "a")
    second = node.step(VoteRequest(1, "b", Position(0, 0), False), 50.0)
    assert second == [Send("b", VoteReply(1, "c", False, False))]


def test_a_term_is_noted_before_its_first_byte_and_a_log_is_cut_before_that() -> None:
    group = Group()
    node = group.nodes["c"]
    group.do("c", node.step(Append(1, "a", Position(0, 0), Position(1, 0), 0), 0.0))
    group.do("c", node.step(Append(1, "a", Position(1, 0), Position(1, 4), 0, b"lost"), 0.0))
    effects = node.step(Append(2, "b", Position(1, 0), Position(2, 3), 0, b"new"), 1.0)
    assert [type(one) for one in effects if isinstance(one, Save | Cut | Begin | Write)] == [Save, Cut, Begin, Write]


def test_nothing_committed_is_ever_taken_back() -> None:
    group = elected()
    group.say("a", b"data")
    group.run(0.3)
    with pytest.raises(LogsParted, match="takes back what is committed"):
        group.nodes["b"].step(Append(7, "c", Position(0, 0), Position(7, 4), 0, b"evil"), group.time)


def test_the_lead_is_given_away_with_everything() -> None:
    group = elected()
    group.append("a", b"data")
    group.do("a", group.nodes["a"].transfer("b", group.time))
    assert not group.nodes["a"].takes_messages
    group.deliver()
    assert group.leaders == ["b"]
    group.run(1)
    assert set(group.commits.values()) == {4}


def test_a_preferred_leader_gets_the_lead_once_it_is_near() -> None:
    group = Group(preferred="c")
    group.run(6)
    assert group.leaders == ["c"]


def test_of_several_preferred_leaders_the_one_leads_that_has_most() -> None:
    group = Group(preferred="bc")
    group.away = {"b"}
    group.run(6)
    assert group.leaders == ["c"]
    group.away = set()
    group.run(12)
    assert group.leaders == ["c"]
    group.away = {"c"}
    group.run(6)
    assert group.leaders == ["b"]


def test_of_preferred_leaders_that_are_there_the_nearest_gets_the_lead() -> None:
    group = elected(preferred="bc")
    group.say("a", b"data")
    leading = group.nodes["a"]._leading
    assert leading is not None
    assert leading.preferred(group.time + 60) is None
    for one, end in (("b", 2), ("c", 3)):
        leading.progress[one].match = Position(1, end)
        leading.progress[one].heard = group.time + 60
    assert leading.preferred(group.time + 60) == "c"


def test_a_learner_follows_and_is_never_counted_or_asked() -> None:
    group = elected(learners="z")
    group.away = {"b", "c"}
    group.say("a", b"data")
    assert (group.commits["a"], bytes(group.logs["z"])) == (0, b"data")
    assert not any(isinstance(one, Send) and isinstance(one.message, VoteRequest) for one in group.done["z"])
    group.away = {"a"}
    group.run(10)
    assert group.roles["z"] is Role.FOLLOWER


def test_a_member_that_lacks_what_was_deleted_begins_anew() -> None:
    group = elected()
    group.away = {"c"}
    group.say("a", b"0123456789")
    group.run(0.3)
    group.nodes["a"].deleted(8)
    del group.logs["a"][:8]
    group.starts["a"] = 8
    group.away = set()
    group.run(1)
    assert any(isinstance(one, Reset) for one in group.done["c"])
    assert (group.starts["c"], bytes(group.logs["c"]), group.commits["c"]) == (8, b"89", 10)


def returning(group: Group, name: str, number: int) -> None:
    """A member ends, and comes back with another disk, which is empty."""
    members = group.nodes[name].members
    group.logs[name].clear()
    group.starts[name] = group.commits[name] = 0
    path = TermPath([Position(0, 0)], 0, 0)
    group.nodes[name] = RaftNode(members, path, 0, None, group.time, lambda: 0.5, number)


def test_a_member_without_its_disk_is_counted_when_it_has_everything_and_everybody_else_has_been_heard() -> None:
    group = elected()
    group.say("a", b"0123456789")
    group.run(0.3)
    returning(group, "b", 7)
    group.away = {"c"}
    group.run(0.6)
    assert bytes(group.logs["b"]) == b"0123456789"
    assert group.nodes["b"]._election.returning == 7  # c may lead already, by a vote of the disk that is lost
    group.say("a", b"more")
    assert group.commits["a"] == 10
    group.away = set()
    group.run(0.6)
    election = group.nodes["b"]._election
    assert (election.returning, election.vote, group.commits["a"]) == (0, "a", 14)
    group.away = {"a"}
    group.run(5)
    assert group.leaders == ["b"]


def test_a_member_without_its_disk_neither_votes_nor_leads_nor_is_a_majority() -> None:
    group = elected()
    group.run(0.3)
    returning(group, "b", 7)
    group.done["b"].clear()
    group.away = {"c"}
    group.run(3)
    assert group.leaders == []
    group.do("b", group.nodes["b"].step(TimeoutNow(group.nodes["b"].term, "a"), group.time))
    group.do("b", group.nodes["b"].step(VoteRequest(9, "a", Position(8, 99), False), group.time))
    said = [one.message for one in group.done["b"] if isinstance(one, Send)]
    assert not any(isinstance(one, VoteRequest) or (isinstance(one, VoteReply) and one.granted) for one in said)


def test_only_the_disk_that_is_meant_is_counted_again() -> None:
    group = elected()
    returning(group, "b", 8)
    group.run(0.26)
    node = group.nodes["b"]
    assert node.leader == "a"
    for message in (Admit(1, "a", 7), Admit(1, "c", 8), Admit(0, "a", 8)):
        assert not any(isinstance(one, Save) for one in node.step(message, group.time))
    assert node.step(Admit(1, "a", 8), group.time)[0] == Save(1, "a", 0)


def test_a_member_that_has_lost_its_last_writes_is_told_them_again() -> None:
    """It was without power, and its flushes are not waited for; the leader knows that it had them."""
    group = elected()
    group.say("a", b"0123")
    group.say("a", b"4567")
    group.run(0.3)
    node = group.nodes["b"]
    del group.logs["b"][4:]
    path = TermPath(node.path.starts, 0, 4)
    group.nodes["b"] = RaftNode(node.members, path, node.term, node._election.vote, group.time, lambda: 0.5)
    group.wire.clear()
    before = len(group.done["a"])
    group.run(0.6)
    assert bytes(group.logs["b"]) == b"01234567"
    assert len(group.done["a"]) - before < 20  # it is asked once a heartbeat, and not as fast as the line is


def test_answers_that_lay_about_make_no_majority() -> None:
    """R09: a leader that stood still reads what was answered before that, and leads no more."""
    group = elected()
    group.run(0.2)
    lay = [one for one in group.done["b"] if isinstance(one, Send)][-1].message
    group.time += 3
    group.do("a", group.nodes["a"].step(lay, group.time))
    group.do("a", group.nodes["a"].tick(group.time))
    assert group.leaders == []


def test_strangers_are_ignored() -> None:
    node = elected().nodes["b"]
    for message in (
        Append(9, "x", Position(0, 0), Position(9, 4), 4, b"evil"),
        Install(9, "x", Position(9, 4), 4), TimeoutNow(9, "x"),
        VoteRequest(9, "x", Position(9, 9), False),
    ):  # fmt: skip
        assert node.step(message, 2.0) == []
    assert node.term == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"me": "x"}, "x is not once among the members"),
        ({"voters": ("a", "a", "b")}, "a is not once among"),
        ({"preferred": ("q",)}, "the preferred leader q is none of"),
        ({"heartbeat": 2.0}, "a leader's heartbeat is shorter"),
    ],
)
def test_what_is_no_group_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Members(**{"me": "a", "voters": ("a", "b", "c"), **given})  # type: ignore[arg-type]
