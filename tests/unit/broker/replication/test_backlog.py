"""What a slave lacks is read beside the loop and sent at a speed, and one that does not read costs no memory."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.replication import filling, pace, pump
from rmq.testing.simworld import SimOffload
from tests.support.scenes.replication import caught_up, fill, log_bytes, pair, raw_slave
from tests.support.virtual import eventually, in_virtual_time


@in_virtual_time
async def test_cold_pages_are_read_off_the_loop_and_sent_like_others() -> None:
    async with pair(slaves=0, ha_copy_from_first_file=True) as p:
        fill(p.master, 90)
        await p.restart_master()
        for file in p.master.log.segments:
            p.master_node.disk.evict(file.path)
        await p.add_slave()
        await caught_up(p)
        assert log_bytes(p.slaves[0].store) == log_bytes(p.master)
        offload = p.master_node.world.offload
        assert isinstance(offload, SimOffload)
        assert any("pread" in name for name in offload.seen)


@pytest.mark.parametrize("latency", [1.0, 0.0002])
@pytest.mark.parametrize("sending", [False, True])
@in_virtual_time
async def test_a_backlog_has_a_speed_while_producers_send(
    monkeypatch: pytest.MonkeyPatch, sending: bool, latency: float
) -> None:
    """A slave that is far away, and cannot say in time what it has, gets it as fast as one that is near."""
    monkeypatch.setattr(filling, "_TURN", 50)
    for name, value in (("_WINDOW", 100), ("_BURST", 100), ("_SPEED", 1000), ("_REST", 0.01)):
        monkeypatch.setattr(pace, name, value)
    monkeypatch.setattr(pump, "_SENDING", 1000.0)
    async with pair(slaves=0, ha_transfer_batch_size=50, ha_copy_from_first_file=True) as p:
        p.simulation.net.latency = latency
        fill(p.master, 10)
        now = asyncio.get_running_loop().time()
        p.service._pump._grown_at = now if sending else now - 1000
        await p.add_slave()
        await caught_up(p)
        took = asyncio.get_running_loop().time() - now - 5 * latency  # connect, report, get, acknowledge
        assert took == pytest.approx(p.master.log.end / 1000, abs=0.2) if sending else took < 0.2


@in_virtual_time
async def test_a_backlog_goes_on_when_producers_have_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_TURN", 50)
    for name, value in (("_WINDOW", 100), ("_BURST", 100), ("_SPEED", 1000), ("_REST", 60.0)):
        monkeypatch.setattr(pace, name, value)
    monkeypatch.setattr(pump, "_SENDING", 1000.0)
    async with pair(slaves=0, ha_copy_from_first_file=True) as p:
        fill(p.master, 10)
        p.service._pump.wake()
        await p.add_slave()
        await eventually(lambda: len(p.service.slaves()) == 1 and p.service.slaves()[0].next > 0)
        for n in range(5):
            at = p.service.slaves()[0].next
            await asyncio.sleep(0.2)
            assert p.service.slaves()[0].next == at
            fill(p.master, 1, n)
            p.service._pump.wake()
            await eventually(lambda at=at: p.service.slaves()[0].next > at)


@in_virtual_time
async def test_a_slave_that_never_reads_costs_bounded_memory_and_delays_nobody() -> None:
    async with pair(slaves=1, files=1 << 20) as p:
        await eventually(lambda: len(p.service.slaves()) == 1)
        lazy = await raw_slave(p, "lazy", reads=False)
        lazy.report(0)
        await eventually(lambda: len(p.service.slaves()) == 2)
        for n in range(400):
            fill(p.master, 30, n * 30)
            await asyncio.sleep(0)
        await caught_up(p)
        unsent = [pipe.get_write_buffer_size() for pipe in p.simulation.net.pipes_of("10.0.0.1")]
        assert p.master.log.end > 4 << 20
        assert 256 << 10 < max(unsent) < 512 << 10
