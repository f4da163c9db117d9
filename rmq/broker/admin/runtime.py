"""The broker's state as a table of texts (request 28; store-and-broker.md 11.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmq.broker.lane.pressure import Pressure
from rmq.broker.schedule.levels import DelayOffsets
from rmq.broker.schedule.timers import TimerService
from rmq.broker.settings import BrokerSettings
from rmq.broker.stats import RATE_WINDOWS, BrokerStats, Rates, put_buckets
from rmq.broker.store.store import Store
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode, version_name
from rmq.protocol.command import FIRST_OF_5, VERSION, Command
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles
from rmq.runtime.world import Files, Usage, World

__all__ = ["RuntimeAdmin", "human_size"]

#: Free buffers of a pool that is not used.
_NO_POOL = 2_147_483_647


class RuntimeAdmin:
    """Handler of 28. There are no thread pools: the send queue's figures are of sends read and not answered yet.

    :param role: figures of the broker's role.
    :param timers: messages with a time of their own; None while the broker delivers none.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        store: Store,
        stats: BrokerStats,
        delays: DelayOffsets,
        pressure: Pressure,
        role: Callable[[], Mapping[str, str]],
        timers: Callable[[], TimerService | None],
    ) -> None:
        self._role = role
        self._timers = timers
        self._world = world
        self._settings = settings
        self._store = store
        self._stats = stats
        self._delays = delays
        self._pressure = pressure

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO)
    async def runtime_info(self, conn: Conn, request: Command) -> Command:
        """28: counters, rates, disk and versions."""
        table = await self.table()
        if request.version >= FIRST_OF_5:
            table |= self._of_5(table)
        return request.reply(ResponseCode.SUCCESS, body=KVTable(table=table).encode())

    async def table(self) -> dict[str, str]:
        """Every key of the runtime information with its text."""
        await self._stats.count()
        return {**self._counters(), **self._role(), **self._pools(), **self._offsets(), **await self._disk()}

    def _counters(self) -> dict[str, str]:
        stats = self._stats
        up = max(0, self._world.clock.now_ms() - stats.boot_ms) // 1000
        puts = max(1, stats.puts)
        return {
            "bootTimestamp": str(stats.boot_ms),
            "runtime": f"[ {up // 86400:,} days, {up // 3600 % 24} hours, {up // 60 % 60} minutes, {up % 60} seconds ]",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": version_name(VERSION),
            "putMessageEntireTimeMax": str(int(stats.put_time_max)),
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(stats.put_failures - stats.put_refusals),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageDistributeTime": "null" if stats.distribution is None else put_buckets(stats.distribution),
            "putMessageAverageSize": repr(stats.put_bytes / puts),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(int(stats.get_time_max)),
            "putTps": _rates(stats.put_rates, ""),
            "getFoundTps": _rates(stats.found_rates, ""),
            "getMissTps": _rates(stats.missed_rates, ""),
            "getTransferedTps": _rates(stats.transferred_rates, ""),
            "getTotalTps": " ".join(
                str((stats.found_rates.rate(window) or 0.0) + (stats.missed_rates.rate(window) or 0.0))
                for window in RATE_WINDOWS
            ),
            "putLatency99": f"{stats.put_latency(0.99):.2f}",
            "putLatency999": f"{stats.put_latency(0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(stats.puts_yesterday),
            "msgPutTotalTodayMorning": str(stats.puts_morning),
            "msgPutTotalTodayNow": str(stats.puts),
            "msgGetTotalYesterdayMorning": str(stats.gets_yesterday),
            "msgGetTotalTodayMorning": str(stats.gets_morning),
            "msgGetTotalTodayNow": str(stats.gets),
        }

    def _pools(self) -> dict[str, str]:
        settings = self._settings
        return {
            "sendThreadPoolQueueSize": str(self._pressure.waiting()),
            "sendThreadPoolQueueCapacity": str(settings.send_thread_pool_queue_capacity),
            "sendThreadPoolQueueHeadWaitTimeMills": str(self._pressure.head_wait_ms()),
            "pullThreadPoolQueueSize": "0",
            "pullThreadPoolQueueCapacity": str(settings.pull_thread_pool_queue_capacity),
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueCapacity": str(settings.query_thread_pool_queue_capacity),
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(settings.end_transaction_pool_queue_capacity),
            "pageCacheLockTimeMills": str(self._pressure.flush_ms()),
            "remainTransientStoreBufferNumbs": str(_NO_POOL),
            "startAcceptSendRequestTimeStamp": str(settings.start_accept_send_request_time_stamp),
        }

    def _of_5(self, table: Mapping[str, str]) -> dict[str, str]:
        """What tools of 5.x look for besides. There are no queues of acks and of lite pulls: they wait nowhere."""
        found = {
            # In Java: the services of a master run.
            "brokerActive": "false" if table.get("brokerRole") in (None, "slave", "follower") else "true",
            "getTransferredTps": table["getTransferedTps"],
        }
        for name in ("ack", "litePull"):
            found[f"{name}ThreadPoolQueueSize"] = "0"
            found[f"{name}ThreadPoolQueueCapacity"] = str(self._settings.pull_thread_pool_queue_capacity)
            found[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        timers = self._timers()
        if timers is not None:
            found["timerReadBehind"] = str(timers.waits.overdue()[1] // 1000)
            found["timerOffsetBehind"] = str(timers.behind)
            found["timerCongestNum"] = str(len(timers))
        return found

    def _offsets(self) -> dict[str, str]:
        store = self._store
        found = {
            "commitLogMinOffset": str(store.log.start),
            "commitLogMaxOffset": str(store.log.end),
            "dispatchBehindBytes": str(store.dispatcher.behind),
            "remainHowManyDataToFlush": human_size(max(0, store.log.end - store.durability.flushed)),
        }
        if store.indexing.build is not None and (building := store.indexing.build.progress()):
            found["indexBuild"] = building
        found["commitLogScrub"] = store.scrub.progress()
        for level in sorted(self._delays.table):
            queue = store.queues.get(SCHEDULE_TOPIC, level - 1)
            top = 0 if queue is None else queue.visible
            found[f"scheduleMessageOffset_{level}"] = f"{self._delays.table[level]},{top}"
        return found

    async def _disk(self) -> dict[str, str]:
        settings = self._store.settings
        files, offload = self._world.files, self._world.offload
        found = {"earliestMessageTimeStamp": str(await self._store.oldest_time())}
        ratios = []
        for path in settings.commit_log_paths:
            usage = await offload(_usage, files, path)
            ratio = -1.0 if usage is None else usage.ratio
            found[f"commitLogDiskRatio_{path}"] = str(ratio)
            ratios.append(ratio)
        found["commitLogDiskRatio"] = str(min(ratios, default=-1.0))
        queues = await offload(_usage, files, f"{settings.root}/consumequeue")
        found["consumeQueueDiskRatio"] = str(-1.0 if queues is None else queues.ratio)
        root = await offload(_usage, files, settings.root)
        if root is not None:
            found["commitLogDirCapacity"] = f"Total : {human_size(root.total)}, Free : {human_size(root.free)}."
        return found


def _usage(files: Files, path: str) -> Usage | None:
    try:
        return files.usage(path)
    except OSError:
        return None


def _rates(rates: Rates, empty: str) -> str:
    values = (rates.rate(window) for window in RATE_WINDOWS)
    return " ".join(empty if value is None else str(value) for value in values)


def human_size(size: int) -> str:
    """Bytes for people, as Java prints them: ``0 B``, ``1.5 MiB``."""
    if size < 1024:
        return f"{size} B"
    value = size / 1024
    units = iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = next(units)
    while value >= 1024:
        value /= 1024
        unit = next(units)
    return f"{value:.1f} {unit}"
