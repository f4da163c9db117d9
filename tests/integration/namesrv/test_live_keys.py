"""Every setting that request 318 takes while running, by what it does."""

from __future__ import annotations

import json
from pathlib import Path

from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, send
from tests.support.state import changed, namesrv_state
from tests.support.virtual import in_virtual_time, one_world

#: What bounds registrations.
REGISTRATION = ("maxBrokers", "maxClusters", "maxTopics", "maxTopicsPerBroker")
#: The same in every daemon: tests/integration/broker/live/test_limits.py sees what they do.
SHARED = {
    "serverMaxConnections", "serverMaxConnectionsPerAddress", "serverPartialFrameSeconds", "serverTlsHandshakeSeconds",
    "accountMaxRequestsPerSecond", "accountMaxBytesPerSecond", "accountMaxConnections",
}  # fmt: skip


def test_which_they_are() -> None:
    """Another one wants a test here."""
    assert {line.key for line in NamesrvSettings.lines() if line.live} == {
        "orderMessageEnable", *REGISTRATION, "maxKvBytes", *SHARED,
    }  # fmt: skip


async def test_whether_routes_say_the_order_of_queues(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        async with RawPeer(*cluster.brokers[0].address) as peer:
            assert (await peer.ask(send())).code == 0
        async with RawPeer(*cluster.namesrvs[0].address) as peer:

            async def order() -> str | None:
                answer = await peer.ask(Command(105, ext={"topic": "T"}))
                while answer.code == 17:  # the broker is registering it
                    answer = await peer.ask(Command(105, ext={"topic": "T"}))
                found: str | None = json.loads(answer.body).get("orderTopicConf")
                return found

            put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
            assert (await peer.ask(Command(100, ext=dict(put)))).code == 0
            assert await order() is None
            assert (await peer.ask(Command(318, body=b"orderMessageEnable=true"))).code == 0
            assert await order() == "broker-a:4"
            assert (await peer.ask(Command(318, body=b"orderMessageEnable=false"))).code == 0
            assert await order() is None


def registration(name: str, *topics: str, cluster: str = "C") -> Command:
    table = TopicConfigTable(
        data_version=DataVersion(counter=1, timestamp=1),
        topic_config_table={topic: TopicConfig(topic_name=topic) for topic in topics},
    )
    where = {"brokerName": name, "brokerAddr": f"{name}:1", "clusterName": cluster, "haServerAddr": "", "brokerId": "0"}
    return Command(103, ext=dict(where), body=RegisterBrokerBody(topic_config_serialize_wrapper=table).encode())


@in_virtual_time
async def test_how_much_may_be_registered() -> None:
    """X09: registrations of anybody, as many as he likes."""
    world = one_world()
    app = NamesrvApp(world, NamesrvSettings(listen_port=9876, kv_config_path="/kv.json", config_store_path="/n"))
    async with app, RemotingClient(world) as client:
        address = "{}:{}".format(*app.address)

        async def ask(command: Command) -> Command:
            return await client.request(address, command)

        async def refused(key: str, value: int, command: Command, *served: Command) -> None:
            before = namesrv_state(app)
            assert (await ask(Command(318, body=f"{key}={value}".encode()))).code == 0
            answer = await ask(command)
            assert answer.code == 1
            assert f"({key})" in (answer.remark or "")
            assert changed(before, namesrv_state(app)) == ["settings"]
            for one in served:
                assert (await ask(one)).code == 0
            assert (await ask(Command(318, body=f"{key}=1000".encode()))).code == 0
            assert (await ask(command)).code == 0

        assert (await ask(registration("b0", "T0", "T1"))).code == 0
        await refused("maxBrokers", 1, registration("b1", "T0"), registration("b0", "T0", "T1"))
        await refused("maxClusters", 1, registration("b2", "T0", cluster="D"), registration("b3", "T0"))
        await refused("maxTopics", 2, registration("b4", "T2"), registration("b3", "T1"))
        await refused("maxTopicsPerBroker", 2, registration("b5", "T0", "T1", "T2"), registration("b6", "T0", "T1"))
        entry = {"namespace": "N", "key": "k", "value": "v" * 700}
        assert (await ask(Command(100, ext={**entry, "value": "v" * 100}))).code == 0
        smaller = Command(100, ext={**entry, "value": "v"})
        assert (await ask(Command(318, body=b"maxKvBytes=500"))).code == 0
        answer = await ask(Command(100, ext=dict(entry)))
        assert (answer.code, "(maxKvBytes)" in (answer.remark or "")) == (1, True)
        assert (await ask(smaller)).code == 0
        for field in ("namespace", "key"):
            for name in ("a\nb", "x" * 256):
                answer = await ask(Command(100, ext={**entry, "value": "v", field: name}))
                assert (answer.code, field in (answer.remark or "")) == (1, True)


def test_limits_of_connections_are_followed_here_too() -> None:
    settings = NamesrvSettings()
    app = NamesrvApp(World.real(), settings)
    settings.update("serverMaxConnections=7\nserverMaxConnectionsPerAddress=6\nserverPartialFrameSeconds=5")
    app._server._sweep()
    limits = app._server.limits
    assert (limits.connections, limits.per_address, limits.partial_seconds) == (7, 6, 5.0)
    assert app.access is None
