"""What the broker counts: per topic and group over a minute, an hour and a day, and totals for the runtime information.

Puts are not counted message by message: queues know their next index and their bytes, and a look at those that have
got messages takes the differences. Pulls are told by delivery, once a pull. (store-and-broker.md 11)
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import Queue
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["STATS_NAMES", "BrokerStats", "Rates", "StatsItem", "StatsSet", "Summary", "put_buckets"]

#: value, times
Sample = tuple[int, int]
_ZERO: Sample = (0, 0)
#: Queues looked at, and items sampled, before the loop gets its turn: 1 to 2 ms.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Summary:
    """Sum, rate and average of one item over one window."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsItem:
    """One counter (Java: StatsItem): what it amounts to, and how often it was told so."""

    __slots__ = ("times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0

    def add(self, value: int, times: int) -> None:
        self.value += value
        self.times += times


class _Window:
    """Samples of every item at one rhythm; items that do not change share their samples' objects."""

    def __init__(self, period_ms: int, size: int) -> None:
        self._period = period_ms
        self._size = size
        self._stamps: deque[int] = deque(maxlen=size)
        self._samples: dict[str, deque[Sample]] = {}

    def sample(self, items: Mapping[str, StatsItem], now_ms: int) -> Iterator[None]:
        """Take a sample of every item; pauses after so many of them."""
        self._stamps.append(now_ms)
        for at, (key, item) in enumerate(list(items.items()), 1):
            if not at % _AT_ONCE:
                yield
            if key not in items:
                continue  # forgotten meanwhile
            samples = self._samples.get(key)
            if samples is None:
                # The first sample has a zero one period before it, so that what came until now counts.
                samples = self._samples[key] = deque((_ZERO,), maxlen=self._size)
            last = samples[-1]
            samples.append(last if last == (item.value, item.times) else (item.value, item.times))

    def summary(self, key: str) -> Summary:
        samples = self._samples.get(key)
        if samples is None:
            return Summary()
        first, last = samples[0], samples[-1]
        stamps = self._stamps
        steps = len(samples) - 1
        since = stamps[-1 - steps] if len(stamps) > steps else stamps[-steps] - self._period
        span = stamps[-1] - since
        total, times = last[0] - first[0], last[1] - first[1]
        return Summary(total, total * 1000 / span if span > 0 else 0.0, total / times if times else 0.0)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._samples.pop(key, None)


class StatsSet:
    """All items of one statistic, with its three windows (Java: StatsItemSet)."""

    def __init__(self) -> None:
        self.items: dict[str, StatsItem] = {}
        self._minute = _Window(10_000, 7)
        self._hour = _Window(600_000, 7)
        self._day = _Window(3_600_000, 25)

    def item(self, key: str) -> StatsItem:
        found = self.items.get(key)
        if found is None:
            found = self.items[key] = StatsItem()
        return found

    def sample_minute(self, now_ms: int) -> Iterator[None]:
        """Take the sample of every 10 s, in pieces."""
        return self._minute.sample(self.items, now_ms)

    def sample_hour(self, now_ms: int) -> Iterator[None]:
        """Take the sample of every 10 minutes, in pieces."""
        return self._hour.sample(self.items, now_ms)

    def sample_day(self, now_ms: int) -> Iterator[None]:
        """Take the sample of every hour, in pieces."""
        return self._day.sample(self.items, now_ms)

    def summaries(self, key: str) -> tuple[Summary, Summary, Summary] | None:
        """Day, hour and minute of an item, or None when there is no such item."""
        if key not in self.items:
            return None
        return self._day.summary(key), self._hour.summary(key), self._minute.summary(key)

    def minute_tps(self, key: str) -> float:
        """The rate over the last minute; 0 for an unknown item."""
        return self._minute.summary(key).tps

    def forget(self, wanted: Callable[[str], bool]) -> None:
        keys = [key for key in self.items if wanted(key)]
        for key in keys:
            del self.items[key]
        for window in (self._minute, self._hour, self._day):
            window.forget(keys)


#: Statistics that 315 serves.
STATS_NAMES = (
    "TOPIC_PUT_NUMS",
    "TOPIC_PUT_SIZE",
    "GROUP_GET_NUMS",
    "GROUP_GET_SIZE",
    "GROUP_GET_LATENCY",
    "SNDBCK_PUT_NUMS",
    "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
)

#: Windows of the rates in the runtime information, seconds.
RATE_WINDOWS = (10, 60, 600)


class Rates:
    """Totals sampled once a second, for rates over 10, 60 and 600 s (Java: StoreStatsService)."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=RATE_WINDOWS[-1] + 1)  # ms, total

    def sample(self, now_ms: int, total: int) -> None:
        self._samples.append((now_ms, total))

    def rate(self, seconds: int) -> float | None:
        """Per second over the last ``seconds``; None until there are enough samples."""
        samples = self._samples
        if len(samples) <= seconds:
            return None
        (since, first), (until, last) = samples[-1 - seconds], samples[-1]
        return (last - first) * 1000 / (until - since) if until > since else 0.0


#: Pulled queues whose counters are kept at hand.
_DELIVERY_MOST = 20_000

#: Upper bounds of the put-time buckets, ms, and their names in Java's text.
_BUCKETS = (
    (0.0, "<=0ms"),
    (10.0, "0~10ms"),
    (50.0, "10~50ms"),
    (100.0, "50~100ms"),
    (200.0, "100~200ms"),
    (500.0, "200~500ms"),
    (1_000.0, "500ms~1s"),
    (2_000.0, "1~2s"),
    (3_000.0, "2~3s"),
    (4_000.0, "3~4s"),
    (5_000.0, "4~5s"),
    (10_000.0, "5~10s"),
    (float("inf"), "10s~"),
)
_BOUNDS = tuple(bound for bound, _ in _BUCKETS)


def put_buckets(counts: list[int]) -> str:
    """The text of putMessageDistributeTime."""
    return "".join(f"[{name}]:{count} " for (_, name), count in zip(_BUCKETS, counts, strict=True))


class BrokerStats:
    """Every counter of the broker.

    :param clock: the world's clock.
    :param cluster: the cluster's name, key of the broker-wide statistics.
    :param queues: the queues of the store.
    :param detail: whether latency is kept per queue (``enableDetailStat``).
    """

    def __init__(self, clock: Clock, cluster: str, queues: QueueTable, detail: Callable[[], bool]) -> None:
        self._clock = clock
        self._cluster = cluster
        self._queues = queues
        self._detail = detail
        self.tasks = TaskOwner("stats")
        # The counters of a pull by (group, topic, queue id, detail): found once, not spelt out at each pull.
        self._delivery: dict[tuple[str, str, int, bool], tuple[StatsItem, StatsItem, StatsItem, StatsItem]] = {}
        self._sets: dict[str, StatsSet] = {name: StatsSet() for name in STATS_NAMES}
        self.boot_ms = clock.now_ms()
        # Where each queue stood when it was last looked at, and those that have got messages since.
        self._seen: dict[Queue, tuple[int, int]] = {}
        self._grown: dict[Queue, None] = {}
        self._minute_of_buckets = self.boot_ms // 60_000
        #: Messages and bytes appended since start, up to the last look.
        self.puts = 0
        self.put_bytes = 0
        #: Sends that were not stored, and those of them that were refused before the store was asked: producers alone
        #: are told why.
        self.put_failures = self.put_refusals = 0
        self.gets = 0
        self.pulls_found = 0
        #: Tells how many pulls found nothing (delivery counts them).
        self.pulls_missed: Callable[[], int] = lambda: 0
        self.put_rates = Rates()
        self.found_rates = Rates()
        self.missed_rates = Rates()
        self.transferred_rates = Rates()
        # Milliseconds the puts took, in buckets: the running minute and the one before it.
        self._running = [0] * len(_BUCKETS)
        self.put_time_max = 0.0
        self.get_time_max = 0.0
        self.distribution: list[int] | None = None
        self._put_times: deque[float] = deque(maxlen=10_000)
        self.puts_morning = self.puts_yesterday = 0
        self.gets_morning = self.gets_yesterday = 0
        self._day = self._today()

    # -- told by others

    def delivered(self, group: str, topic: str, queue_id: int, count: int, size: int, took_ms: float = 0.0) -> None:
        """A pull found messages.

        :param count: messages handed out.
        :param size: their bytes.
        :param took_ms: how long the lookup took, ms.
        """
        named = (group, topic, queue_id, self._detail())
        items = self._delivery.get(named)
        if items is None:
            items = self._delivery_items(*named)
        numbers, sizes, latency, broker = items
        numbers.value += count
        numbers.times += 1
        sizes.value += size
        sizes.times += 1
        latency.value += int(took_ms)
        latency.times += 1
        broker.value += count
        self.gets += count
        self.pulls_found += 1
        if took_ms > self.get_time_max:
            self.get_time_max = took_ms

    def _delivery_items(
        self, group: str, topic: str, queue_id: int, detail: bool
    ) -> tuple[StatsItem, StatsItem, StatsItem, StatsItem]:
        key = f"{topic}@{group}"
        sets = self._sets
        if len(self._delivery) >= _DELIVERY_MOST:
            self._delivery.clear()
        items = self._delivery[group, topic, queue_id, detail] = (
            sets["GROUP_GET_NUMS"].item(key),
            sets["GROUP_GET_SIZE"].item(key),
            sets["GROUP_GET_LATENCY"].item(f"{queue_id}@{key}" if detail else key),
            sets["BROKER_GET_NUMS"].item(self._cluster),
        )
        return items

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer sent a message back.

        :param topic: the message's original topic.
        """
        self._sets["SNDBCK_PUT_NUMS"].item(f"{topic}@{group}").add(1, 1)

    def put_took(self, took_ms: float, count: int) -> None:
        """An append of ``count`` messages took so long; told once a tick."""
        self._running[bisect_left(_BOUNDS, took_ms)] += count
        if took_ms > self.put_time_max:
            self.put_time_max = took_ms
        self._put_times.append(took_ms)

    def put_failed(self, count: int = 1) -> None:
        self.put_failures += count

    def put_refused(self) -> None:
        """A send is refused: as busy, by who is no master, for what it says."""
        self.put_refusals += 1
        self.put_failures += 1

    # -- asked

    def summaries(self, name: str, key: str) -> tuple[Summary, Summary, Summary] | None:
        """Day, hour and minute of a statistic, or None when there is no such one."""
        found = self._sets.get(name)
        if found is None:
            return None
        if name.startswith("TOPIC_PUT_"):
            for queue in self._queues.all(key):
                self._count(queue)
        return found.summaries(key)

    def counters(self, name: str) -> list[tuple[str, int]]:
        """What every item of a statistic amounts to since start, by key."""
        return [(key, item.value) for key, item in self._sets[name].items.items()]

    def tps(self, name: str, key: str) -> float:
        """The rate of one item of a statistic over the last minute, a second; 0 for an unknown item."""
        return self._sets[name].minute_tps(key)

    def consume_tps(self, topic: str, group: str) -> float:
        """Messages a second that a group pulled from a topic during the last minute."""
        return self._sets["GROUP_GET_NUMS"].minute_tps(f"{topic}@{group}")

    def put_latency(self, share: float) -> float:
        """The time, ms, that a share (0.99, 0.999) of the last appends stayed below."""
        times = sorted(self._put_times)
        return times[min(len(times) - 1, int(len(times) * share))] if times else 0.0

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted for a deleted topic."""
        self._delivery.clear()
        self._sets["TOPIC_PUT_NUMS"].forget(lambda key: key == topic)
        self._sets["TOPIC_PUT_SIZE"].forget(lambda key: key == topic)
        self._sets["GROUP_GET_NUMS"].forget(lambda key: key.startswith(topic + "@"))
        self._sets["GROUP_GET_SIZE"].forget(lambda key: key.startswith(topic + "@"))
        self._sets["SNDBCK_PUT_NUMS"].forget(lambda key: key.startswith(topic + "@"))
        self._sets["GROUP_GET_LATENCY"].forget(lambda key: f"@{topic}@" in f"@{key}")

    def forget_group(self, group: str) -> None:
        """Drop what was counted for a deleted group."""
        self._delivery.clear()
        for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_LATENCY", "SNDBCK_PUT_NUMS"):
            self._sets[name].forget(lambda key: key.endswith("@" + group))

    # -- sampling

    def start(self) -> None:
        """Take the queues as they are for the beginning, and sample from now on."""
        self._grown = self._queues.watch()
        self._queues.on_dropped.append(self._forget_queue)
        self._seen = {queue: (queue.next, queue.bytes_put) for queue in self._queues}
        self._day = self._today()
        self.sample_totals()
        self.tasks.every(1.0, self._second, "second")
        self.tasks.every(10.0, self.sample_minute, "minute")
        self.tasks.every(600.0, lambda: self._sample("sample_hour"), "hour")
        self.tasks.every(3600.0, lambda: self._sample("sample_day"), "day")

    async def stop(self) -> None:
        await self.tasks.close()

    async def count(self) -> None:
        """Bring what is counted of puts up to date."""
        for at, queue in enumerate(list(self._grown), 1):
            if not at % _AT_ONCE:
                await asyncio.sleep(0)
            self._count(queue)

    async def _second(self) -> None:
        await self.count()
        self.sample_totals()

    def sample_totals(self) -> None:
        """The sample of every second, and the turn of the day."""
        now = self._clock.now_ms()
        self.put_rates.sample(now, self.puts)
        self.found_rates.sample(now, self.pulls_found)
        self.missed_rates.sample(now, self.pulls_missed())
        self.transferred_rates.sample(now, self.gets)
        today = self._today()
        if today != self._day:
            self._day = today
            self.puts_yesterday, self.puts_morning = self.puts_morning, self.puts
            self.gets_yesterday, self.gets_morning = self.gets_morning, self.gets
        if now // 60_000 != self._minute_of_buckets:
            self.distribution = self._running
            self._running = [0] * len(_BUCKETS)
        self._minute_of_buckets = now // 60_000

    async def sample_minute(self) -> None:
        """Count what is new, then take the 10-second samples."""
        await self.count()
        await self._sample("sample_minute")

    def _count(self, queue: Queue) -> None:
        if queue not in self._grown:
            return
        del self._grown[queue]
        before = self._seen.get(queue, _ZERO)
        self._seen[queue] = mark = (queue.next, queue.bytes_put)
        count, size = mark[0] - before[0], mark[1] - before[1]
        if count <= 0:
            return
        self._sets["TOPIC_PUT_NUMS"].item(queue.topic).add(count, count)
        self._sets["TOPIC_PUT_SIZE"].item(queue.topic).add(size, count)
        self._sets["BROKER_PUT_NUMS"].item(self._cluster).add(count, 0)
        self.puts += count
        self.put_bytes += size

    def _forget_queue(self, queue: Queue) -> None:
        self._seen.pop(queue, None)

    async def _sample(self, what: str) -> None:
        now = self._clock.now_ms()
        for stats in self._sets.values():
            for _ in getattr(stats, what)(now):
                await asyncio.sleep(0)

    def _today(self) -> int:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).toordinal()
