"""Who connects to a master and is no slave of its: bounded, closed and told of, and no slave pays for it."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl

import pytest

from rmq.broker.replication.master import Why
from rmq.broker.replication.wire import report
from rmq.broker.settings import BrokerSettings
from rmq.remoting.certificates import client_context
from rmq.remoting.tls import ServerTls
from tests.support.scenes.replication import caught_up, fill, pair, raw_slave
from tests.support.virtual import eventually, in_virtual_time


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
