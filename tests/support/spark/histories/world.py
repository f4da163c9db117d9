"""A topic in a cluster in memory, what happens to it, and what becomes of each of its messages."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rmq.protocol.command import Command
from tests.support.spark.memory import MemoryBroker, MemoryCluster, MemoryQueue

__all__ = ["Sent", "World"]

TOPIC = "t"
#: (number of the broker, number of the queue)
Where = tuple[int, int]


@dataclass(slots=True, eq=False)
class Sent:
    """A message.

    :param home: the queue it was stored in; that of a topic made anew is another one.
    :param known: whether the query knew of its queue when the message went away.
    """

    number: int
    where: Where
    home: MemoryQueue
    offset: int
    time: int
    known: bool = False


class World:
    """Everything that may happen to the topic but for the query.

    :param between: how likely something happens before an answer of a broker, too.
    """

    def __init__(self, rng: random.Random, brokers: int, between: float) -> None:
        self.rng, self.between = rng, between
        self.cluster = MemoryCluster()
        self.cluster.brokers += [MemoryBroker(f"broker-{name}") for name in "bcd"[: brokers - 1]]
        for broker in self.cluster.brokers:
            broker.most_a_pull = rng.choice([2, 32])
        self.queues = rng.randint(1, 4)
        self.cluster.create(TOPIC, self.queues)
        self.messages: list[Sent] = []
        self.said: list[str] = []
        #: Whether retention and new topics take messages.
        self.takes = rng.random() < 0.75
        #: Queues that the query's checkpoint knows with messages in them; the query says.
        self.known: dict[Where, MemoryQueue] = {}
        #: Whether something was away since the query looked here last, and queues that were not offered since.
        self.was_away = False
        self.closed: set[MemoryQueue] = set()
        self._back_at: dict[int, float] = {}
        self._busy = False
        self._sleep = self.cluster.sleep
        self.cluster.sleep = self.sleep  # type: ignore[method-assign]
        self.cluster.before = self.before

    # -- what there is ------------------------------------------------------------------------------------------------

    def now(self) -> dict[Where, MemoryQueue]:
        """The queues there are, offered or not."""
        return {
            (number, queue): found
            for number, broker in enumerate(self.cluster.brokers)
            for (_, queue), found in broker.queues.items()
        }

    def is_offered(self, where: Where) -> bool:
        return where[1] < self.cluster.topics.get(TOPIC, 0)

    def is_there(self, one: Sent) -> bool:
        return one.offset >= one.home.least and self.now().get(one.where) is one.home

    def names_of(self, where: Where) -> tuple[str, int]:
        return self.cluster.brokers[where[0]].name, where[1]

    # -- what happens -------------------------------------------------------------------------------------------------

    def happen(self, what: str) -> None:
        self.said.append(what)
        getattr(self, what)()

    def send(self) -> None:
        if TOPIC not in self.cluster.topics:
            return
        for _ in range(self.rng.randint(1, 6)):
            self.cluster.now += 0.01
            where = self.rng.randrange(len(self.cluster.brokers)), self.rng.randrange(self.cluster.topics[TOPIC])
            if not self.cluster.brokers[where[0]].up:
                continue
            home = self.now()[where]
            number = len(self.messages)
            self.messages.append(Sent(number, where, home, home.most, self.cluster.now_ms()))
            self.cluster.put(TOPIC, where[1], broker=where[0], body=b"%d" % number)

    def grow(self) -> None:
        if TOPIC in self.cluster.topics:
            self.queues = min(4, self.queues + 1)
            self.cluster.create(TOPIC, self.queues)

    def shrink(self) -> None:
        if TOPIC in self.cluster.topics:
            self.queues = self.rng.randint(1, self.queues)
            self.cluster.topics[TOPIC] = self.queues
            self.closed.update(home for where, home in self.now().items() if not self.is_offered(where))

    def expire(self) -> None:
        """Retention takes the oldest messages of a queue."""
        if not (there := sorted(self.now().items(), key=lambda each: each[0])):
            return
        where, home = self.rng.choice(there)
        # Of a topic made anew nothing goes before the query looked: no oldest message would tell that it is another.
        if self.cluster.brokers[where[0]].up and self.known.get(where, home) is home:
            least = self.rng.randint(home.least, home.most)
            self._goes(one for one in self.messages if one.home is home and home.least <= one.offset < least)
            home.least = least

    def delete(self) -> None:
        if TOPIC not in self.cluster.topics or not all(broker.up for broker in self.cluster.brokers):
            return
        self.was_away = True
        self._goes(one for one in self.messages if self.is_there(one))
        self.closed.update(self.now().values())
        del self.cluster.topics[TOPIC]
        for broker in self.cluster.brokers:
            broker.queues.clear()

    def make(self) -> None:
        """The topic that was deleted is there again."""
        if TOPIC not in self.cluster.topics:
            self.queues = self.rng.choice([self.queues, self.rng.randint(1, 4)])
            self.cluster.now += 0.01
            self.cluster.create(TOPIC, self.queues)

    def anew(self) -> None:
        self.delete()
        self.make()
        for _ in range(self.rng.randint(0, 3)):
            self.send()

    def away(self) -> None:
        """A broker is gone for a while: it restarts, or is unplugged."""
        number = self.rng.randrange(len(self.cluster.brokers))
        self.cluster.brokers[number].up = False
        self._away(number)

    def namesrv(self) -> None:
        self.cluster.namesrv_up = False
        self._away(-1)

    def _away(self, number: int) -> None:
        self.was_away = True
        self._back_at[number] = self.cluster.now + self.rng.choice([1, 8, 30, 100])

    def rest(self) -> None:
        """Everything comes back, and all queues that the topic has are offered."""
        self._back_at = dict.fromkeys(self._back_at, 0.0)
        self.make()
        self.sleep(10)

    def _goes(self, those: object) -> None:
        for one in those:  # type: ignore[attr-defined]
            one.known = self.known.get(one.where) is one.home

    # -- the clock, and what happens while the query asks -------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        self._sleep(seconds)
        for number, moment in list(self._back_at.items()):
            if moment <= self.cluster.now:
                del self._back_at[number]
                if number < 0:
                    self.cluster.namesrv_up = True
                else:
                    self.cluster.brokers[number].up = True

    def before(self, broker: MemoryBroker, request: Command) -> None:
        """Before an answer, whatever it is: things happen between any two of a query's questions."""
        if self.rng.random() >= self.between:
            return
        what = self.rng.choice(["send", "send", "grow", *(["expire", "anew", "shrink"] if self.takes else []), "cut"])
        self.said.append(f"({what})")
        if what == "cut":
            self.was_away = True
            raise ConnectionResetError(104, "Connection reset by peer")
        getattr(self, what)()
