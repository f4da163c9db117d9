"""What `rmq top` makes of two looks at a cluster."""

from __future__ import annotations

import pytest

from rmq.cli.top.command import _figures as read
from rmq.cli.top.figures import BrokerFigures, Stand, between
from rmq.protocol.queue import MessageQueue


def queue(number: int, topic: str = "T", broker: str = "b") -> MessageQueue:
    return MessageQueue(topic, broker, number)


def group(**tables: dict[MessageQueue, tuple[int, int]]) -> dict[str, dict[MessageQueue, tuple[int, int]]]:
    return tables


OLD = Stand(10.0, {"b": BrokerFigures(1_000, 500, 0.5, 0)}, group(g={queue(0): (100, 40), queue(1): (100, 100)}))
NEW = Stand(12.0, {"b": BrokerFigures(1_100, 560, 0.51, 7)}, group(g={queue(0): (110, 90), queue(1): (120, 120)}))


def test_rates_are_counted_between_the_looks() -> None:
    view = between(OLD, NEW)
    assert view.brokers == [{"broker": "b", "inTps": 50.0, "outTps": 30.0, "waitMs": 7, "disk": 0.51}]
    assert view.topics == [{"topic": "T", "queues": 2, "inTps": 15.0, "groups": 1, "messages": 230}]
    assert view.groups == [
        {"group": "g", "topic": "T", "lag": 20, "inTps": 15.0, "outTps": 35.0, "doneIn": "1s"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "lag", "out", "done"),
    [
        ((100, 100), (120, 120), 0, 10.0, "done"),
        ((0, 0), (0, -1), 0, None, "done"),  # no offset: nothing waits for it that we know of
        ((100, 40), (140, 60), 80, 10.0, "never"),
        ((100, 40), (120, 60), 60, 10.0, "stays"),
        ((100, 40), (100, 40), 60, 0.0, "never"),
        ((9_000, 0), (9_000, 2), 8_998, 1.0, "2h29m"),
        ((900, 0), (900, 2), 898, 1.0, "14m58s"),
        ((100, 90), (100, 10), 90, None, "?"),  # moved back: no rate is made of that
    ],
)
def test_when_a_group_is_done(
    before: tuple[int, int], now: tuple[int, int], lag: int, out: float | None, done: str
) -> None:
    old, new = Stand(0.0, groups=group(g={queue(0): before})), Stand(2.0, groups=group(g={queue(0): now}))
    (row,) = between(old, new).groups
    assert (row["lag"], row["outTps"], row["doneIn"]) == (lag, out, done)


def test_what_was_not_there_before_has_no_rate() -> None:
    new = Stand(2.0, {"b": BrokerFigures(9, 9, 0.1, 0)}, group(g={queue(0): (9, 3)}), {queue(0, "Alone"): 4})
    view = between(Stand(0.0), new)
    assert [row["inTps"] for row in (*view.brokers, *view.topics, *view.groups)] == [None] * 4
    again = Stand(4.0, {"b": BrokerFigures(1, 1, 0.1, 0)}, ends={queue(0, "Alone"): 14})
    view = between(new, again)
    assert view.brokers[0]["inTps"] is None  # it was started again
    assert [row["inTps"] for row in view.topics] == [5.0]


def test_rows_are_ordered_and_those_of_brokers_and_idle_retries_left_out() -> None:
    idle, waiting = queue(0, "%RETRY%a"), queue(0, "%RETRY%b")
    tables = group(
        a={queue(0): (20, 10), idle: (3, 3)}, b={queue(1): (50, 0), waiting: (9, 8)}, TOOLS_CONSUMER={queue(0): (9, 0)}
    )
    old = Stand(0.0, groups=group(a={queue(0): (0, 0)}, b={queue(1): (48, 0)}))
    new = Stand(1.0, groups=tables)
    assert [(row["group"], row["topic"]) for row in between(old, new).groups] == [
        ("b", "T"), ("a", "T"), ("b", "%RETRY%b"),
    ]  # fmt: skip
    assert next(row["group"] for row in between(old, new, by="in").groups) == "a"


def test_a_group_that_elects_its_master_says_who_leads() -> None:
    told = {"raftMember": "n1", "raftLeader": "n1", "raftMembersConnected": "1 of 2"}
    figures = read(told)
    assert figures.elected == "n1 leads, 1 of 2 others there"
    assert read({**told, "raftLeader": "unknown"}).elected == "nobody leads, 1 of 2 others there"
    assert read({}).elected == ""
    (row,) = between(Stand(0.0), Stand(1.0, {"b": figures})).brokers
    assert row["group"] == "n1 leads, 1 of 2 others there"
    (row,) = between(Stand(0.0), Stand(1.0, {"b": read({})})).brokers
    assert "group" not in row
