"""Who was met with which disk: a group's first start, and members that come back without theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.broker.raft.met import Meetings, Met, Replaced
from rmq.broker.raft.wire import Hello
from rmq.protocol.errors import ReplicationError

NAMES = ("n0", "n1", "n2")


class Group:
    """Members whose words arrive when the test has them say them."""

    def __init__(self) -> None:
        self.members: dict[str, Meetings] = {}
        for name in NAMES:
            self.wipe(name, f"disk of {name}")

    def wipe(self, name: str, disk: str) -> None:
        self.members[name] = Meetings(tuple(one for one in NAMES if one != name), Met(disk))

    def restart(self, name: str) -> None:
        one = self.members[name]
        self.members[name] = Meetings(tuple(other for other in NAMES if other != name), one.met)

    def say(self, source: str, to: str) -> bool:
        """One says who it is to the other, which keeps what it hears; whether that was something new."""
        hello = self.members[source].introduce(Hello("group", source, to, "", "", 1, "", "group"))
        met = self.members[to].hear(Hello.decode(hello.encode()[12:]))
        if met is not None:
            self.members[to].met = met
        return met is not None

    def everybody(self, *names: str) -> None:
        for _ in range(3):
            for source in names or NAMES:
                for to in names or NAMES:
                    if source != to:
                        try:
                            self.say(source, to)
                        except ReplicationError:
                            continue

    def state(self, name: str) -> tuple[bool, bool]:
        met = self.members[name].met
        return met.begun, met.returned


def begun() -> Group:
    group = Group()
    group.everybody()
    return group


def test_a_group_begins_when_everybody_knows_that_everybody_knows_him() -> None:
    group = Group()
    group.say("n1", "n0")
    group.say("n2", "n0")
    assert group.state("n0") == (False, False)  # who has spoken may not have heard
    assert group.members["n0"].lacking == ["n1", "n2"]
    assert group.members["n1"].lacking == ["n0", "n2"]
    group.everybody("n0", "n1")
    assert group.members["n0"].lacking == ["n2"]
    group.everybody()
    assert [group.state(name) for name in NAMES] == [(True, False)] * 3
    assert group.members["n0"].lacking == []
    assert group.members["n0"].is_known("n1", group.members["n1"].introduce(
        Hello("group", "n1", "n0", "", "", 1, "", "")).disk)  # fmt: skip


def test_who_is_known_with_another_disk_returns_and_is_known_with_that_one() -> None:
    group = begun()
    group.wipe("n1", "new")
    with pytest.raises(ReplicationError, match="comes with another disk"):
        group.say("n1", "n0")
    assert group.say("n0", "n1")
    assert group.state("n1") == (True, True)
    assert group.say("n1", "n0")
    assert not group.say("n1", "n0")
    # n2 was not there: it learns of the disk later, when that is an ordinary member's.
    group.restart("n1")
    assert group.say("n1", "n2")
    group.everybody()
    assert not any(group.say(source, to) for source in NAMES for to in NAMES if source != to)


def test_two_that_are_empty_begin_nothing_beside_one_that_is_not() -> None:
    group = begun()
    group.wipe("n1", "new 1")
    group.wipe("n2", "new 2")
    group.everybody("n1", "n2")
    assert [group.state(name) for name in ("n1", "n2")] == [(False, False)] * 2
    group.say("n0", "n1")
    group.everybody("n1", "n2")
    assert group.state("n2") == (False, False)
    group.everybody()
    assert [group.state(name) for name in NAMES] == [(True, False), (True, True), (True, True)]


def test_all_that_are_empty_are_a_new_group() -> None:
    group = begun()
    for name in NAMES:
        group.wipe(name, f"new {name}")
    group.everybody()
    assert [group.state(name) for name in NAMES] == [(True, False)] * 3


def test_a_member_that_is_wiped_before_its_group_has_begun_is_a_new_one() -> None:
    group = Group()
    group.everybody("n0", "n1")
    group.wipe("n1", "new")
    group.everybody()
    assert [group.state(name) for name in NAMES] == [(True, False)] * 3


def test_an_old_disk_is_taken_by_nobody_and_takes_part_in_nothing() -> None:
    group = begun()
    old = group.members["n1"].met
    group.wipe("n1", "new")
    group.everybody()
    assert group.state("n1") == (True, True)
    group.members["n1"] = Meetings(("n0", "n2"), old)
    with pytest.raises(ReplicationError, match="a disk that another one has taken the place of"):
        group.say("n1", "n0")
    with pytest.raises(Replaced, match="n0 knows this member with a newer disk"):
        group.say("n0", "n1")


def test_who_hears_a_members_word_cannot_pass_for_it_at_a_third() -> None:
    group = begun()
    heard = group.members["n1"].introduce(Hello("group", "n1", "n2", "", "", 1, "", "group"))
    assert group.members["n2"].is_known("n1", heard.disk)
    assert not group.members["n0"].is_known("n1", heard.disk)
    with pytest.raises(ReplicationError, match="comes with another disk"):
        group.members["n0"].hear(replace(heard, to="n0"))


def test_nobody_believes_a_stranger_that_he_was_replaced() -> None:
    group = begun()
    hello = group.members["n1"].introduce(Hello("group", "n1", "n0", "", "", 1, "", "group"))
    with pytest.raises(ReplicationError, match="comes with another disk"):
        group.members["n0"].hear(replace(hello, disk="strange", known="strange"))
    with pytest.raises(ReplicationError) as told:
        group.members["n0"].hear(replace(hello, disk="strange", known="strange", returned=False))
    assert not isinstance(told.value, Replaced)


def test_a_member_that_returns_again_is_known_with_its_newest_disk() -> None:
    group = begun()
    for disk in ("second", "third"):
        group.wipe("n1", disk)
        group.everybody()
        assert group.state("n1") == (True, True)
    assert len(group.members["n0"].met.retired["n1"]) == 2
    assert not group.say("n1", "n0")
