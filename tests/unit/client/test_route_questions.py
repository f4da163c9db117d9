"""Many who want to know a topic's route at once: one question for all, and to each in the time that it has."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, cast

import pytest

from rmq.client.cluster.routes import Routes
from rmq.client.route_questions import RouteQuestions
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.errors import ConnectFailed, RequestTimeout, ResponseError
from tests.support.virtual import in_virtual_time, one_world

TEMPLATE = ("TBW102", 2)

Say = Callable[[], "TopicRouteData | Exception | None"]


def now() -> float:
    return asyncio.get_running_loop().time()


def route(read: int = 4, perm: int = 6) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "10.0.0.2:10911"})],
        queue_datas=[QueueData(broker_name="a", read_queue_nums=read, write_queue_nums=4, perm=perm)],
    )


class NameServers:
    """Say something after a while, like real ones: in the time they are given, or that they did not."""

    def __init__(self) -> None:
        self._began = now()
        #: When each was asked, for which topic, and how long they had.
        self.asked: list[tuple[float, str, float]] = []
        #: Topic -> seconds until it is said, and what.
        self.says: dict[str, tuple[float, Say]] = {}

    async def route(self, topic: str, timeout: float) -> TopicRouteData | None:
        self.asked.append((round(now() - self._began, 3), topic, round(timeout, 3)))
        after, say = self.says[topic]
        await asyncio.sleep(min(after, timeout))
        if after > timeout:
            raise ConnectFailed("no name server answered")
        said = say()
        if isinstance(said, Exception):
            raise said
        return said


class Client:
    def __init__(self, **says: tuple[float, Say]) -> None:
        world = one_world()
        self.servers = NameServers()
        self.servers.says |= says
        self.routes = Routes(world.random)
        self.moved = 0
        #: Topics that have got queues.
        self.grown: list[str] = []
        self.questions = RouteQuestions(
            world.clock, cast(Any, self.servers), self.routes, self._moved, self.grown.append
        )

    def _moved(self) -> None:
        self.moved += 1

    def ask(
        self, timeout: float = 3.0, topic: str = "T", template: tuple[str, int] | None = None
    ) -> asyncio.Task[tuple[object, float]]:
        """What comes of a question that begins now, and how long that takes."""
        return asyncio.ensure_future(self._outcome(timeout, topic, template))

    async def _outcome(self, timeout: float, topic: str, template: tuple[str, int] | None) -> tuple[object, float]:
        began = now()
        try:
            said: object = await self.questions.ask(topic, timeout, template)
        except Exception as error:
            said = error
        return said, round(now() - began, 3)

    def end(self) -> None:
        """Nobody waits for anything any more, and no error is left that nobody has seen."""
        assert not self.questions._asked
        gc.collect()


# -- the topic's route and the template's share the time of one --------------------------------------------------------


@in_virtual_time
async def test_the_template_is_asked_for_in_what_the_topic_has_left_of_the_time() -> None:
    client = Client(New=(1.0, lambda: None), TBW102=(0.5, route))
    assert await client.ask(2.0, "New", TEMPLATE) == (True, 1.5)
    assert client.servers.asked == [(0.0, "New", 2.0), (1.0, "TBW102", 1.0)]
    assert [len(client.routes.publish["New"].queues), "New" in client.routes.own] == [2, False]
    client.end()


@in_virtual_time
async def test_both_together_take_no_longer_than_one_may() -> None:
    client = Client(New=(1.5, lambda: None), TBW102=(1.0, route))
    said, took = await client.ask(2.0, "New", TEMPLATE)
    assert isinstance(said, ConnectFailed)
    assert took == 2.0
    client.end()


@in_virtual_time
async def test_a_topic_with_a_route_of_its_own_leaves_the_template_alone() -> None:
    client = Client(New=(0.1, route))
    assert await client.ask(2.0, "New", TEMPLATE) == (True, 0.1)
    assert "New" in client.routes.own
    client.servers.says["New"] = (0.1, lambda: None)  # one name server that has just been started
    assert await client.ask(2.0, "New", TEMPLATE) == (True, 0.1)
    assert [topic for _, topic, _ in client.servers.asked] == ["New", "New"]


@in_virtual_time
async def test_name_servers_that_never_answer_are_waited_for_as_long_as_was_said() -> None:
    class Silent(NameServers):
        async def route(self, topic: str, timeout: float) -> TopicRouteData | None:
            await asyncio.sleep(3600)
            return None

    client = Client()
    client.questions = RouteQuestions(
        one_world().clock, cast(Any, Silent()), client.routes, client._moved, client.grown.append
    )
    said, took = await client.ask(2.0)
    assert str(said) == "no name server answered in 2 s for the route of T"
    assert isinstance(said, RequestTimeout)
    assert took == 2.1
    client.questions.end()


# -- who waits for somebody else's question ----------------------------------------------------------------------------


@in_virtual_time
async def test_who_comes_meanwhile_asks_nothing_and_hears_the_same_in_order() -> None:
    client = Client(T=(1.0, route))
    order: list[int] = []
    waiting = [client.ask()]
    for number in range(100):
        waiting.append(client.ask())
        waiting[-1].add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
    assert {said for said, _ in await asyncio.gather(*waiting)} == {True}
    await asyncio.sleep(0)
    assert order == list(range(100))
    assert len(client.servers.asked) == 1
    assert client.moved == 1
    client.end()


@in_virtual_time
async def test_a_first_asker_that_is_cancelled_leaves_its_question_to_the_others() -> None:
    client = Client(T=(1.0, route))
    first = client.ask()
    await asyncio.sleep(0.2)
    others = [client.ask(), client.ask()]
    await asyncio.sleep(0.2)
    first.cancel()
    assert await asyncio.gather(*others) == [(True, 0.8), (True, 0.8)]
    assert first.cancelled()
    assert len(client.servers.asked) == 1
    client.end()


@in_virtual_time
async def test_a_question_of_which_all_are_cancelled_ends_and_the_next_one_is_answered() -> None:
    client = Client(T=(1.0, lambda: ConnectFailed("no name server answered")))
    waiting = [client.ask(), client.ask()]
    await asyncio.sleep(0.5)
    for task in waiting:
        task.cancel()
    await asyncio.sleep(1.0)
    client.end()  # its error is nobody's
    client.servers.says["T"] = (0.1, route)
    assert await client.ask() == (True, 0.1)


@in_virtual_time
async def test_a_first_asker_with_less_time_fails_alone() -> None:
    """Who waits with it and has more time asks once more, all of them together, for the rest of it."""
    client = Client(T=(1.5, route))
    first = client.ask(1.0)
    others = [client.ask(3.0), client.ask(3.0), client.ask(2.6)]
    said, took = await first
    assert isinstance(said, ConnectFailed)
    assert took == 1.0
    assert await asyncio.gather(*others) == [(True, 2.5), (True, 2.5), (True, 2.5)]
    assert client.servers.asked == [(0.0, "T", 1.0), (1.0, "T", 2.0)]
    client.end()


@in_virtual_time
async def test_what_a_name_server_refuses_it_refuses_to_all() -> None:
    client = Client(T=(0.5, lambda: ResponseError(1, "broken")))
    outcomes = await asyncio.gather(client.ask(1.0), client.ask(9.0), client.ask(9.0))
    assert [took for _, took in outcomes] == [0.5, 0.5, 0.5]
    assert all(isinstance(said, ResponseError) for said, _ in outcomes)
    assert len(client.servers.asked) == 1
    client.end()


@in_virtual_time
async def test_each_who_waits_has_its_own_time() -> None:
    """The first has the most: whoever has less does not wait for its answer."""
    client = Client(T=(5.0, route))
    first, short, shorter = client.ask(6.0), client.ask(2.0), client.ask(1.0)
    said, took = await shorter
    assert isinstance(said, RequestTimeout)
    assert took == 1.1
    said, took = await short
    assert isinstance(said, RequestTimeout)
    assert took == 2.1
    assert await first == (True, 5.0)
    assert len(client.servers.asked) == 1
    client.end()


@in_virtual_time
async def test_one_that_asked_before_with_a_template_is_no_question_of_who_has_none() -> None:
    client = Client(New=(0.5, lambda: None), TBW102=(0.5, route))
    with_template, without = client.ask(3.0, "New", TEMPLATE), client.ask(3.0, "New")
    assert await without == (True, 1.0)  # a template that is known serves everybody
    assert await with_template == (True, 1.0)
    client.end()


@pytest.mark.parametrize("after", [0.0, 0.5])
@in_virtual_time
async def test_the_end_of_the_client_ends_every_question_at_once(after: float) -> None:
    client = Client(T=(1.0, route))
    waiting = [client.ask(1.0), client.ask(9.0), client.ask(9.0)]
    await asyncio.sleep(after)
    client.questions.end()
    outcomes = await asyncio.gather(*waiting)
    assert [took for _, took in outcomes] == [0.0, 0.0, 0.0] if after == 0 else [0.5, 0.5, 0.5]
    assert {str(said) for said, _ in outcomes} == {"the route of T is not known: the client is shut down"}
    said, _ = await client.ask()
    assert isinstance(said, ConnectFailed), "it is asked of nobody any more"
    assert len(client.servers.asked) <= 1
    client.end()


# -- topics that get queues --------------------------------------------------------------------------------------------


@in_virtual_time
async def test_who_consumes_is_told_of_new_queues_and_of_nothing_else() -> None:
    client = Client()
    told = []
    # First known, the same, two more, fewer, closed, open again.
    for read, perm in (4, 6), (4, 6), (6, 6), (2, 6), (2, 2), (2, 6):
        client.servers.says["T"] = (0.1, lambda read=read, perm=perm: route(read, perm))  # type: ignore[misc]
        await client.ask()
        told.append(len(client.grown))
    assert told == [0, 0, 1, 1, 1, 2]
    assert set(client.grown) == {"T"}
    client.end()
