"""Statistics: samples, windows, totals (store-and-broker.md 11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.admin.runtime import human_size
from rmq.broker.stats import BrokerStats, Rates, StatsSet, put_buckets
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import Queue
from rmq.testing.simloop import run
from rmq.testing.simworld import SimClock, Simulation
from tests.support.scenes.store import small


class Queues(QueueTable):
    """A table with three queues; the first has messages from before the start."""

    def __init__(self) -> None:
        super().__init__(Simulation(1).node("a").world, small())
        self.three = [self.get_or_create("T", 0), self.get_or_create("T", 1), self.get_or_create("U", 0)]
        self.three[0].next = 1000

    def put(self, number: int, count: int, size: int = 100) -> None:
        queue = self.three[number]
        queue.next += count
        queue.bytes_put += count * size
        self.note([queue], count)


def scenario(test: Callable[[BrokerStats, Queues, SimClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = SimClock()
        queues = Queues()
        stats = BrokerStats(clock, "C", queues, lambda: True)
        stats.start()
        await test(stats, queues, clock)
        await stats.stop()

    run(main())


def test_puts_are_counted_from_the_queues() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        queues.put(0, 10)
        queues.put(1, 20)
        queues.put(2, 5, 40)
        await asyncio.sleep(10.5)
        found = stats.summaries("TOPIC_PUT_NUMS", "T")
        assert found is not None
        day, hour, minute = found
        assert (minute.sum, minute.avgpt) == (30, 1.0)
        assert minute.tps == pytest.approx(3.0, rel=0.01)
        assert day.sum == hour.sum == 0
        sizes = stats.summaries("TOPIC_PUT_SIZE", "U")
        assert sizes is not None
        assert (sizes[2].sum, sizes[2].avgpt) == (200, 40.0)
        everything = stats.summaries("BROKER_PUT_NUMS", "C")
        assert everything is not None
        assert (everything[2].sum, everything[2].avgpt) == (35, 0.0)
        assert stats.puts == 35
        assert stats.put_bytes == 3200
        assert stats.summaries("TOPIC_PUT_NUMS", "V") is None
        assert stats.summaries("NOTHING", "T") is None

    scenario(check)


def test_only_queues_with_new_messages_are_looked_at() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        looked: list[Queue] = []
        real = stats._count

        def look(queue: Queue) -> None:
            looked.append(queue)
            real(queue)

        stats._count = look  # type: ignore[method-assign]
        queues.put(1, 3)
        await asyncio.sleep(120)
        assert looked == [queues.three[1]]

    scenario(check)


def test_a_look_at_many_queues_gives_others_their_turn() -> None:
    async def main() -> None:
        queues = Queues()
        stats = BrokerStats(SimClock(), "C", queues, lambda: True)
        stats.start()
        for number in range(2000):
            queue = queues.get_or_create(f"M{number}", 0)
            queue.next = 1
            queues.note([queue], 1)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while stats.puts < 2000:
                turns += 1
                await asyncio.sleep(0)

        await asyncio.gather(stats.sample_minute(), other())
        assert turns >= 4
        for stats_set in stats._sets.values():
            assert len(list(stats_set.sample_minute(1))) == len(stats_set.items) // 500
        await stats.stop()

    run(main())


def test_windows_slide() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        queues.put(0, 60)
        await asyncio.sleep(120)
        found = stats.summaries("TOPIC_PUT_NUMS", "T")
        assert found is not None
        assert found[2].sum == 0
        await asyncio.sleep(600)
        found = stats.summaries("TOPIC_PUT_NUMS", "T")
        assert found is not None
        assert found[1].sum == 60
        assert found[1].tps == pytest.approx(0.1, rel=0.01)

    scenario(check)


def test_a_topic_counts_from_its_first_message_on() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        queues.put(0, 1)
        assert stats.summaries("TOPIC_PUT_NUMS", "T") is not None

    scenario(check)


def test_pulls_and_send_backs() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        stats.delivered("g", "T", 3, 32, 3200, 2.0)
        stats.delivered("g", "T", 3, 8, 800, 4.0)
        stats.sent_back("g", "T")
        await asyncio.sleep(10.5)
        expected = {
            ("GROUP_GET_NUMS", "T@g"): (40, 20.0),
            ("GROUP_GET_SIZE", "T@g"): (4000, 2000.0),
            ("GROUP_GET_LATENCY", "3@T@g"): (6, 3.0),
            ("SNDBCK_PUT_NUMS", "T@g"): (1, 1.0),
            ("BROKER_GET_NUMS", "C"): (40, 0.0),
        }
        for (name, key), (total, average) in expected.items():
            found = stats.summaries(name, key)
            assert found is not None
            assert (found[2].sum, found[2].avgpt) == (total, average)
        assert stats.consume_tps("T", "g") == pytest.approx(4.0, rel=0.01)
        assert stats.consume_tps("T", "nobody") == 0.0
        stats.forget_topic("T")
        assert stats.summaries("GROUP_GET_LATENCY", "3@T@g") is None
        assert stats.summaries("BROKER_GET_NUMS", "C") is not None

    scenario(check)


def test_a_deleted_topic_takes_nothing_from_the_totals() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        queues.put(0, 10)
        await asyncio.sleep(11)
        queues.drop("T")
        assert queues.three[0] not in stats._seen
        await asyncio.sleep(11)
        queues.put(2, 5)
        await asyncio.sleep(11)
        assert stats.puts == 15

    scenario(check)


def test_totals_of_the_day_turn_at_midnight() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        queues.put(0, 10)
        clock.skew_ms += 86_400_000
        await asyncio.sleep(2)
        assert (stats.puts_yesterday, stats.puts_morning) == (0, 10)
        queues.put(0, 1)
        clock.skew_ms += 86_400_000
        await asyncio.sleep(2)
        assert (stats.puts_yesterday, stats.puts_morning, stats.puts) == (10, 11, 11)

    scenario(check)


def test_rates_need_enough_samples() -> None:
    rates = Rates()
    for second in range(11):
        assert rates.rate(10) is None
        rates.sample(second * 1000, second * 50)
    assert rates.rate(10) == 50.0
    assert rates.rate(60) is None


def test_put_times_by_bucket_and_share() -> None:
    async def check(stats: BrokerStats, queues: Queues, clock: SimClock) -> None:
        stats.put_took(0.0, 5)
        stats.put_took(7.0, 2)
        stats.put_took(20_000.0, 1)
        before = stats.distribution
        assert before is None
        await asyncio.sleep(61)
        assert stats.distribution is not None
        text = put_buckets(stats.distribution)
        assert text.startswith("[<=0ms]:5 [0~10ms]:2 [10~50ms]:0 ")
        assert text.endswith("[10s~]:1 ")
        assert stats.put_latency(0.5) == 7.0
        assert stats.put_time_max == 20_000.0

    scenario(check)


def test_an_item_that_does_not_change_shares_its_samples() -> None:
    items = StatsSet()
    items.item("a").add(5, 1)
    for step in range(20):
        assert not list(items.sample_minute(step * 10_000)), "one item needs no pause"
    found = items.summaries("a")
    assert found is not None
    assert found[2].sum == 0
    samples = items._minute._samples["a"]
    assert len({id(sample) for sample in samples}) == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 << 30, "5.0 GiB"), (1 << 50, "1.0 PiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text
