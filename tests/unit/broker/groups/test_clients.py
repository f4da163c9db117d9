"""Who is online, and who is told (store-and-broker.md 8.1, 8.2)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq.broker.groups.clients import EXPIRY_SECONDS, Consumers, Producers
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.permissions import Grant
from rmq.remoting.conn import Conn
from rmq.testing import simloop
from rmq.testing.simworld import Simulation


class HandClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 1_000_000 + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class FakeConn:
    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.closed = False


def conn(peer: str = "10.0.0.9:1") -> Conn:
    return cast(Conn, FakeConn(peer))


def data(*topics: str, version: int = 1, group: str = "g", tags: str = "*") -> ConsumerData:
    subs = [SubscriptionData(topic=topic, sub_string=tags, code_set=[65], sub_version=version) for topic in topics]
    return ConsumerData(group_name=group, subscription_data_set=subs)


class Told:
    def __init__(self) -> None:
        self.groups: list[tuple[str, int]] = []

    def __call__(self, group: str, members: list[Conn]) -> None:
        self.groups.append((group, len(members)))

    async def take(self) -> list[tuple[str, int]]:
        await asyncio.sleep(0)
        groups, self.groups = self.groups, []
        return groups


def join(consumers: Consumers, where: Conn, client: str, what: ConsumerData, notify: bool = True) -> bool:
    return consumers.register(where, client, 0, 409, what, notify=notify)


async def test_members_are_told_of_joins_topics_and_leaves_but_not_of_versions() -> None:
    told = Told()
    consumers = Consumers(HandClock(), told)
    one, two = conn("a"), conn("b")
    assert join(consumers, one, "c1", data("T"))
    assert await told.take() == [("g", 1)]
    assert not join(consumers, one, "c1", data("T"))
    assert not join(consumers, one, "c1", data("T", version=2))
    assert await told.take() == []
    assert join(consumers, two, "c2", data("T", version=3))
    assert await told.take() == [("g", 2)]
    assert join(consumers, two, "c2", data("T", "U", version=3))
    assert await told.take() == [("g", 2)]
    assert join(consumers, two, "c2", data("U", version=3))
    assert await told.take() == [("g", 2)]
    consumers.closed(two)
    assert await told.take() == [("g", 1)]
    consumers.unregister(one, "g", notify=True)
    assert await told.take() == []
    assert consumers.group("g") is None


async def test_many_changes_in_one_turn_are_one_notice_told_in_slices() -> None:
    told = Told()
    consumers = Consumers(HandClock(), told)
    for number in range(500):
        join(consumers, conn(str(number)), f"c{number}", data("T"))
    join(consumers, conn("other"), "other", data("T", group="small"))
    assert await told.take() == [("g", 200)]
    assert await told.take() == [("g", 200)]
    assert await told.take() == [("g", 100), ("small", 1)]
    assert await told.take() == []


def test_a_crowd_is_left_alone_for_a_while_and_then_told_of_all_that_changed() -> None:
    """A thousand joins one after the other are some rounds of notices, not a thousand."""
    simulation = Simulation(1)
    clock = simulation.node("one").world.clock

    async def run() -> None:
        told = Told()
        consumers = Consumers(clock, told)
        began = clock.monotonic()
        for number in range(1000):
            join(consumers, conn(str(number)), f"c{number}", data("T"))
            await asyncio.sleep(0.001)
        last = consumers.group("g")
        assert last is not None
        await asyncio.sleep(0.4)
        assert sum(count for _, count in told.groups) < 20_000
        # The last of them is told of everybody, and everybody of it.
        assert sum(count for _, count in told.groups[-5:]) == 1000
        assert clock.monotonic() - began < 2
        told.groups.clear()
        await asyncio.sleep(10)
        assert told.groups == []
        join(consumers, conn("late"), "late", data("T"))
        await asyncio.sleep(0)
        assert told.groups == [("g", 200)]

    simloop.run(run())


async def test_notices_are_held_back_where_the_settings_say_so() -> None:
    told = Told()
    consumers = Consumers(HandClock(), told)
    one, two = conn("a"), conn("b")
    join(consumers, one, "c1", data("T"), notify=False)
    join(consumers, two, "c2", data("T"), notify=False)
    consumers.unregister(two, "g", notify=False)
    assert await told.take() == []


async def test_a_subscription_is_replaced_by_a_newer_one_only(caplog: pytest.LogCaptureFixture) -> None:
    """Field case B032: one warning for each change, not for each heartbeat."""
    consumers = Consumers(HandClock(), Told())
    one = conn()
    join(consumers, one, "c1", data("T", version=5, tags="A"))
    join(consumers, one, "c1", data("T", version=5, tags="B"))
    group = consumers.group("g")
    assert group is not None
    found = group.subscription("T")
    assert found is not None
    assert found.data.sub_string == "A"
    assert found.code_set == {65}
    join(consumers, one, "c1", data("T", version=6, tags="B"))
    found = group.subscription("T")
    assert found is not None
    assert found.data.sub_string == "B"
    assert group.subscription("U") is None
    for _ in range(5):
        join(consumers, one, "c1", data("T", version=6, tags="B"))
        join(consumers, one, "c2", data("T", version=5, tags="A"))
    changes = [record.getMessage() for record in caplog.records if "changes its subscription" in record.getMessage()]
    assert changes == ["g changes its subscription of T from A to B"]


async def test_a_client_that_came_back_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    """Field case B031: and it is said, once."""
    consumers = Consumers(HandClock(), Told())
    old, new = conn("old"), conn("new")
    join(consumers, old, "c1", data("T"))
    join(consumers, new, "c1", data("T"))
    group = consumers.group("g")
    assert group is not None
    assert group.client_ids() == ["c1"]
    found = group.find("c1")
    assert found is not None
    assert found.conn is new
    join(consumers, new, "c1", data("T"))
    assert sum("client id c1 of g is on two connections" in record.getMessage() for record in caplog.records) == 1
    consumers.closed(old)
    assert group.client_ids() == ["c1"]


async def test_silent_channels_expire_by_the_monotonic_clock() -> None:
    """Field case B142."""
    clock = HandClock()
    told = Told()
    consumers, producers = Consumers(clock, told), Producers(clock)
    silent, alive = conn("silent"), conn("alive")
    for where, client in ((silent, "c1"), (alive, "c2")):
        join(consumers, where, client, data("T"))
        producers.register(where, client, 0, 409, "pg")
    clock.seconds += EXPIRY_SECONDS
    join(consumers, alive, "c2", data("T"))
    producers.register(alive, "c2", 0, 409, "pg")
    assert consumers.expire() == []
    clock.seconds += 1
    assert consumers.expire() == [silent]
    assert producers.expire() == [silent]
    assert [channel.client_id for channel in producers.group("pg") or ()] == ["c2"]
    assert await told.take() == [("g", 1)]


def test_replies_go_to_the_client_of_one_account_or_to_nobody() -> None:
    """Whoever has an account may call his client anything, before the other does or after: he gets no replies of it."""
    producers = Producers(HandClock())
    own, renewed, thief = conn("own"), conn("renewed"), conn("thief")
    shop, other = (cast(Grant, SimpleNamespace(account=name)) for name in ("shop-orders", "another"))
    for first, second in (((own, shop, "pg"), (thief, other, "x")), ((thief, other, "x"), (own, shop, "pg"))):
        producers.closed(own)
        for who, grant, group in (first, second):
            producers.register(who, "c1", 0, 409, group, grant)
        assert producers.client("c1") is None
        producers.register(own, "c1", 0, 409, "pg", shop)
        assert producers.client("c1") is None
        producers.closed(thief)
    assert producers.client("c1") is own
    producers.register(renewed, "c1", 0, 409, "pg", shop)  # the same account goes on over a new connection
    assert producers.client("c1") is renewed
    producers.closed(renewed)
    producers.register(thief, "c1", 0, 409, "x", other)
    assert producers.client("c1") is thief
    producers.register(thief, "c1", 0, 409, "x", shop)  # one connection of two accounts is one client
    assert producers.client("c1") is thief
    producers.closed(thief)
    assert not producers._clients


async def test_a_silent_group_leaves_alone_the_other_groups_of_its_connection() -> None:
    clock, told = HandClock(), Told()
    consumers, producers = Consumers(clock, told), Producers(clock)
    one, two = conn("one"), conn("two")
    for where in (one, two):
        join(consumers, where, where.peer, data("T", group="silent"))
        join(consumers, where, where.peer, data("T", group="alive"))
        producers.register(where, where.peer, 0, 409, "silent")
        producers.register(where, where.peer, 0, 409, "alive")
    await told.take()
    clock.seconds += EXPIRY_SECONDS + 1
    join(consumers, two, two.peer, data("T", group="silent"))
    for where in (one, two):
        join(consumers, where, where.peer, data("T", group="alive"))
        producers.register(where, where.peer, 0, 409, "alive")
    assert consumers.expire() == [one]
    assert producers.expire() == [one, two]
    assert consumers.knows(one)
    assert producers.knows(one)
    silent, alive = consumers.group("silent"), consumers.group("alive")
    assert silent is not None
    assert alive is not None
    assert (silent.client_ids(), alive.client_ids()) == (["two"], ["one", "two"])
    assert list(producers.groups()) == ["alive"]
    assert producers.client("one") is one
    assert await told.take() == [("silent", 1)]
    clock.seconds += EXPIRY_SECONDS + 1
    assert set(consumers.expire()) == set(producers.expire()) == {one, two}
    assert not consumers.knows(one)
    assert not producers.knows(one)


async def test_nothing_is_registered_for_a_closed_connection() -> None:
    consumers, producers = Consumers(HandClock(), Told()), Producers(HandClock())
    gone = conn()
    cast(Any, gone).closed = True
    assert not join(consumers, gone, "c1", data("T"))
    producers.register(gone, "c1", 0, 409, "pg")
    assert consumers.group("g") is None
    assert producers.group("pg") is None


async def test_producers_by_group_and_by_client() -> None:
    producers = Producers(HandClock())
    one, two = conn("a"), conn("b")
    producers.register(one, "c1", 0, 409, "p1")
    producers.register(one, "c1", 0, 409, "p2")
    producers.register(two, "c2", 0, 409, "p1")
    assert producers.client("c1") is one
    producers.unregister(one, "p1")
    assert producers.client("c1") is one
    assert list(producers.groups()) == ["p1", "p2"]
    producers.closed(one)
    assert producers.client("c1") is None
    assert list(producers.groups()) == ["p1"]
    producers.register(two, "c3", 0, 409, "p1")
    producers.closed(two)
    assert producers.groups() == {}
    assert producers.client("c3") is None
