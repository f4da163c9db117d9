"""One record of the timers that is bad costs itself: the others come in time, before and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.schedule.timing import Wait, decode_code, encode_code
from rmq.broker.store import aside
from rmq.broker.store.state import Put
from rmq.protocol import properties
from rmq.protocol.names import TIMER_DONE_TOPIC, TIMER_TOPIC
from rmq.protocol.tags import string_hash
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.faults.sick_disk import Sick
from tests.unit.broker.schedule.test_timers import HOST, TimerBroker

#: Values of TIMER_OUT_MS, and codes of queue entries, that no message has.
ODD_TIMES = ["9" * 400, "9" * 5000, "-5", "1e3", "", "٣", str(1 << 62), str(10**30)]


def forge(broker: TimerBroker, body: bytes, table: dict[str, str], code: int = 0, topic: str = TIMER_TOPIC) -> int:
    """Store a record of one of the timers' topics as somebody else may have; its commit-log offset."""
    queue = broker.store.queues.get_or_create(topic, 0)
    stored = properties.encode(table).encode()
    span = broker.store.append([Put(queue, body, stored, 0, 0, broker.node.clock.now_ms(), HOST, HOST, 0, 0, code, ())])
    return span.offsets[0][1]


def with_a_restart(
    test: Callable[[SimNode, TimerBroker, Callable[[], Awaitable[TimerBroker]]], Awaitable[None]],
) -> None:
    async def main() -> None:
        simulation = Simulation(seed=1)
        node = simulation.node("a")
        broker = TimerBroker(node)
        await broker.start()
        made = [broker]

        async def restart() -> TimerBroker:
            made.append(await made[-1].killed(simulation))
            return made[-1]

        await test(node, broker, restart)
        await made[-1].stop()

    run(main())


@pytest.mark.parametrize("text", ODD_TIMES, ids=lambda text: text[:12])
def test_a_time_that_is_none(text: str, caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        broker.send("before", 1000)
        forge(broker, b"bad", {"TIMER_OUT_MS": text, "REAL_TOPIC": "T", "REAL_QID": "0"}, string_hash("tag"))
        broker.send("after", 1000)
        await asyncio.sleep(2)
        assert await broker.bodies() == ["before", "after"]
        told = [record for record in caplog.records if "no readable time" in record.getMessage()]
        assert len(told) == 1
        again = await restart()
        await again.start()
        again.send("later", 1000)
        await asyncio.sleep(2)
        assert await again.bodies() == ["before", "after", "later"]
        assert len([record for record in caplog.records if "no readable time" in record.getMessage()]) == 1

    with_a_restart(check)


@pytest.mark.parametrize("ahead", [(1 << 61) - 1, 10**18])
@pytest.mark.parametrize("relative", [False, True])
def test_a_code_far_ahead_waits_for_ever(ahead: int, relative: bool) -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        forge(broker, b"bad", {"REAL_TOPIC": "T"}, encode_code(Wait(ahead, relative, False)))
        broker.send("good", 1000)
        await asyncio.sleep(2)
        assert await broker.bodies() == ["good"]
        assert await broker.service.waits.periods([10, 10_000]) == [0, 0]

    with_a_restart(check)


@pytest.mark.parametrize(
    "table",
    [
        {"REAL_TOPIC": "T", "REAL_QID": "9" * 400},
        {"REAL_TOPIC": "T", "REAL_QID": "9" * 5000},
        {"REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"REAL_TOPIC": "T", "REAL_QID": "2147483648"},
        {"REAL_TOPIC": "../x", "REAL_QID": "0"},
        {"REAL_TOPIC": TIMER_DONE_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": "T" * 300, "REAL_QID": "0"},
        {},
    ],
    ids=str,
)
def test_a_message_for_nowhere(table: dict[str, str]) -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        now = node.clock.now_ms()
        marks = broker.store.queues.get_or_create(TIMER_DONE_TOPIC, 0)
        forge(broker, b"9000000000000", table, encode_code(Wait(now + 1000, False, False)))
        broker.send("good", 1000)
        await asyncio.sleep(3)
        assert await broker.bodies() == ["good"]
        again = await restart()
        await again.start()
        again.send("later", 1000)
        await asyncio.sleep(2)
        assert await again.bodies() == ["good", "later"]
        assert [record.body for record in await again.records(marks.topic) if record.body == b"9000000000000"] == []

    with_a_restart(check)


def test_a_record_that_cannot_be_read_is_delivered_when_it_can(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        bad = broker.store.log.end
        broker.send("bad", 1000)
        broker.send("same moment", 1000)
        broker.send("later", 5000)
        sick = Sick(broker.store, bad)
        await asyncio.sleep(200)
        assert await broker.bodies() == ["same moment", "later"]
        (told,) = [
            record
            for record in caplog.records
            if record.levelname == "ERROR" and record.name.startswith("rmq.broker.schedule")
        ]
        assert "rmq_sys_wheel_timer-0 at 0" in told.getMessage()
        again = await restart()
        sick = Sick(again.store, bad)
        await again.start()
        again.send("after", 1000)
        await asyncio.sleep(30)
        assert await again.bodies() == ["same moment", "later", "after"]
        sick.heal()
        await asyncio.sleep(61)
        assert await again.bodies() == ["same moment", "later", "after", "bad"]
        assert len(again.service._aside) == 0

    with_a_restart(check)


def test_a_record_without_a_time_in_its_entry_that_cannot_be_read() -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        due = str(node.clock.now_ms() + 3000)
        sick = Sick(broker.store, broker.store.log.end)
        forge(broker, b"bad", {"TIMER_OUT_MS": due, "REAL_TOPIC": "T", "REAL_QID": "0"}, string_hash("tag"))
        broker.send("good", 1000)
        await asyncio.sleep(2)
        assert await broker.bodies() == ["good"]
        sick.heal()
        await asyncio.sleep(3)
        assert await broker.bodies() == ["good", "bad"]

    with_a_restart(check)


def test_queue_entries_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        sick = Sick(broker.store)
        sick.entries(TIMER_TOPIC, 1)
        for name in ("a", "b", "c"):
            broker.send(name, 1000)
        await asyncio.sleep(3)
        assert await broker.bodies() == ["a", "c"]
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
        sick.heal()
        await asyncio.sleep(10)
        assert await broker.bodies() == ["a", "c", "b"]

    with_a_restart(check)


def test_a_message_that_takes_none_back() -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        due = node.clock.now_ms() + 1000
        forge(broker, b"bad", {"REAL_TOPIC": "T"}, encode_code(Wait(due, False, True)))
        broker.send("good", 1000)
        await asyncio.sleep(2)
        assert await broker.bodies() == ["good"]
        assert broker.service._done.floor == 2

    with_a_restart(check)


CHANGED = {
    "earlier": lambda wait: wait._replace(due=wait.due - 60_000),
    "later": lambda wait: wait._replace(due=wait.due + (1 << 40)),
    "takes another back": lambda wait: wait._replace(deletes=True),
    "on the other clock": lambda wait: wait._replace(due=wait.due - 60_000, relative=not wait.relative),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_code_that_changed_on_the_disk(change: Callable[[Wait], Wait], caplog: pytest.LogCaptureFixture) -> None:
    """The message itself says for what it waits: it is delivered then, and the entry is told of."""

    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        broker.send("good", 100_000)
        due = broker.send("waits", 100_000)
        await asyncio.sleep(30)
        file = node.disk.open(f"/store/consumequeue/{TIMER_TOPIC}/0/{0:020d}")
        known = decode_code(int.from_bytes(file.pread(8, 32), "big"))
        assert known is not None
        assert known.due == due
        file.pwrite(encode_code(change(known)).to_bytes(8, "big"), 32)
        again = await restart()
        await again.start()
        await asyncio.sleep(65)
        assert await again.bodies() == []
        again.store.settings.scrub_rate_mib = 100
        await again.store.scrub.run()
        await asyncio.sleep(10)
        assert await again.bodies() == ["good", "waits"]
        assert again.service._done.floor == 2
        assert any(record.levelname == "CRITICAL" for record in caplog.records)

    with_a_restart(check)


def test_a_code_that_takes_no_other_one_back_any_more() -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        broker.send("waits", 5000)
        now = node.clock.now_ms()
        table = {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(now + 1000), "TIMER_DEL_UNIQKEY": "T+Uwaits"}
        forge(broker, b"", table, encode_code(Wait(now + 1000, False, False)))
        await asyncio.sleep(6)
        assert await broker.bodies() == []
        assert broker.service._done.floor == 2

    with_a_restart(check)


@pytest.mark.parametrize(
    "body", [b"9000000000000", b"0-9000000000000", b"9" * 5000, b"7-", b"-", b"\xff", b"0", b"5-2", b"1,9000000000000"]
)
def test_forged_marks_cost_no_start(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A mark of a message that there is is believed, whoever wrote it: no other than this broker can, nowadays."""

    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        broker.send("first", 50_000)
        broker.send("second", 50_000)
        forge(broker, body, {}, topic=TIMER_DONE_TOPIC)
        await asyncio.sleep(1)
        again = await restart()
        await again.start()
        await asyncio.sleep(60)
        assert await again.bodies() == (["second"] if body == b"0" else ["first", "second"])
        skipped = [record for record in caplog.records if "is no mark and is skipped" in record.getMessage()]
        assert len(skipped) == (0 if body in (b"0", b"5-2") else 1) or body == b"5-2"
        assert len(again.service._done._bits) < 100

    with_a_restart(check)


def test_marks_that_cannot_be_read_cost_no_start() -> None:
    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        broker.send("a", 1000)
        broker.send("b", 1500)
        broker.send("c", 30_000)
        await asyncio.sleep(2)
        marks = broker.store.queues.get(TIMER_DONE_TOPIC, 0)
        assert marks is not None
        entry = await broker.store.queues.entries_cold(marks, 0, 1)
        again = await restart()
        again.offsets.commit("CID_RMQ_SYS_TIMER", TIMER_TOPIC, 0, 0)
        Sick(again.store, int.from_bytes(entry[:8], "big"))
        await again.start()
        await asyncio.sleep(40)
        # What its mark said was delivered comes once more; nothing else does.
        assert sorted(await again.bodies()) == ["a", "a", "b", "c"]

    with_a_restart(check)


def test_when_very_many_fail_all_wait_and_the_service_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "_MOST", 2)

    async def check(node: SimNode, broker: TimerBroker, restart: Callable[[], Awaitable[TimerBroker]]) -> None:
        places = []
        for number in range(4):
            places.append(broker.store.log.end)
            broker.send(str(number), 1000)
        sick = Sick(broker.store, *places[:3])
        await asyncio.sleep(5)
        assert await broker.bodies() == []
        sick.heal()
        await asyncio.sleep(10)
        assert sorted(await broker.bodies()) == ["0", "1", "2", "3"]
        assert [task.get_name() for task in broker.service.tasks.services()].count("timers.deliver") == 1

    with_a_restart(check)
