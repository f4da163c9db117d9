"""The routes of a client's topics, asked of its name servers: once for all who want to know one at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from rmq.client.cluster.route import subscribe_queues
from rmq.client.cluster.routes import Routes
from rmq.client.nameservers import NameServers
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.errors import ConnectFailed, RequestTimeout, RMQError, TransportError
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.world import Clock

__all__ = ["RouteQuestions"]

log = logger(__name__)

#: Seconds that who asks waits longer than the name servers may take: their error says more than a time-out of ours.
_LONGER = 0.1


@dataclass(slots=True)
class _Question:
    """A topic's route that name servers are being asked for."""

    task: asyncio.Task[bool]
    #: Seconds of the monotonic clock; it has ended by then.
    until: float
    #: Who waits for it, and has time until then.
    waiting: list[asyncio.Future[bool]] = field(default_factory=list)


def _never_known(topic: str) -> ConnectFailed:
    return ConnectFailed(f"the route of {topic} is not known: the client is shut down")


def _has_more(topic: str, before: TopicRouteData, now: TopicRouteData) -> bool:
    """Whether there are new queues; those that are gone wait for a rebalance in its turn: they may be back by then."""
    return not set(subscribe_queues(topic, now)) <= set(subscribe_queues(topic, before))


class RouteQuestions:
    """Keeps the ``routes`` of one client as its name servers say.

    :param moved: called when brokers came, or have other addresses.
    :param grown: called with a topic that has queues for consumers which it had not when it was asked for before.
    """

    def __init__(
        self,
        clock: Clock,
        name_servers: NameServers,
        routes: Routes,
        moved: Callable[[], object],
        grown: Callable[[str], object],
    ) -> None:
        self._clock = clock
        self._name_servers = name_servers
        self._routes = routes
        self._moved = moved
        self._grown = grown
        #: (topic, topic whose route serves when there is none) -> the question.
        self._asked: dict[tuple[str, str | None], _Question] = {}
        #: Topics whose route nobody said when last asked: logged once while it lasts.
        self._unanswered: set[str] = set()
        self._ended = False

    def end(self) -> None:
        """Ask nobody any more; who waits hears that the client is shut down."""
        self._ended = True
        for question in self._asked.values():
            question.task.cancel()

    async def ask_all(self, subscribed: set[str]) -> None:
        """Ask again for the route of every topic in use, and forget what nobody uses any more.

        :param subscribed: topics that consumers need.
        """
        asked = {topic for topic, _ in self._asked}
        self._routes.forget_idle(subscribed, asked, self._clock.monotonic())
        topics = subscribed.union(self._routes.publish)
        self._unanswered &= topics
        for topic in sorted(topics):
            try:
                await self.ask(topic)
                self._unanswered.discard(topic)
            except RMQError as error:
                level = logging.DEBUG if topic in self._unanswered else logging.WARNING
                log.log(level, "route of %s: %s", topic, error)
                self._unanswered.add(topic)
        self._routes.forget_brokers()

    async def ask(self, topic: str, timeout: float = 3.0, template: tuple[str, int] | None = None) -> bool:
        """Ask for a topic's route; calls for the same topic at the same time share one question.

        :param timeout: seconds for all of it, be it a question of somebody else's.
        :param template: (topic whose route serves when there is none, most queues) for a topic that a send creates.
        :returns: whether there is a route.
        :raises RMQError: no name server says.
        """
        if template is not None:
            self._routes.templates[topic] = template
        key = (topic, template[0] if template else None)
        loop, clock = asyncio.get_running_loop(), self._clock
        deadline = clock.monotonic() + timeout
        while True:
            if self._ended:
                raise _never_known(topic)
            rest = deadline - clock.monotonic()
            question = self._asked.get(key)
            if ours := question is None:
                task = loop.create_task(
                    self._put(topic, rest, template or self._routes.templates.get(topic)), name=f"route {topic}"
                )
                question = self._asked[key] = _Question(task, clock.monotonic() + rest)
                task.add_done_callback(lambda ended: self._told(key, ended))
            assert question is not None
            # One for each, told in the order in which they came.
            waiter: asyncio.Future[bool] = loop.create_future()
            question.waiting.append(waiter)
            try:
                if not ours and question.until <= deadline:
                    # It ends by itself before our time does, so this needs no timer of ours: there may be thousands.
                    return await waiter
                async with patience.timeout(rest + _LONGER):
                    return await waiter
            except TransportError:
                # The question was of somebody with less time than we have.
                if ours or deadline - clock.monotonic() <= 0:
                    raise
            except TimeoutError:
                raise RequestTimeout(f"no name server answered in {timeout:g} s for the route of {topic}") from None

    def _told(self, key: tuple[str, str | None], task: asyncio.Task[bool]) -> None:
        question = self._asked.pop(key)
        error = _never_known(key[0]) if task.cancelled() else task.exception()  # seen here even when nobody waits
        for waiter in question.waiting:
            if waiter.done():  # it was cancelled
                continue
            if error is None:
                waiter.set_result(task.result())
            else:
                waiter.set_exception(error)

    async def _put(self, topic: str, timeout: float, template: tuple[str, int] | None) -> bool:
        """Ask for the topic's route, then for the template's: both in the time that there is for one."""
        until = self._clock.monotonic() + timeout
        route = await self._name_servers.route(topic, timeout)
        if route is None and template is not None and topic not in self._routes.own:
            route = await self._name_servers.route(template[0], max(0.001, until - self._clock.monotonic()))
            if route is not None:
                for data in route.queue_datas:
                    data.read_queue_nums = data.write_queue_nums = min(template[1], data.read_queue_nums)
                # Served by the template, not by a route of its own: asked again with every refresh until it has one.
                self._take(topic, route, own=False)
                return True
        if route is None:
            return topic in self._routes.publish
        self._take(topic, route, own=True)
        return True

    def _take(self, topic: str, route: TopicRouteData, *, own: bool) -> None:
        before = self._routes.own.get(topic)
        if self._routes.take(topic, route, own=own):
            self._moved()
        if before is not None and before.queue_datas != route.queue_datas and _has_more(topic, before, route):
            self._grown(topic)
