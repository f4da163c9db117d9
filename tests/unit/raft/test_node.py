"""What a follower takes of its leader, and what it acknowledges when."""

from __future__ import annotations

from rmq.raft.effects import Became, Begin, Commit, Cut, Role, Save, Send, Write
from rmq.raft.leading import Leading
from rmq.raft.members import Members
from rmq.raft.messages import Append, AppendReply, Install
from rmq.raft.node import RaftNode
from rmq.raft.position import Position, TermPath


def node(me: str = "a", *, starts: tuple[tuple[int, int], ...] = ((0, 0),), end: int = 0, term: int = 0) -> RaftNode:
    path = TermPath([Position(*start) for start in starts], 0, end)
    return RaftNode(Members(me, ("a", "b", "c")), path, term, None, 0.0, lambda: 0.0)


def test_a_term_is_committed_by_its_own_positions_alone() -> None:
    """What a majority has of an earlier term may still be replaced (Raft, figure 8)."""
    path = TermPath([Position(0, 0), Position(2, 10), Position(4, 20)], 0, 30)
    leading = Leading(Members("a", ("a", "b", "c")), 4, path, Position(2, 20), 0.0)
    leading.progress["b"].match = Position(2, 20)
    assert leading.committed(Position(4, 30)) == -1
    leading.progress["b"].match = Position(4, 20)
    assert leading.committed(Position(4, 30)) == 20


def test_a_record_that_is_longer_than_the_window_goes_out_whole() -> None:
    """Who follows acknowledges whole records alone, and would wait for the rest for ever."""
    path = TermPath([Position(1, 0)], 0, 100)
    sent = []
    for whole in (int, lambda at: at + 30):
        leading = Leading(Members("a", ("a", "b", "c"), span=4, window=8), 1, path, Position(1, 10), 0.0, whole)
        leading.heard(AppendReply(1, "b", match=Position(1, 10)), 0.0, 0)
        sent.append([span.after.end for span in leading.spans("b", 0) if isinstance(span, Append)])
    assert sent == [[14, 18], [14, 18, 22, 26, 30, 34, 38, 42]]


def test_what_is_written_is_acknowledged_when_it_is_stored() -> None:
    one = node("b")
    span = Append(1, "a", Position(0, 0), Position(1, 0), 0)
    assert one.step(span, 0.0) == [
        Save(1, None), Became(Role.FOLLOWER, 1, "a"), Begin(Position(1, 0)),
        Send("a", AppendReply(1, "b", match=Position(1, 0))),
    ]  # fmt: skip
    effects = one.step(Append(1, "a", Position(1, 0), Position(1, 6), 0, b"abcdef"), 0.0)
    assert effects == [Write(0, Position(1, 6), b"abcdef"), Send("a", AppendReply(1, "b", match=Position(1, 0)))]
    assert one.stored(Position(1, 6)) == [Send("a", AppendReply(1, "b", match=Position(1, 6)))]


def test_another_leaders_log_replaces_what_was_not_committed_and_a_write_of_before_counts_no_more() -> None:
    one = node("b", starts=((0, 0), (1, 4)), end=5, term=1)
    one.step(Append(1, "a", Position(1, 5), Position(1, 9), 0, b"abcd"), 0.0)
    effects = one.step(Append(2, "c", Position(1, 6), Position(2, 6), 5), 0.0)
    assert effects[2:4] == [Cut(Position(1, 6)), Begin(Position(2, 6))]
    assert Commit(5) in effects
    assert one.stored(Position(1, 9)) == []
    assert one.stored(Position(1, 6)) == [Send("c", AppendReply(2, "b", match=Position(2, 6)))]


def test_a_message_that_was_overtaken_takes_nothing_away() -> None:
    one = node("b", starts=((0, 0), (1, 4)), end=9, term=1)
    effects = one.step(Append(1, "a", Position(1, 4), Position(1, 6), 0), 0.0)
    assert not [effect for effect in effects if isinstance(effect, Cut | Write)]
    assert one.path.last == Position(1, 9)


def test_one_that_was_sent_the_newest_alone_is_not_led_back_to_what_was_deleted() -> None:
    """Its log begins where everything is committed; what a leader with an older beginning offers comes late."""
    one = node("b", end=0)
    one.step(Install(3, "a", Position(2, 40), 40), 0.0)
    effects = one.step(Install(3, "a", Position(1, 20), 40), 0.0)
    assert effects == [
        Send("a", AppendReply(3, "b", rejected=Position(1, 20), nearest=Position(2, 40))),
    ]


def test_what_is_deleted_before_it_was_stored_here_keeps_nobody_from_the_next_term() -> None:
    one = node("b", starts=((0, 0), (1, 4)), end=9, term=1)
    one.step(Append(1, "a", Position(1, 9), Position(1, 12), 0, bytes(3)), 0.0)
    one.step(Append(2, "a", Position(1, 12), Position(2, 12), 0), 0.0)
    one.step(Append(2, "a", Position(2, 12), Position(2, 20), 20, bytes(8)), 0.0)
    one.deleted(15)
    effects = one.step(Append(3, "c", Position(2, 20), Position(3, 20), 20), 0.0)
    assert Begin(Position(3, 20)) in effects
    assert one.stored(Position(2, 20)) == [Send("c", AppendReply(3, "b", match=Position(3, 20)))]
