"""Metrics of what waits in the broker: transactions, messages with a time, delay levels, POP (RocketMQ 5's names)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from rmq.broker.observe.figures import Figures, Lag
from rmq.broker.pop.service import PopService
from rmq.broker.roles.master import MasterServices
from rmq.protocol.names import RETRY_PREFIX, is_system_group
from rmq.remoting.metrics import Family, Labels, Sample

__all__ = ["WaitingMetrics", "on_disk"]

log = logging.getLogger(__name__)

#: Ends of the periods of the snapshot, seconds from now: those of RocketMQ 5.
_PERIODS = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
#: Store times read for one page: groups that are behind beyond it have no latency on it.
_MOST_READ = 2_000
#: Pairs of a topic and a group looked at, or read, before the loop gets its turn.
_LOOKED_AT_ONCE = 200
_DISK: Labels = (("storage_type", "local"), ("storage_medium", "disk"))


class WaitingMetrics:
    """Makes the families; what has to be read for them is read first.

    :param figures: where they come from.
    """

    def __init__(self, figures: Figures) -> None:
        self._of = figures
        self._periods: list[int] = []
        self._latencies: list[tuple[Lag, int]] = []
        self._reserved_ms: int | None = None

    async def read(self) -> None:
        """Read what a page needs and what is not at hand."""
        of = self._of
        master = of.master()
        self._periods = [] if master is None else await master.timers.waits.periods(_PERIODS)
        now = of.clock.now_ms()
        oldest = await of.store.oldest_time()
        self._reserved_ms = max(0, now - oldest) if oldest > 0 else None
        latencies: list[tuple[Lag, int]] = []  # another page may be made meanwhile
        for number, lag in enumerate(of.lags(), 1):
            if lag.total:
                latencies.append((lag, max(0, now - await self._first_waiting(lag, now))))
                if len(latencies) == _MOST_READ:
                    break
            if not number % _LOOKED_AT_ONCE:
                await asyncio.sleep(0)
        self._latencies = latencies

    async def _first_waiting(self, lag: Lag, now: int) -> int:
        """When the oldest message that a group has not consumed was stored, ms."""
        oldest = now
        for queue_id, behind in lag.queues.items():
            queue = self._of.store.queues.get(lag.topic, queue_id)
            if behind and queue is not None:
                try:
                    stored = await self._of.store.search.time_at(queue, max(queue.min, queue.visible - behind))
                except OSError as error:  # its topic is being deleted, or its file cannot be read: who pulls is told
                    log.debug("how long %r has waited is not known: %s", queue, error)
                    continue
                oldest = min(oldest, stored) if stored > 0 else oldest
        return oldest

    def latencies(self) -> Iterator[tuple[Lag, int]]:
        """How long the oldest unconsumed message of a group has waited, ms, where something waits."""
        yield from self._latencies

    def families(self) -> Iterator[Family]:
        """Every metric."""
        if self._reserved_ms is not None:
            yield on_disk(
                "rocketmq_storage_message_reserve_time_milliseconds",
                "Age of the oldest message, ms",
                self._reserved_ms,
            )
        master = self._of.master()
        if master is not None:
            yield from self._transactions(master)
            yield from self._timers(master)
            yield from self._pop(master.pop)

    def _transactions(self, master: MasterServices) -> Iterator[Family]:
        ends = master.ends
        yield _single("rocketmq_half_messages", "gauge", "Half messages without an end", master.check.open_halves)
        yield Family(
            "rocketmq_commit_messages_total", "counter", "Transactions committed, by topic", _topics(ends.commits)
        )
        yield Family(
            "rocketmq_rollback_messages_total", "counter", "Transactions rolled back, by topic", _topics(ends.rollbacks)
        )
        yield Family(
            "rocketmq_finish_message_latency_milliseconds",
            "histogram",
            "Seconds from a half message's birth to its commit",
            [sample for topic, seen in ends.latencies.items() for sample in seen.samples((("topic", topic),))],
        )

    def _timers(self, master: MasterServices) -> Iterator[Family]:
        timers = master.timers
        late, late_ms = timers.waits.overdue()
        yield _single("rocketmq_timing_messages", "gauge", "Messages that wait for a time of their own", len(timers))
        yield Family(
            "rocketmq_timer_enqueue_total",
            "counter",
            "Such messages taken in, by topic",
            _topics(self._of.timer_sends.taken),
        )
        yield Family(
            "rocketmq_timer_dequeue_total", "counter", "Such messages delivered, by topic", _topics(timers.delivered)
        )
        yield on_disk("rocketmq_timer_enqueue_lag", "Such messages not looked at yet", timers.behind)
        yield on_disk("rocketmq_timer_dequeue_lag", "Such messages that are due and not delivered", late)
        yield on_disk("rocketmq_timer_dequeue_latency_milliseconds", "How long the first of them is due, ms", late_ms)
        yield Family(
            "rocketmq_timer_message_snapshot",
            "gauge",
            "Such messages by when they are due: up to so many seconds from now, and later than the bound before",
            [
                ("", (*_DISK, ("timer_bound_s", str(bound))), count)
                for bound, count in zip(_PERIODS, self._periods, strict=False)
            ],
        )
        yield Family(
            "rmq_delayed_messages",
            "gauge",
            "Messages that wait, by delay level",
            [("", (("level", str(level)),), count) for level, count in master.schedule.waiting()],
        )

    def _pop(self, pop: PopService) -> Iterator[Family]:
        state = pop.state
        now = self._of.clock.now_ms()
        late, late_ms = state.checkpoints.overdue(now)
        queue: Labels = (("queue_id", "0"),)
        yield _single(
            "rocketmq_pop_checkpoint_buffer_size", "gauge", "Pops with a message that is open", len(state.checkpoints)
        )
        yield _single(
            "rocketmq_pop_offset_buffer_size",
            "gauge",
            "Positions of pops that consumerOffset.json does not have yet",
            state.positions.pending,
        )
        yield Family("rocketmq_pop_revive_lag_milliseconds", "gauge", "Pops whose time is up", [("", queue, late)])
        yield Family(
            "rocketmq_pop_revive_latency_milliseconds",
            "gauge",
            "How long the first of them is late, ms",
            [("", queue, late_ms)],
        )
        yield Family(
            "rocketmq_pop_revive_in_message_total",
            "counter",
            "Pops (CK) and acknowledgements (ACK) written to the journal",
            [
                ("", (*_pair(topic, group), ("revive_message_type", kind), ("put_status", "PUT_OK")), count)
                for (kind, group, topic), count in state.written.items()
            ],
        )
        yield Family(
            "rocketmq_pop_revive_retry_messages_total",
            "counter",
            "Messages given out again because they were not acknowledged in time",
            [
                ("", (*_pair(topic, group), ("put_status", "PUT_OK")), count)
                for (group, topic), count in pop.reviver.retried.items()
            ],
        )
        yield Family(
            "rocketmq_consumer_inflight_messages",
            "gauge",
            "Messages that POP has handed to a group and that are open",
            self._in_flight(pop),
        )

    def _in_flight(self, pop: PopService) -> Iterator[Sample]:
        of = self._of
        for (group, topic), count in pop.state.checkpoints.in_flight_by_group().items():
            if topic in of.topics and of.groups.get(group) is not None:
                system = topic in of.topics.system or is_system_group(group)
                retry = "true" if topic.startswith(RETRY_PREFIX) else "false"
                yield (
                    "",
                    (*_pair(topic, group), ("is_retry", retry), ("is_system", "true" if system else "false")),
                    count,
                )


def _pair(topic: str, group: str) -> Labels:
    return ("topic", topic), ("consumer_group", group)


def _topics(counts: dict[str, int]) -> list[Sample]:
    return [("", (("topic", topic),), count) for topic, count in counts.items()]


def on_disk(name: str, meaning: str, value: float) -> Family:
    """A gauge of the store, with what RocketMQ 5 says of where it lies."""
    return Family(name, "gauge", meaning, [("", _DISK, value)])


def _single(name: str, kind: str, meaning: str, value: float) -> Family:
    return Family(name, kind, meaning, [("", (), value)])
