"""A client asks for the topics it uses, not for all that it has ever sent to."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from rmq.client.instance import ClientInstance
from rmq.client.settings import ClientSettings
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.support.virtual import in_virtual_time, one_world

TEMPLATE = ("TBW102", 4)


class Routes:
    """A name server that knows every topic that begins with T, on the broker its last letter names."""

    addresses = ("10.0.0.1:9876",)

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def resolve(self) -> bool:
        return False

    async def route(self, topic: str, timeout: float) -> TopicRouteData | None:
        self.asked[topic] += 1
        if not topic.startswith("T"):
            return None
        name = "TBW102"[-1] if topic == "TBW102" else topic[-1]
        return TopicRouteData(
            broker_datas=[BrokerData(cluster="c", broker_name=name, broker_addrs={"0": f"10.0.0.2:{name}"})],
            queue_datas=[QueueData(broker_name=name, read_queue_nums=4, write_queue_nums=4, perm=6)],
        )


def client() -> tuple[ClientInstance, Routes]:
    instance = ClientInstance(one_world(), ClientSettings(), "c")
    routes = Routes()
    instance.name_servers = cast(Any, routes)
    return instance, routes


async def minutes(instance: ClientInstance, count: int, used: tuple[str, ...] = ()) -> None:
    for _ in range(count):
        for topic in used:
            instance.routes.publish[topic].used = True  # as a send does
        await asyncio.sleep(60)
        await instance.refresh_routes()


@in_virtual_time
async def test_a_topic_nobody_sends_to_is_forgotten_and_asked_for_again_when_somebody_does() -> None:
    instance, routes = client()
    for number in range(50):
        await instance.refresh_route(f"T{number}a")
        await instance.refresh_route(f"new-{number}", 3.0, TEMPLATE)
        await instance.refresh_route(f"gone-{number}")
    await minutes(instance, 5)
    assert len(instance.routes.publish) == 100
    await minutes(instance, 10, ("T7a", "new-7"))
    kept = {"T7a", "new-7"}
    assert set(instance.routes.publish) == kept
    assert set(instance.routes.own) == {"T7a"}
    assert set(instance.routes.borrowed) == set(instance.routes.templates) == {"new-7"}
    routes.asked.clear()
    await minutes(instance, 1)
    assert set(routes.asked) == {*kept, TEMPLATE[0]}
    await instance.refresh_route("T8a")
    assert "T8a" in instance.routes.publish


@in_virtual_time
async def test_what_consumers_subscribe_to_stays() -> None:
    instance, _ = client()
    instance.consumers["g"] = cast(Any, SimpleNamespace(topics=lambda: ["T1a"]))
    for number in range(3):
        await instance.refresh_route(f"T{number}a")
    await minutes(instance, 20)
    assert set(instance.routes.publish) == {"T1a"}


@in_virtual_time
async def test_every_broker_that_was_sent_to_stays_known() -> None:
    """Heartbeats go to it, and it asks how transactions ended, however long ago they were begun."""
    instance, _ = client()
    for number in range(10):
        await instance.refresh_route(f"T{number}a")
        await instance.refresh_route(f"T{number}b")
    await minutes(instance, 30)
    assert len(instance.routes.publish) == 2
    assert set(instance.routes.broker_addrs) == {"a", "b"}
