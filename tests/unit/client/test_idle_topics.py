"""A client asks for the topics it uses, not for all that it has ever sent to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from rmq.client.cluster.routes import Routes
from rmq.client.route_questions import RouteQuestions
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.support.virtual import in_virtual_time, one_world

TEMPLATE = ("TBW102", 4)


class NameServer:
    """Knows every topic that begins with T, on the broker its last letter names."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def route(self, topic: str, timeout: float) -> TopicRouteData | None:
        self.asked[topic] += 1
        if not topic.startswith("T"):
            return None
        name = "TBW102"[-1] if topic == "TBW102" else topic[-1]
        return TopicRouteData(
            broker_datas=[BrokerData(cluster="c", broker_name=name, broker_addrs={"0": f"10.0.0.2:{name}"})],
            queue_datas=[QueueData(broker_name=name, read_queue_nums=4, write_queue_nums=4, perm=6)],
        )


class Client:
    """The routes of a client, and who asks for them."""

    def __init__(self) -> None:
        world = one_world()
        self.name_server = NameServer()
        self.routes = Routes(world.random)
        self.questions = RouteQuestions(
            world.clock, cast(Any, self.name_server), self.routes, lambda: None, lambda topic: None
        )
        self.subscribed: set[str] = set()

    async def minutes(self, count: int, used: tuple[str, ...] = ()) -> None:
        for _ in range(count):
            for topic in used:
                self.routes.publish[topic].used = True  # as a send does
            await asyncio.sleep(60)
            await self.questions.ask_all(self.subscribed)


@in_virtual_time
async def test_a_topic_nobody_sends_to_is_forgotten_and_asked_for_again_when_somebody_does() -> None:
    client = Client()
    for number in range(50):
        await client.questions.ask(f"T{number}a")
        await client.questions.ask(f"new-{number}", 3.0, TEMPLATE)
        await client.questions.ask(f"gone-{number}")
    await client.minutes(5)
    assert len(client.routes.publish) == 100
    await client.minutes(10, ("T7a", "new-7"))
    kept = {"T7a", "new-7"}
    assert set(client.routes.publish) == kept
    assert set(client.routes.own) == {"T7a"}
    assert set(client.routes.borrowed) == set(client.routes.templates) == {"new-7"}
    client.name_server.asked.clear()
    await client.minutes(1)
    assert set(client.name_server.asked) == {*kept, TEMPLATE[0]}
    await client.questions.ask("T8a")
    assert "T8a" in client.routes.publish


@in_virtual_time
async def test_what_consumers_subscribe_to_stays() -> None:
    client = Client()
    client.subscribed = {"T1a"}
    for number in range(3):
        await client.questions.ask(f"T{number}a")
    await client.minutes(20)
    assert set(client.routes.publish) == {"T1a"}


@in_virtual_time
async def test_every_broker_that_was_sent_to_stays_known() -> None:
    """Heartbeats go to it, and it asks how transactions ended, however long ago they were begun."""
    client = Client()
    for number in range(10):
        await client.questions.ask(f"T{number}a")
        await client.questions.ask(f"T{number}b")
    await client.minutes(30)
    assert len(client.routes.publish) == 2
    assert set(client.routes.broker_addrs) == {"a", "b"}
