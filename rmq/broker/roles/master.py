"""The services that only a master runs: what they write is a master's to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmq.broker.delivery.read import ReadLimits
from rmq.broker.kinds import DELAY, TRANSACTION
from rmq.broker.lane.admit import Admission
from rmq.broker.parts import Counted, Ground, Members, Tables
from rmq.broker.pop.service import PopService
from rmq.broker.replication.master_service import MasterReplication
from rmq.broker.replication.takeover import BesideTables
from rmq.broker.schedule.levels import DelayLevels
from rmq.broker.schedule.recall import Recall
from rmq.broker.schedule.service import ScheduleService
from rmq.broker.schedule.steady import SteadyClock
from rmq.broker.schedule.timers import TimerService
from rmq.broker.store.state import Queue
from rmq.broker.transaction.check import TransactionCheck
from rmq.broker.transaction.ends import TransactionEnds
from rmq.broker.transaction.halves import Halves
from rmq.runtime.ending import Parts
from rmq.runtime.tasks import TaskOwner

__all__ = ["MasterServices"]


class MasterServices:
    """Delayed delivery, the check of transactions, POP, the slaves, and the requests that they answer.

    They are made anew for each time that the broker is master: what they know is read from the store by :meth:`load`,
    and what ended stays ended.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        members: Members,
        counted: Counted,
        admission: Admission,
        limits: ReadLimits,
        levels: DelayLevels,
        beside: BesideTables,
    ) -> None:
        world, settings, store, store_host = ground.world, ground.settings, ground.store, ground.store_host
        clock, topics, offsets = world.clock, tables.topics, tables.offsets
        steady = SteadyClock(clock)
        self.schedule = schedule = ScheduleService(
            world, store, levels, settings.config_path("delayOffset.json"), settings.flush_delay_offset_interval,
            steady, beside.delays,
        )  # fmt: skip
        self.timers = timers = TimerService(world, settings, store, offsets, steady, store_host)
        schedule.on_delivered = timers.on_delivered = lambda puts: counted.kinds.count(DELAY, puts)
        halves = Halves(clock, store, admission, store_host)
        self.check = check = TransactionCheck(world, settings, topics, offsets, members.producers, store, halves)
        self.ends = ends = TransactionEnds(clock, store, halves, admission, check)
        ends.on_committed = lambda puts: counted.kinds.count(TRANSACTION, puts)
        self.pop = PopService(ground, tables, admission, counted.stats.delivered, limits, beside.forgetting.let_go)
        self.replication = MasterReplication(world, settings, store)
        self._store = store
        self._sync = settings.broker_role == "SYNC_MASTER"
        #: Its log goes to a group, which is not asked for by slaves.
        self._in_group = settings.enable_dleger_commit_log
        self._waiting = Parts("the broker")
        self._begun = Parts("the broker")
        #: What the router serves.
        self.handlers: tuple[object, ...] = (
            ends, Recall(clock, settings, topics, store, admission, timers), *self.pop.handlers,
        )  # fmt: skip
        #: The owners of its background services.
        self.tasks: tuple[TaskOwner, ...] = (
            schedule.tasks, timers.tasks, check.tasks, self.pop.tasks, self.pop.reviver.tasks,
            self.replication.tasks,
        )  # fmt: skip
        #: Told of queues with new messages.
        self.arrived: tuple[Callable[[Iterable[Queue]], None], ...] = (
            schedule.arrived, timers.arrived, self.pop.arrived,
        )  # fmt: skip

    async def load(self) -> None:
        """Read what is on disk; the store is recovered, and nothing is appended meanwhile.

        :raises StoreError: a file cannot be read, nor its backup.
        """
        begins = self._begun.push
        begins("POP", self.pop.stop)
        begins("the timers", self.timers.stop)
        begins("the delay schedule", self.schedule.stop)
        begins("the transaction check", self.check.close)
        await self.schedule.load()
        await self.timers.load()
        await self.check.load()
        await self.pop.load()

    async def listen(self) -> None:
        """Take the connections of slaves.

        :raises ConfigError: their port is taken.
        """
        if not self._in_group:
            self._begun.push("the slaves", self.replication.stop)
            await self.replication.listen()

    def start(self) -> None:
        """Serve; the store takes messages."""
        self._store.acks.set_sync_master(self._sync)
        self._waiting.push("the waiting of POP", self.pop.close)
        if not self._in_group:
            self._waiting.push("the waiting for slaves", self.replication.let_go)
        self.schedule.start()
        self.timers.start()
        self.check.start()
        self.pop.start()

    def figures(self) -> dict[str, str]:
        """What the runtime information says of slaves, when there are any: how many, and how far the last one is."""
        slaves, end = self.replication.slaves(), self._store.log.end
        if not slaves:
            return {}
        return {
            "slavesConnected": str(len(slaves)),
            "slavesInSync": str(sum(one.in_sync for one in slaves)),
            "slaveBehindBytes": str(max(max(0, end - one.acked) for one in slaves)),
            "slaveBehindSeconds": str(int(max(one.behind for one in slaves))),
        }

    async def release(self) -> bool:
        """Answer who waits; :meth:`end` follows when nobody is served any more."""
        return not await self._waiting.unwind()

    async def end(self) -> bool:
        """End every service and bring to disk what it knows; whether all of them ended as they should."""
        return not await self._begun.unwind()

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: drop what was counted for it."""
        self.ends.forget_topic(topic)
        self.timers.forget_topic(topic)

    def forget_group(self, group: str, offsets: bool) -> None:
        """A group was deleted.

        :param offsets: its offsets were deleted, too.
        """
        self.pop.forget_group(group, offsets=offsets)
