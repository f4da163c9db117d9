"""What a client knows of the cluster: routes, the queues for sending, the brokers' addresses. Pure: times come in."""

from __future__ import annotations

import math

from rmq.client.cluster.route import PERM_WRITE, PublishInfo, publish_queues, subscribe_queues
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.errors import ClientError, NotFound
from rmq.protocol.queue import MessageQueue
from rmq.runtime.world import Random

__all__ = ["Routes", "no_such_topic"]

#: Seconds without a send after which a topic's route is asked for no more.
_IDLE_SECONDS = 600.0
#: Seconds for which a name server alone is not believed that names somebody who refused or gave no answer.
_SUSPECT_SECONDS = 30.0


def no_such_topic(topic: str) -> ClientError:
    """What a call is told that is about a topic without a route."""
    return NotFound(f"the topic {topic} does not exist: no broker has registered it").about(topic=topic)


class Routes:
    """The routes of the topics in use.

    Only the loop of its client changes it. Threads that encode sends read ``publish`` and ``broker_addrs``, which
    are replaced and never changed.

    :param random: where the turns of a topic's queues begin.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        #: Topic -> its own route.
        self.own: dict[str, TopicRouteData] = {}
        #: Topics without a route of their own -> the template's route, by which they are sent.
        self.borrowed: dict[str, TopicRouteData] = {}
        #: Topic -> (topic whose route serves when it has none, most queues).
        self.templates: dict[str, tuple[str, int]] = {}
        #: Topic -> its queues for sending.
        self.publish: dict[str, PublishInfo] = {}
        #: Broker name -> broker id -> address.
        self.broker_addrs: dict[str, dict[int, str]] = {}
        #: Topics whose last send got no answer in its time, or whose master's connection is gone: the next send asks
        #: first who takes its messages now.
        self.doubted: set[str] = set()
        #: Brokers, by name, of which one was lost, gave no answer, or refused what a master does not: whoever asks for
        #: their addresses next has them asked for anew first.
        self.unsure: set[str] = set()
        #: Addresses of those, and when that was, monotonic seconds.
        self._suspected: dict[str, float] = {}

    def take(self, topic: str, route: TopicRouteData, *, own: bool) -> bool:
        """A topic's route, as a name server says it.

        :param own: False: it is the template's, by which the topic is sent.
        :returns: whether brokers came or moved.
        """
        addrs = dict(self.broker_addrs)
        for broker in route.broker_datas:
            addrs[broker.broker_name] = {int(i): address for i, address in broker.broker_addrs.items()}
        moved = addrs != self.broker_addrs
        self.broker_addrs = addrs
        self.unsure.difference_update(broker.broker_name for broker in route.broker_datas)
        old = self.publish.get(topic)
        queues = publish_queues(topic, route)
        if old is None:
            info = PublishInfo(topic, queues)
            for _ in range(self._random.randrange(64)):
                next(info.turn)
            self.publish = {**self.publish, topic: info}
        elif old.queues != queues:
            self.publish = {**self.publish, topic: PublishInfo(topic, queues, old.turn)}
        if own:
            self.own[topic] = route
            self.borrowed.pop(topic, None)
        else:
            self.borrowed[topic] = route
        return moved

    def forget_idle(self, subscribed: set[str], asked: set[str], now: float) -> None:
        """Ask no more for topics that nobody uses: the next send to one asks again.

        One topic of each broker stays, so that heartbeats go on to all brokers that a producer has sent to: they ask it
        how its transactions ended.

        :param asked: topics whose routes are being asked for. :param now: seconds of the monotonic clock.
        """
        idle = []
        named: set[str] = set()
        for topic, info in self.publish.items():
            if info.used or topic in subscribed:
                info.used, info.used_at = False, now
            if now - info.used_at < _IDLE_SECONDS:
                named |= self._brokers_of(topic)
            else:
                idle.append(topic)
        for topic in subscribed:
            named |= self._brokers_of(topic)
        gone = set()
        for topic in idle:
            brokers = self._brokers_of(topic)
            if brokers <= named:
                gone.add(topic)
            named |= brokers
        if gone:
            self.publish = {topic: info for topic, info in self.publish.items() if topic not in gone}
            for topic in gone:
                self.own.pop(topic, None)
                self.borrowed.pop(topic, None)
                self.doubted.discard(topic)
        for topic in self.templates.keys() - self.publish.keys() - asked:
            del self.templates[topic]

    def _brokers_of(self, topic: str) -> set[str]:
        route = self.own.get(topic) or self.borrowed.get(topic)
        return set() if route is None else {broker.broker_name for broker in route.broker_datas}

    def forget_brokers(self) -> None:
        """Drop brokers that no route names any more."""
        routes = [*self.own.values(), *self.borrowed.values()]
        named = {broker.broker_name for route in routes for broker in route.broker_datas}
        if gone := self.broker_addrs.keys() - named:
            self.broker_addrs = {name: addrs for name, addrs in self.broker_addrs.items() if name not in gone}
            self.unsure -= gone

    def masters_away(self, topic: str) -> list[str]:
        """The brokers that have a topic for writing and whose master no name server knows now."""
        route = self.own.get(topic) or self.borrowed.get(topic)
        if route is None:
            return []
        there = {broker.broker_name for broker in route.broker_datas if 0 in broker.broker_addrs}
        return sorted({data.broker_name for data in route.queue_datas if data.perm & PERM_WRITE} - there)

    def doubt(self, address: str) -> None:
        """Somebody else may be the master in place of that one."""
        names = {name for name, addrs in self.broker_addrs.items() if addrs.get(0) == address}
        if names:
            self.doubted.update(topic for topic, info in self.publish.items() if info.brokers & names)

    def suspect(self, address: str, now: float) -> None:
        """Whoever is there may not be, or not be any more, what the routes say: noticed ``now``, monotonic seconds."""
        if names := self._named(address):
            self.unsure.update(names)
            for old in [one for one, at in self._suspected.items() if at < now - _SUSPECT_SECONDS]:
                del self._suspected[old]
            self._suspected[address] = now

    def suspects(self, address: str, now: float) -> bool:
        """Whether :meth:`suspect` was told of it lately, be it that its broker was asked for since."""
        return self._suspected.get(address, -math.inf) >= now - _SUSPECT_SECONDS

    def trust(self, address: str) -> None:
        """Whoever is there has done what was asked of it."""
        if self.unsure:
            self.unsure.difference_update(self._named(address))

    def _named(self, address: str) -> list[str]:
        return [name for name, addrs in self.broker_addrs.items() if address in addrs.values()]

    def subscribe_queues(self, topic: str) -> list[MessageQueue] | None:
        """The queues of a topic for consumers; None when it has no route yet."""
        route = self.own.get(topic)
        return None if route is None else subscribe_queues(topic, route)

    def master_addr(self, broker_name: str) -> str | None:
        return self.broker_addrs.get(broker_name, {}).get(0)
