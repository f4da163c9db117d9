"""A master and its slaves, whole but for their brokers, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scenes.replication import SIZE, caught_up, fill, log_bytes, pair
from tests.support.scenes.store import found_keys, snapshot
from tests.support.virtual import eventually, in_virtual_time


@in_virtual_time
async def test_logs_are_the_same_and_so_is_what_is_made_of_them() -> None:
    async with pair() as p:
        fill(p.master, 30)
        await caught_up(p)
        fill(p.master, 60, 30)
        await caught_up(p)
        slave = p.slaves[0].store
        assert slave.log.end > 2 * SIZE
        assert log_bytes(slave) == log_bytes(p.master)
        assert await snapshot(slave) == await snapshot(p.master)
        keys = [f"k{n}" for n in range(90)]
        assert await found_keys(slave, "T1", keys) == await found_keys(p.master, "T1", keys)
        assert len(p.service.slaves()) == 1


@pytest.mark.parametrize("batch", [1, 100, 32_768])
@in_virtual_time
async def test_units_of_any_size(batch: int) -> None:
    async with pair(ha_transfer_batch_size=batch) as p:
        await eventually(lambda: len(p.service.slaves()) == 1)
        fill(p.master, 90)
        await caught_up(p)
        assert log_bytes(p.slaves[0].store) == log_bytes(p.master)


@in_virtual_time
async def test_a_slave_that_dies_goes_on_with_what_it_has_not_behind_its_newest_record() -> None:
    async with pair() as p:
        fill(p.master, 40)
        await caught_up(p)
        for round_ in range(4):
            await p.kill_slave(0)
            fill(p.master, 25, 40 + 25 * round_)
            end = await p.restart_slave(0)
            await caught_up(p)
            seen = p.seen(0)
            assert seen is not None
            assert end - 1000 < seen.begun_at < end
        assert log_bytes(p.slaves[0].store) == log_bytes(p.master)


@in_virtual_time
async def test_an_empty_slave_begins_with_the_last_file_or_the_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for whole in (True, False):
        async with pair(slaves=0, ha_copy_from_first_file=whole) as p:
            fill(p.master, 90)
            await p.add_slave()
            await caught_up(p)
            slave = p.slaves[0].store
            assert slave.log.start == (0 if whole else 2 * SIZE)
            assert log_bytes(slave) == log_bytes(p.master, slave.log.start)
            told = f"its log begins at {2 * SIZE}: what its master has before that is not here"
            assert caplog.text.count(told) == (not whole)


@in_virtual_time
async def test_what_an_empty_slave_had_made_ready_is_no_part_of_its_log() -> None:
    async with pair(slaves=0) as p:
        fill(p.master, 90)
        await p.add_slave()
        node, store = p.slaves[0].node, p.slaves[0].store
        await eventually(lambda: store.log.prepared)
        await caught_up(p)
        files = [f"{at:020d}" for at in range(2 * SIZE, store.log.end + SIZE, SIZE)]
        assert set(node.files.list("/store/commitlog")) <= set(files)
        await p.kill_slave(0)
        await p.restart_slave(0)
        store = p.slaves[0].store
        assert (store.log.start, store.recovered.damages) == (2 * SIZE, [])
        await caught_up(p)


@in_virtual_time
async def test_several_slaves_each_from_where_it_is() -> None:
    async with pair(slaves=3) as p:
        fill(p.master, 30)
        for number in range(3):
            await caught_up(p, number)
        await p.kill_slave(1)
        fill(p.master, 60, 30)
        await p.restart_slave(1)
        for number in range(3):
            await caught_up(p, number)
            assert log_bytes(p.slaves[number].store) == log_bytes(p.master)
        assert [slave.acked for slave in p.service.slaves()] == [p.master.log.end] * 3


@in_virtual_time
async def test_a_link_that_is_cut_is_noticed_on_both_sides_and_made_again() -> None:
    async with pair() as p:
        fill(p.master, 10)
        await caught_up(p)
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        fill(p.master, 10, 10)
        await asyncio.sleep(30)
        assert not p.service.slaves()
        p.simulation.net.heal()
        # A connect that nobody answered takes its time.
        await eventually(lambda: len(p.service.slaves()) == 1, within=60)
        await caught_up(p)
        assert log_bytes(p.slaves[0].store) == log_bytes(p.master)


@in_virtual_time
async def test_how_many_seconds_a_slave_is_behind() -> None:
    async with pair() as p:
        fill(p.master, 10)
        await caught_up(p)
        await asyncio.sleep(100)
        assert [one.behind for one in p.service.slaves()] == [0]
        p.simulation.net.cut("10.0.0.1", "10.0.0.2")
        for second in range(12):
            fill(p.master, 1, 10 + second)
            assert [second - 1.1 < one.behind < second + 0.1 for one in p.service.slaves()] == [True]
            await asyncio.sleep(1)
        p.simulation.net.heal()
        await caught_up(p)
        assert [one.behind for one in p.service.slaves()] == [0]


@in_virtual_time
async def test_an_idle_link_lives() -> None:
    """Field case B100."""
    async with pair() as p:
        await eventually(lambda: len(p.service.slaves()) == 1)
        await asyncio.sleep(3 * 60)
        assert (p.slaves[0].client.status().connections, p.service.refused) == (1, {})
