"""What a SYNC_MASTER answers: PUT_OK when a slave has it, 12 when it is late, 11 when there is none."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.replication import filling, pump
from rmq.broker.replication.wire import report
from rmq.testing.simworld import SimOffload
from tests.support.scenes.replication import PUT_OK, Pair, Sender, pair, raw_slave
from tests.support.virtual import eventually, in_virtual_time

NOT_AVAILABLE, TIMEOUT = 11, 12
#: Of sums of virtual seconds.
_ROUNDING = 1e-6


async def replicas(p: Pair, count: int = 1) -> None:
    await eventually(lambda: len(p.service.slaves()) == count)


@in_virtual_time
async def test_without_a_slave_it_is_11_at_once_and_with_one_0_after_a_round_trip() -> None:
    """Field case B099."""
    async with pair(sync=True, slaves=0) as p:
        sender = Sender(p)
        assert await sender.code() == NOT_AVAILABLE
        assert p.master.durability.visible == p.master.log.end
        await p.add_slave()
        await replicas(p)
        assert await sender.code() == PUT_OK
        latency = p.simulation.net.latency
        assert 2 * latency - _ROUNDING <= sender.answers[1][1] < 2.1 * latency
        assert p.master.durability.visible == p.master.log.end


@in_virtual_time
@pytest.mark.parametrize(
    ("sync", "behind", "at_once"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_where_producers_wait_for_a_slave_it_is_sent_before_anything_else_and_where_not_after(
    monkeypatch: pytest.MonkeyPatch, sync: bool, behind: bool, at_once: bool
) -> None:
    if behind:
        monkeypatch.setattr(pump, "_NEAR", 0)
    async with pair(sync=sync) as p:
        await replicas(p)
        sender = Sender(p)
        for _ in range(2):
            sender.send()
            assert (p.service.slaves()[0].next == p.master.log.end) is at_once
        await asyncio.sleep(0)
        assert p.service.slaves()[0].next == p.master.log.end


@in_virtual_time
async def test_a_slave_that_is_waited_for_gets_all_of_a_turn_at_once_and_one_that_catches_up_a_portion_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filling, "_TURN", 50)
    for sync in (True, False):
        async with pair(sync=sync, ha_transfer_batch_size=50) as p:
            await replicas(p)
            before = p.service.slaves()[0].next
            Sender(p).send()
            await asyncio.sleep(0)
            sent = p.service.slaves()[0].next
            assert sent == (p.master.log.end if sync else before + 50)


@in_virtual_time
async def test_a_slave_that_cannot_be_sent_what_is_appended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(sync=True) as p:
        await replicas(p)
        sender = Sender(p)
        waiting = sender.send()
        monkeypatch.setattr(p.master.log, "read", lambda offset, size: b"")
        number = sender.send()
        assert [sender.answers[one][0] for one in (waiting, number)] == [NOT_AVAILABLE, NOT_AVAILABLE]
        assert p.master.durability.visible == p.master.log.end
        monkeypatch.undo()
        await replicas(p)
        assert await sender.code() == PUT_OK


@in_virtual_time
async def test_a_slave_that_is_known_to_be_gone_keeps_nobody_waiting_and_one_that_is_back_counts_at_once() -> None:
    async with pair(sync=True) as p:
        await replicas(p)
        sender = Sender(p)
        assert await sender.code() == PUT_OK
        number = sender.send()
        await p.kill_slave(0)
        await eventually(lambda: number in sender.answers)
        assert sender.answers[number][0] == NOT_AVAILABLE
        assert sender.answers[number][1] < 0.1
        assert p.master.durability.visible == p.master.log.end
        assert await sender.code() == NOT_AVAILABLE
        await p.restart_slave(0)
        await replicas(p)
        assert await sender.code() == PUT_OK


@in_virtual_time
async def test_a_slave_that_does_not_answer_is_12_and_then_11() -> None:
    async with pair(sync=True) as p:
        await replicas(p)
        sender = Sender(p)
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        assert await sender.code() == TIMEOUT
        assert 3.0 - _ROUNDING <= sender.answers[0][1] < 3.01
        assert p.master.durability.visible == p.master.log.end
        await eventually(lambda: not p.service.slaves())
        assert await sender.code() == NOT_AVAILABLE


@in_virtual_time
async def test_a_slave_too_far_behind_is_not_waited_for() -> None:
    async with pair(sync=True, ha_slave_fallbehind_max=2000) as p:
        await replicas(p)
        sender = Sender(p)
        assert await sender.code() == PUT_OK
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        for _ in range(10):
            sender.send()
        # The first of them still wait; those beyond the gap do not.
        assert {code for code, _ in sender.answers.values()} == {PUT_OK, NOT_AVAILABLE}
        p.simulation.net.heal()
        await eventually(lambda: len(sender.answers) == sender.sent)
        assert await sender.code() == PUT_OK


@in_virtual_time
async def test_two_connections_of_one_slave_are_one() -> None:
    async with pair(sync=True, ha_ack_slaves=2, ha_copy_from_first_file=True) as p:
        await replicas(p)
        sender = Sender(p)
        second = await raw_slave(p, "slave1")
        second.report(0)
        await replicas(p, 2)
        number = sender.send()
        second.report(0)
        await eventually(lambda: len(second.got) > 100)
        second.report(p.master.log.end)
        await eventually(lambda: number in sender.answers)
        assert sender.answers[number][0] == NOT_AVAILABLE
        other = await p.add_slave()
        await replicas(p, 3)
        assert await sender.code() == PUT_OK
        # One of both connections ends: the slave is still there.
        second.transport.abort()
        await replicas(p, 2)
        assert await sender.code() == PUT_OK
        await p.kill_slave(other)
        assert await sender.code() == NOT_AVAILABLE


@in_virtual_time
async def test_a_report_of_what_was_not_sent_acknowledges_nothing() -> None:
    async with pair(sync=True, slaves=0) as p:
        liar = await raw_slave(p, "liar")
        liar.report(0)
        await replicas(p)
        sender = Sender(p)
        number = sender.send()
        # It claims the message in the same moment: nothing has been sent to it yet.
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        liar.transport.write(report(p.master.log.end))
        p.simulation.net.heal()
        await eventually(lambda: number in sender.answers)
        assert sender.answers[number][0] in (NOT_AVAILABLE, PUT_OK)
        liar.transport.write(report(p.master.log.end + 500))
        await eventually(lambda: liar.lost)
        assert await sender.code() == NOT_AVAILABLE


@in_virtual_time
async def test_what_a_slave_had_before_it_connected_acknowledges_nothing() -> None:
    """Its log may have parted from this one: that is found out by what it is sent."""
    async with pair(sync=True) as p:
        await replicas(p)
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        sender = Sender(p)
        number = sender.send()
        await asyncio.sleep(0.1)
        parted = await raw_slave(p, "parted")
        parted.report(p.master.log.end)
        await replicas(p, 2)
        await asyncio.sleep(0.5)
        assert number not in sender.answers
        assert await sender.code() == TIMEOUT
        assert sender.answers[number][0] == TIMEOUT
        parted.report(p.master.log.end)
        assert await sender.code() == TIMEOUT


@pytest.mark.parametrize(("fsync", "latency"), [(0.5, 0.2), (0.1, 0.4)])
@in_virtual_time
async def test_the_flush_and_the_slave_are_waited_for_at_once(fsync: float, latency: float) -> None:
    async with pair(sync=True, sync_flush=True) as p:
        await replicas(p)
        await asyncio.sleep(1)
        offload = p.master_node.world.offload
        assert isinstance(offload, SimOffload)
        offload.delay = fsync
        p.simulation.net.latency = latency
        sender = Sender(p)
        assert await sender.code() == PUT_OK
        longest = max(fsync, 2 * latency)
        assert longest - _ROUNDING <= sender.answers[0][1] < longest + 0.1
        # Gone while both are waited for: 11, once it is on disk.
        number = sender.send()
        await p.kill_slave(0)
        await eventually(lambda: number in sender.answers)
        assert sender.answers[number][0] == NOT_AVAILABLE
        assert p.master.durability.flushed == p.master.log.end


@in_virtual_time
async def test_who_waits_when_the_master_stops_is_answered() -> None:
    async with pair(sync=True) as p:
        await replicas(p)
        sender = Sender(p)
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        number = sender.send()
        p.service.let_go()
        assert sender.answers[number][0] == NOT_AVAILABLE
