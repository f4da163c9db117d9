"""Transactions of Apache's producers: commit, rollback, check-back, other members, discard, delays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.interop import Scene, fresh, until
from tests.support.interop.scene import Member
from tests.support.peers import Client, Cluster, ToolMissing, skip_or_fail, start_cluster

CLIENTS = ("java-4.9.8", "java-5.3.3")
#: For transactions whose end is on its way: a busy machine takes longer than the second after which they are checked.
UNCHECKED = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "300"}
FAST = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "3"}


@pytest.fixture(scope="module")
def fast() -> Iterator[Cluster]:
    try:
        cluster = start_cluster("ours", properties=FAST)
    except ToolMissing as missing:
        skip_or_fail(missing)
    with cluster:
        yield cluster


@pytest.fixture(params=CLIENTS)
def where(request: pytest.FixtureRequest, fast: Cluster, clients: Callable[[str, str], Client]) -> Scene:
    return Scene(fast, clients(request.param, "tested"), clients("java-4.9.8", "reader"))


class Transactions:
    """A transaction producer in a client's process."""

    def __init__(self, where: Scene, topic: str, group: str, answer: str) -> None:
        self.client = where.client
        self.topic = topic
        self.handle = fresh("tx")
        self.client.call(
            "txstart", handle=self.handle, namesrv=where.cluster.namesrv, group=group, topic=topic, answer=answer
        )

    def send(self, key: str, state: str, **properties: str) -> dict[str, Any]:
        if state != "UNKNOW":
            properties |= UNCHECKED
        answer = self.client.call(
            "txsend", handle=self.handle, topic=self.topic, key=key, state=state, properties=properties
        )
        assert answer["status"] == "SEND_OK"
        return answer

    def answers(self, state: str) -> None:
        self.client.call("txanswer", handle=self.handle, answer=state)

    def checks(self) -> list[list[str]]:
        rows: list[list[str]] = self.client.call("txchecks", handle=self.handle)["rows"]
        return rows

    def stop(self) -> None:
        self.client.call("txstop", handle=self.handle)


def subscribed(where: Scene, topic: str) -> Member:
    return where.subscribe(topic, where.group("tx"))


def keys(member: Member, count: int) -> list[str]:
    """What a consumer was given as soon as it is so much, and for two seconds more."""
    member.received(count)
    return sorted(row.key for row in member.received(count + 1, 2))


@contextmanager
def checked_for_ever(where: Scene) -> Iterator[None]:
    """No message is given up for the number of its checks."""
    change = ("updateBrokerConfig", "-b", where.cluster.broker_addr, "-k", "transactionCheckMax", "-v")
    where.mqadmin(*change, "1000")
    try:
        yield
    finally:
        where.mqadmin(*change, FAST["transactionCheckMax"])


def test_commit_rollback_and_check_back(where: Scene) -> None:
    topic = where.topic("tx")
    member = subscribed(where, topic)
    producer = Transactions(where, topic, where.group("txp"), "COMMIT_MESSAGE")
    producer.send("committed", "COMMIT_MESSAGE")
    producer.send("rolled", "ROLLBACK_MESSAGE")
    unknown = producer.send("unknown", "UNKNOW")
    assert keys(member, 2) == ["committed", "unknown"]
    checks = producer.checks()
    assert checks[0] == ["unknown", "unknown", topic, unknown["uniqueId"], "1", "A"]
    assert {check[0] for check in checks} == {"unknown"}
    producer.stop()
    member.stop()


def test_the_one_who_sent_is_asked_and_another_when_it_is_gone(where: Scene) -> None:
    """Field case B062."""
    topic, group = where.topic("members"), where.group("members")
    member = subscribed(where, topic)
    sender = Transactions(where, topic, group, "COMMIT_MESSAGE")
    other = Transactions(where, topic, group, "ROLLBACK_MESSAGE")
    other.send("warm", "ROLLBACK_MESSAGE")  # now it heartbeats, too
    sender.send("asked", "UNKNOW")
    assert keys(member, 1) == ["asked"]
    sender.answers("UNKNOW")
    with checked_for_ever(where):  # a 5.x client takes seconds to shut down
        sender.send("left", "UNKNOW")
        until(sender.checks, lambda checks: checks[-1][0] == "left")
        assert other.checks() == []
        other.answers("COMMIT_MESSAGE")
        sender.stop()
        assert keys(member, 2) == ["asked", "left"]
    assert {row[0] for row in other.checks()} == {"left"}
    other.stop()
    member.stop()


def test_given_up_after_the_last_check(where: Scene) -> None:
    topic = where.topic("discard")
    member = subscribed(where, topic)
    producer = Transactions(where, topic, where.group("discard"), "UNKNOW")
    producer.send(topic, "UNKNOW")
    discards = subscribed(where, "TRANS_CHECK_MAX_TIME_TOPIC")
    assert topic in until(lambda: discards.keys(0.0), lambda keys: topic in keys)
    checks = until(producer.checks, lambda checks: len(checks) >= 3)
    assert [row[4] for row in checks] == ["1", "2", "3"]
    assert keys(member, 0) == []
    producer.stop()
    member.stop()
    discards.stop()


def test_transactions_that_wait(where: Scene) -> None:
    topic = where.topic("waits")
    member = subscribed(where, topic)
    producer = Transactions(where, topic, where.group("waits"), "COMMIT_MESSAGE")
    producer.send("rolled", "ROLLBACK_MESSAGE", TIMER_DELAY_MS="1200")
    producer.send("timed", "COMMIT_MESSAGE", TIMER_DELAY_MS="1200")
    assert keys(member, 1) == ["timed"]
    producer.stop()
    member.stop()
