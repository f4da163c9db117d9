"""Clients of every language through a failover: what they sent is there, what they consume goes on, in order.

One group of ours for the module; each test kills the member that leads, and the next one finds three again.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.interop import fresh, until
from tests.support.kills.campaign import LONG
from tests.support.peers import Client, ToolMissing, skip_or_fail
from tests.support.peers.clients import ClientError
from tests.support.peers.groups import Group, start_group

COUNT = 60
#: Transactions are checked after a second; whoever asks does so in each.
FAST = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
#: Milliseconds between two looks of a Java client at the route (30 s unless it is set).
POLL = 1000
#: Seconds that clients may take to find who leads: Go's looks at the route every 30.
FINDING = 60


@pytest.fixture(scope="module")
def started() -> Iterator[Group]:
    try:
        group = start_group("ours", properties=FAST)
    except ToolMissing as missing:
        skip_or_fail(missing)
    with group:
        yield group


@pytest.fixture
def group(started: Group) -> Group:
    """All three members are there."""
    for name in sorted(started.dead):
        started.start(name)
    started.leader()
    return started


def killed(group: Group) -> str:
    """Kill the member that leads; returns when the name server names another."""
    leader = group.leader()
    group.kill(leader)
    return group.leader(but=leader)


class Sender:
    """Sends some messages, again as long as that fails, as applications do."""

    def __init__(self, client: Client, group: Group, topic: str) -> None:
        self._client = client
        self._words = {"namesrv": group.namesrv, "group": fresh("p-failover"), "topic": topic, "tags": ["A"]}
        #: Keys of what was acknowledged -> digest.
        self.acknowledged: dict[str, str] = {}

    def send(self, prefix: str, mode: str = "sync", count: int = COUNT) -> float:
        """:returns: seconds until all were acknowledged."""
        begun = time.monotonic()
        for attempt in range(1000):
            try:
                rows = self._client.call("produce", prefix=f"{prefix}{attempt}", count=count, mode=mode, **self._words)
            except ClientError:
                assert time.monotonic() - begun < FINDING
                time.sleep(0.2)
                continue
            self.acknowledged.update({row[0]: row[1] for row in rows["rows"]})
            break
        return time.monotonic() - begun


def received(client: Client, handle: str, keys: set[str]) -> list[list[Any]]:
    """What a consumer was given, as soon as all these keys are there."""
    return until(
        lambda: client.call("received", handle=handle, count=0, timeout=0)["rows"],
        lambda rows: keys <= {row[0] for row in rows},
    )


def made_topic(client: Client, group: Group, name: str, queues: int = 4) -> str:
    topic = fresh(name)
    client.call("topic", namesrv=group.namesrv, cluster="DefaultCluster", topic=topic, queues=queues)
    client.call("route", namesrv=group.namesrv, topic=topic)
    return topic


@pytest.mark.parametrize("name", ["java-4.9.8", "go", "node", "python", "python-blocking"])
def test_a_client_goes_on_with_the_next_leader(
    name: str, group: Group, clients: Callable[[str, str], Client], say: Callable[[str], None]
) -> None:
    client, reader = clients(name, "tested"), clients("java-4.9.8", "reader")
    topic = made_topic(reader, group, f"failover-{name}")

    def subscribed() -> str:
        handle = fresh("failover")
        client.call(
            "subscribe", handle=handle, namesrv=group.namesrv, group=fresh("g-failover"), topic=topic, expression="*",
            model="clustering", orderly=False, fail=False, poll=POLL,
        )  # fmt: skip
        return handle

    handle = subscribed()
    sender = Sender(client, group, topic)
    sender.send("before")
    received(client, handle, set(sender.acknowledged))
    killed(group)
    took = sender.send("after")
    if name == "go" and not LONG:  # what it asked the dead leader for lasts 30 s: docs/failover.md
        client.call("unsubscribe", handle=handle)
        handle = subscribed()
    begun = time.monotonic()
    rows = received(client, handle, set(sender.acknowledged))
    behind = time.monotonic() - begun
    client.call("unsubscribe", handle=handle)
    given = {row[0]: row[1] for row in rows}
    assert {key: given.get(key) for key in sender.acknowledged} == sender.acknowledged
    # What comes twice was consumed before the kill, and its group's progress not yet taken by the others.
    again = len(rows) - len(given)
    assert again <= COUNT
    say(f"{name}: sent again {took:.1f} s after the new leader was known, consumed {behind:.1f} s later; {again} twice")


@pytest.mark.parametrize("name", ["java-4.9.8", "python"])
def test_a_group_in_order_stays_in_order(
    name: str, group: Group, clients: Callable[[str, str], Client], say: Callable[[str], None]
) -> None:
    client, reader = clients(name, "tested"), clients("java-4.9.8", "reader")
    topic, handle = made_topic(reader, group, f"ordered-{name}"), fresh("ordered")
    client.call(
        "subscribe", handle=handle, namesrv=group.namesrv, group=fresh("g-ordered"), topic=topic, expression="*",
        model="clustering", orderly=True, fail=False, poll=POLL,
    )  # fmt: skip
    sender = Sender(client, group, topic)
    sender.send("before", "ordered")
    killed(group)
    sender.send("after", "ordered")
    rows = received(client, handle, set(sender.acknowledged))
    client.call("unsubscribe", handle=handle)
    of_queue: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        of_queue[row[2]].append(row[3])
    for queue, offsets in of_queue.items():
        seen = -1
        for number, offset in enumerate(offsets):
            # After a failover a queue may go on some way back, and from there in order again.
            assert offset <= seen + 1, f"queue {queue}: {offsets[max(0, number - 5) : number + 5]}"
            seen = offset
        assert sum(b <= a for a, b in itertools.pairwise(offsets)) <= 1, offsets
    assert {row[0] for row in rows} >= set(sender.acknowledged)
    say(f"{name}: {len(rows)} given of {len(sender.acknowledged)} in order")


def test_the_next_leader_checks_transactions_and_delivers_what_waits(
    group: Group, clients: Callable[[str, str], Client]
) -> None:
    client = clients("java-4.9.8", "tested")
    topic, handle, producers = made_topic(client, group, "failover-tx"), fresh("failover"), fresh("tx-failover")
    client.call(
        "subscribe", handle=handle, namesrv=group.namesrv, group=fresh("g-tx"), topic=topic, expression="*",
        model="clustering", orderly=False, fail=False, poll=POLL,
    )  # fmt: skip
    transactions = fresh("transactions")
    client.call(
        "txstart", handle=transactions, namesrv=group.namesrv, group=producers, topic=topic, answer="UNKNOW"
    )  # fmt: skip

    def half(key: str, state: str) -> None:
        answer = client.call(
            "txsend", handle=transactions, topic=topic, key=key, state=state,
            properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"},
        )  # fmt: skip
        assert answer["status"] == "SEND_OK"

    for number in range(5):
        half(f"open-{number}", "UNKNOW")
        # Its end is told one way: what is acknowledged behind it over the same connection says that it has come.
        half(f"back-{number}", "ROLLBACK_MESSAGE")
        half(f"done-{number}", "COMMIT_MESSAGE")
        client.call("delayed", namesrv=group.namesrv, topic=topic, key=f"later-{number}", level=3)
    killed(group)
    client.call("txanswer", handle=transactions, answer="COMMIT_MESSAGE")
    wanted = {f"{what}-{number}" for what in ("open", "done", "later") for number in range(5)}
    rows = received(client, handle, wanted)
    assert {row[0] for row in rows} == wanted
    checked = client.call("txchecks", handle=transactions)["rows"]
    assert {row[0] for row in checked} >= {f"open-{number}" for number in range(5)}
    client.call("txstop", handle=transactions)
    client.call("unsubscribe", handle=handle)
