"""The broker, wired: state, services, handlers, transport (Java: BrokerController). It does nothing else."""

from __future__ import annotations

import asyncio
import logging

from rmq.broker.admin.access import AccessAdmin
from rmq.broker.admin.client import ClientAdmin, notify_members
from rmq.broker.admin.config import ConfigAdmin
from rmq.broker.admin.group import GroupAdmin
from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.maintenance import MaintenanceAdmin
from rmq.broker.admin.message import MessageAdmin
from rmq.broker.admin.offset import OffsetAdmin
from rmq.broker.admin.relay import ClientRelay
from rmq.broker.admin.replica import ReplicaAdmin
from rmq.broker.admin.reply import ReplyAdmin
from rmq.broker.admin.reset import ResetAdmin
from rmq.broker.admin.runtime import RuntimeAdmin
from rmq.broker.admin.statistics import StatisticsAdmin
from rmq.broker.admin.topic import TopicAdmin
from rmq.broker.delays import DelayLevels
from rmq.broker.delivery.moved import OffsetMovedEvents
from rmq.broker.delivery.pull import Delivery
from rmq.broker.delivery.read import ReadLimits
from rmq.broker.delivery.slow_readers import JUDGED_EVERY
from rmq.broker.groups.clients import SCAN_SECONDS, Consumers, Producers
from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.filters import PERSIST_SECONDS, ConsumerFilters
from rmq.broker.groups.lmq_groups import LmqGroupTable, LmqOffsetTable, load_offsets
from rmq.broker.groups.locks import RebalanceLocks
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.kinds import DELAY, TRANSACTION, MessageKinds
from rmq.broker.lane.admit import Admission
from rmq.broker.lane.answers import SendAnswers
from rmq.broker.lane.pressure import Pressure
from rmq.broker.lane.send_back import SendBack
from rmq.broker.lane.step import Lane
from rmq.broker.lane.topic_lane import LaneTable
from rmq.broker.lmq_stats import LmqStats
from rmq.broker.observe.figures import Figures
from rmq.broker.observe.pages import BrokerMetrics
from rmq.broker.observe.sizes import COUNT_SECONDS
from rmq.broker.outward.registration import Registrar
from rmq.broker.pop.service import PopService
from rmq.broker.schedule.recall import Recall
from rmq.broker.schedule.service import ScheduleService
from rmq.broker.schedule.steady import SteadyClock
from rmq.broker.schedule.timers import TimerService
from rmq.broker.schedule.timing import TimerSends
from rmq.broker.settings import BrokerSettings
from rmq.broker.stats import BrokerStats
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.start.progress import Progress
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.broker.topics.lmq_topics import LmqTopicTable
from rmq.broker.topics.metadata import MetadataFile
from rmq.broker.topics.table import TopicTable
from rmq.broker.transaction.check import TransactionCheck
from rmq.broker.transaction.ends import TransactionEnds
from rmq.broker.transaction.halves import Halves
from rmq.protocol.errors import ConfigError, ProtocolError
from rmq.protocol.ids import pack_host
from rmq.protocol.names import is_lmq
from rmq.remoting.client import RemotingClient
from rmq.remoting.health import Observer
from rmq.remoting.latency import CallLatency
from rmq.remoting.limits import Limits, Rationed
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.runtime.ending import Parts, end_each
from rmq.runtime.loop import keep_memory
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["BrokerApp"]

log = logging.getLogger(__name__)

#: By ``enableLmq``.
_OFFSET_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")

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
        self._offsets_written = 0
        self._complaints = Rationed(world.clock)
        self._settled_topics = 0
        self._deleted = False
        self._deleting = asyncio.Lock()

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
        if self.settings.broker_role == "SYNC_MASTER":
            log.warning(
                "brokerRole=SYNC_MASTER: replication is not available yet, so this broker has no slaves and answers "
                "every send that waits with SLAVE_NOT_AVAILABLE (11), stored here alone; set brokerRole=ASYNC_MASTER"
            )
        await self._choose_ports()
        self._wire(await self._store_host())
        try:
            await self._start()
        except BaseException:
            await self._begun.unwind()
            raise

    async def _start(self) -> None:
        begins = self._begun.push
        begins("the observer", self.observer.stop)
        await self.observer.start()
        begins("the store, as it was found", self.store.abandon)
        await self._load()
        begins("the store", self.store.stop)
        begins("the metadata files", self._close_files)
        begins("the filters", self.filters.persist)
        begins("the offsets", self._persist_offsets)
        begins("the statistics", self.stats.stop)
        begins("POP", self._pop.stop)
        begins("the timers", self._timers.stop)
        begins("the delay schedule", self._schedule.stop)
        begins("the transaction check", self._transaction_check.close)
        begins("the server", self._server.stop)
        await self._listen()
        begins("the waiting of POP", self._pop.close)
        begins("delivery", self._delivery.close)
        begins("the client of the name servers", self._client.close)
        await self.store.start()
        self._schedule.start()
        self._timers.start()
        self._transaction_check.start()
        self._pop.start()
        self.stats.start()
        begins("the registration", self._registration.stop)
        begins("its own tasks", self._tasks.close)
        self._repeat()
        await self._registration.start()
        begins("its readiness", self.observer.leaving)
        self.observer.serving()

    async def _choose_ports(self) -> None:
        """With listenPort 0 (tests): a free port whose VIP port, two below, is free, too."""
        settings = self.settings
        while settings.listen_port == 0:
            listener = await self.world.network.listen(asyncio.Protocol, settings.bind_address, 0)
            port = listener.address[1]
            try:
                vip = await self.world.network.listen(asyncio.Protocol, settings.bind_address, port - 2)
            except OSError:
                port = 0
            else:
                await vip.close()
            await listener.close()
            settings.listen_port = port
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
        clock, config = world.clock, settings.config_path
        self.router = router = Router()
        self.store = store = Store(world, settings.store_settings())
        lmq = settings.enable_lmq
        self.topics = topics = (LmqTopicTable if lmq else TopicTable)(world, settings, config("topics.json"))
        self.groups = groups = (LmqGroupTable if lmq else GroupTable)(world, settings, config("subscriptionGroup.json"))
        self.offsets = offsets = LmqOffsetTable() if lmq else OffsetTable()
        self._offsets_file = MetadataFile(world, config(_OFFSET_FILES[lmq]), offsets.render)
        self.consumers = consumers = Consumers(clock, notify_members)
        self.producers = producers = Producers(clock)
        self.filters = filters = ConsumerFilters(world, settings, config("consumerFilter.json"))
        consumers.on_heartbeat.append(filters.register)
        consumers.on_gone.append(filters.unregister)
        store.bit_map = filters.bit_map
        topics.file.before_write = self._deletions_saved
        store.retention.is_gone = lambda topic: not (topic in topics or topics.is_system(topic) or is_lmq(topic))
        store.retention.on_gone = self._forget_topic
        self.stats = stats = (LmqStats if lmq else BrokerStats)(
            clock, settings.broker_cluster_name, store.queues, lambda: settings.enable_detail_stat
        )
        latency = CallLatency(clock.monotonic) if settings.metrics_exporter_type == "PROM" else None
        levels = DelayLevels(settings.message_delay_level)
        steady = SteadyClock(clock)
        self._schedule = schedule = ScheduleService(
            world, store, levels, settings.config_path("delayOffset.json"), settings.flush_delay_offset_interval, steady
        )
        self._timers = timers = TimerService(world, settings, store, offsets, steady, store_host)
        lanes = LaneTable(topics, store.queues)
        timer_sends = TimerSends(clock, settings, topics, store)
        admission = Admission(world, settings, topics, groups, store, lanes, schedule, timer_sends, store_host)
        limits = ReadLimits.following(settings, world.identity.physical_memory())
        self._delivery = delivery = Delivery(
            world,
            settings,
            topics,
            groups,
            consumers,
            filters,
            offsets,
            store,
            OffsetMovedEvents(clock, settings, store, store_host),
            stats.delivered,
            limits,
            latency,
            router.faults,
        )
        halves = Halves(clock, store, admission, store_host)
        self._transaction_check = check = TransactionCheck(world, settings, topics, offsets, producers, store, halves)
        ends = TransactionEnds(clock, store, halves, admission, check)
        self._kinds = kinds = MessageKinds()
        schedule.on_delivered = timers.on_delivered = lambda puts: kinds.count(DELAY, puts)
        ends.on_committed = lambda puts: kinds.count(TRANSACTION, puts)
        stats.pulls_missed = lambda: delivery.missed
        answers = SendAnswers(store_host, settings)
        self._locks = locks = RebalanceLocks(clock)
        consumers.on_came.append(locks.came)
        consumers.on_left.append(locks.left)
        self.pressure = pressure = Pressure(clock, settings, store, stats)
        router.latency = pressure.latency = latency
        lane = Lane(
            world, settings, store, topics, lanes, admission, answers, delivery, stats, pressure, router,
            store_host, kinds, latency,
        )  # fmt: skip
        self._pop = pop = PopService(
            world, settings, topics, groups, consumers, offsets, store, admission, store_host, stats.delivered,
            limits, lambda: self._client, lambda: self._registration.addresses, self._forget_topic,
        )  # fmt: skip
        lookup = Lookup(store, limits)
        runtime = RuntimeAdmin(world, settings, store, stats, self._schedule.offsets, pressure)
        offset_admin = OffsetAdmin(offsets, topics, store, lookup, self._schedule.offsets)
        for service in (
            lane,
            delivery,
            SendBack(world, settings, topics, groups, store, admission, stats.sent_back),
            ends,
            Recall(clock, settings, topics, store, admission, timers),
            ClientAdmin(settings, topics, groups, consumers, producers, locks),
            TopicAdmin(settings, topics, offsets, consumers, lookup, self._delete_topic),
            GroupAdmin(
                clock, settings, topics, groups, offsets, consumers, lookup, stats, self._advertised, self._forget_group
            ),
            offset_admin,
            ResetAdmin(settings, topics, offsets, consumers, lookup, offset_admin),
            ClientRelay(settings, consumers, store.record_at),
            ConfigAdmin(world, settings, topics, store.settings),
            runtime,
            MessageAdmin(settings, store, consumers, lookup),
            StatisticsAdmin(stats),
            MaintenanceAdmin(store, topics),
            ReplicaAdmin(store, self._advertised, self._ha_address),
            AccessAdmin(),
            ReplyAdmin(clock, settings, store, producers, admission, answers, self._advertised()),
            *pop.handlers,
        ):
            router.add(service)
        self._server = Server(
            world,
            router,
            Limits(
                idle_seconds=float(settings.server_channel_max_idle_time_seconds),
                unread=settings.unread_answers_max_bytes,
            ),
            step=lane.step,
            tls=settings.server_tls(),
            name="broker",
        )
        pressure.ready = lambda: self._server.ready
        self._client = RemotingClient(world)
        self._registration = Registrar(
            world,
            settings,
            topics,
            self._client,
            broker_addr=self._advertised(),
            ha_addr=self._ha_address(),
        )
        self._server.on_close += [consumers.closed, producers.closed, delivery.holds.drop, pop.closed]
        self._arrivals = (delivery.holds.wake, schedule.arrived, timers.arrived, pop.arrived)
        store.durability.on_visible = self._visible
        #: Told of every deleted topic.
        self._forget_of_topic = (
            kinds.forget, stats.forget_topic, filters.forget_topic, groups.forget_topic, ends.forget_topic,
            timers.forget_topic, timer_sends.forget_topic,
        )  # fmt: skip
        figures = Figures(
            clock, settings, topics, groups, consumers, producers, offsets, stats, store, pressure, check, ends,
            schedule, timers, timer_sends, pop, kinds, latency,
            lambda: len(self._server.connections), lambda: self._server.unread, lambda: delivery.holds.count,
        )  # fmt: skip
        self.metrics = metrics = BrokerMetrics(figures, runtime.table)
        self.observer = Observer(
            world, settings, "broker", settings.bind_address, missing=self._missing, metrics=metrics.page
        )
        self.observer.services.watch(
            self._tasks, store.tasks, schedule.tasks, timers.tasks, check.tasks, pop.tasks,
            pop.reviver.tasks, stats.tasks, self._registration.tasks,
        )  # fmt: skip

    def _missing(self) -> str | None:
        """Why clients may not be sent here: a full disk is no reason, for it passes without a restart."""
        gate = self.store.log.gate
        if gate & (Gate.SHUT_DOWN | Gate.NOT_READABLE):
            return f"the store is not open: {self.store.log.gate_reason()}"
        if gate & (Gate.FSYNC_FAILED | Gate.NOT_WRITABLE):
            return f"no message is taken until the broker is restarted: {self.store.log.gate_reason()}"
        return self._registration.missing

    def _visible(self, queues: list[Queue]) -> None:
        """New messages may be told of, to parked pulls and to the schedule: they are stored whatever comes of it."""
        for told in self._arrivals:
            try:
                told(queues)
            except Exception:
                self._complaints.say(log.exception, "%s did not take that messages have arrived", told.__qualname__)

    def _forget_topic(self, topic: str) -> None:
        """Delete a topic: nothing of it may come back with a new topic of its name."""
        existed = self.topics.delete(topic)
        # A topic of the same name starts at 0: old offsets would lie behind its end.
        self.offsets.remove_topic(topic)
        self._deleted = True
        version = self.topics.data_version
        self.store.delete_topic(topic, version.counter, version.timestamp, existed=existed)
        for forget in self._forget_of_topic:
            forget(topic)

    def _forget_group(self, group: str, offsets: bool) -> None:
        """A group was deleted."""
        self.stats.forget_group(group)
        self.filters.forget_group(group)
        self._pop.forget_group(group, offsets=offsets)

    async def _delete_topic(self, topic: str) -> None:
        """The same, and wait until a kill does not bring it back."""
        self._forget_topic(topic)
        await self._deletions_saved()
        await self.topics.file.saved()

    async def _deletions_saved(self) -> None:
        """Bring deletions to disk, then offsets without them: only then may topics.json be without the topics.

        The other way round a kill would leave a store in which queues and offsets wait for a new topic of that name.
        """
        async with self._deleting:
            while self._deleted:
                self._deleted = False
                await self.store.deletions.saved()
                await self._persist_offsets()

    def _finish_deletions(self) -> None:
        """Delete what a kill has left in topics.json of topics whose messages are gone."""
        version = self.topics.data_version
        for topic, deletion in self.store.deletions.items():
            older = version.counter < deletion.counter and version.timestamp <= deletion.timestamp
            if older and topic in self.topics and not self.store.queues.all(topic):
                log.warning("topic %s was being deleted when the broker was killed; it is deleted now", topic)
                self._forget_topic(topic)

    def _advertised(self) -> str:
        return f"{self.settings.broker_ip1}:{self.settings.listen_port}"

    def _ha_address(self) -> str:
        return f"{self.settings.broker_ip2}:{self.settings.ha_listen_port}"

    async def _load(self) -> None:
        """Read what is on disk, in Java's order (store-and-broker.md 1.1)."""
        self.topics.load()
        other = self.settings.config_path(_OFFSET_FILES[not self.settings.enable_lmq])
        load_offsets(self.world, self.offsets, self._offsets_file, other)
        self.groups.load()
        self.filters.load()
        self.store.show_progress = self.show_progress
        recovered = await self.store.load()
        # A queue that is not there has lost what was in it, unless the last stop was a clean one: then nothing was.
        self.offsets.bring_back(lambda topic, queue_id: self._end_of(topic, queue_id, lost=not recovered.clean))
        self._finish_deletions()
        await self._schedule.load()
        await self._timers.load()
        await self._transaction_check.load()
        await self._pop.load()
        await self.world.offload(self.topics.file.check)

    def _end_of(self, topic: str, queue_id: int, *, lost: bool) -> int | None:
        queue = self.store.queues.get(topic, queue_id)
        return queue.next if queue is not None else 0 if lost else None

    async def _listen(self) -> None:
        settings = self.settings
        host = settings.bind_address
        port = settings.listen_port
        try:
            self._address = await self._server.start(host, port, backlog=settings.server_socket_backlog)
            port -= 2
            if port > 0:
                await self._server.listen_also(host, port, backlog=settings.server_socket_backlog)
        except OSError as error:
            raise ConfigError(
                f"the broker cannot listen on {host or '*'}:{port}: {error.strerror or error}: "
                "stop what listens there, or set another listenPort or bindAddress"
            ) from error

    def _repeat(self) -> None:
        """What is done again and again."""
        settings = self.settings
        self._tasks.every(
            lambda: settings.flush_consumer_offset_interval / 1000, self._persist_offsets, "offsets", first=10.0
        )
        self._tasks.every(PERSIST_SECONDS, self.filters.persist, "filters")
        self._tasks.every(SCAN_SECONDS, self._expire, "expiry")
        self._tasks.every(_SETTLE_SECONDS, self._settle, "memory")
        self.metrics.sizes.begin()
        if settings.metrics_exporter_type == "PROM":
            self._tasks.every(COUNT_SECONDS, self.metrics.sizes.count, "message sizes")
        self._tasks.every(JUDGED_EVERY, self._delivery.slow_readers.judge, "slow readers")

    async def _persist_offsets(self) -> None:
        if self.offsets.changes != self._offsets_written:
            self._offsets_written = self.offsets.changes
            self._offsets_file.changed()
        await self._offsets_file.flush()

    def _settle(self) -> None:
        """Topics stay; with thousands of new ones a look for garbage would walk over 100,000 objects."""
        if len(self.topics) - self._settled_topics >= _SETTLED_TOPICS:
            self._settled_topics = len(self.topics)
            keep_memory()

    def _expire(self) -> None:
        self._locks.forget_expired()
        for conn in (*self.consumers.expire(), *self.producers.expire()):
            # Its other groups go on: their heartbeats come.
            if not self.consumers.knows(conn) and not self.producers.knows(conn):
                conn.close("no heartbeat")

    async def stop(self) -> list[str]:
        """Unregister, stop accepting, answer what is in flight, bring everything to disk.

        :returns: what did not end as it should.
        """
        failed = await self._begun.unwind()
        log.info("the broker stopped")
        return failed

    async def _close_files(self) -> bool:
        """The metadata files of what is wired here; the delay schedule and POP close their own."""
        files = (self._offsets_file, self.filters.file, self.topics.file, self.groups.file)
        return await end_each("the broker", {file.path: file.close for file in files})

    async def __aenter__(self) -> BrokerApp:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
