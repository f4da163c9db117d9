"""One delayed message that is bad costs itself: its level and the others go on, before and after a restart."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmq.broker.store import aside
from rmq.protocol.message import decode_record
from rmq.protocol.names import SCHEDULE_TOPIC, TIMER_DONE_TOPIC
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.faults.sick_disk import Sick
from tests.unit.broker.schedule.test_service import PATH, Broker


def with_a_restart(test: Callable[[Broker, Callable[..., Awaitable[Broker]]], Awaitable[None]]) -> None:
    async def main() -> None:
        simulation = Simulation(seed=1)
        node = simulation.node("a")
        made = [Broker(node)]
        await made[0].start()

        async def restart(*, kill: bool = False) -> Broker:
            old = made[-1]
            if kill:
                simulation.kill(node)
                await old.service.tasks.close()
                await old.store.tasks.close()
            else:
                await old.stop()
            made.append(Broker(node))
            return made[-1]

        await test(made[0], restart)
        await made[-1].stop()

    run(main())


async def bodies(broker: Broker) -> list[str]:
    return [decode_record(await broker.record(index)).body.decode() for index in range(broker.count())]


def test_places_without_a_message_are_passed_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """A start that lost the end of the log leaves thousands, and tells them in one line."""

    async def check(broker: Broker, _: object) -> None:
        broker.delay(1, body=b"before them")
        level = broker.store.queues.get_or_create(SCHEDULE_TOPIC, 0)
        broker.store.queues.leave_out(level, 3000)
        level.visible = level.next
        broker.delay(1, body=b"behind them")
        await asyncio.sleep(10)
        assert await bodies(broker) == ["before them", "behind them"]
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []

    with_a_restart(check)


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("entry", [False, True])
def test_what_cannot_be_read_holds_nothing_up(kill: bool, entry: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def check(broker: Broker, restart: Callable[..., Awaitable[Broker]]) -> None:
        bad = broker.store.log.end
        broker.delay(1, body=b"bad")
        broker.delay(1, body=b"level 1")
        broker.delay(2, body=b"level 2")
        broker.delay(3, body=b"level 3")

        def spoil(broker: Broker) -> Sick:
            sick = Sick(broker.store, *(() if entry else (bad,)))
            if entry:
                sick.entries(SCHEDULE_TOPIC, 0)
            return sick

        spoil(broker)
        await asyncio.sleep(2)
        assert await bodies(broker) == ["level 1"]
        await asyncio.sleep(40)
        assert await bodies(broker) == ["level 1", "level 2", "level 3"]
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1
        assert "SCHEDULE_TOPIC_XXXX-0 at 0" in told[0]

        again = await restart(kill=kill)
        sick = spoil(again)
        await again.start()
        again.delay(1, body=b"after")
        await asyncio.sleep(30)
        assert await bodies(again) == ["level 1", "level 2", "level 3", "after"]
        sick.heal()
        await asyncio.sleep(61)
        assert await bodies(again) == ["level 1", "level 2", "level 3", "after", "bad"]

        last = await restart(kill=False)
        await last.start()
        await asyncio.sleep(61)
        assert (await bodies(last))[4:] == ["bad"]
        assert b"aside" not in last.node.files.read(PATH)

    with_a_restart(check)


def test_what_is_set_aside_before_it_is_due_is_not_early() -> None:
    async def check(broker: Broker, restart: Callable[..., Awaitable[Broker]]) -> None:
        sick = Sick(broker.store)
        sick.entries(SCHEDULE_TOPIC, 0, queue_id=2)
        broker.delay(3, body=b"bad")
        await asyncio.sleep(3)
        assert len(broker.service._aside) == 1
        sick.heal()
        await asyncio.sleep(6)
        assert await bodies(broker) == []
        await asyncio.sleep(3)
        assert await bodies(broker) == ["bad"]

    with_a_restart(check)


@pytest.mark.parametrize(
    ("topic", "more"),
    [
        ("T", {"REAL_QID": "9" * 400}),
        ("T", {"REAL_QID": "9" * 5000}),
        ("T", {"REAL_QID": "2147483648"}),
        ("T", {"REAL_QID": "x"}),
        ("../T", {}),
        (TIMER_DONE_TOPIC, {}),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {}),
        ("T" * 300, {}),
    ],
)
def test_a_message_for_nowhere(topic: str, more: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async def check(broker: Broker, restart: Callable[..., Awaitable[Broker]]) -> None:
        queue_id = more.get("REAL_QID", "2")
        broker.delay(1, body=b"before")
        broker.delay(1, topic, queue_id, body=b"bad")  # type: ignore[arg-type]
        broker.delay(1, body=b"after")
        await asyncio.sleep(3)
        assert await bodies(broker) == ["before", "after"]
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
        again = await restart()
        await again.start()
        again.delay(1, body=b"later")
        await asyncio.sleep(3)
        assert await bodies(again) == ["before", "after", "later"]
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1

    with_a_restart(check)


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{1:0},"aside":7}',
        '{"offsetTable":{1:0},"aside":{"1":{"x":1}}}',
        '{"offsetTable":{1:1},"aside":{"1":[0,7,-1,"x",1e300,null],"9":[0],"x":[0]}}',
        '{"offsetTable":{1:%s}}' % ("9" * 400),
        '{"offsetTable":{"%s":0}}' % ("9" * 5000),
        '{"offsetTable":{1:-5}}',
        '{"offsetTable":{1:"x"}}',
    ],
    ids=lambda text: text[:60],
)
def test_odd_numbers_in_the_file_cost_no_start(text: str) -> None:
    async def check(broker: Broker, restart: Callable[..., Awaitable[Broker]]) -> None:
        again = await restart()
        again.node.files.mkdir("/store/config")
        again.node.files.write_atomic(PATH, text.encode())
        await again.start()
        again.delay(1, body=b"good")
        await asyncio.sleep(3)
        assert await bodies(again) == ["good"]

    with_a_restart(check)


def test_when_very_many_fail_all_wait_and_each_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "_MOST", 2)

    async def check(broker: Broker, restart: Callable[..., Awaitable[Broker]]) -> None:
        places = []
        for number in range(4):
            places.append(broker.store.log.end)
            broker.delay(1, body=b"%d" % number)
        sick = Sick(broker.store, *places[:3])
        await asyncio.sleep(5)
        assert await bodies(broker) == []
        sick.heal()
        await asyncio.sleep(70)
        assert sorted(await bodies(broker)) == ["0", "1", "2", "3"]
        assert len(broker.service._aside) == 0

    with_a_restart(check)


def test_what_was_set_aside_before_an_append_failed_comes_once() -> None:
    async def check(broker: Broker, restart: Callable[..., Awaitable[Broker]]) -> None:
        sick = Sick(broker.store, broker.store.log.end)
        broker.delay(1, body=b"bad")
        broker.delay(1, body=b"good")
        append, fails = broker.store.append, [True] * 3

        def refuse(puts: Any, *more: Any, **named: Any) -> Any:
            if fails:
                fails.pop()
                raise OSError(errno.EIO, os.strerror(errno.EIO), "/store/commitlog/0")
            return append(puts, *more, **named)

        broker.store.append = refuse  # type: ignore[method-assign]
        while fails:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        sick.heal()
        await asyncio.sleep(70)
        assert sorted(await bodies(broker)) == ["bad", "good"]

    with_a_restart(check)
