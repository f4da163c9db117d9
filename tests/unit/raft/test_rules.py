"""Each rule of elections and of the log by itself: whoever turns one round sees here which."""

from __future__ import annotations

import pytest

from rmq.protocol.errors import ReplicationError
from rmq.raft.effects import Commit, Effect, LedOn, Role, Save, Send, Write
from rmq.raft.members import Members
from rmq.raft.messages import Admit, Append, AppendReply, Install, Message, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.node import RaftNode
from rmq.raft.position import LogsParted, Position, TermPath

#: Offsets 0 to 4 are of term 1, 4 to 9 of term 2.
STARTS, END = ((1, 0), (2, 4)), 9


def member(me: str = "b", *, term: int = 2, learners: str = "", preferred: str = "") -> RaftNode:
    path = TermPath([Position(*start) for start in STARTS], 0, END)
    members = Members(me, ("a", "b", "c"), tuple(learners), tuple(preferred), heartbeat=0.25, span=4, window=10, near=2)
    return RaftNode(members, path, term, None, 0.0, lambda: 0.0)


def leader(*, learners: str = "", preferred: str = "") -> RaftNode:
    """It leads in term 3, since 1 s, and nobody has answered."""
    node = member("a", learners=learners, preferred=preferred)
    node.tick(node.due)
    node.step(VoteReply(3, "b", granted=True, pre=True), 1.0)
    node.step(VoteReply(3, "b", granted=True, pre=False), 1.0)
    assert node.role is Role.LEADER
    return node


def said(effects: list[Effect]) -> list[Message]:
    return [one.message for one in effects if isinstance(one, Send)]


def match_of(effects: list[Effect]) -> Position | None:
    (reply,) = [one for one in said(effects) if isinstance(one, AppendReply)]
    return reply.match


# -- votes


@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize(
    ("last", "granted"),
    [
        (Position(2, 9), True), (Position(3, 0), True), (Position(2, 10), True),
        (Position(2, 8), False), (Position(1, 500), False),
    ],
    ids=str,
)  # fmt: skip
def test_a_vote_is_for_who_has_the_later_term_or_the_longer_log_of_it(last: Position, granted: bool, pre: bool) -> None:
    (reply,) = said(member().step(VoteRequest(5, "c", last, pre), 5.0))
    assert isinstance(reply, VoteReply)
    assert reply.granted is granted


def test_nobody_would_be_elected_in_a_term_that_has_begun() -> None:
    assert said(member().step(VoteRequest(2, "c", Position(2, 9), True), 5.0)) == [VoteReply(2, "b", False, True)]


def test_who_has_voted_waits_for_what_comes_of_it() -> None:
    node = member()
    node.step(VoteRequest(2, "c", Position(2, 9), False), 0.9)
    assert node.due == pytest.approx(1.9)


def test_only_who_elects_is_counted() -> None:
    node = member("a", learners="z")
    node.tick(node.due)
    node.step(VoteReply(3, "z", granted=True, pre=True), 1.0)
    assert node.role is Role.PRE_CANDIDATE
    node.step(VoteReply(3, "b", granted=True, pre=True), 1.0)
    node.step(VoteReply(3, "z", granted=True, pre=False), 1.0)
    assert node.role is Role.CANDIDATE


def test_who_wants_to_be_elected_names_what_it_has_stored() -> None:
    """What it has written is cut away if it wins, and others may have stored it."""
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 12), 0, bytes(3)), 0.5)
    asked = said(node.tick(node.due)) + said(node.step(VoteReply(3, "c", granted=True, pre=True), 2.0))
    assert [(one.pre, one.last) for one in asked if isinstance(one, VoteRequest)] == [
        (True, Position(2, 9)), (True, Position(2, 9)), (False, Position(2, 9)), (False, Position(2, 9)),
    ]  # fmt: skip


def test_nobody_deposes_a_leader_that_is_heard() -> None:
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 0), 10.0)
    for pre in (True, False):
        assert node.step(VoteRequest(9, "c", Position(8, 99), pre), 10.9) == []
    assert node.term == 2
    (reply,) = said(node.step(VoteRequest(9, "c", Position(8, 99), False), 11.1))
    assert reply == VoteReply(9, "b", granted=True, pre=False)


def test_a_leader_whose_connection_has_ended_is_protected_no_more() -> None:
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 0), 10.0)
    due = node.due
    node.lost("c", 10.1)
    assert node.due == due  # that one did not lead
    node.lost("a", 10.1)
    assert node.due == 10.1
    (reply,) = said(node.step(VoteRequest(3, "c", Position(2, 9), True), 10.2))
    assert reply == VoteReply(3, "b", granted=True, pre=True)


@pytest.mark.parametrize(
    ("late", "answer"),
    [
        (VoteRequest(1, "c", Position(2, 99), False), VoteReply(2, "b", False, False)),
        (Append(1, "c", Position(1, 4), Position(1, 5), 0, b"x"), AppendReply(2, "b")),
        (Install(1, "c", Position(1, 4), 0), AppendReply(2, "b")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_who_comes_with_an_earlier_term_hears_of_the_later_one(late: Message, answer: Message) -> None:
    assert member().step(late, 5.0) == [Send("c", answer)]
    deposed = leader()
    deposed.step(AppendReply(7, "b"), 1.1)
    assert (deposed.role, deposed.term, deposed.takes_messages) == (Role.FOLLOWER, 7, False)


def test_a_term_that_no_election_reaches_is_not_believed() -> None:
    """Nobody could be elected behind it any more."""
    node = member()
    for word in (
        VoteRequest(1 << 61, "c", Position(2, 9), False), VoteRequest(1 << 61, "c", Position(2, 9), True),
        Append(1 << 61, "c", Position(2, 9), Position(2, 9), 0), AppendReply(1 << 61, "c"),
        VoteReply(1 << 61, "c", False, True),
    ):  # fmt: skip
        with pytest.raises(ReplicationError, match="is so far ahead"):
            node.step(word, 5.0)
    assert (node.term, node.tick(0.0)) == (2, [])


def test_a_log_of_a_later_term_than_was_seen_is_no_members() -> None:
    with pytest.raises(LogsParted, match="the log has term 2"):
        member(term=1)


# -- what is the leader's


def test_what_an_earlier_leaders_log_had_in_common_is_not_the_next_ones() -> None:
    """The next one has less of term 2 than this member, and is asking where their logs are the same."""
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 4), 1.0)
    effects = node.step(Append(4, "c", Position(2, 6), Position(2, 6), 20), 2.0)
    assert Commit(6) in effects
    assert match_of(effects) == Position(2, 6)


def test_nor_after_a_campaign_that_another_has_won() -> None:
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 4), 1.0)
    node.tick(node.due)
    node.step(VoteReply(3, "c", granted=True, pre=True), 2.0)
    assert (node.role, node.term) == (Role.CANDIDATE, 3)
    effects = node.step(Append(3, "c", Position(2, 6), Position(2, 6), 20), 2.5)
    assert Commit(6) in effects
    assert match_of(effects) == Position(2, 6)


def test_what_was_overtaken_takes_back_nothing_that_was_said() -> None:
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 0, asked=7), 1.0)
    (reply,) = said(node.step(Append(2, "a", Position(2, 5), Position(2, 5), 0, asked=5), 1.0))
    assert reply == AppendReply(2, "b", match=Position(2, 9), asked=7)


def test_another_leaders_clock_begins_anew() -> None:
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 0, asked=9_000_000), 1.0)
    (reply,) = said(node.step(Append(3, "c", Position(2, 9), Position(2, 9), 0, asked=5), 2.0))
    assert reply == AppendReply(3, "b", match=Position(2, 9), asked=5)


def test_what_is_not_committed_is_not_deleted() -> None:
    node = member()
    node.step(Append(2, "a", Position(2, 9), Position(2, 9), 5), 1.0)
    with pytest.raises(LogsParted, match="committed up to 5, and was deleted up to 6"):
        node.deleted(6)
    node.deleted(5)


# -- what a leader believes


def test_an_answer_tells_of_no_later_time_than_now() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1 << 60), 1.5)
    assert node.followers(1.5)["b"].silent == 0.0
    assert node.followers(2.5)["b"].silent == 1.0


def test_a_place_that_a_leader_does_not_have_is_nobodys_either() -> None:
    node = leader()
    for match in (Position(3, 10), Position(2, 10), Position(1, 5)):
        assert not any(isinstance(one, Commit) for one in node.step(AppendReply(3, "b", match=match, asked=1), 1.0))
        assert node.followers(1.0)["b"].match is None


def test_an_answer_that_was_overtaken_takes_back_nothing() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=900_000), 1.0)
    for late in (
        AppendReply(3, "b", match=Position(2, 8), asked=800_000),
        AppendReply(3, "b", rejected=Position(2, 9), nearest=Position(1, 4), asked=900_000),
    ):
        assert not [one for one in said(node.step(late, 1.0)) if isinstance(one, Append)]
        assert node.followers(1.0)["b"].match == Position(3, 9)
    # It was asked later, and has less: it began anew.
    node.step(AppendReply(3, "b", rejected=Position(3, 9), nearest=Position(1, 4), asked=950_000), 1.0)
    assert node.followers(1.0)["b"].match is None


def test_what_is_not_asked_for_any_more_is_not_answered_twice() -> None:
    node = leader()
    rejected = AppendReply(3, "b", rejected=Position(2, 9), nearest=Position(1, 4), asked=1)
    (told,) = said(node.step(rejected, 1.0))
    assert isinstance(told, Append)
    assert told.before == told.after == Position(1, 4)
    assert node.step(rejected, 1.0) == []


def test_nothing_is_sent_again_that_a_member_has() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1), 1.0)
    node.appended(13)
    node.spread()
    (told,) = said(node.step(AppendReply(3, "b", rejected=Position(3, 13), nearest=Position(1, 4), asked=2), 1.0))
    assert isinstance(told, Append)
    assert told.before == Position(3, 9)


def test_what_is_not_acknowledged_is_bounded() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1), 1.0)
    node.appended(100)
    sent = [one.after.end for one in said(node.spread()) if isinstance(one, Append)]
    assert sent == [13, 17, 21]  # a window of 10 bytes is full then
    (more,) = said(node.step(AppendReply(3, "b", match=Position(3, 13), asked=2), 1.0))
    assert isinstance(more, Append)
    assert more.after.end == 25


def test_a_member_that_is_on_the_way_through_what_was_deleted_begins_anew() -> None:
    node = leader()
    for one in "bc":
        node.step(AppendReply(3, one, match=Position(3, 9), asked=1), 1.0)
    node.appended(100)
    node.spread()
    node.stored(Position(3, 100))
    node.step(AppendReply(3, "c", match=Position(3, 100), asked=2), 1.0)
    node.deleted(50)
    told = said(node.tick(node.due))
    assert told[0] == Install(3, "a", Position(3, 50), 100, told[0].asked)  # type: ignore[union-attr]


# -- who is counted again


def admitted(effects: list[Effect]) -> list[str]:
    return [one.to for one in effects if isinstance(one, Send) and isinstance(one.message, Admit)]


def back(one: str, match: Position, asked: int = 2_000_000) -> AppendReply:
    return AppendReply(3, one, match=match, asked=asked, returning=7)


def test_a_member_without_its_disk_is_counted_in_a_term_that_has_begun_alone() -> None:
    node = leader()
    node.step(back("b", Position(3, 9)), 1.2)
    node.step(AppendReply(3, "c", rejected=Position(2, 9), nearest=Position(1, 4), asked=2_000_000), 2.0)
    assert admitted(node.step(back("b", Position(3, 9)), 2.0)) == []  # what earlier terms left is not known yet
    node.step(AppendReply(3, "c", match=Position(3, 9), asked=2_000_000), 2.0)
    assert admitted(node.step(back("b", Position(3, 9)), 2.0)) == ["b"]


@pytest.mark.parametrize(
    ("end", "match", "counted"),
    [(9, (2, 9), []), (9, (3, 9), ["b"]), (12, (2, 9), []), (12, (3, 9), []), (12, (3, 12), ["b"])],
)
def test_and_when_it_has_all_that_is_committed(end: int, match: tuple[int, int], counted: list[str]) -> None:
    node = leader()
    node.step(back("b", Position(2, 8)), 1.2)
    node.appended(end)
    node.spread()
    node.stored(Position(3, end))
    assert Commit(end) in node.step(AppendReply(3, "c", match=Position(3, end), asked=2_000_000), 2.0)
    assert admitted(node.step(back("b", Position(*match)), 2.0)) == counted


def test_two_of_three_without_disks_are_nobodys_majority() -> None:
    node = leader()
    for one in "bc":
        node.step(AppendReply(3, one, match=Position(3, 9), asked=1_000_000), 1.0)
    for one in "bcbc":
        assert admitted(node.step(back(one, Position(3, 9)), 2.0)) == []


def test_who_only_follows_is_never_counted() -> None:
    node = leader(learners="z")
    for at in (1.0, 2.0):
        for one in "bc":
            node.step(AppendReply(3, one, match=Position(3, 9), asked=round(at * 1e6)), at)
        assert admitted(node.step(back("z", Position(3, 9)), at)) == []


# -- who gets the lead


def test_an_heir_is_told_when_it_has_everything() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1), 1.0)
    node.appended(12)
    node.spread()
    (asked,) = said(node.transfer("b", 1.1))
    assert isinstance(asked, Append)
    assert asked.asked == 1_100_000
    lacks = AppendReply(3, "b", match=Position(3, 9), asked=1_100_000)
    assert TimeoutNow(3, "a") not in said(node.step(lacks, 1.2))
    told = said(node.step(AppendReply(3, "b", match=Position(3, 12), asked=1_100_000), 1.3))
    assert told.count(TimeoutNow(3, "a")) == 1
    assert TimeoutNow(3, "a") not in said(node.step(AppendReply(3, "b", match=Position(3, 12), asked=1_200_000), 1.3))


def test_an_heir_is_told_when_it_has_said_that_it_is_there() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_000_000), 1.0)
    assert TimeoutNow(3, "a") not in said(node.transfer("b", 1.1)), "it may be gone since"
    late = AppendReply(3, "b", match=Position(3, 9), asked=1_050_000)
    assert TimeoutNow(3, "a") not in said(node.step(late, 1.2))
    assert TimeoutNow(3, "a") in said(node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_100_000), 1.2))


@pytest.mark.parametrize(
    ("answer", "at", "heir"),
    [
        (AppendReply(3, "c", match=Position(3, 9), asked=2_000_000), 2.0, "c"),
        (AppendReply(3, "c", match=Position(3, 9), asked=2_000_000, returning=7), 2.0, None),
        (AppendReply(3, "c", match=Position(3, 9), asked=1_200_000), 2.3, None),
        (AppendReply(3, "c", match=Position(2, 6), asked=2_000_000), 2.0, None),
    ],
    ids=["near", "without its disk", "silent", "far"],
)
def test_who_is_preferred_gets_it_while_it_can(answer: AppendReply, at: float, heir: str | None) -> None:
    node = leader(preferred="c")
    node.tick(1.0)
    node.step(answer, 1.9)
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=2_300_000), 1.9)
    node.tick(at)
    assert node.heir == heir


def test_the_lead_stays_where_nobody_takes_it() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=990_000), 1.0)
    node.appended(12)
    node.transfer("b", 1.1)
    assert (node.heir, node.takes_messages) == ("b", False)
    assert node.due <= 2.1
    node.transfer("c", 1.2)
    assert node.heir == "b", "one after the other"
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=2_000_000), 2.0)
    assert LedOn("b", told=False, lacks=3) in node.tick(2.1)
    assert (node.heir, node.takes_messages) == (None, True)


def test_a_leader_whose_heir_was_told_leads_on_in_the_next_term() -> None:
    """The heir may hear of it at any time, and who follows would not protect this leader from it."""
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_000_000), 1.0)
    node.transfer("b", 1.1)
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_100_000), 1.2)
    for at in (1.4, 1.9):
        node.step(AppendReply(3, "c", match=Position(3, 9), asked=round(at * 1e6)), at)
    assert not node.surely_leads(2.0)
    effects = node.tick(2.2)
    assert LedOn("b", told=True, lacks=0) in effects
    assert VoteRequest(4, "a", Position(3, 9), False, told=True) in said(effects)
    assert (node.role, node.surely_leads(2.2)) == (Role.CANDIDATE, False)
    node.step(VoteReply(4, "c", granted=True, pre=False), 2.2)
    assert node.takes_messages


@pytest.mark.parametrize(
    "answer", [None, AppendReply(3, "b", match=Position(3, 9), asked=5)], ids=["never", "long ago"]
)
def test_who_is_not_heard_is_given_no_lead(answer: AppendReply | None) -> None:
    """Nobody could send for the time of an election, and nothing would come of it."""
    node = leader()
    if answer is not None:
        node.step(answer, 1.0)
    node.transfer("b", 2.01)
    assert node.takes_messages


def test_who_leads_surely_was_heard_in_this_term_by_members_whose_connections_stand() -> None:
    """Another process of a member may have begun since, and that one protects no leader."""
    node = leader()
    assert not node.surely_leads(1.0), "it was elected, and nobody follows yet"
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_100_000), 1.1)
    assert node.surely_leads(1.2)
    node.lost("b", 1.3)
    assert not node.surely_leads(1.3)
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_250_000), 1.35)
    assert not node.surely_leads(1.35)
    node.step(AppendReply(3, "b", match=Position(3, 9), asked=1_400_000), 1.4)
    assert node.surely_leads(1.4)


def test_it_is_not_given_to_who_has_lost_its_disk() -> None:
    node = leader()
    node.step(AppendReply(3, "b", match=Position(3, 9), returning=7), 1.0)
    node.transfer("b", 1.1)
    assert node.takes_messages


def test_what_is_stored_counts_in_whole_terms() -> None:
    """A word of the flush names the term of the bytes; the next one began there without any."""
    node = member()
    effects = node.step(Append(2, "a", Position(2, 9), Position(2, 12), 0, bytes(3)), 1.0)
    assert Write(9, Position(2, 12), bytes(3)) in effects
    node.step(Append(4, "a", Position(2, 12), Position(4, 12), 0), 1.1)
    assert match_of(node.stored(Position(2, 12))) == Position(4, 12)


def test_a_vote_of_an_earlier_term_is_none_in_the_next() -> None:
    node = member()
    node.step(VoteRequest(3, "c", Position(2, 9), False), 5.0)
    effects = node.step(VoteRequest(4, "a", Position(2, 9), False), 7.0)
    assert [one for one in effects if isinstance(one, Save)][-1] == Save(4, "a")


# -- positions


def path() -> TermPath:
    return TermPath([Position(*start) for start in (*STARTS, (4, 9))], 0, 20)


def test_a_position_is_of_the_term_of_the_byte_before_it_or_the_beginning_of_one() -> None:
    one = path()
    for at, there in (
        ((1, 0), True), ((1, 4), True), ((1, 5), False), ((2, 3), False), ((2, 4), True), ((2, 9), True),
        ((3, 9), False), ((4, 9), True), ((4, 20), True), ((4, 21), False), ((5, 20), False), ((0, 0), False),
    ):  # fmt: skip
        assert one.contains(Position(*at)) is there, at


def test_a_cut_takes_the_terms_behind_it() -> None:
    one = path()
    one.cut(Position(2, 9))
    assert (one.starts, one.last) == (((1, 0), (2, 4)), (2, 9))
    one.cut(Position(1, 4))
    assert (one.starts, one.last) == (((1, 0),), (1, 4))


def test_terms_whose_log_is_lost_are_nothing() -> None:
    one = TermPath([Position(*start) for start in (*STARTS, (4, 9))], 0, 8)
    assert (one.starts, one.last) == (((1, 0), (2, 4)), (2, 8))


def test_the_term_of_what_was_deleted_last_stays_known() -> None:
    one = path()
    one.forget(4)
    assert (one.first, one.contains(Position(1, 4)), one.contains(Position(1, 3))) == ((1, 4), True, False)
    one.forget(5)
    assert (one.first, one.contains(Position(1, 4))) == ((2, 5), False)
    assert one.nearest(Position(1, 9)) is None
