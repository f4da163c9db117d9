"""Popped messages come back after their invisible time, and only those: acks, changes, kills, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.store.store import Store
from tests.support.scenes.pop import Given, pop_scene
from tests.support.turns import Turns
from tests.support.virtual import in_virtual_time

NO_MESSAGE = 208


def bodies(messages: list[Given]) -> list[str]:
    return sorted(message.body for message in messages)


@in_virtual_time
async def test_a_message_comes_back_when_its_time_is_up_and_is_gone_when_acknowledged() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b", "c")
        first = await scene.pop(invisible_time=10_000)
        assert bodies(first) == ["a", "b", "c"]
        assert await scene.pop() == []
        assert await scene.ack(first[0]) == 0
        await asyncio.sleep(9.9)
        assert await scene.pop() == []
        await asyncio.sleep(0.2)
        again = await scene.pop()
        assert bodies(again) == ["b", "c"]
        assert {message.record.reconsume_times for message in again} == {1}
        assert {message.record.topic for message in again} == {"T"}
        assert {message.record.properties["1ST_POP_TIME"] for message in again} == {first[0].handle.split(" ")[1]}
        for message in again:
            assert await scene.ack(message) == 0
        await asyncio.sleep(60)
        assert await scene.pop() == []


@in_virtual_time
async def test_a_message_that_claims_the_most_tries_keeps_no_other_from_coming_back() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("odd", tries=0x7FFFFFFF)
        assert bodies(await scene.pop(invisible_time=1_000)) == ["odd"]
        await scene.send("even")
        assert bodies(await scene.pop(invisible_time=1_000)) == ["even"]
        await asyncio.sleep(2)
        assert bodies(await scene.pop()) == ["even"]
        await scene.topic("%DLQ%g")
        assert [message.record.reconsume_times for message in await scene.pop(topic="%DLQ%g")] == [0x7FFFFFFF]


@in_virtual_time
async def test_an_expired_handle_is_an_error_and_a_second_ack_is_none() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b")
        a, b = await scene.pop(invisible_time=1_000)
        assert await scene.ack(a) == 0
        assert await scene.ack(a) == 0
        await asyncio.sleep(1.1)
        assert await scene.ack(b) == NO_MESSAGE
        assert await scene.change(b, 1_000) == NO_MESSAGE
        (again,) = await scene.pop()
        assert again.body == "b"
        assert await scene.ack(again) == 0


@pytest.mark.parametrize("crash", ["none", "restart", "kill"])
def test_field_case_b136(crash: str) -> None:
    """Ten messages for 3 s: five acked, #6 changed and acked, #7 changed to the deadline it had; crash at 2 s."""

    @in_virtual_time
    async def run() -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*"0123456789")
            first = {message.body: message for message in await scene.pop(invisible_time=3_000)}
            assert len(first) == 10
            await asyncio.sleep(1)
            for body in "01234":
                assert await scene.ack(first[body]) == 0
            six = await scene.change(first["6"], 6_000)
            assert isinstance(six, Given)
            assert await scene.ack(six) == 0
            seven = await scene.change(first["7"], 2_000)
            assert isinstance(seven, Given)
            await asyncio.sleep(1)
            if crash == "restart":
                await scene.restart()
            elif crash == "kill":
                await scene.kill()
            assert await scene.pop() == []
            await asyncio.sleep(1.5)
            second = await scene.pop(invisible_time=60_000)
            assert bodies(second) == ["5", "7", "8", "9"]
            for message in second:
                assert await scene.ack(message) == 0
            await asyncio.sleep(70)
            assert await scene.pop() == []

    run()


@in_virtual_time
async def test_ack_and_change_in_any_order() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b", "c")
        a, *_ = await scene.pop(invisible_time=5_000)
        # Longer, then acknowledged with the handle it had before.
        longer = await scene.change(a, 20_000)
        assert isinstance(longer, Given)
        await asyncio.sleep(6)
        assert await scene.ack(a) == 0
        # Given back at once.
        (b_again, c_again) = await scene.pop(invisible_time=30_000)
        assert bodies([b_again, c_again]) == ["b", "c"]
        now = await scene.change(b_again, 0)
        assert isinstance(now, Given)
        (b_third,) = await scene.pop(invisible_time=30_000, poll_time=1_000)
        assert b_third.record.reconsume_times == 2
        assert await scene.ack(b_again) == NO_MESSAGE
        assert await scene.ack(now) == NO_MESSAGE
        assert await scene.ack(b_third) == 0
        # Acknowledged, then changed: nothing comes back.
        assert await scene.ack(c_again) == 0
        assert await scene.change(c_again, 1_000) == NO_MESSAGE
        await asyncio.sleep(60)
        assert await scene.pop() == []


@in_virtual_time
async def test_many_changes_to_one_deadline_lose_nothing() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*map(str, range(32)))
        first = await scene.pop(invisible_time=3_000)
        changed = [await scene.change(message, 3_000) for message in first]
        assert all(isinstance(message, Given) for message in changed)
        assert await scene.pop() == []
        await asyncio.sleep(4)
        again = await scene.pop()
        assert bodies(again) == bodies(first)


@pytest.mark.parametrize("crash", ["kill", "power_cut"])
def test_nothing_is_lost_and_nothing_begins_anew_after_a_crash(crash: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with pop_scene() as scene:
            await scene.topic()
            await scene.send(*map(str, range(40)))
            first = await scene.pop(invisible_time=20_000)
            for message in first[:16]:
                assert await scene.ack(message) == 0
            if crash == "power_cut":
                await asyncio.sleep(2)  # what is not forced to the disk by then is lost
            await getattr(scene, crash)()
            rest = await scene.pop(invisible_time=20_000)
            assert bodies(rest) == bodies_of(range(32, 40))
            for message in (*rest, *first[16:20]):
                assert await scene.ack(message) == 0
            await asyncio.sleep(21)
            again = await scene.pop()
            assert bodies(again) == bodies_of(range(20, 32))

    run()


def bodies_of(numbers: range) -> list[str]:
    return sorted(map(str, numbers))


@in_virtual_time
async def test_power_cut_before_anything_is_forced_gives_messages_again_rather_than_never() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*map(str, range(8)))
        await asyncio.sleep(15)
        popped = await scene.pop(invisible_time=30_000)
        assert len(popped) == 8
        await scene.power_cut()
        found = bodies(await scene.pop(invisible_time=30_000))
        await asyncio.sleep(31)
        found += bodies(await scene.pop(invisible_time=30_000))
        assert set(found) == {str(i) for i in range(8)}


@in_virtual_time
async def test_the_tries_end_in_the_dead_letter_queue() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        scene.app.groups.find("g")
        await scene.send("bad")
        tries = []
        for _ in range(17):
            (message,) = await scene.pop(invisible_time=1_000)
            tries.append(message.record.reconsume_times)
            await asyncio.sleep(1.1)
        assert tries == list(range(17))
        assert await scene.pop() == []
        assert scene.app.store.queues.get_or_create("%DLQ%g", 0).visible == 1


@in_virtual_time
async def test_the_journal_stays_short_while_old_messages_stay_invisible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.broker.pop.state._REWRITE_AFTER", 50)
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("old")
        (old,) = await scene.pop(invisible_time=3_600_000)
        for round_ in range(120):
            await scene.send(str(round_))
            (message,) = await scene.pop(invisible_time=60_000)
            assert await scene.ack(message) == 0
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        start = scene.app.offsets.query("CID_RMQ_SYS_POP", "rmq_sys_POP_JOURNAL", 0)
        behind = scene.app.store.queues.get_or_create("rmq_sys_POP_JOURNAL", 0).next
        assert behind > 240
        assert behind - start < 100
        await asyncio.sleep(10)
        await scene.kill()
        assert await scene.pop() == []
        assert len(scene.app.roles.master.pop.state.checkpoints) == 1
        assert await scene.ack(old) == 0
        assert len(scene.app.roles.master.pop.state.checkpoints) == 0


@in_virtual_time
async def test_long_messages_come_back_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a pop were written with one append, however long it took to read them; an ack in between counts."""
    many = "\x02".join(f"p{number:x}\x01a" for number in range(4_000))
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send(*map(str, range(20)), properties=many)
        given = await scene.pop(max_msg_nums=20, invisible_time=5_000)
        assert len(given) == 9  # 256 KiB
        stored = Turns(monkeypatch, Store, "append", lambda _, puts, **named: sum(len(put.properties) for put in puts))
        checkpoints = scene.app.roles.master.pop.state.checkpoints
        checkpoint = next(iter(checkpoints))
        append = Store.append

        def acknowledging(store: Store, puts: Any, **named: Any) -> Any:
            checkpoints.settle(checkpoint, (given[-1].offset,), 0)
            return append(store, puts, **named)

        monkeypatch.setattr(Store, "append", acknowledging)
        await asyncio.sleep(6)
        assert stored.whole > 6 * 27_000
        assert stored.longest <= 100_000
        retries = scene.app.store.queues.get("%RETRY%g_T", 0)
        assert retries is not None
        assert retries.visible == len(given) - 1
