"""Logs of a master and its slave that are not the same: refused, or copied again where the slave's has lost some."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.replication.master import Why
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.state import ENTRY
from rmq.broker.store.store import Store
from rmq.testing.simworld import SimNode
from tests.support.scenes.replication import SIZE, Pair, caught_up, fill, log_bytes, pair
from tests.support.scenes.store import opened, snapshot
from tests.support.virtual import eventually, in_virtual_time


@in_virtual_time
async def test_a_slave_ahead_of_its_master_is_refused_for_good() -> None:
    async with pair() as p:
        fill(p.master, 10)
        await caught_up(p)
        # The master loses what it had not on disk, and goes on with other messages.
        await p.restart_master(cut_to=p.master.log.end // 2)
        before = log_bytes(p.slaves[0].store)
        await asyncio.sleep(20)
        assert p.service.refused[Why.AHEAD] >= 2
        fill(p.master, 60, 500)
        await asyncio.sleep(20)
        assert log_bytes(p.slaves[0].store) == before
        assert not p.service.slaves()
        assert "its log says why" in (p.slaves[0].client.status().trouble or "")


@pytest.mark.parametrize("more", [0, 7])
@pytest.mark.parametrize("after_flush", [False, True])
@in_virtual_time
async def test_logs_that_parted_are_not_joined_where_records_of_both_end_at_one_offset(
    more: int, after_flush: bool
) -> None:
    """As between a master that died with messages of its own and the slave that took its place."""
    async with pair(ha_ack_after_flush=after_flush) as p:
        fill(p.master, 10)
        await caught_up(p)
        await p.kill_slave(0)
        fill(p.master, 5 + more, 10)
        await p.restart_master()
        store = await opened(p.slaves[0].node.world, p.store_settings)
        fill(store, 5, 10, mirrored=True)
        there = log_bytes(store)
        await store.stop()
        await p.restart_slave(0)
        await asyncio.sleep(20)
        slave = p.slaves[0]
        assert log_bytes(slave.store) == there
        assert slave.client.status().refused >= 2
        assert "have parted" in (slave.client.status().trouble or "")


@in_virtual_time
async def test_each_deletes_old_messages_by_itself_and_the_slave_follows_on() -> None:
    async def deletes(node: SimNode, store: Store) -> None:
        for file in store.log.segments[:-1]:
            node.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        store.retention.trigger()
        await store.retention.run()

    async with pair(ha_copy_from_first_file=True) as p:
        fill(p.master, 90)
        await caught_up(p)
        slave = p.slaves[0]
        await deletes(slave.node, slave.store)
        assert (p.master.log.start, slave.store.log.start) == (0, 2 * SIZE)
        fill(p.master, 90, 90)
        await caught_up(p)
        await deletes(p.master_node, p.master)
        assert (p.master.log.start, slave.store.log.start) == (5 * SIZE, 2 * SIZE)
        fill(p.master, 30, 180)
        await caught_up(p)
        assert log_bytes(slave.store, 5 * SIZE) == log_bytes(p.master)
        assert slave.client.status().connections == 1


def spoil(p: Pair) -> None:
    """The slave's disk has lost pages in the middle of its second file."""
    file = p.slaves[0].node.files.open(f"/store/commitlog/{SIZE:020d}")
    file.pwrite(bytes(3000), 1000)
    file.close()


@pytest.mark.parametrize("after_flush", [False, True])
@in_virtual_time
async def test_what_a_power_cut_takes_from_the_middle_of_a_slaves_log_comes_again(after_flush: bool) -> None:
    """Pages that were written later may be on the disk, and earlier ones not."""
    async with pair(ha_ack_after_flush=after_flush, ha_copy_from_first_file=True) as p:
        fill(p.master, 90)
        await caught_up(p)
        await p.kill_slave(0)
        spoil(p)
        # Without its master the slave keeps what it has.
        await p.service.stop()
        end = await p.restart_slave(0)
        await asyncio.sleep(20)
        store = p.slaves[0].store
        assert (store.log.end, len(store.recovered.damages)) == (end, 1)
        await p.kill_slave(0)
        await p.service.stop()
        await p.master.stop()
        await p.start_master()
        fill(p.master, 5, 90)
        await p.restart_slave(0)
        await caught_up(p)
        store = p.slaves[0].store
        assert log_bytes(store) == log_bytes(p.master)
        assert await snapshot(store) == await snapshot(p.master)
        assert store.damaged.parts == []
        assert p.slaves[0].client.status().refused == 0


def flip_at(offset: int, p: Pair, times: int = 1) -> None:
    """So often a byte changes on the way into a log: of a record's place in its queue, which has no sum."""
    store = p.slaves[0].store
    append_raw, left = store.append_raw, times

    def changed(at: int, data: bytes) -> None:
        nonlocal left
        if left and at <= offset < at + len(data):
            left -= 1
            flipped = bytearray(data)
            flipped[offset - at] ^= 1
            data = bytes(flipped)
        append_raw(at, data)

    store.append_raw = changed  # type: ignore[method-assign]


@in_virtual_time
async def test_what_was_changed_on_the_way_is_copied_again_while_the_slave_follows() -> None:
    async with pair(ha_check_crc=True) as p:
        fill(p.master, 10)
        await caught_up(p)
        flip_at(p.master.log.end + 22, p)
        fill(p.master, 40, 10)
        await eventually(lambda: p.slaves[0].store.damaged.parts != [])
        await eventually(lambda: p.slaves[0].client.status().connections == 3)  # it asks, and copies
        await caught_up(p)
        store = p.slaves[0].store
        assert log_bytes(store) == log_bytes(p.master)
        assert await snapshot(store) == await snapshot(p.master)
        assert store.damaged.parts == []
        assert p.slaves[0].client.status().trouble is None


@in_virtual_time
async def test_what_a_check_finds_damaged_on_a_slaves_disk_is_copied_again() -> None:
    async with pair(ha_copy_from_first_file=True) as p:
        fill(p.master, 60)
        await caught_up(p)
        store = p.slaves[0].store
        spoil(p)
        records = [
            (at, at + size)
            for queue in store.queues
            for at, size, _ in ENTRY.iter_unpack(await store.queues.entries_cold(queue, 0, queue.next))
        ]
        spoilt = sorted(one for one in records if one[0] < SIZE + 4000 and one[1] > SIZE + 1000)
        await store.scrub.tell(Damage(spoilt[0][0], spoilt[-1][1]))
        await asyncio.sleep(20)
        await caught_up(p)
        assert log_bytes(store) == log_bytes(p.master)
        assert await snapshot(store) == await snapshot(p.master)
        assert store.damaged.parts == []


@in_virtual_time
async def test_a_master_that_has_it_no_better_is_asked_once() -> None:
    async with pair() as p:
        fill(p.master, 10)
        await caught_up(p)
        flip_at(p.master.log.end + 22, p, times=1000)
        fill(p.master, 40, 10)
        await asyncio.sleep(120)
        client = p.slaves[0].client
        assert client.status().connections == 3
        assert len(p.slaves[0].store.damaged.parts) == 1
        fill(p.master, 5, 50)
        await caught_up(p)
        assert client.status().trouble is None


@pytest.mark.parametrize("place", [0, 3, 7], ids=["a size that none has", "a size", "a magic"])
@in_virtual_time
async def test_a_slave_follows_a_master_whose_log_has_a_changed_byte(place: int) -> None:
    """That costs one message, and not all that come behind it."""
    async with pair(ha_copy_from_first_file=True) as p:
        await p.kill_slave(0)
        fill(p.master, 60)
        await p.stop_master()
        offset = 0
        file = p.master_node.files.open(f"/store/commitlog/{0:020d}")
        for _ in range(20):
            offset += int.from_bytes(file.pread(4, offset), "big")
        file.pwrite(bytes([file.pread(1, offset + place)[0] ^ (0x40 if place == 0 else 1)]), offset + place)
        file.close()
        await p.start_master()
        await p.restart_slave(0)
        await caught_up(p)
        await asyncio.sleep(60)
        fill(p.master, 5, 60)
        await caught_up(p)
        slave = p.slaves[0]
        assert log_bytes(slave.store) == log_bytes(p.master)
        assert await snapshot(slave.store) == await snapshot(p.master)
        assert [part.start for part in slave.store.damaged.parts] == [offset]
        assert slave.client.status().trouble is None
        assert slave.client.status().connections <= 4


@in_virtual_time
async def test_a_slaves_log_with_a_hole_is_not_cut_where_its_master_has_another_one() -> None:
    async with pair(ha_copy_from_first_file=True) as p:
        fill(p.master, 60)
        await caught_up(p)
        await p.kill_slave(0)
        spoil(p)
        await p.restart_master(cut_to=SIZE)
        fill(p.master, 60, 30, mirrored=True)
        await p.restart_master()
        end = await p.restart_slave(0)
        await asyncio.sleep(20)
        assert p.slaves[0].store.log.end == end
        assert p.slaves[0].client.status().refused >= 2


@in_virtual_time
async def test_a_slave_whose_next_bytes_are_deleted_is_refused() -> None:
    async with pair() as p:
        fill(p.master, 10)
        await caught_up(p)
        await p.kill_slave(0)
        fill(p.master, 90, 10)
        assert await p.master.log.remove_first()
        await p.restart_slave(0)
        await eventually(lambda: p.service.refused[Why.BEHIND] >= 2)
        assert not p.service.slaves()
