"""What a leader shows before its group has committed it, and what of that others are told."""

from __future__ import annotations

from rmq.broker.topics.changes import Drafts, applied_of
from rmq.protocol.bodies.topic import DataVersion


def test_a_name_changed_twice_is_told_as_the_first_change_until_the_second_is_committed() -> None:
    drafts: Drafts[int] = Drafts()
    drafts.add("a", 1)
    drafts.add("a", 2)
    assert drafts.committed_of("a", 3) == 1
    assert not drafts.committed("a", 2)
    assert drafts.committed_of("a", 3) == 2
    assert drafts.committed("a", 3)
    assert drafts.committed_of("a", 3) == 3
    assert not drafts


def test_what_is_taken_back_is_what_was_committed_last() -> None:
    drafts: Drafts[int] = Drafts()
    drafts.add("new", None)
    drafts.add("changed", 1)
    drafts.add("changed", 2)
    drafts.committed("changed", 2)
    assert dict(drafts.take_back()) == {"new": None, "changed": 2}
    assert "new" not in drafts
    assert drafts.committed("new", 5), "it was committed all the same, by the next leader"


def test_every_change_has_a_version_of_its_own() -> None:
    drafts: Drafts[int] = Drafts()
    committed = DataVersion(counter=4, timestamp=1)
    versions = []
    for name in "ab":
        versions.append(drafts.version_after(committed, 9).counter)
        drafts.add(name, None)
    assert versions == [5, 6]
    list(drafts.take_back())
    assert drafts.version_after(committed, 9).counter == 5


def test_a_position_is_a_whole_number() -> None:
    found = [applied_of({"appliedCommitLogOffset": value}) for value in (0, 7, -1, True, "7", None)]
    assert found == [0, 7, None, None, None, None]
    assert applied_of([]) is None
