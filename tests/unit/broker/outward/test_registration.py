"""Registration in virtual time (store-and-broker.md 9.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from zlib import crc32

import pytest

from rmq.broker.outward.registration import Registrar
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.headers.namesrv import QueryDataVersionResponse, RegisterBrokerRequest
from rmq.remoting.client import RemotingClient
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router, handles
from rmq.remoting.server import Server
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation


class FakeNamesrv:
    """Takes registrations down, with their time."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.registered: list[tuple[float, RegisterBrokerRequest, RegisterBrokerBody]] = []
        self.unregistered = 0
        self.asked = 0
        self.order: dict[str, str] = {}
        self.refuses = False
        self.remark: str | None = None
        self.version: DataVersion | None = None
        self._server: Server | None = None

    async def start(self, port: int = 0) -> str:
        router = Router([self])
        self._server = Server(self.node.world, router, Limits(), name="namesrv")
        host, port = await self._server.start(self.node.address, port)
        return f"{host}:{port}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    @property
    def times(self) -> list[float]:
        return [round(moment, 1) for moment, _, _ in self.registered]

    @property
    def last(self) -> dict[str, TopicConfig]:
        return self.registered[-1][2].topic_config_serialize_wrapper.topic_config_table

    @handles(RequestCode.REGISTER_BROKER, header=RegisterBrokerRequest)
    def register(self, conn: Conn, request: Command, header: RegisterBrokerRequest) -> Command:
        assert header.body_crc32 == crc32(request.body) & 0x7FFFFFFF
        if self.refuses:
            return request.reply(1, "not now")
        body = RegisterBrokerBody.decode(request.body, header.compressed)
        self.registered.append((asyncio.get_running_loop().time(), header, body))
        self.version = body.topic_config_serialize_wrapper.data_version
        return request.reply(0, self.remark, body=KVTable(table=self.order).encode() if self.order else b"")

    @handles(RequestCode.UNREGISTER_BROKER)
    def unregister(self, conn: Conn, request: Command) -> Command:
        self.unregistered += 1
        self.unregistered_id = int((request.ext or {})["brokerId"] or -1)
        return request.reply(0)

    @handles(RequestCode.QUERY_DATA_VERSION)
    def query(self, conn: Conn, request: Command) -> Command:
        self.asked += 1
        changed = self.version is None or DataVersion.decode(request.body) != self.version
        return request.reply(
            0,
            header=QueryDataVersionResponse(changed=changed),
            body=b"" if self.version is None else self.version.encode(),
        )


class Scene:
    def __init__(self, simulation: Simulation, namesrvs: int, settings: dict[str, Any]) -> None:
        self.simulation = simulation
        self.node = simulation.node("broker")
        self.namesrvs = [FakeNamesrv(simulation.node(f"n{number}")) for number in range(namesrvs)]
        self.addresses: list[str] = []
        self.settings = BrokerSettings(broker_name="broker-a", **settings)
        self.topics = TopicTable(self.node.world, self.settings, "/store/config/topics.json")
        self.client = RemotingClient(self.node.world)
        self.broker_id = 0
        self.registration = Registrar(
            self.node.world,
            self.settings,
            self.topics,
            self.client,
            broker_addr="10.0.0.1:10911",
            ha_addr="10.0.0.1:10912",
            broker_id=lambda: self.broker_id,
        )


def scenario(test: Callable[[Scene], Awaitable[None]], namesrvs: int = 1, **settings: Any) -> None:
    async def main() -> None:
        scene = Scene(Simulation(seed=3), namesrvs, settings)
        scene.addresses = [await namesrv.start() for namesrv in scene.namesrvs]
        if not scene.settings.namesrv_addr:
            scene.settings.namesrv_addr = ";".join(scene.addresses)
        try:
            await test(scene)
        finally:
            await scene.registration.stop()
            await scene.client.close()
            await scene.topics.file.flush()
            for namesrv in scene.namesrvs:
                await namesrv.stop()

    run(main())


def test_what_a_name_server_says_of_a_registration_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Another broker of the same name and id is known to the name server alone."""

    async def test(scene: Scene) -> None:
        scene.namesrvs[0].remark = "broker-a id 0 at 10.0.0.1:10911 takes the place of the one at 10.0.0.9:10911"
        await scene.registration.start()
        assert scene.registration.missing is None
        await scene.registration.stop()

    scenario(test)
    assert "takes the place of the one at 10.0.0.9:10911" in caplog.text


def test_at_start_after_ten_seconds_and_every_thirty() -> None:
    async def check(scene: Scene) -> None:
        begin = asyncio.get_running_loop().time()
        await scene.registration.start()
        await asyncio.sleep(75)
        for namesrv in scene.namesrvs:
            assert [moment - begin for moment in namesrv.times] == [0.0, 10.0, 40.0, 70.0]
        _, header, body = scene.namesrvs[0].registered[0]
        assert (
            header.broker_name,
            header.broker_addr,
            header.cluster_name,
            header.ha_server_addr,
            header.broker_id,
        ) == (
            "broker-a",
            "10.0.0.1:10911",
            "DefaultCluster",
            "10.0.0.1:10912",
            0,
        )
        assert body.filter_server_list == []
        assert set(scene.namesrvs[0].last) == set(scene.topics.names())
        await scene.registration.stop()
        assert [namesrv.unregistered for namesrv in scene.namesrvs] == [1, 1]

    scenario(check, namesrvs=2)


@pytest.mark.parametrize(("period", "step"), [(1, 10.0), (20_000, 20.0), (999_999, 60.0)])
def test_the_period_is_kept_within_bounds(period: int, step: float) -> None:
    async def check(scene: Scene) -> None:
        begin = asyncio.get_running_loop().time()
        await scene.registration.start()
        await asyncio.sleep(10 + step + 1)
        assert [moment - begin for moment in scene.namesrvs[0].times][:3] == [0.0, 10.0, 10.0 + step]

    scenario(check, register_name_server_period=period)


def test_a_new_topic_is_registered_at_once_and_a_storm_costs_few_registrations() -> None:
    async def check(scene: Scene) -> None:
        await scene.registration.start()
        begin = asyncio.get_running_loop().time()
        for number in range(500):
            scene.topics.create_for_send(f"T{number}", "TBW102", 4, 0, "x")
        await asyncio.sleep(0.1)
        assert "T499" in scene.namesrvs[0].last
        assert scene.namesrvs[0].registered[-1][0] - begin < 0.05
        assert len(scene.namesrvs[0].registered) <= 3

    scenario(check)


def test_another_id_is_told_at_once_with_everything() -> None:
    async def check(scene: Scene) -> None:
        await scene.registration.start()
        begin = asyncio.get_running_loop().time()
        namesrv = scene.namesrvs[0]
        for number in (2, 0, 5):
            scene.broker_id = number
            scene.registration.announce()
            await asyncio.sleep(0.1)
            _, header, _ = namesrv.registered[-1]
            assert header.broker_id == number
            assert set(namesrv.last) == set(scene.topics.names())
        assert namesrv.registered[-1][0] - begin < 0.5
        scene.broker_id = 7  # what it unregisters is what it has told
        await scene.registration.stop()
        assert namesrv.unregistered_id == 5

    scenario(check)


def test_a_master_that_may_have_a_successor_takes_no_place_until_it_knows() -> None:
    async def check(scene: Scene) -> None:
        namesrv, sure = scene.namesrvs[0], [True]
        scene.registration.surely_leads = lambda: sure[0]
        await scene.registration.start()
        await asyncio.sleep(1)
        known = len(namesrv.registered)
        sure[0] = False
        await asyncio.sleep(100)
        scene.registration.announce()
        await asyncio.sleep(1)
        assert len(namesrv.registered) == known
        scene.broker_id = 3  # one that follows says so
        scene.registration.announce()
        await asyncio.sleep(0.1)
        assert namesrv.registered[-1][1].broker_id == 3
        scene.broker_id = 0
        scene.registration.announce()
        await asyncio.sleep(0.1)
        sure[0] = True
        await asyncio.sleep(1)
        assert namesrv.registered[-1][1].broker_id == 0

    scenario(check)


def test_a_change_during_a_registration_is_not_lost() -> None:
    async def check(scene: Scene) -> None:
        await scene.registration.start()
        scene.topics.create_for_send("A", "TBW102", 4, 0, "x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.topics.create_for_send("B", "TBW102", 4, 0, "x")
        await asyncio.sleep(0.1)
        assert {"A", "B"} <= set(scene.namesrvs[0].last)

    scenario(check)


def test_one_that_does_not_answer_delays_no_other_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def check(scene: Scene) -> None:
        scene.simulation.net.cut("10.0.0.1", scene.namesrvs[1].node.address)
        begin = asyncio.get_running_loop().time()
        await scene.registration.start()
        assert scene.namesrvs[0].registered[0][0] - begin < 0.1
        scene.topics.create_for_send("A", "TBW102", 4, 0, "x")
        await asyncio.sleep(0.1)
        assert "A" in scene.namesrvs[0].last
        await asyncio.sleep(100)
        assert scene.namesrvs[1].registered == []
        scene.simulation.net.heal()
        await asyncio.sleep(31)
        assert "A" in scene.namesrvs[1].last

    with caplog.at_level(logging.WARNING):
        scenario(check, namesrvs=2)
    assert sum("cannot register" in record.message for record in caplog.records) == 1


def test_a_name_server_that_restarts_hears_at_once() -> None:
    async def check(scene: Scene) -> None:
        await scene.registration.start()
        await asyncio.sleep(1)
        await scene.namesrvs[0].stop()
        await asyncio.sleep(0.7)
        fresh = FakeNamesrv(scene.namesrvs[0].node)
        scene.namesrvs.append(fresh)
        await fresh.start(int(scene.addresses[0].rpartition(":")[2]))
        await asyncio.sleep(3)
        assert len(fresh.registered) == 1

    scenario(check)


def test_without_force_only_changes_are_registered() -> None:
    async def check(scene: Scene) -> None:
        await scene.registration.start()
        await asyncio.sleep(75)
        namesrv = scene.namesrvs[0]
        assert len(namesrv.registered) == 1
        assert namesrv.asked == 3
        namesrv.version = None
        await asyncio.sleep(30)
        assert len(namesrv.registered) == 2

    scenario(check, force_register=False)


def test_compressed_bodies_and_masked_permissions() -> None:
    async def check(scene: Scene) -> None:
        scene.topics.put(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=2, topic_sys_flag=1))
        await scene.registration.start()
        assert scene.namesrvs[0].registered[0][1].compressed
        assert (scene.namesrvs[0].last["T"].read_queue_nums, scene.namesrvs[0].last["T"].perm) == (3, 4)
        scene.settings.compressed_register = False
        scene.settings.broker_permission = 2
        scene.topics.touch()
        await asyncio.sleep(0.1)
        last = scene.namesrvs[0].last
        assert (last["T"].perm, last["T"].topic_sys_flag, last["TBW102"].perm) == (2, 0, 2)
        scene.settings.broker_permission = 6
        scene.topics.touch()
        await asyncio.sleep(0.1)
        assert (scene.namesrvs[0].last["T"].perm, scene.namesrvs[0].last["T"].topic_sys_flag) == (6, 1)

    scenario(check, compressed_register=True, broker_permission=4)


def test_order_topics_come_with_the_answer() -> None:
    async def check(scene: Scene) -> None:
        scene.topics.put(TopicConfig(topic_name="T"))
        scene.namesrvs[0].order = {"T": "broker-a:4"}
        await scene.registration.start()
        assert scene.topics.is_order("T")
        scene.namesrvs[0].order = {}
        await asyncio.sleep(11)
        assert scene.topics.is_order("T")

    scenario(check)


def test_name_servers_change_while_running() -> None:
    async def check(scene: Scene) -> None:
        first, second = scene.addresses
        await scene.registration.start()
        assert scene.registration.addresses == [first]
        with pytest.raises(ConfigError, match="'nonsense' is no address"):
            scene.settings.update(f"namesrvAddr={second};nonsense")
        scene.settings.update(f"namesrvAddr={second}")
        await asyncio.sleep(0.1)
        assert scene.registration.addresses == [second]
        assert len(scene.namesrvs[1].registered) == 1
        assert scene.namesrvs[0].unregistered == 1

    async def prepared(scene: Scene) -> None:
        scene.settings.namesrv_addr = scene.addresses[0]
        await check(scene)

    scenario(prepared, namesrvs=2)


def test_the_address_server_names_them() -> None:
    async def check(scene: Scene) -> None:
        asked: list[str] = []
        answer = scene.addresses[0]

        async def http_get(url: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
            asked.append(url)
            return 200, f" {answer}\n".encode()

        scene.node.network.http_get = http_get  # type: ignore[method-assign]
        scene.settings.namesrv_addr = ""
        await scene.registration.start()
        assert asked == ["http://conf.example:8080/rocketmq/nsaddr"]
        assert len(scene.namesrvs[0].registered) == 1
        answer = scene.addresses[1]
        await asyncio.sleep(121)
        assert len(asked) == 2
        assert scene.registration.addresses == [scene.addresses[1]]
        assert len(scene.namesrvs[1].registered) >= 1

    scenario(
        check,
        namesrvs=2,
        fetch_namesrv_addr_by_address_server=True,
        rmq_address_server_domain="conf.example",
    )


def test_no_name_server_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Field case B141."""

    async def check(scene: Scene) -> None:
        scene.settings.namesrv_addr = ""
        await scene.registration.start()

    scenario(check, namesrvs=1)
    caplog.clear()

    async def empty(scene: Scene) -> None:
        scene.settings.namesrv_addr = " ; "
        await scene.registration.start()
        assert scene.registration.addresses == []

    scenario(empty)
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "no name server is configured (namesrvAddr): clients will not find this broker"
    ]
