"""Messages with a time of their own, in virtual time: never early, at most 200 ms late, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.schedule.steady import SteadyClock
from rmq.broker.schedule.timers import TimerService
from rmq.broker.schedule.timing import TimerSends
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.broker.topics.table import TopicTable
from rmq.protocol import properties
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.names import TIMER_DONE_TOPIC, TIMER_GROUP, TIMER_TOPIC
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation

HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))
HOUR = 3_600_000
LATE = 200


class TimerBroker:
    """A store with timers on it: one process of a node."""

    def __init__(self, node: SimNode, offsets: OffsetTable | None = None, *, sync_flush: bool = False) -> None:
        self.node = node
        world = node.world
        self.settings = BrokerSettings(broker_name="b", broker_ip1="10.0.0.1")
        self.offsets = offsets if offsets is not None else OffsetTable()
        self.store = Store(
            world, StoreSettings("/store", commit_log_file_size=1 << 20, sync_flush=sync_flush, index_slots=1000)
        )
        topics = TopicTable(world, self.settings, "/store/config/topics.json")
        self.sends = TimerSends(world.clock, self.settings, topics, self.store)
        self.steady = SteadyClock(world.clock)
        self.service = TimerService(world, self.settings, self.store, self.offsets, self.steady, HOST)
        self.store.durability.on_visible = self.visible
        self.arrivals: list[int] = []

    def visible(self, queues: list[Queue]) -> None:
        self.service.arrived(queues)
        now = self.node.clock.now_ms()
        for queue in queues:
            if queue.topic == "T":
                self.arrivals += [now] * (queue.visible - len(self.arrivals))

    async def start(self) -> None:
        await self.store.load()
        await self.service.load()
        queue = self.store.queues.get("T", 0)
        self.arrivals = [0] * (queue.visible if queue is not None else 0)
        await self.store.start()
        self.service.start()

    async def stop(self) -> None:
        await self.service.stop()
        await self.store.stop()

    async def killed(self, simulation: Simulation, *, power: bool = False) -> TimerBroker:
        """The next process after kill -9, or after a power cut; not started."""
        if power:
            simulation.power_cut(self.node, all_lost=True)
        else:
            simulation.kill(self.node)
        await self.service.tasks.close()
        await self.store.tasks.close()
        return TimerBroker(self.node, self.offsets, sync_flush=self.store.settings.sync_flush)

    def send(self, body: str, ms: int | None = None, *, at: int | None = None, **more: str) -> int:
        """Store one message; when it is due, by the wall clock of now."""
        now = self.node.clock.now_ms()
        table = {"UNIQ_KEY": f"U{body}", **more}
        if ms is not None:
            table["TIMER_DELAY_MS"] = str(ms)
        if at is not None:
            table["TIMER_DELIVER_MS"] = str(at)
        diverted = self.sends.divert(table, self.store.queues.get_or_create("T", 0))
        assert diverted is not None
        queue, code = diverted
        stored = properties.encode(table).encode()
        key = (table["UNIQ_KEY"].encode(),)
        self.store.append([Put(queue, body.encode(), stored, 7, 0, now, HOST, HOST, 0, 0, code, key)])
        return now + ms if ms is not None else at or 0

    async def records(self, topic: str = "T") -> list[MessageRecord]:
        queue = self.store.queues.get(topic, 0)
        found = []
        for index in range(queue.min if queue else 0, queue.visible if queue else 0):
            assert queue is not None
            entry = await self.store.queues.entries_cold(queue, index, 1)
            data = await self.store.messages.at(int.from_bytes(entry[:8], "big"))
            assert data is not None
            found.append(decode_record(data))
        return found

    async def bodies(self) -> list[str]:
        return [record.body.decode() for record in await self.records()]


def in_a_broker(test: Callable[[SimNode, TimerBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a")
        broker = TimerBroker(node)
        await broker.start()
        try:
            await test(node, broker)
        finally:
            await broker.stop()

    run(main())


def in_time(arrived: int, due: int) -> bool:
    return due <= arrived <= due + LATE


def test_each_comes_when_it_is_due() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        waits = [1, 99, 999, 1000, 1001, 1500, 7000, 61_000, HOUR, HOUR // 2 + 17]
        dues = sorted(broker.send(str(ms), ms) for ms in waits)
        dues.append(broker.send("at", at=node.clock.now_ms() + 5003))
        dues.sort()
        await asyncio.sleep(3600 + 1)
        assert len(broker.arrivals) == len(dues)
        for arrived, due in zip(broker.arrivals, dues, strict=True):
            assert in_time(arrived, due), arrived - due
        assert await broker.bodies() == [
            "1", "99", "999", "1000", "1001", "1500", "at", "7000", "61000", str(HOUR // 2 + 17), str(HOUR),
        ]  # fmt: skip

    in_a_broker(check)


def test_a_delivered_message_shows_what_java_5_shows() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        due = broker.send("x", 3500, TAGS="A", KEYS="k")
        sent = due - 3500
        await asyncio.sleep(5)
        (record,) = await broker.records()
        shown = record.properties
        assert in_time(int(shown.pop("TIMER_DEQUEUE_MS")), due)
        assert sent <= int(shown.pop("TIMER_ENQUEUE_MS")) <= sent + 1
        assert shown == {
            "UNIQ_KEY": "Ux", "TAGS": "A", "KEYS": "k", "TIMER_DELAY_MS": "3500", "TIMER_OUT_MS": str(due),
            "REAL_TOPIC": "T", "REAL_QID": "0",
        }  # fmt: skip
        assert (record.topic, record.queue_id, record.flag, record.body) == ("T", 0, 7, b"x")
        assert in_time(record.store_timestamp, due)
        assert record.born_timestamp == sent
        # What waits and the marks are ordinary messages to any reader of the store.
        (waited,) = await broker.records(TIMER_TOPIC)
        assert waited.properties["TIMER_OUT_MS"] == str(due)
        (mark,) = await broker.records(TIMER_DONE_TOPIC)
        assert mark.body == b"0"

    in_a_broker(check)


@pytest.mark.parametrize("absolute", [False, True])
def test_equal_times_keep_the_order_in_which_they_were_sent(absolute: bool) -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        at = node.clock.now_ms() + 4000
        for number in range(500):
            if absolute:
                broker.send(str(number), at=at)
            else:
                broker.send(str(number), at - node.clock.now_ms())
        await asyncio.sleep(6)
        assert await broker.bodies() == [str(number) for number in range(500)]

    in_a_broker(check)


def test_thousands_due_at_once_come_in_batches() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        for number in range(3000):
            broker.send(str(number), 1000)
        await asyncio.sleep(3)
        assert await broker.bodies() == [str(number) for number in range(3000)]
        assert 20 <= len(await broker.records(TIMER_DONE_TOPIC)) <= 60

    in_a_broker(check)


def test_nothing_runs_while_nothing_waits() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        passes = 0
        original = broker.service._pass

        async def counted() -> float | None:
            nonlocal passes
            passes += 1
            return await original()

        broker.service._pass = counted  # type: ignore[method-assign]
        await asyncio.sleep(600)
        assert passes == 1

    in_a_broker(check)


@pytest.mark.parametrize("step", [-HOUR, HOUR, -30_000, 30_000])
def test_a_delay_lasts_as_long_as_it_says_whatever_the_wall_clock_does(step: int) -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        broker.send("before", 5000)
        await asyncio.sleep(2)
        node.clock.skew_ms += step
        broker.send("after", 5000)
        times: list[float] = []
        while len(times) < 2:
            await asyncio.sleep(0.01)
            times += [loop.time()] * (len(broker.arrivals) - len(times))
            assert loop.time() < began + 60
        assert 5.0 <= times[0] - began <= 5.2
        assert 7.0 <= times[1] - began <= 7.2
        assert await broker.bodies() == ["before", "after"]

    in_a_broker(check)


def test_a_time_of_the_producer_s_choice_is_the_wall_clock_s() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        due = broker.send("x", at=node.clock.now_ms() + HOUR)
        await asyncio.sleep(1)
        node.clock.skew_ms += HOUR - 2000
        await asyncio.sleep(0.5)
        assert broker.arrivals == []
        node.clock.skew_ms -= 1000
        await asyncio.sleep(1.4)
        assert broker.arrivals == []
        await asyncio.sleep(3)
        assert len(broker.arrivals) == 1
        assert in_time(broker.arrivals[0], due)

    in_a_broker(check)


def test_a_time_in_a_far_future_comes_as_soon_as_the_clock_is_set_there() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        broker.send("x", at=node.clock.now_ms() + 24 * HOUR)
        await asyncio.sleep(1)
        node.clock.skew_ms += 24 * HOUR
        await asyncio.sleep(0.2)
        assert len(broker.arrivals) == 1

    in_a_broker(check)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("hinted", [False, True])
def test_nothing_is_lost_or_early_after_a_kill(power: bool, hinted: bool) -> None:
    async def main() -> None:
        simulation = Simulation(seed=3)
        node = simulation.node("a")
        broker = TimerBroker(node)
        await broker.start()
        dues = {}
        for number in range(300):
            dues[str(number)] = broker.send(str(number), 1000 + 40 * number)
        await asyncio.sleep(7.123)
        await broker.store.flusher.flush_all()
        delivered = len(broker.arrivals)
        assert 100 < delivered < 200
        broker.service._note_floor()
        assert broker.offsets.query(TIMER_GROUP, TIMER_TOPIC, 0) == delivered
        again = await broker.killed(simulation, power=power)
        if not hinted:
            again.offsets.load({})
        await asyncio.sleep(1.5)
        await again.start()
        began = node.clock.now_ms()
        await asyncio.sleep(20)
        assert sorted(await again.bodies(), key=int) == [str(number) for number in range(300)]
        for record in await again.records():
            due = dues[record.body.decode()]
            assert record.store_timestamp >= due
            if due > began:
                assert in_time(record.store_timestamp, due)
        await again.stop()

    run(main())


def test_a_delivery_without_its_mark_is_done_again() -> None:
    async def main() -> None:
        simulation = Simulation(seed=3)
        node = simulation.node("a")
        broker = TimerBroker(node)
        await broker.start()
        broker.send("a", 1000)
        broker.send("b", 1500)
        await asyncio.sleep(2)
        # The last append is torn between the message and its mark.
        marks = broker.store.queues.get(TIMER_DONE_TOPIC, 0)
        assert marks is not None
        assert marks.next == 2
        at = int.from_bytes((await broker.store.queues.entries_cold(marks, 1, 1))[:8], "big")
        again = await broker.killed(simulation)
        file = node.disk.open("/store/commitlog/" + "0" * 20)
        file.pwrite(b"\0" * 64, at)
        file.close()
        await again.start()
        await asyncio.sleep(1)
        assert await again.bodies() == ["a", "b", "b"]
        await again.stop()

    run(main())


def test_queue_entries_that_recovery_wrote_anew_carry_no_time_and_are_read_from_the_records() -> None:
    async def main() -> None:
        simulation = Simulation(seed=3)
        node = simulation.node("a")
        broker = TimerBroker(node)
        await broker.start()
        due = broker.send("a", 60_000)
        at = broker.send("b", at=due + 1000)
        await asyncio.sleep(0.5)  # the topics are written, the queue's entries are not
        again = await broker.killed(simulation)
        await again.start()
        queue = again.store.queues.get(TIMER_TOPIC, 0)
        assert queue is not None
        entry = await again.store.queues.entries_cold(queue, 0, 1)
        assert int.from_bytes(entry[12:20], "big", signed=True) < 1 << 32
        await asyncio.sleep(62)
        assert [in_time(one, want) for one, want in zip(again.arrivals, (due, at), strict=True)] == [True, True]
        await again.stop()

    run(main())


def test_a_closed_gate_delays_and_loses_nothing() -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        broker.send("x", 1000)
        broker.store.log.gate |= 16
        await asyncio.sleep(5)
        assert broker.arrivals == []
        broker.store.log.gate &= ~16
        await asyncio.sleep(6)
        assert await broker.bodies() == ["x"]

    in_a_broker(check)


def test_with_sync_flush_nothing_is_delivered_before_it_is_durable() -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a", fsync_seconds=0.5)
        broker = TimerBroker(node, sync_flush=True)
        await broker.start()
        due = broker.send("x", 100)
        await asyncio.sleep(0.4)
        assert broker.arrivals == []
        await asyncio.sleep(3)
        assert len(broker.arrivals) == 1
        assert broker.arrivals[0] > due + 500
        await broker.stop()

    run(main())


# -- recall


def test_what_is_taken_back_is_never_delivered_not_even_after_a_kill() -> None:
    async def main() -> None:
        simulation = Simulation(seed=3)
        node = simulation.node("a")
        broker = TimerBroker(node)
        await broker.start()
        broker.send("a", 5000)
        broker.send("b", 5000)
        await asyncio.sleep(1)
        assert await broker.service.waiting("T", "Ua") == [0]
        assert await broker.service.waiting("other", "Ua") == []
        assert await broker.service.waiting("T", "Uz") == []
        broker.service.take_back([0])
        assert await broker.service.waiting("T", "Ua") == []
        again = await broker.killed(simulation)
        await again.start()
        await asyncio.sleep(6)
        assert await again.bodies() == ["b"]
        assert await again.service.waiting("T", "Ub") == []
        await again.stop()

    run(main())


@pytest.mark.parametrize("rolled", [False, True])
def test_what_is_taken_back_while_it_is_read_is_not_delivered(rolled: bool) -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        service = broker.service
        read = service._waiting.raw

        async def slow(index: int, position: int, size: int) -> bytes:
            found = await read(index, position, size)
            if index == 0 and service._seen:
                service.take_back([0])
            return found

        wait = 5000
        if rolled:
            broker.settings.file_reserved_time, wait = 1, HOUR // 2
        broker.send("a", wait)
        broker.send("b", wait)
        await asyncio.sleep(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rmq.broker.schedule.waits._LONGEST_SLEEP", 60.0)
            patch.setattr(service._waiting, "raw", slow)
            await asyncio.sleep(wait / 1000 + 1)
        assert await broker.bodies() == ["b"]

    in_a_broker(check)


@pytest.mark.parametrize("key", ["T+Ua", "Ua"])
def test_a_message_that_names_another_takes_it_back(key: str) -> None:
    async def check(node: SimNode, broker: TimerBroker) -> None:
        due = broker.send("a", 5000)
        broker.send("b", 5000)
        broker.send("delete", at=due, TIMER_DEL_UNIQKEY=key)
        await asyncio.sleep(8)
        assert await broker.bodies() == ["b"]

    in_a_broker(check)


# -- old messages


def test_a_message_that_waits_for_long_is_stored_anew_and_delivered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The wall clock makes no step here: looking for one ten times a second would be most of the test.
    monkeypatch.setattr("rmq.broker.schedule.waits._LONGEST_SLEEP", 60.0)

    async def main() -> None:
        simulation = Simulation(seed=3)
        node = simulation.node("a")
        broker = TimerBroker(node)
        broker.settings.file_reserved_time = 1
        await broker.start()
        wait = HOUR * 3 // 2
        dues = [broker.send("rel", wait), broker.send("abs", at=node.clock.now_ms() + wait + 5000)]
        broker.send("recalled", wait)
        await asyncio.sleep(3300)
        waited = await broker.records(TIMER_TOPIC)
        assert [record.properties.get("TIMER_ROLL_TIMES") for record in waited] == [None] * 3 + ["1"] * 3
        newest = max(record.queue_offset for record in waited if record.body == b"recalled")
        assert await broker.service.waiting("T", "Urecalled") == [newest]
        broker.service.take_back([newest])
        broker.service._note_floor()
        assert broker.offsets.query(TIMER_GROUP, TIMER_TOPIC, 0) >= 3
        again = await broker.killed(simulation)
        await again.start()
        await asyncio.sleep(2700)
        assert await again.bodies() == ["rel", "abs"]
        for arrived, due in zip(again.arrivals, dues, strict=True):
            assert in_time(arrived, due)
        await again.stop()

    run(main())


# -- planted faults turn these tests red


@contextmanager
def planted(target: object, name: str, fault: object) -> Iterator[None]:
    """Something of the service replaced by something wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, fault)
        yield


@pytest.mark.parametrize(
    ("target", "name", "fault", "test"),
    [
        # Whole seconds, as Java rounds: early.
        (
            "rmq.broker.schedule.wheel.Wheel", "add",
            lambda real: lambda self, due, index: real(self, due // 1000 * 1000, index),
            test_each_comes_when_it_is_due,
        ),
        # Marks are not read at start.
        (
            "rmq.broker.schedule.timers.TimerService", "_read_marks",
            lambda real: lambda self, queue, floor: asyncio.sleep(0),
            test_what_is_taken_back_is_never_delivered_not_even_after_a_kill,
        ),
        # A message counts as dealt with that is not.
        (
            "rmq.broker.schedule.done.DoneMap", "__contains__",
            lambda real: lambda self, index: real(self, index) or index == 5,
            test_thousands_due_at_once_come_in_batches,
        ),
    ],
)  # fmt: skip
def test_planted_faults_are_found(
    target: str,
    name: str,
    fault: Callable[[Callable[..., object]], object],
    test: Callable[[], None],
) -> None:
    module, _, kind = target.rpartition(".")
    owner = getattr(__import__(module, fromlist=[kind]), kind)
    with planted(owner, name, fault(getattr(owner, name))), pytest.raises(AssertionError):
        test()
