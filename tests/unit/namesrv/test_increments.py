"""Registrations that name some topics: our brokers' increments, and Java's, which do not say what they follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.namesrv import routes
from rmq.namesrv.routes import Registration, RouteTable
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import SELF_TEST_TOPIC

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def version(counter: int) -> DataVersion:
    return DataVersion(counter=counter, timestamp=1_700_000_000_000 + counter)


def some(counter: int, *names: str, since: int | None = None, addr: str = A) -> Registration:
    """What a broker says of these topics alone."""
    return Registration(
        cluster="C1",
        broker_name="broker-a",
        broker_id=0,
        addr=addr,
        ha_addr="",
        version=version(counter),
        topics=[TopicConfig(name, 4, 4) for name in names],
        increment_of=None if since is None else version(since),
    )


def everything(counter: int, *names: str, addr: str = A) -> Registration:
    return some(counter, SELF_TEST_TOPIC, *names, addr=addr)


def topics(table: RouteTable) -> set[str]:
    return set(table.topics()) - {SELF_TEST_TOPIC}


def test_an_increment_of_the_version_held_is_taken_over() -> None:
    table = RouteTable()
    assert table.register(everything(1, "T1"), "c1", 0.0).complete
    assert table.register(some(3, "T2", "T3", since=1), "c1", 1.0).complete
    assert table.register(some(3, since=3), "c1", 2.0).complete, "nothing new: alive"
    assert topics(table) == {"T1", "T2", "T3"}
    assert table.version_of(A) == version(3)
    assert table.expire(121.5) == ([], [])


@pytest.mark.parametrize("held", ["nothing", "older", "newer", "same counter", "another broker", "part", "other id"])
def test_any_other_increment_is_refused_and_changes_nothing(held: str) -> None:
    table = RouteTable()
    increment = some(3, "T3", since=2)
    match held:
        case "older":
            table.register(everything(1, "T1"), "c1", 0.0)
        case "newer":
            table.register(everything(3, "T1"), "c1", 0.0)
        case "same counter":
            table.register(replace(everything(2, "T1"), version=DataVersion(counter=2, timestamp=1)), "c1", 0.0)
        case "another broker":
            table.register(replace(everything(2, "T1"), broker_name="broker-b"), "c1", 0.0)
        case "part":
            table.register(some(2, "T1"), "c1", 0.0)
        case "other id":
            table.register(replace(everything(2, "T1"), broker_id=1), "c1", 0.0)
    before = topics(table), table.version_of(A), table.cluster_info()
    with pytest.raises(ResponseError, match=r"changes since version 2 of broker-a .* register all topics"):
        table.register(increment, "c2", 5.0)
    assert (topics(table), table.version_of(A), table.cluster_info()) == before


def test_an_increment_after_another_broker_had_the_place_is_refused() -> None:
    table = RouteTable()
    table.register(everything(1, "T1"), "c1", 0.0)
    table.register(everything(1, "T1", addr=B), "c2", 1.0)
    with pytest.raises(ResponseError, match="register all topics"):
        table.register(some(2, "T2", since=1), "c1", 2.0)
    table.close("c2")
    assert table.returned() == [("broker-a", A)]
    with pytest.raises(ResponseError, match="register all topics"):
        table.register(some(2, "T2", since=1), "c1", 2.0)


def test_a_topic_forgotten_here_comes_back_with_the_next_change_as_ever() -> None:
    table = RouteTable()
    table.register(everything(1, "T1"), "c1", 0.0)
    table.delete_topic("T1", None)
    table.register(some(1, since=1), "c1", 1.0)
    table.register(everything(1, "T1"), "c1", 2.0)
    assert topics(table) == set(), "it is the operator's word until the broker has a change"
    with pytest.raises(ResponseError, match="register all topics"):
        table.register(some(2, "T2", since=1), "c1", 3.0)
    table.register(everything(2, "T1", "T2"), "c1", 4.0)
    table.register(some(3, "T3", since=2), "c1", 5.0)
    assert topics(table) == {"T1", "T2", "T3"}


def test_increments_forget_no_topic_and_stop_where_a_broker_has_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_TOPICS", 4)
    table = RouteTable()
    table.register(everything(1, "T1"), "c1", 0.0)
    table.register(some(2, "T2", since=1), "c1", 0.0)
    table.register(some(3, "T3"), "c1", 0.0)
    for late in (some(4, "T4", since=3), some(4, "T4")):
        with pytest.raises(ResponseError, match="4 topics here: register all topics"):
            table.register(late, "c1", 0.0)
    table.register(some(3, since=3), "c1", 0.0)
    assert topics(table) == {"T1", "T2", "T3"}
    table.register(everything(4, "T2", "T3", "T4"), "c1", 0.0)
    assert topics(table) == {"T2", "T3", "T4"}


def test_what_a_broker_says_after_another_had_its_place_is_not_taken_for_all() -> None:
    table = RouteTable()
    table.register(everything(1, "T1"), "c1", 0.0)
    table.register(everything(1, "T1", addr=B), "c2", 1.0)
    table.close("c2")
    assert not table.register(some(0, "T2"), "c1", 2.0).complete


# -- a Java broker's: the version with one topic, and nothing that says so


def test_a_lost_increment_of_a_java_broker_does_not_end_in_unchanged() -> None:
    table = RouteTable()
    table.register(everything(1, "T1"), "c1", 0.0)
    table.register(some(2, "T2"), "c1", 0.0)
    assert not table.misses(A)
    table.register(some(4, "T4"), "c1", 0.0)
    assert table.misses(A), "the increment to 3 was lost"
    table.register(some(5, "T5"), "c1", 0.0)
    assert table.misses(A), "and the next one does not bring it"
    table.register(everything(5, "T1", "T2", "T3", "T4", "T5"), "c1", 0.0)
    assert not table.misses(A)
    assert topics(table) == {"T1", "T2", "T3", "T4", "T5"}
    table.register(everything(5, "T1", "T9"), "c1", 0.0)
    assert "T9" not in topics(table), "the same version once more, as in Java"


def test_java_increments_with_one_version_or_in_another_order() -> None:
    """Two topics made at once may both be sent with the version after both."""
    table = RouteTable()
    table.register(everything(1, "T1"), "c1", 0.0)
    table.register(some(3, "T2"), "c1", 0.0)
    table.register(some(3, "T3"), "c1", 0.0)
    assert topics(table) == {"T1", "T2", "T3"}
    assert table.misses(A)
    table.register(everything(3, "T1", "T2", "T3"), "c1", 0.0)
    table.register(some(5, "T5"), "c1", 0.0)
    table.register(some(4, "T4"), "c1", 0.0)
    assert topics(table) == {"T1", "T2", "T3", "T4", "T5"}
    assert table.misses(A)


def test_an_increment_that_is_the_first_word_of_a_java_broker_hides_no_topic() -> None:
    """The name server was restarted: what is sent first is what changed."""
    table = RouteTable()
    table.register(some(2, "T2"), "c1", 0.0)
    table.register(everything(2, "T1", "T2"), "c1", 1.0)
    assert topics(table) == {"T1", "T2"}
