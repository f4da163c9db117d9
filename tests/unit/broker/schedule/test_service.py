"""Delayed messages in virtual time (store-and-broker.md 7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.delays import DelayLevels
from rmq.broker.schedule.rebuild import HalfMessageParked, rebuild
from rmq.broker.schedule.service import ScheduleService
from rmq.broker.store.index.file import INDEX_ENTRY
from rmq.broker.store.index.words import MOST_WORDS
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.log.records import index_keys
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.protocol import properties
from rmq.protocol.message import decode_record
from rmq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.protocol.tags import string_hash
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation

PATH = "/store/config/delayOffset.json"
LEVELS = DelayLevels("1s 5s 10s 30s 1m 3m")
HOST = bytes((10, 0, 0, 9, 0, 0, 19, 136))
OURS = bytes((10, 0, 0, 1, 0, 0, 42, 159))


class Broker:
    """A store with the schedule service on it."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.store = Store(
            node.world,
            StoreSettings(root="/store", commit_log_file_size=1 << 20, index_slots=1000, delays_ms=LEVELS.delays),
        )
        self.service = ScheduleService(node.world, self.store, LEVELS, PATH)
        self.store.durability.on_visible = self.visible
        self.arrivals: dict[tuple[str, int], list[int]] = {}

    def visible(self, queues: list[Queue]) -> None:
        self.service.arrived(queues)
        for queue in queues:
            if queue.topic != SCHEDULE_TOPIC:
                self.arrivals.setdefault((queue.topic, queue.id), []).append(self.node.clock.now_ms())

    async def start(self) -> None:
        await self.store.load()
        await self.service.load()
        await self.store.start()
        self.service.start()

    async def stop(self) -> None:
        await self.service.stop()
        await self.store.stop()

    def delay(self, level: int, topic: str = "T", queue_id: int = 2, body: bytes = b"x", **more: str) -> None:
        held = {
            "UNIQ_KEY": "U1",
            "TAGS": "A",
            **more,
            "DELAY": str(level),
            "REAL_TOPIC": topic,
            "REAL_QID": str(queue_id),
        }
        due = self.service.deliver_at(level, self.node.clock.now_ms())
        self.store.append(
            [
                Put(
                    self.store.queues.get_or_create(SCHEDULE_TOPIC, level - 1),
                    body,
                    properties.encode(held).encode(),
                    7,
                    0,
                    1_700_000_000_000,
                    HOST,
                    OURS,
                    3,
                    0,
                    due,
                    (b"U1",),
                )
            ]
        )

    def count(self, topic: str = "T", queue_id: int = 2) -> int:
        queue = self.store.queues.get(topic, queue_id)
        return 0 if queue is None else queue.visible

    async def record(self, index: int = 0, topic: str = "T", queue_id: int = 2) -> bytes:
        queue = self.store.queues.get(topic, queue_id)
        assert queue is not None
        entry = await self.store.queues.entries_cold(queue, index, 1)
        found = await self.store.messages.at(int.from_bytes(entry[:8], "big"))
        assert found is not None
        return found


def scenario(test: Callable[[SimNode, Broker], Awaitable[None]]) -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a")
        broker = Broker(node)
        await broker.start()
        try:
            await test(node, broker)
        finally:
            await broker.stop()

    run(main())


def test_each_level_is_delivered_when_it_is_due() -> None:
    async def check(node: SimNode, broker: Broker) -> None:
        begin = node.clock.now_ms()
        for level in range(1, 7):
            broker.delay(level, queue_id=level)
        await asyncio.sleep(190)
        for level in range(1, 7):
            (arrived,) = broker.arrivals["T", level]
            late = arrived - begin - LEVELS.delay(level)
            assert 0 <= late <= 20, (level, late)

    scenario(check)


def test_a_delivered_message_keeps_what_it_had() -> None:
    async def check(node: SimNode, broker: Broker) -> None:
        broker.delay(1, KEYS="k1 k2")
        await asyncio.sleep(2)
        got = decode_record(await broker.record())
        assert (got.topic, got.queue_id, got.queue_offset, got.flag, got.reconsume_times) == ("T", 2, 0, 7, 3)
        assert got.properties == {
            "UNIQ_KEY": "U1",
            "TAGS": "A",
            "KEYS": "k1 k2",
            "DELAY": "1",
            "REAL_TOPIC": "T",
            "REAL_QID": "2",
        }
        assert got.born_timestamp == 1_700_000_000_000
        assert got.born_host == ("10.0.0.9", 5000)
        assert got.store_timestamp >= node.clock.now_ms() - 1100
        queue = broker.store.queues.get("T", 2)
        assert queue is not None
        entry = await broker.store.queues.entries_cold(queue, 0, 1)
        assert int.from_bytes(entry[12:20], "big", signed=True) == string_hash("A")
        found = (await broker.store.query_message("T", "k2", 32, 0, 1 << 62)).records
        assert len(found) == 1

    scenario(check)


def test_three_thousand_due_at_once_all_arrive_in_order_and_the_loop_goes_on() -> None:
    async def check(node: SimNode, broker: Broker) -> None:
        for number in range(3000):
            broker.delay(1, body=b"%d" % number)
        await asyncio.sleep(2)
        assert broker.count() == 3000
        assert decode_record(await broker.record(2999)).body == b"2999"
        # Batches, not one append a message and not one for all.
        assert 40 <= len(broker.arrivals["T", 2]) <= 60

    scenario(check)


def test_offsets_are_kept_and_delivery_goes_on_after_a_restart() -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a")
        broker = Broker(node)
        await broker.start()
        broker.delay(1)
        broker.delay(2)
        await asyncio.sleep(2)
        await broker.stop()
        assert node.files.read(PATH) == b'{\n\t"offsetTable":{1:1\n\t}\n}'
        await asyncio.sleep(10)
        again = Broker(node)
        await again.start()
        await asyncio.sleep(0.1)
        assert again.count() == 2
        assert again.service.offsets.table == {1: 1, 2: 1}
        assert again.service.offsets.encode() == b'{"offsetTable":{1:1,2:1}}'
        await again.stop()

    run(main())


def test_offsets_outside_the_queue_are_corrected() -> None:
    async def main() -> None:
        node = Simulation(seed=1).node("a")
        node.files.mkdir("/store/config")
        node.files.write_atomic(PATH, b'{"offsetTable":{1:99,"2":-4,3:5}}')
        broker = Broker(node)
        await broker.start()
        broker.delay(1)
        await asyncio.sleep(2)
        assert broker.count() == 1
        assert broker.service.offsets.table == {1: 1, 2: 0, 3: 0}
        await broker.stop()

    run(main())


def test_a_closed_gate_delays_and_loses_nothing() -> None:
    async def check(node: SimNode, broker: Broker) -> None:
        broker.delay(1)
        broker.store.log.gate |= 16
        await asyncio.sleep(5)
        assert broker.count() == 0
        broker.store.log.gate &= ~16
        await asyncio.sleep(6)
        assert broker.count() == 1

    scenario(check)


def test_what_cannot_be_delivered_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: SimNode, broker: Broker) -> None:
        broker.delay(1, topic=HALF_TOPIC)
        broker.delay(1, topic="")
        broker.delay(1)
        await asyncio.sleep(2)
        assert broker.count() == 1
        assert broker.service.offsets.get(1) == 3

    scenario(check)
    assert "transactional message is dropped" in caplog.text
    assert "skipped" in caplog.text


def test_nothing_runs_while_nothing_waits() -> None:
    async def check(node: SimNode, broker: Broker) -> None:
        passes = 0
        original = broker.service._pass

        async def counted() -> float | None:
            nonlocal passes
            passes += 1
            return await original()

        broker.service._pass = counted  # type: ignore[method-assign]
        await asyncio.sleep(120)
        assert passes == 1
        broker.delay(1)
        await asyncio.sleep(120)
        assert passes <= 6

    scenario(check)


def test_what_is_delivered_is_found_by_as_many_keys_as_what_is_read_from_the_log() -> None:
    """Words of KEYS have a bound, which an index that is made of the log keeps: members of a group have the same."""

    async def check(_: SimNode, broker: Broker) -> None:
        broker.delay(1, KEYS=" ".join(f"k{number}" for number in range(3 * MOST_WORDS)))
        await asyncio.sleep(2)
        store, found = broker.store, []
        assert store.index is not None
        async for one in LogReader(broker.node.world, store.log, crc=False).runs(0, store.log.end):
            for at, size, _, _, _, topic, text in one.records:
                if topic == "T":
                    hasher = store.indexing.hasher(topic)
                    found = [(hasher.of(key), one.base + at) for key in index_keys(one.data, text, at + size)]
        assert len(found) == 1 + MOST_WORDS
        put = []
        for file in store.index.files:
            for number in range(1, file.count):
                entry = file.buffered(number) or await store.index.read_entries(file, number, 1)
                put.append(INDEX_ENTRY.unpack(entry)[:2])
        assert [entry for entry in put if entry[1] == found[0][1]] == found

    scenario(check)


def test_a_level_that_is_named_no_longer_is_delivered_all_the_same() -> None:
    """Another member of the group has led that names more, or the setting was made shorter."""

    async def check(node: SimNode, broker: Broker) -> None:
        begin = node.clock.now_ms()
        broker.delay(10)
        broker.delay(2_000_000)  # a queue that no broker makes
        assert broker.service.waiting()[-2:] == [(10, 1), (2_000_000, 1)]
        await asyncio.sleep(200)
        assert [at - begin >= LEVELS.delay(10) for at in broker.arrivals["T", 2]] == [True, True]
        assert broker.service.waiting()[-2:] == [(10, 0), (2_000_000, 0)]

    scenario(check)


def test_rebuild_refuses_what_is_no_record() -> None:
    def never(topic: str, queue_id: int) -> Queue:
        raise AssertionError

    with pytest.raises(ValueError, match="are no record"):
        rebuild(b"short", never)
    with pytest.raises(ValueError, match="no record of"):
        rebuild(bytes(200), never)
    assert issubclass(HalfMessageParked, ValueError)
