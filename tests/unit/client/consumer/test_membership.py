"""A consumer joins its group, tells who has to know, and leaves: with everything of it, whatever fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq.client.consumer import membership
from rmq.client.consumer.membership import Membership
from rmq.client.instance import instances_of
from rmq.client.settings import ConsumerSettings
from rmq.protocol.errors import ClientError, RequestTimeout
from tests.support.virtual import in_virtual_time, one_world


class Instance:
    """A client whose name server does not say where one topic is; writes down what is asked of it."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.routes = SimpleNamespace(own={"known": None})
        self.beats = self

    async def refresh_route(self, topic: str) -> bool:
        self.did.append(f"route {topic}")
        if topic == "silent":
            raise RequestTimeout("no answer")
        return True

    async def beat(self) -> None:
        self.did.append("beat")

    def spawn_rebalance(self) -> None:
        self.did.append("rebalance")

    async def leave(self, *, consumer: str) -> None:
        self.did.append(f"leave {consumer}")


class Store:
    def __init__(self) -> None:
        self.fails = False

    async def close(self) -> None:
        if self.fails:
            raise OSError("no space")


def member(*topics: str) -> tuple[Membership, Instance, Store]:
    instance, store = Instance(), Store()
    consumer: Any = SimpleNamespace(group="g", topics=lambda: topics)
    return (
        Membership(consumer, cast(Any, instance), cast(Any, store), one_world(), ConsumerSettings(), 1),
        instance,
        store,
    )


@in_virtual_time
async def test_a_topic_that_nobody_knows_keeps_no_other_from_being_asked_for() -> None:
    joined, instance, _ = member("silent", "known", "new")
    await joined.find_brokers()
    assert instance.did == ["route silent", "route known", "route new"]


@in_virtual_time
async def test_other_topics_are_found_and_told_behind_whoever_says_so() -> None:
    joined, instance, _ = member("known", "silent", "new")
    joined.changed()
    assert instance.did == []
    await asyncio.sleep(1)
    assert instance.did == ["route silent", "route new", "beat", "rebalance"]
    await joined.leave()
    joined.changed()  # too late for anybody to know
    await asyncio.sleep(1)
    assert instance.did[4:] == ["leave g"]


@in_virtual_time
async def test_who_is_told_may_block_and_fail_and_exit(caplog: pytest.LogCaptureFixture) -> None:
    joined, _, _ = member()
    told: set[tuple[str, bool]] = set()

    def plain(what: str) -> None:
        told.add((what, joined.inside()))

    async def coroutine(what: str) -> None:
        told.add((what, joined.inside()))

    def fails() -> None:
        raise ValueError("what it raises")

    def exits() -> None:
        raise SystemExit(3)

    def interrupts() -> None:
        raise KeyboardInterrupt

    for call in [
        joined.tell("listener", plain, "a"),
        joined.tell("listener", coroutine, "b"),
        joined.tell("listener", lambda: coroutine("c")),
        joined.tell("listener", fails),
        joined.tell("listener", exits),
        joined.tell("listener", interrupts),
    ]:
        assert call is not None
        await call
    assert told == {("a", True), ("b", False), ("c", False)}
    assert [record.getMessage() for record in caplog.records] == ["the listener of group g raised"] * 3
    await joined.leave()
    assert joined.tell("listener", plain, "d") is None


@in_virtual_time
async def test_it_leaves_whatever_fails_or_does_not_end() -> None:
    joined, instance, store = member()
    store.fails = True
    free = asyncio.Event()

    async def goes_on() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                pass

    joined.tasks.spawn(goes_on(), "listener")
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="no space"):
        await joined.leave()
    assert instance.did == ["leave g"]
    free.set()


@in_virtual_time
async def test_who_cannot_join_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world, consumer = one_world(), cast(Any, SimpleNamespace(group="g"))
    settings = ConsumerSettings(namesrv="10.0.0.1:9876", instance_name="one")
    joined = await Membership.join(consumer, world, settings)
    with pytest.raises(ClientError, match="already has a consumer"):
        await Membership.join(consumer, world, settings)
    assert joined.instance.users == 1
    await joined.leave()
    assert instances_of("10.0.0.1:9876", world) == []

    class Unreadable(Store):
        async def open(self) -> None:
            raise ClientError("the offset file is damaged")

    monkeypatch.setattr(membership, "offset_store", lambda *given: Unreadable())
    with pytest.raises(ClientError, match="damaged"):
        await Membership.join(consumer, world, settings)
    assert instances_of("10.0.0.1:9876", world) == []
