"""Which groups live in a client, told to its brokers: heartbeats in their rhythm and out of it, and the goodbye."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from rmq.client.cluster.routes import Routes
from rmq.client.outages import Outages
from rmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import UnregisterClientRequest
from rmq.remoting.client import RemotingClient
from rmq.remoting.conn import Conn
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner

__all__ = ["Heartbeats"]

log = logger(__name__)

#: A fresh producer is told to brokers this soon after its first route, so that they know it before its next beat.
_SOON = 1.0
#: Brokers that did not take a heartbeat are tried again after this time: without one a consumer gets no messages.
_AGAIN = 5.0
_TIMEOUT = 3.0


class _Told(Protocol):
    """A consumer as its heartbeat shows it."""

    def heartbeat_data(self) -> ConsumerData: ...


class Household(Protocol):
    """Who lives in a client, and where its brokers are."""

    client_id: str
    remoting: RemotingClient
    routes: Routes
    outages: Outages
    #: Masters that are told, whether or not a topic in use leads there.
    masters: dict[str, str]
    producers: set[str]

    @property
    def consumers(self) -> Mapping[str, _Told]: ...


class Heartbeats:
    """The heartbeats of one client."""

    def __init__(self, household: Household) -> None:
        self._of = household
        self._tasks: TaskOwner | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        #: Addresses of brokers that know us, and of those that did not take the last heartbeat.
        self._beaten: set[str] = set()
        self._failing: set[str] = set()

    def begin(self, tasks: TaskOwner, interval: float) -> None:
        """Beat every ``interval`` seconds, as tasks of ``tasks``."""
        self._tasks = tasks
        tasks.every(interval, self.beat, "heartbeat")

    def end(self) -> None:
        """No beat out of the rhythm any more; the rhythm ends with its tasks."""
        if self._handle is not None:
            self._handle.cancel()

    def soon(self, delay: float = _SOON) -> None:
        """Beat shortly, out of the rhythm: a broker does not know us, or not as we are."""
        if self._tasks is None or self._tasks.closed:
            return
        loop = asyncio.get_running_loop()
        if self._handle is not None:
            if self._handle.when() <= loop.time() + delay:
                return
            self._handle.cancel()
        self._handle = loop.call_later(delay, self._now)

    def _now(self) -> None:
        self._handle = None
        if self._tasks is not None and not self._tasks.closed:
            self._tasks.spawn(self.beat(), "heartbeat now")

    def lost(self, conn: Conn) -> None:
        """A broker forgets who was on a connection that ended; whoever it may have to find tells it again at once."""
        if conn.address in self._beaten and (self._of.consumers or self._of.masters):
            self._beaten.discard(conn.address)
            self.soon()

    def told(self, addresses: Iterable[str]) -> bool:
        """Whether brokers know us, all that can be told."""
        connected = self._of.remoting.connected
        return all(
            address in self._failing or (address in self._beaten and connected(address) is not None)
            for address in addresses
        )

    async def beat(self) -> None:
        """Tell the brokers of all routes which groups live here; without consumers only the masters are told."""
        async with self._lock:
            household = self._of
            if not household.producers and not household.consumers:
                return
            data = HeartbeatData(
                client_id=household.client_id,
                producer_data_set=[ProducerData(group_name=group) for group in sorted(household.producers)],
                consumer_data_set=[consumer.heartbeat_data() for consumer in household.consumers.values()],
            )
            body = data.encode()
            addresses = sorted(
                {
                    address
                    for addrs in household.routes.broker_addrs.values()
                    for broker_id, address in addrs.items()
                    if household.consumers or broker_id == 0
                }
                | set(household.masters.values())
            )
            outcomes = await asyncio.gather(
                *(
                    household.remoting.request(address, Command.request(RequestCode.HEART_BEAT, None, body), _TIMEOUT)
                    for address in addresses
                ),
                return_exceptions=True,
            )
            for address, outcome in zip(addresses, outcomes, strict=True):
                if isinstance(outcome, Command):
                    household.outages.answered(address)
                if isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS:
                    self._beaten.add(address)
                    self._failing.discard(address)
                elif address not in self._failing:
                    self._failing.add(address)
                    what = outcome.remark if isinstance(outcome, Command) else outcome
                    level = logging.WARNING if isinstance(outcome, Command) else household.outages.level(outcome)
                    log.log(level, "the broker %s does not take heartbeats: %s", address, what)
            if (household.consumers or household.masters) and self._failing & set(addresses):
                self.soon(_AGAIN)

    async def goodbye(self, producer: str | None, consumer: str | None) -> None:
        """Tell every broker that a group has left; one that does not answer finds out by itself."""
        remoting = self._of.remoting
        header = UnregisterClientRequest(client_id=self._of.client_id, producer_group=producer, consumer_group=consumer)
        calls = [
            remoting.request(address, Command.request(RequestCode.UNREGISTER_CLIENT, header), _TIMEOUT)
            for address in sorted(self._beaten)
            # A broker to which the connection is gone has dropped us already.
            if remoting.connected(address) is not None
        ]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.debug("unregistering %s: %s", producer or consumer, outcome)
