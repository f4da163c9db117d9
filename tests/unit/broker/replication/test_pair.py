"""A master and its slaves, whole but for their brokers, in virtual time."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl

import pytest

from rmq.broker.replication import filling, pace, pump
from rmq.broker.replication.master import Why
from rmq.broker.replication.wire import report
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.store import Store
from rmq.remoting.tls import ServerTls, client_context
from rmq.testing.simworld import SimNode, SimOffload
from tests.support.scenes.replication import SIZE, Pair, fill, log_bytes, pair, raw_slave
from tests.support.scenes.store import found_keys, opened, snapshot
from tests.support.virtual import eventually, in_virtual_time


async def caught_up(p: Pair, number: int = 0) -> None:
    slave = p.slaves[number].store
    await eventually(lambda: slave.log.end == p.master.log.end and not slave.dispatcher.behind)
    await eventually(lambda: (seen := p.seen(number)) is not None and seen.acked == p.master.log.end)


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


@in_virtual_time
async def test_strangers_are_closed_bounded_and_told_of_once() -> None:
    async with pair(tls_test_mode_enable=False) as p:
        fill(p.master, 30)
        await caught_up(p)
        for data, why in (
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Why.AHEAD),
            (b"\xff" * 64, Why.STRANGE),
            (report(p.master.log.end + 1), Why.AHEAD),
            (report(0) + report(5), Why.NOT_SENT),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), Why.TLS),
        ):
            stranger = await raw_slave(p, "stranger")
            before = p.service.refused[why]
            stranger.transport.write(data)
            await eventually(lambda: stranger.lost)  # noqa: B023
            assert (p.service.refused[why], stranger.got) == (before + 1, b"")
        assert [slave.address.split(":")[0] for slave in p.service.slaves()] == ["10.0.0.2"]


@in_virtual_time
async def test_a_thousand_connections_keep_no_slave_out() -> None:
    async with pair() as p:
        await eventually(lambda: len(p.service.slaves()) == 1)
        crowd = [await raw_slave(p, "stranger") for _ in range(1000)]
        await asyncio.sleep(1)
        assert sum(not one.lost for one in crowd) < 64
        late = await p.add_slave()
        await eventually(lambda: len(p.service.slaves()) == 2, within=2)
        fill(p.master, 30)
        await caught_up(p, late)
        await caught_up(p, 0)
        # Who says nothing is closed in time.
        await eventually(lambda: all(one.lost for one in crowd), within=30)


@in_virtual_time
async def test_who_keeps_all_connections_open_and_reports_keeps_no_slave_out() -> None:
    async with pair(slaves=0) as p:
        fill(p.master, 3)
        crowd = [await raw_slave(p, "stranger") for _ in range(100)]
        for one in crowd:
            if not one.lost:
                one.report(0)
        await asyncio.sleep(1)
        assert len(p.service.slaves()) == 64
        late = await p.add_slave()
        await caught_up(p, late)
        # From its address comes no other one in, and none of its own goes for that.
        held = [one for one in crowd if not one.lost]
        again = await raw_slave(p, "stranger")
        await eventually(lambda: again.lost)
        assert len(held) == 63
        assert not any(one.lost for one in held)


@pytest.mark.parametrize("data", [report(0) + report(5), report(0) + report(-1), report(0) + b"\xff" * 8])
@in_virtual_time
async def test_who_is_refused_with_its_first_bytes_is_no_slave_that_sends_wait_for(data: bytes) -> None:
    async with pair(slaves=0) as p:
        fill(p.master, 3)
        for _ in range(2):
            stranger = await raw_slave(p, "stranger")
            stranger.transport.write(data)
            await eventually(lambda: stranger.lost)  # noqa: B023
            assert not p.service.available
            assert p.service.slaves() == []


@pytest.mark.parametrize("hello", [True, False])
@in_virtual_time
async def test_a_handshake_or_a_report_that_is_never_whole_is_given_up(hello: bool) -> None:
    """A byte a second is no sign of life."""
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context(verify=False).wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    data = sent.read() if hello else bytes(7)
    async with pair() as p:
        p.service.tls = ServerTls(context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        await eventually(lambda: len(p.service.slaves()) == 1)
        strangers = [await raw_slave(p, "stranger") for _ in range(3)]
        for at in range(min(25, len(data) - 1)):
            for stranger in strangers:
                if not stranger.lost:
                    stranger.transport.write(data[at : at + 1])
            await asyncio.sleep(1)
        await asyncio.sleep(15)
        assert all(stranger.lost for stranger in strangers)
        assert p.service.refused == {Why.SILENT: 3}
        assert len(p.service.slaves()) == len(p.service._connections) == 1


@in_virtual_time
async def test_who_is_gone_before_he_is_taken_leaves_nothing() -> None:
    class Gone(asyncio.Transport):
        aborted = False

        def get_extra_info(self, name: str, default: object = None) -> object:
            return None

        def abort(self) -> None:
            self.aborted = True

    async with pair(slaves=0) as p:
        link, gone = p.master_node.network.net._listeners[("10.0.0.1", 10912)].factory(), Gone()
        link.connection_made(gone)
        assert gone.aborted
        assert isinstance(link, asyncio.Protocol)
        link.data_received(report(0))
        link.connection_lost(None)
        assert not p.service.slaves()


@in_virtual_time
async def test_a_slave_that_cannot_be_sent_to_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(slaves=2) as p:
        await eventually(lambda: len(p.service.slaves()) == 2)
        bad = next(link for link in p.service._connections if link.replica == "10.0.0.2")

        def broken() -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(bad, "fill", broken)
        fill(p.master, 30)
        await caught_up(p, 1)
        assert p.service.refused[Why.UNREADABLE] == 1
        # It comes back, and gets the rest.
        await caught_up(p, 0)


@in_virtual_time
async def test_only_allowed_addresses_get_the_log() -> None:
    async with pair(slaves=2, ha_allowed_addresses="10.0.0.2; 192.168.0.0/16") as p:
        fill(p.master, 10)
        await caught_up(p, 0)
        await asyncio.sleep(20)
        assert p.slaves[1].store.log.end == 0
        assert p.service.refused[Why.NOT_ALLOWED] > 2
        assert len(p.service.slaves()) == 1


@in_virtual_time
async def test_with_access_control_the_log_is_not_everybodys_either() -> None:
    """The stream has no accounts: a slave on another machine has to be named."""
    async with pair(slaves=1, acl_enable=True) as p:
        fill(p.master, 10)
        await asyncio.sleep(20)
        assert p.slaves[0].store.log.end == 0
        assert p.service.refused[Why.NOT_ALLOWED] > 2
        assert "name the slaves' addresses in haAllowedAddresses" in p.service.refusals()[0]
    certified = {"tls_server_mode": "enforcing", "tls_server_need_client_auth": "require"}
    for named, gets in (
        ({"ha_allowed_addresses": "10.0.0.0/8"}, "10.0.0.2"), ({"ha_allowed_addresses": "0.0.0.0/0"}, "8.8.8.8"),
        ({"broker_ip2": "10.0.0.9"}, "10.0.0.9"),
    ):  # fmt: skip
        settings = BrokerSettings.from_sources()
        for name, value in {"acl_enable": True, **named}.items():
            setattr(settings, name, value)
        networks = settings.ha_networks()
        assert any(ipaddress.ip_address(gets) in network for network in networks), named
    for with_accounts in (False, True):  # applications have certificates, too: with accounts none stands for a name
        settings = BrokerSettings.from_sources()
        for name, value in {"acl_enable": with_accounts, **certified}.items():
            setattr(settings, name, value)
        networks = settings.ha_networks()
        assert bool(networks) is with_accounts
        assert not any(ipaddress.ip_address("8.8.8.8") in network for network in networks)


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
        at = next(queue.max_phys for queue in store.queues)
        await store.scrub.tell(Damage(SIZE + 1000, min(SIZE + 4000, at)))
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
