"""The broker: its parts, wired, and their life (Java: BrokerController)."""

from __future__ import annotations

import asyncio
import logging

from rmq.broker.admin.election import ElectionAdmin
from rmq.broker.admin.runtime import RuntimeAdmin
from rmq.broker.arrivals import Arrivals
from rmq.broker.delivery.slow_readers import JUDGED_EVERY
from rmq.broker.forgetting import Forgetting
from rmq.broker.groups.clients import SCAN_SECONDS
from rmq.broker.metadata import Metadata
from rmq.broker.observe.figures import Figures, Serving
from rmq.broker.observe.pages import BrokerMetrics
from rmq.broker.observe.sizes import COUNT_SECONDS
from rmq.broker.outward.registration import Registrar
from rmq.broker.parts import Ground
from rmq.broker.pop.assignment import Assignment
from rmq.broker.pop.modes import RequestModes
from rmq.broker.raft.changes import TableChanges
from rmq.broker.raft.found import left, look, returned
from rmq.broker.raft.group import Group
from rmq.broker.raft.group_link import GroupLink
from rmq.broker.raft.passing import Following, PassOn
from rmq.broker.raft.strays import Strays
from rmq.broker.replication.followed import regain_promoted
from rmq.broker.replication.returning import ask_slaves
from rmq.broker.replication.slave_service import SlaveClient
from rmq.broker.replication.takeover import BesideTables
from rmq.broker.roles.change import Roles, Switched
from rmq.broker.roles.master import MasterServices
from rmq.broker.roles.role import Role
from rmq.broker.roles.slave import MasterLink, SlaveServices
from rmq.broker.schedule.levels import DelayOffsets
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.start.progress import Progress
from rmq.broker.store.store import Store
from rmq.broker.topics.regained import regain
from rmq.broker.wiring.access import make_access, sign
from rmq.broker.wiring.admin import make_handlers
from rmq.broker.wiring.front import make_front, make_server
from rmq.broker.wiring.state import make_counted, make_members, make_tables
from rmq.protocol.errors import ConfigError, ProtocolError
from rmq.protocol.ids import pack_host
from rmq.remoting.client import RemotingClient
from rmq.remoting.health import Observer
from rmq.remoting.peer_tls import DAEMON
from rmq.remoting.router import Router
from rmq.runtime.ending import Parts
from rmq.runtime.loop import keep_memory
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["BrokerApp"]

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
_SETTLED_TOPICS = 1000


class BrokerApp:
    """One broker: ``await start()``, serve, ``await stop()``; or ``async with``.

    :param settings: as read; ``settle`` is called here when nobody did.
    """

    def __init__(self, world: World, settings: BrokerSettings) -> None:
        settings.settle(world.identity)
        self.world = world
        self.settings = settings
        self._begun = Parts("the broker")
        self._tasks = TaskOwner("broker")
        self._address: tuple[str, int] | None = None
        #: Shows how far a long recovery is; the log says so in any case.
        self.show_progress: Progress | None = None
        self._settled_topics = 0

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that was taken."""
        if self._address is None:
            raise RuntimeError("the broker is not started")
        return self._address

    @property
    def codes(self) -> list[int]:
        """Every request code that is answered here."""
        return self.router.codes()

    async def start(self) -> None:
        """Recover the store, listen, register.

        :raises ConfigError: a port is taken, or an address is not one of this machine.
        :raises StoreError: the store cannot be opened.
        """
        if self.settings.d_leger_peers.strip() and not self.settings.enable_dleger_commit_log:
            log.warning("dLegerPeers is set, and enableDLegerCommitLog is not: this is a plain broker, and of no group")
        if self.settings.enable_dleger_commit_log and (idle := self.settings.left_to_group()):
            log.warning("%s: without effect, since the group says who is the master", ", ".join(idle))
        if self.settings.broker_role == "SYNC_MASTER" and not self.settings.enable_dleger_commit_log:
            log.warning(
                "brokerRole=SYNC_MASTER: until a slave follows, every send that waits is answered with "
                "SLAVE_NOT_AVAILABLE (11), stored here alone"
            )
        try:
            await self._choose_ports()
            self._wire(await self._store_host())
            await self._start()
        except BaseException:
            await self._begun.unwind()
            raise

    async def _start(self) -> None:
        begins = self._begun.push
        if self.access is not None:
            await self.access.load()
            begins("access control", self.access.stop)
            self.access.start()
        begins("the observer", self.observer.stop)
        await self.observer.start()
        begins("the client of the name servers", self._client.close)
        begins("the client of its set", self._peers.close)
        begins("the store, as it was found", self.store.abandon)
        await self._load()
        begins("the store", self.store.stop)
        begins("the metadata files", self.metadata.close)
        begins("the filters", self.filters.persist)
        begins("the offsets", self.metadata.persist_offsets)
        begins("the statistics", self.stats.stop)
        begins("the role", self.roles.end)
        begins("the server", self.server.stop)
        await self._listen()
        await self.roles.listen()
        if self.group is not None:
            begins("its place in the group", self.group.stop)
            await self.group.listen()
        begins("who waits for the role", self.roles.release)
        begins("delivery", self.front.delivery.close)
        await self.store.start()
        self.roles.start()
        self.stats.start()
        begins("the registration", self._registration.stop)
        begins("its own tasks", self._tasks.close)
        self._repeat()
        await self._registration.start()
        if self.group is not None:
            begins("its lead of the group", self.group.hand_over)
            await self.group.start()
        begins("its readiness", self.observer.leaving)
        self.observer.serving()

    async def _choose_ports(self) -> None:
        """With listenPort 0 (tests): a free port; those of the VIP, two below, and of slaves, one above, are, too.

        They are kept until the store is loaded and listeners begin: somebody else would have taken one of three.
        """
        settings = self.settings
        if settings.listen_port == 0:
            try:
                reserved = await self.world.network.reserve(settings.bind_address, (-2, 1))
            except OSError as error:
                raise ConfigError(
                    f"the broker finds no port on {settings.bind_address or '*'}: {error.strerror or error}: "
                    "set another bindAddress, or a listenPort"
                ) from error
            self._begun.push("its ports", reserved.release)
            settings.listen_port = reserved.port
        settings.ha_listen_port = settings.listen_port + 1

    async def _store_host(self) -> bytes:
        """The address that records and message ids carry; a host name is looked up once."""
        host, port = self.settings.broker_ip1, self.settings.listen_port
        try:
            return pack_host(host, port)
        except ProtocolError:
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, port)
            except OSError as error:
                raise ConfigError(f"brokerIP1={host}: no address is known for this name ({error.strerror})") from None
            return pack_host(str(found[0][4][0]), port)

    def _wire(self, store_host: bytes) -> None:
        world, settings = self.world, self.settings
        self.router = router = Router()
        self.store = store = Store(world, settings.store_settings())
        self.ground = ground = Ground(world, settings, store, store_host)
        self.tables = tables = make_tables(ground)
        self.topics, self.groups, self.offsets, self.filters = (
            tables.topics, tables.groups, tables.offsets, tables.filters,
        )  # fmt: skip
        self.members = members = make_members(ground, tables)
        counted = make_counted(ground)
        self.stats = counted.stats
        self.front = front = make_front(ground, tables, members, counted, router)
        self.modes = modes = RequestModes(world, settings.config_path("messageRequestMode.json"))
        delays = DelayOffsets()
        self.metadata = Metadata(ground, tables, modes)
        self.forgetting = forgetting = Forgetting(store, tables, self.metadata.persist_offsets)
        self._client = RemotingClient(world, tls=settings.peer_tls() if settings.tls_enable else None, options=DAEMON)
        #: Calls the brokers of its set.
        self._peers = RemotingClient(world, tls=settings.peer_tls(), name="set", options=DAEMON)
        sign(ground, self._client, self._peers)
        self.access = make_access(ground, router, front, self._let_pops_go)
        self._registration = registration = Registrar(
            world, settings, tables.topics, self._client, broker_addr=ground.broker_addr, ha_addr=ground.ha_addr,
            broker_id=self._registered_id,
        )  # fmt: skip
        runtime = RuntimeAdmin(
            world,
            settings,
            store,
            counted.stats,
            delays,
            front.pressure,
            lambda: (
                self.roles.figures() if self.group is None else {**self.roles.figures(), **self.group.view.figures()}
            ),
            lambda: None if self.roles.master is None else self.roles.master.timers,
        )
        beside = BesideTables(modes, delays, forgetting)
        for service in make_handlers(
            ground,
            tables,
            members,
            counted,
            front,
            beside,
            runtime,
            lambda: self.roles,
            self.access,
            lambda: None if self.group is None else self.group.view.info(),
            PassOn(self._peers, self._following()) if settings.enable_dleger_commit_log else None,
        ):
            router.add(service)
        router.add(
            Assignment(
                world.clock, settings, tables.topics, members.consumers, modes, self._client,
                lambda: registration.addresses,
            )
        )  # fmt: skip
        self.server = server = make_server(ground, router, front)
        arrivals = Arrivals(world.clock)
        arrivals.told.append(front.delivery.holds.wake)
        store.durability.on_visible = arrivals.tell
        figures = Figures(
            ground, tables, members, counted,
            Serving(front.pressure, front.delivery, front.timer_sends, server, self.access),
            lambda: self.roles.master, lambda: self.roles.slave, lambda: self.group,
        )  # fmt: skip
        self.metrics = BrokerMetrics(figures, runtime.table)
        self.observer = Observer(world, settings, "broker", missing=self._missing, metrics=self.metrics.page)
        if self.access is not None:
            self.observer.services.watch(self.access.tasks)
        self.observer.services.watch(self._tasks, store.tasks, counted.stats.tasks, registration.tasks)
        #: Its place in a group that elects its master; None where its settings say what it is.
        self.group = group = (
            Group(ground, TableChanges(ground, tables, modes, forgetting), self._become)
            if settings.enable_dleger_commit_log
            else None
        )
        if group is not None:
            front.lane.give_away(Strays(world.clock, self._peers, group.view.address_of_leader, self._tasks).take)
            front.delivery.surely_leads = registration.surely_leads = group.surely_leads
            # A successor grants them, too: no queue is to have two readers.
            members.locks.may_grant = lambda: self.roles.role.leads and group.surely_leads()
        router.add(ElectionAdmin(ground, group))
        self.roles = roles = Roles(
            Role.of(settings) if group is None else Role.slave(group.peers.follower_id),
            Switched(store.log, router, front.admission, front.delivery, arrivals, self.observer.services),
            front.levels,
            lambda: MasterServices(
                ground, tables, members, counted, front.admission, front.limits, front.levels, beside
            ),
            lambda: SlaveServices(
                ground, tables, beside, self._peers, self._master_link(),
                lambda: registration.master.broker if group is None else group.view.leader_address,
                registration.announce,
            ),
        )  # fmt: skip
        roles.opens = group is None
        roles.on_change.append(lambda _: registration.announce())
        server.on_close += [
            members.consumers.closed, members.producers.closed, front.delivery.holds.drop, roles.closed,
        ]  # fmt: skip
        if self.access is not None:
            server.on_close.append(self.access.quotas.closed)
        forgetting.of_topic += [
            counted.kinds.forget, counted.stats.forget_topic, tables.filters.forget_topic, tables.groups.forget_topic,
            modes.forget_topic, roles.forget_topic, front.timer_sends.forget_topic,
        ]  # fmt: skip
        forgetting.of_group += [
            lambda group, _: counted.stats.forget_group(group), lambda group, _: tables.filters.forget_group(group),
            lambda group, _: modes.forget_group(group), roles.forget_group,
        ]  # fmt: skip

    def _registered_id(self) -> int:
        """The id that name servers are told.

        A member that leads no longer is nobody's master from that moment on, though its services of one still end: one
        that stood still may be about to register as it does every 30 s, and would take the next leader's place.
        """
        group, role = self.group, self.roles.role
        if group is None or not role.leads or (group.member is not None and group.member.driver.leads is not None):
            return role.broker_id
        return group.peers.follower_id

    def _following(self) -> Following:
        return Following(
            lambda: self.roles.role.leads, lambda: None if self.group is None else self.group.view.leader_address,
            lambda: self.roles.slave is not None and self.roles.slave.metadata.has_heard,
            lambda: [] if self.group is None else self.group.view.addresses_there(),
            lambda: 0 if self.group is None or self.group.driver is None else self.group.driver.term,
        )  # fmt: skip

    def _master_link(self) -> MasterLink:
        if self.group is not None:
            return GroupLink(self.group.view)
        return SlaveClient(self.world, self.store, lambda: self._registration.master.ha, self.settings)

    async def _become(self, master: bool) -> None:
        """The group has elected this broker, or another one."""
        group, slave, store = self.group, self.roles.slave, self.store
        if group is None:
            return
        since = None if slave is None else slave.metadata.topics_as_of
        if master and slave is not None:
            await slave.before_leading(group.view.addresses_there)
        led = self.roles.role.leads
        await self.roles.become(Role.master() if master else Role.slave(group.peers.follower_id))
        if led and self.roles.slave is not None:
            self.roles.slave.metadata.led()
            self.members.locks.forget_all()
        if master:
            least = self.settings.default_topic_queue_nums
            regain(self.tables.topics, store.queues, store.log.end if since is None else since, least)

    def _let_pops_go(self) -> None:
        if self.roles.master is not None:
            self.roles.master.pop.polls.release()

    def _missing(self) -> str | None:
        """Why clients may not be sent here: a full disk is no reason, for it passes without a restart."""
        gate = self.store.log.gate
        if gate & (Gate.SHUT_DOWN | Gate.NOT_READABLE):
            return f"the store is not open: {self.store.log.gate_reason()}"
        if gate & (Gate.FSYNC_FAILED | Gate.NOT_WRITABLE | Gate.NOT_OWNED):
            return f"no message is taken until the broker is restarted: {self.store.log.gate_reason()}"
        in_group = None if self.group is None else self.group.view.missing or self._lacks(self.group)
        return self.roles.missing or in_group or self._registration.missing

    def _lacks(self, group: Group) -> str | None:
        """Who restarts one machine after the other waits until a member has what it missed."""
        slave = self.roles.slave
        return group.view.lacks(None if slave is None else slave.metadata.behind)

    async def _load(self) -> None:
        """Read what is on disk, in Java's order (store-and-broker.md 1.1)."""
        look(self.world.files, self.settings.store_path_root_dir, in_group=self.group is not None)
        self.metadata.load()
        self.store.show_progress = self.show_progress
        recovered = await self.store.load()
        found = returned if self.group is not None else left
        found(self.world.files, self.settings.store_path_root_dir, self.store.log.end)
        if self.group is not None:
            await self.group.load()
            self.observer.services.watch(*self.group.tasks_of_all)
        if self.roles.role.leads:
            await self._registration.find_name_servers()
            if self.group is None:
                await regain_promoted(self.ground, self.topics, self.store.queues)
            await ask_slaves(self.ground, self.offsets, self._client, self._peers, self._registration.addresses)
        # Before anybody takes the offsets of a topic that was being deleted for those of messages that are lost.
        self.forgetting.finish()
        if self.roles.role.leads and (recovered.lost is not None or not recovered.clean):
            self.store.reserve(
                {key: end for key, end in self.offsets.reached().items() if self.topics.get(key[0]) is not None}
            )
        # A queue that is not there has lost what was in it, unless the last stop was a clean one: then nothing was.
        self.offsets.bring_back(lambda topic, queue_id: self._end_of(topic, queue_id, lost=not recovered.clean))
        await self.roles.load()
        await self.metadata.check()

    def _end_of(self, topic: str, queue_id: int, *, lost: bool) -> int | None:
        queue = self.store.queues.get(topic, queue_id)
        return queue.next if queue is not None else 0 if lost else None

    async def _listen(self) -> None:
        settings = self.settings
        host = settings.bind_address
        port = settings.listen_port
        try:
            self._address = await self.server.start(host, port, backlog=settings.server_socket_backlog)
            port -= 2
            if port > 0:
                await self.server.listen_also(host, port, backlog=settings.server_socket_backlog)
        except OSError as error:
            raise ConfigError(
                f"the broker cannot listen on {host or '*'}:{port}: {error.strerror or error}: "
                "stop what has it, or set another listenPort or bindAddress"
            ) from error

    def _repeat(self) -> None:
        """What is done again and again."""
        tasks = self._tasks
        self.metadata.start(tasks)
        tasks.every(SCAN_SECONDS, self.members.expire, "expiry")
        tasks.every(_SETTLE_SECONDS, self._settle, "memory")
        self.metrics.sizes.begin()
        if self.settings.metrics_exporter_type == "PROM":
            tasks.every(COUNT_SECONDS, self.metrics.sizes.count, "message sizes")
        tasks.every(JUDGED_EVERY, self.front.delivery.slow_readers.judge, "slow readers")

    def _settle(self) -> None:
        """Topics stay; with thousands of new ones a look for garbage would walk over 100,000 objects."""
        if len(self.topics) - self._settled_topics >= _SETTLED_TOPICS:
            self._settled_topics = len(self.topics)
            keep_memory()

    async def stop(self) -> list[str]:
        """Unregister, stop accepting, answer what is in flight, bring everything to disk.

        :returns: what did not end as it should.
        """
        failed = await self._begun.unwind()
        log.info("the broker stopped")
        return failed

    async def __aenter__(self) -> BrokerApp:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
