"""What a leader shows before its group has committed it, and what of that others are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq.broker.topics.changes import FORBIDDEN, GROUP, TOPIC, Change, applied_of
from rmq.broker.topics.drafts import Drafts
from rmq.broker.topics.versions import Versions
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.runtime.real import RealClock


class Journal:
    """The log of a leader."""

    def __init__(self) -> None:
        self.records = True
        self.written: list[Change] = []
        self.full = False

    def write(self, change: Change, show: Callable[[], None] | None = None) -> None:
        if self.full:
            raise ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, "no room")
        if show is not None:
            show()
        self.written.append(change)

    async def settled(self) -> None:
        """Nobody waits."""


class Scene:
    """A table of a leader, and what listeners hear of it."""

    def __init__(self) -> None:
        clock = RealClock()
        self.shown: dict[str, TopicConfig] = {}
        self.versions = Versions(clock)
        self.heard: list[str] = []
        self.journal = Journal()
        self.drafts = Drafts(TOPIC, self.shown, self.versions, clock, lambda name: self.heard.append(f"made {name}"))
        self.drafts.journal = self.journal
        self.drafts.on_shown.append(lambda name: self.heard.append(f"shown {name}"))


def topic(queues: int, name: str = "a") -> TopicConfig:
    return TopicConfig(name, queues, queues)


@pytest.fixture
def s() -> Scene:
    return Scene()


def test_who_leads_a_group_has_drafts_and_nobody_else(s: Scene) -> None:
    assert s.drafts.wanted
    s.journal.records = False
    assert not s.drafts.wanted, "a follower's own changes are its own"
    s.drafts.journal = None
    assert not s.drafts.wanted


def test_a_new_one_is_shown_at_once_and_others_are_told_when_it_is_committed(s: Scene) -> None:
    s.drafts.put("a", topic(1))
    assert (s.shown["a"], s.drafts.committed_of("a")) == (topic(1), None)
    assert s.heard == ["made a", "shown a"]
    assert s.journal.written == [Change(TOPIC, "a", topic(1).encode(), s.journal.written[0].version)]
    s.drafts.committed("a", topic(1))
    assert s.drafts.committed_of("a") == topic(1)
    assert s.heard == ["made a", "shown a"], "it was there already"
    assert not s.drafts


def test_a_name_changed_twice_is_told_as_the_first_change_until_the_second_is_committed(s: Scene) -> None:
    s.shown["a"] = topic(1)
    s.drafts.put("a", topic(2))
    s.drafts.put("a", topic(3))
    assert s.drafts.committed_of("a") == topic(1)
    s.drafts.committed("a", topic(2))
    assert (s.shown["a"], s.drafts.committed_of("a")) == (topic(3), topic(2))
    assert "a" in s.drafts
    s.drafts.committed("a", topic(3))
    assert (s.shown["a"], s.drafts.committed_of("a")) == (topic(3), topic(3))
    assert s.heard == ["shown a", "shown a"], "it was never new"


def test_a_deletion_hides_at_once_and_others_are_told_of_the_old_one_until_it_is_committed(s: Scene) -> None:
    s.shown["a"] = topic(1)
    s.drafts.delete("a", offsets=True)
    assert s.shown == {}
    assert s.drafts.committed_of("a") == topic(1)
    assert s.journal.written[0][:3] == (TOPIC, "a", None)
    assert s.journal.written[0].offsets
    assert not s.drafts.deleted("a"), "it was hidden before"
    assert s.drafts.committed_of("a") is None


def test_one_made_anew_outlives_the_deletion_of_the_old_one(s: Scene) -> None:
    s.shown["a"] = topic(1)
    s.drafts.delete("a")
    s.drafts.put("a", topic(2))
    assert not s.drafts.deleted("a")
    assert (s.shown["a"], s.drafts.committed_of("a")) == (topic(2), None)


def test_a_follower_shows_what_is_committed(s: Scene) -> None:
    s.drafts.committed("a", topic(1))
    s.drafts.committed("a", topic(2))
    assert s.shown == {"a": topic(2)}
    assert s.heard == ["made a"]
    assert s.drafts.deleted("a")
    assert not s.drafts.deleted("a")
    assert s.shown == {}


def test_what_is_taken_back_leaves_what_was_committed_last(s: Scene) -> None:
    s.shown |= {"changed": topic(1, "changed"), "deleted": topic(1, "deleted"), "other": topic(1, "other")}
    s.drafts.put("new", topic(1, "new"))
    s.drafts.put("changed", topic(2, "changed"))
    s.drafts.put("changed", topic(3, "changed"))
    s.drafts.delete("deleted")
    s.drafts.committed("changed", topic(2, "changed"))
    s.heard.clear()
    s.drafts.take_back()
    assert s.shown == {name: topic(2 if name == "changed" else 1, name) for name in ("changed", "deleted", "other")}
    assert sorted(s.heard) == ["shown changed", "shown deleted", "shown new"], "what was only hidden is not made anew"
    assert not s.drafts
    s.drafts.committed("new", topic(5, "new"))
    assert s.shown["new"] == topic(5, "new"), "it was committed all the same, by the next leader"


def test_what_cannot_be_written_changes_nothing(s: Scene) -> None:
    s.shown["a"] = topic(1)
    s.journal.full = True
    for change in (lambda: s.drafts.put("a", topic(2)), lambda: s.drafts.delete("a")):
        with pytest.raises(ResponseError, match="no room"):
            change()
    assert s.shown == {"a": topic(1)}
    assert (s.heard, bool(s.drafts)) == ([], False)


def test_every_change_has_a_version_of_its_own(s: Scene) -> None:
    for _ in range(4):
        s.versions.advance()
    s.drafts.put("a", topic(1))
    s.drafts.put("b", topic(1, "b"))
    s.drafts.write(Change(FORBIDDEN, "g", b"4", beside="a"))
    assert [change.version.counter for change in s.journal.written if change.version] == [5, 6, 7]
    assert s.journal.written[-1].kind == FORBIDDEN
    s.drafts.take_back()
    s.drafts.delete("a")
    assert s.journal.written[-1].version is not None
    assert s.journal.written[-1].version.counter == 5


def test_a_draft_tells_of_what_it_is(s: Scene) -> None:
    groups: Drafts[TopicConfig] = Drafts(GROUP, {}, s.versions, RealClock())
    groups.journal = s.journal
    groups.put("g", topic(1))
    assert s.journal.written[0].kind == GROUP


def test_a_position_is_a_whole_number() -> None:
    found = [applied_of({"appliedCommitLogOffset": value}) for value in (0, 7, -1, True, "7", None)]
    assert found == [0, 7, None, None, None, None]
    assert applied_of([]) is None
