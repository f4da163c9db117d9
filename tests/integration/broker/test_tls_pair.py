"""Master and slave where TLS is enforced: the log and the tables go over it, and nobody gets them without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from rmq.broker.app import BrokerApp
from rmq.broker.replication.master import Why
from rmq.broker.replication.wire import report
from rmq.remoting.certificates import client_context
from rmq.testing.cluster import Cluster
from tests.support.certificates import make_certificate
from tests.support.daemons import PATIENCE
from tests.support.scenes.replication import fill, log_bytes
from tests.support.virtual import eventually


def refused(broker: BrokerApp) -> dict[Why, int]:
    assert broker.roles.sends_log is not None
    return dict(broker.roles.sends_log.refused)


async def raw(broker: BrokerApp, data: bytes, *, tls: bool) -> bytes:
    """What a connection to the HA port is sent until it is closed; it sends ``data``."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", broker.settings.ha_listen_port, ssl=client_context(verify=False) if tls else None
    )
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def followed(folder: Path, settings: dict[str, str]) -> None:
    async with Cluster(folder, settings=settings) as cluster:
        master = cluster.brokers[0]
        fill(master.store, 300)
        slave = await cluster.start_slave()
        await eventually(lambda: slave.store.log.end == master.store.log.end)
        for number in range(20):  # as it comes, and in pieces
            fill(master.store, 30, 300 + 30 * number)
            await asyncio.sleep(0)
        await eventually(lambda: slave.store.log.end == master.store.log.end)
        assert log_bytes(slave.store) == log_bytes(master.store)
        await eventually(lambda: slave.roles.slave and len(slave.roles.slave.metadata.ages()) >= 4)
        assert refused(master) == {}
        # Slaves of Java's, and ours without TLS.
        assert await raw(master, report(0), tls=False) == b""
        assert refused(master) == {Why.TLS: 1}
        assert await raw(master, b"\x16\x03\x01\x00\x05hello", tls=False) != report(0)
        assert refused(master) == {Why.TLS: 2}


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run])
def test_all_of_it_goes_over_tls_where_that_is_enforced(runs: Callable[..., object], tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "localhost")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": made.cert,
        "tls.server.keyPath": made.key,
        "tls.server.trustCertPath": made.cert,
        "tls.server.need.client.auth": "require",
    }
    runs(followed(tmp_path, settings))


async def test_a_master_that_does_not_speak_it_is_told_of(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "localhost")
    async with Cluster(tmp_path, settings={"tls.test.mode.enable": "false"}) as cluster:
        master = cluster.brokers[0]
        own = {"tls.server.mode": "enforcing", "tls.server.certPath": made.cert, "tls.server.keyPath": made.key}
        slave = await cluster.start_slave(**own)
        client = slave.roles.slave and slave.roles.slave.client
        assert client
        await eventually(lambda: client.status().trouble)
        await eventually(lambda: Why.TLS in refused(master))
        assert slave.store.log.end == 0
