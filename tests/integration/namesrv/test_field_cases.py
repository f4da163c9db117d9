"""What users ran into with name servers (field cases B087 to B093), on a real cluster over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.namesrv import GetRouteInfoRequest
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient(World.real()) as client:
        yield client


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def ask(client: RemotingClient, addr: str, topic: str = "TBW102") -> int:
    command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic))
    return (await client.request(addr, command, 60.0)).code


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
@pytest.mark.parametrize("bind", ["::1", ""])
async def test_ipv6_literals_reach_the_nameserver(tmp_path: Path, client: RemotingClient, bind: str) -> None:  # B087
    settings = NamesrvSettings(listen_port=0, bind_address=bind, kv_config_path=str(tmp_path / "kvConfig.json"))
    async with NamesrvApp(World.real(), settings) as app:
        port = app.address[1]
        for addr in (f"[::1]:{port}", f"::1:{port}", *([f"127.0.0.1:{port}"] if bind == "" else [])):
            assert await ask(client, addr) == 17


async def registered(app: NamesrvApp, count: int) -> None:
    """Wait until so many brokers are in the table."""
    seen = asyncio.Event()
    register = app.routes.register

    def spy(*args: object) -> object:
        answer = register(*args)  # type: ignore[arg-type]
        if len(app.routes.cluster_info().broker_addr_table) >= count:
            seen.set()
        return answer

    app.routes.register = spy  # type: ignore[method-assign, assignment]
    if len(app.routes.cluster_info().broker_addr_table) < count:
        await seen.wait()


async def test_routes_are_back_soon_after_a_restart_of_the_nameserver(  # B091
    tmp_path: Path, client: RemotingClient
) -> None:
    async with Cluster(tmp_path) as cluster:
        old = cluster.namesrvs.pop()
        host, port = old.address
        assert await ask(client, f"{host}:{port}") == 0
        await old.stop()
        settings = NamesrvSettings(listen_port=port, bind_address=host, kv_config_path=str(tmp_path / "kv2.json"))
        async with NamesrvApp(World.real(), settings) as new:
            async with asyncio.timeout(100):
                await registered(new, 1)
            assert await ask(client, f"{host}:{port}") == 0


async def test_an_unreachable_name_server_does_not_keep_a_broker_from_the_others(  # B088
    tmp_path: Path, client: RemotingClient
) -> None:
    async with Cluster(tmp_path, brokers=0) as cluster:
        live = cluster.namesrv_addr
        await cluster.start_broker(0, namesrvAddr=f"127.0.0.1:1;{live}")
        assert await ask(client, live) == 0


async def test_the_same_broker_name_in_a_second_cluster_is_refused(  # B092
    tmp_path: Path, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.start_broker(1, brokerName="broker-0", brokerClusterName="Other")
        info = cluster.namesrvs[0].routes.cluster_info()
        assert info.cluster_addr_table == {"DefaultCluster": ["broker-0"]}
        assert info.broker_addr_table["broker-0"].broker_addrs == {0: cluster.broker_addr}
        said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "registration" in r.name]
        assert any("belongs to cluster DefaultCluster" in line for line in said)


async def test_a_changed_list_of_name_servers_is_followed_at_once(tmp_path: Path) -> None:  # B089
    """Field case B141."""
    async with Cluster(tmp_path, brokers=0, namesrvs=3) as cluster:
        first, second, third = (f"127.0.0.1:{app.address[1]}" for app in cluster.namesrvs)
        await cluster.start_broker(0, namesrvAddr=f"{first};{second}")
        names = [len(app.routes.cluster_info().broker_addr_table) for app in cluster.namesrvs]
        assert names == [1, 1, 0]
        gone = asyncio.Event()
        unregister = cluster.namesrvs[0].routes.unregister

        def spy(*args: object) -> bool:
            gone.set()
            return unregister(*args)  # type: ignore[arg-type]

        cluster.namesrvs[0].routes.unregister = spy  # type: ignore[method-assign, assignment]
        async with RemotingClient(World.real()) as client:
            body = f"namesrvAddr={second};{third}".encode()
            update = Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert (await client.request(cluster.broker_addr, update, 60.0)).code == 0
        async with asyncio.timeout(100):
            await registered(cluster.namesrvs[2], 1)
            await gone.wait()
        assert cluster.namesrvs[0].routes.cluster_info().broker_addr_table == {}
