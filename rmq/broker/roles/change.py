"""The role a broker has now, and how it takes another one while it serves.

What a role brings is made anew when it begins and ended when it ends. A change goes through a state in which nothing is
taken: what the old role owes is brought to disk before the new one reads it. Messages in the log, whoever has stored
them, are the log's: a change acknowledges nothing and takes nothing back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from rmq.broker.arrivals import Arrivals
from rmq.broker.delays import DelayLevels
from rmq.broker.delivery.pull import Delivery
from rmq.broker.lane.admit import Admission
from rmq.broker.replication.master_service import MasterReplication
from rmq.broker.roles.master import MasterServices
from rmq.broker.roles.role import FOR_MASTERS, Role
from rmq.broker.roles.slave import SlaveServices
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.gate import Gate
from rmq.protocol.bodies.replica import HAClientRuntimeInfo
from rmq.remoting.conn import Conn
from rmq.remoting.router import Router
from rmq.runtime.ending import Parts
from rmq.runtime.services import Services

__all__ = ["Roles", "Switched"]

log = logging.getLogger(__name__)


class Switched(NamedTuple):
    """What a broker has in whatever role, and what each role does something to."""

    log: CommitLog
    router: Router
    admission: Admission
    delivery: Delivery
    arrivals: Arrivals
    #: Notices services that end.
    services: Services


class Roles:
    """One broker's role.

    :param role: what it begins with.
    :param levels: the delays, for a broker that does not deliver what is delayed.
    :param make_master: makes the services of a master,
    :param make_slave: and those of a slave.
    """

    def __init__(
        self,
        role: Role,
        switched: Switched,
        levels: DelayLevels,
        make_master: Callable[[], MasterServices],
        make_slave: Callable[[], SlaveServices],
    ) -> None:
        self.role = role
        #: The services of a master; None while the broker is none.
        self.master: MasterServices | None = None
        #: Those of a slave; None while the broker is none.
        self.slave: SlaveServices | None = None
        #: Why the broker has no role, after a change that failed.
        self.missing: str | None = None
        #: Whether a master takes messages as soon as it has begun; else who has made it one says when.
        self.opens = True
        #: Called when a role has begun, with it.
        self.on_change: list[Callable[[Role], None]] = []
        self._log, self._router, self._admission, self._delivery, self._arrivals, self._services = switched
        self._levels = levels
        self._make_master = make_master
        self._make_slave = make_slave
        self._begun = Parts("the broker")
        self._changing = asyncio.Lock()
        self._stopping = False

    async def load(self) -> None:
        """Make what the first role brings, from what is on disk; :meth:`start` has it serve.

        :raises StoreError: a file cannot be read, nor its backup.
        """
        await self._load(self.role)

    async def listen(self) -> None:
        """Take connections that only this role has; :meth:`load` is done.

        :raises ConfigError: a port is taken.
        """
        if self.master is not None:
            await self.master.listen()

    async def _load(self, role: Role) -> None:
        self._log.gate |= Gate.SLAVE
        if role.leads:
            await self._load_master()
        else:
            await self._load_slave()
        self._router.refuse(role.refusals)
        self._delivery.serve_as(leads=role.leads)

    async def _load_master(self) -> None:
        master, begins = self._make_master(), self._begun.push
        begins("the services of a master", master.end)
        await master.load()
        self.master = master
        begins("what they are told of", lambda: self._disconnect(master))
        self._admission.levels = master.schedule
        self._heed(master)
        for handler in master.handlers:
            self._router.add(handler)

    async def _load_slave(self) -> None:
        slave, begins = self._make_slave(), self._begun.push
        begins("the services of a slave", slave.end)
        await slave.load()
        self.slave = slave
        self._heed(slave)
        begins("what is known of them", lambda: self._let_go(slave))

    def _let_go(self, slave: SlaveServices) -> None:
        self.slave = None
        self._unheed(slave)

    def _disconnect(self, master: MasterServices) -> None:
        self.master = None
        self._admission.levels = self._levels
        self._unheed(master)
        for handler in master.handlers:
            self._router.remove(handler)

    def _heed(self, services: MasterServices | SlaveServices) -> None:
        """Tell them of arrivals, and notice when one ends."""
        self._arrivals.told += services.arrived
        self._services.watch(*services.tasks)

    def _unheed(self, services: MasterServices | SlaveServices) -> None:
        """They end."""
        self._services.unwatch(*services.tasks)
        self._arrivals.told = [told for told in self._arrivals.told if told not in services.arrived]

    def start(self) -> None:
        """Serve; the store has started."""
        if self.master is not None:
            if self.opens:
                self._log.gate &= ~Gate.SLAVE
            self.master.start()
        if self.slave is not None:
            self.slave.start()
        self.missing = None
        log.info("the broker is %s, with id %d", self.role.name, self.role.broker_id)
        for told in self.on_change:
            told(self.role)

    async def become(self, role: Role) -> None:
        """End what the present role brings, and begin another one, or the same anew.

        When the new one cannot begin, the broker has none: it serves pulls, refuses the rest, and is not ready.

        :raises StoreError: a file of the new role cannot be read, nor its backup.
        :raises ConfigError: a port of the new role is taken.
        :raises RuntimeError: the broker stops.
        """
        async with self._changing:
            if self._stopping:
                raise RuntimeError(f"the broker stops: it does not become {role.name}")
            log.info("the broker was %s and becomes %s", self.role.name, role.name)
            self._router.refuse(FOR_MASTERS)
            try:
                await self._release()
                await self._begun.unwind()
                await self._load(role)
                await self.listen()
            except BaseException as error:
                self.missing = f"the broker could not become {role.name}: {error}"
                self._router.refuse(FOR_MASTERS)
                await self._begun.unwind()
                raise
            self.role = role
            self.start()

    async def release(self) -> bool:
        """The broker stops: answer who waits; :meth:`end` follows when nobody is served any more."""
        async with self._changing:
            self._stopping = True
            return await self._release()

    async def _release(self) -> bool:
        return self.master is None or await self.master.release()

    async def end(self) -> bool:
        """End what the role brings; whether everything ended as it should."""
        async with self._changing:
            self._stopping = True
            return not await self._begun.unwind()

    @property
    def sends_log(self) -> MasterReplication | None:
        """What sends the log to slaves; None while the broker is no master."""
        return None if self.master is None else self.master.replication

    def link(self) -> HAClientRuntimeInfo | None:
        """How the link to the master is; None while the broker is no slave."""
        return None if self.slave is None else self.slave.link()

    def figures(self) -> dict[str, str]:
        """What the runtime information says of the role."""
        found = {"brokerRole": self.role.name}
        for services in (self.master, self.slave):
            if services is not None:
                found |= services.figures()
        return found

    def closed(self, conn: Conn) -> None:
        """A connection is gone."""
        if self.master is not None:
            self.master.pop.closed(conn)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        if self.master is not None:
            self.master.forget_topic(topic)

    def forget_group(self, group: str, offsets: bool) -> None:
        """A group was deleted.

        :param offsets: its offsets were deleted, too.
        """
        if self.master is not None:
            self.master.forget_group(group, offsets)
