"""A real nameserver and broker whose time is virtual: hours of delays and retries pass in moments, on request.

Every server has a machine of its own, with a disk and a network in memory, and the clients have one together, so that
a process can be killed and a line be cut; everything else is the real code, from a client's call to the commit log.
The fixture ``rmq_cluster`` (:mod:`rmq.testing.plugin`) is one of these: :class:`SimCluster` in a coroutine,
:class:`BlockingSimCluster` in a plain function.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from math import inf
from typing import Any, Self, TypeVar

from rmq.broker.app import BrokerApp
from rmq.broker.store.store import Store
from rmq.client.checks import check_number, typed
from rmq.client.decode import decode_messages
from rmq.client.message import MessageExt
from rmq.client.shown import shown
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.keywords import keywords
from rmq.runtime.real import RealClock
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from rmq.testing.simloop import SimLoop
from rmq.testing.simworld import Simulation

__all__ = ["BlockingSimCluster", "SimCluster"]

T = TypeVar("T")

#: Virtual seconds after a time that was asked for, in which what is due then gets to where it goes.
_ARRIVAL = 0.2
#: Virtual seconds that a test may wait without :meth:`SimCluster.advance`: then what it waits for does not come.
_PATIENCE = 3600.0


@typed()
class SimCluster(Cluster):
    """A cluster in virtual time, and the clients that live in it; for coroutines of a :class:`SimLoop`.

    Between :meth:`start` and :meth:`stop` clients that are given no ``world`` are its clients.

    :param brokers: broker sets, named ``broker-0`` and so on. :param slaves: slaves of each.
    :param namesrvs: nameservers.
    :param settings: Java key -> text for every broker, such as ``{"enablePropertyFilter": "true"}``.
    :param seed: of what is left to chance: the same one gives the same run.
    :param loop: for blocking clients, see :class:`~rmq.testing.simworld.Simulation`.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        slaves: int = 0,
        namesrvs: int = 1,
        settings: dict[str, str] | None = None,
        seed: int = 0,
        loop: SimLoop | None = None,
    ) -> None:
        check_number(seed, "seed")
        self.simulation: Simulation = Simulation(seed, loop, RealClock().now_ms())
        clients = self._clients = self.simulation.node("clients")
        super().__init__(
            "/cluster",
            brokers=brokers,
            slaves=slaves,
            namesrvs=namesrvs,
            settings={"listenPort": "10911", **(settings or {})},
            world=clients.world,
        )
        self._lived_in = ExitStack()

    def _machine(self, name: str) -> tuple[World, str]:
        nodes = self.simulation.nodes
        node = nodes[name] if name in nodes else self.simulation.node(name)
        return node.world, node.address

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._lived_in.enter_context(self.world.entered())
        self.simulation.net.loop = asyncio.get_running_loop()
        self._allow(0.0)
        try:
            await super().start()
        except BaseException:
            self._lived_in.close()
            raise

    async def stop(self) -> None:
        self._allow(0.0)
        try:
            await super().stop()
        finally:
            self._lived_in.close()

    async def kill_broker(self, number: int = 0, broker_id: int = 0) -> None:
        """kill -9: nobody is told, connections break, and what was written is there for the next :meth:`start_broker`.

        :param number: of the broker set. :param broker_id: 0 = its master, else a slave.
        :raises ClientError: it does not run.
        """
        app = self._running(number, broker_id)
        node = self.simulation.nodes[_machine_of(number, broker_id)]
        left = node.disk.copied()
        for pipe in self.simulation.net.pipes_of(node.address):
            pipe.abort()
        self.simulation.net.kill(node.address)
        self.brokers.remove(app)
        with unheard():
            await app.stop()  # on a disk and a network of which nobody sees anything any more
        node.disk = left
        self.simulation.kill(node)

    def _running(self, number: int, broker_id: int) -> BrokerApp:
        for app in self.brokers:
            if (app.settings.broker_name, app.settings.broker_id) == (f"broker-{number}", broker_id):
                return app
        raise ClientError(f"{_machine_of(number, broker_id)} does not run")

    # -- time ---------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """What the clocks of the cluster say; they begin with the real time, and are ahead of it from then on."""
        return datetime.fromtimestamp(self.world.clock.now_ms() / 1000, UTC)

    async def advance(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Let time pass: whatever is due in it happens, in its order, in the brokers and in the clients.

        :raises ValueError: time does not go back. :raises WrongType: it is no time.
        """
        whole = 0.0
        for name, value, length in (
            ("seconds", seconds, 1), ("minutes", minutes, 60), ("hours", hours, 3600), ("days", days, 86_400),
        ):  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise WrongType(f"{name} is {shown(value)}: give a number")
            whole += value * length
        if not 0 <= whole < inf:
            raise ValueError(f"time does not go back: advance() is asked for {whole:g} s")
        self._allow(whole)
        await asyncio.sleep(whole + _ARRIVAL)

    def _allow(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop):
            loop.limit = loop.time() + seconds + _PATIENCE

    # -- lines --------------------------------------------------------------------------------------------------------

    def cut(self, *brokers: int) -> None:
        """The clients reach no server any more, or none of these broker sets: connections stay open, and silent.

        :raises ClientError: there is no such broker.
        """
        for number in brokers:
            check_number(number, "the number of a broker set")
            if f"broker-{number}" not in self.simulation.nodes:
                raise ClientError(f"there is no broker-{number}")
        for name, node in self.simulation.nodes.items():
            # A slave is broker-1-1, and broker-10 is another set.
            of = name.removeprefix("broker-").partition("-")[0]
            if node is not self._clients and (not brokers or of in map(str, brokers)):
                self.simulation.net.cut(self._clients.address, node.address)

    def heal(self) -> None:
        """Every line works again; what was written meanwhile arrives."""
        self.simulation.net.heal()

    # -- what is stored -----------------------------------------------------------------------------------------------

    async def messages(self, topic: str) -> list[MessageExt]:
        """What the masters that run have of a topic and consumers may see, the oldest first; none of an unknown topic.

        :param topic: any, such as ``%RETRY%group`` for what waits to be tried again and ``%DLQ%group`` for what never
            will be.
        """
        found: list[MessageExt] = []
        for app in self.brokers:
            if app.settings.broker_id == 0:
                found += decode_messages(await _records(app.store, topic), app.settings.broker_name)
        found.sort(key=lambda message: (message.store_timestamp, message.commit_log_offset))
        return found


async def _records(store: Store, topic: str) -> bytes:
    """The visible records of a topic, queue by queue."""
    records = []
    for queue in [queue for queue in store.queues if queue.topic == topic]:
        index = queue.min
        while index < queue.visible:
            entries = await store.queues.entries_cold(queue, index, queue.visible - index)
            if not entries:
                break
            for offset, _, _ in struct.iter_unpack(">qiq", entries):
                index += 1
                records.append(await store.messages.at(offset) or b"")
    return b"".join(records)


def _machine_of(number: int, broker_id: int) -> str:
    return f"broker-{number}-{broker_id}" if broker_id else f"broker-{number}"


@contextmanager
def unheard() -> Iterator[None]:
    """What a process says at its end, which nobody sees."""
    loggers = [logging.getLogger(f"rmq.{part}") for part in ("broker", "remoting", "runtime")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@keywords
class BlockingSimCluster:
    """:class:`SimCluster` for plain functions; takes the same arguments but the loop.

    Time passes within the calls of clients, as long as they take, within :meth:`advance`, and beside real time
    otherwise, so that what waits in another way, for a :class:`queue.Queue` say, gets what is on its way.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        slaves: int = 0,
        namesrvs: int = 1,
        settings: dict[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        #: The same cluster for coroutines, which run with :meth:`call`.
        self.cluster: SimCluster = SimCluster(
            brokers=brokers, slaves=slaves, namesrvs=namesrvs, settings=settings, seed=seed, loop=SimLoop()
        )
        self._time = self.cluster.simulation.bridge()
        self._passing = ExitStack()

    def call(self, what: Callable[[SimCluster], Coroutine[Any, Any, T]]) -> T:
        """Run ``what(cluster)``, which returns a coroutine, in the cluster's time."""
        return self._time.run(what(self.cluster))

    @property
    def world(self) -> World:
        """Where its clients live."""
        return self.cluster.world

    @property
    def namesrv_addr(self) -> str:
        """What clients take: ``host:port;host:port``."""
        return self.cluster.namesrv_addr

    @property
    def broker_addr(self) -> str:
        """``host:port`` of the first broker that runs."""
        return self.cluster.broker_addr

    def start(self) -> None:
        self.call(lambda cluster: cluster.start())
        self._passing.enter_context(self._time.in_real_time(self._pass_a_moment))

    def stop(self) -> None:
        self._passing.close()
        try:
            self.call(lambda cluster: cluster.stop())
        finally:
            self._time.close()

    def _pass_a_moment(self, seconds: float) -> None:
        loop = self.cluster.simulation.loop
        assert loop is not None

        async def go_on() -> None:
            loop.limit = max(loop.limit, loop.time() + 2 * seconds)  # who waits in vain is told where he waits
            await asyncio.sleep(seconds)

        self._time.run(go_on())

    def start_broker(self, number: int = 0, **settings: str) -> None:
        """See :meth:`Cluster.start_broker`."""
        self.call(lambda cluster: cluster.start_broker(number, **settings))

    def kill_broker(self, number: int = 0, broker_id: int = 0) -> None:
        """See :meth:`SimCluster.kill_broker`."""
        self.call(lambda cluster: cluster.kill_broker(number, broker_id))

    def now(self) -> datetime:
        """See :meth:`SimCluster.now`."""
        return self.cluster.now()

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> None:
        """See :meth:`SimCluster.advance`."""
        self.call(lambda cluster: cluster.advance(seconds, minutes=minutes, hours=hours, days=days))

    def cut(self, *brokers: int) -> None:
        """See :meth:`SimCluster.cut`."""

        async def cut(cluster: SimCluster) -> None:
            cluster.cut(*brokers)

        self.call(cut)

    def heal(self) -> None:
        """See :meth:`SimCluster.heal`."""

        async def heal(cluster: SimCluster) -> None:
            cluster.heal()

        self.call(heal)

    def messages(self, topic: str) -> list[MessageExt]:
        """See :meth:`SimCluster.messages`."""
        return self.call(lambda cluster: cluster.messages(topic))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
