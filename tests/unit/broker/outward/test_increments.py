"""A broker's changes at name servers, with requests and answers lost, late and twice, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from rmq.broker.outward.registration import Registrar
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.namesrv.brokers import BrokerService
from rmq.namesrv.kvconfig import KVConfig
from rmq.namesrv.routes import RouteTable
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.codes import Language, RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.namesrv import QueryDataVersionRequest, QueryDataVersionResponse, RegisterBrokerRequest
from rmq.remoting.client import RemotingClient
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router, handles
from rmq.remoting.server import Server
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation

ADDR = "10.0.0.1:10911"
NEVER = 3600.0


class Namesrv:
    """A name server of ours whose registrations may be lost, answered to nobody, late or taken twice."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        #: The fate of the registrations to come, in turn; then all is well.
        self.fates: list[str] = []
        #: Bytes and predecessor of each registration that came.
        self.came: list[tuple[int, str | None]] = []
        self.late: list[tuple[Conn, Command, RegisterBrokerRequest]] = []
        #: Answers as a Java name server does.
        self.java = False
        #: How often it said "unchanged" without knowing every topic as it is.
        self.lies = 0
        self.knows: Callable[[DataVersion], bool] = lambda asked: True
        self.port = 0

    async def start(self) -> str:
        self.routes = RouteTable()
        self.service = BrokerService(
            self.routes, KVConfig(self.node.world, "/kvConfig.json"), self.node.world.clock, NamesrvSettings()
        )
        self.server = Server(self.node.world, Router([self]), Limits(), name="namesrv")
        self.server.on_close.append(self.service.on_close)
        host, self.port = await self.server.start(self.node.address, self.port)
        return f"{host}:{self.port}"

    async def restart(self) -> None:
        await self.server.stop()
        self.late.clear()
        await self.start()

    @handles(RequestCode.REGISTER_BROKER, header=RegisterBrokerRequest)
    async def register(self, conn: Conn, request: Command, header: RegisterBrokerRequest) -> Command:
        self.came.append((len(request.body), header.increment_of))
        match self.fates.pop(0) if self.fates else "":
            case "request lost":
                await asyncio.sleep(NEVER)
            case "answer lost":
                await self._take(conn, request, header)
                await asyncio.sleep(NEVER)
            case "late":
                self.late.append((conn, request, header))
                await asyncio.sleep(NEVER)
            case "slow":
                await asyncio.sleep(1)
            case "twice":
                self.late.append((conn, request, header))
        answer = await self._take(conn, request, header)
        while self.late and not self.fates and header.increment_of is None:
            await self._come_late()
        return answer

    async def _come_late(self) -> None:
        with contextlib.suppress(ResponseError):
            await self._take(*self.late.pop(0))

    async def _take(self, conn: Conn, request: Command, header: RegisterBrokerRequest) -> Command:
        if self.java:
            request.language = Language.JAVA
        answer = self.service.register(conn, request, header)
        return await answer if isinstance(answer, Coroutine) else answer

    @handles(RequestCode.QUERY_DATA_VERSION, header=QueryDataVersionRequest)
    def query(self, conn: Conn, request: Command, header: QueryDataVersionRequest) -> Command:
        answer = self.service.query_data_version(conn, request, header)
        asked = DataVersion.decode(request.body)
        if not answer.header(QueryDataVersionResponse).changed and not self.knows(asked):
            self.lies += 1
        return answer

    @handles(RequestCode.UNREGISTER_BROKER)
    def unregister(self, conn: Conn, request: Command) -> Command:
        self.routes.unregister("broker-a", 0, ADDR)
        return request.reply(0)


class Scene:
    def __init__(self, simulation: Simulation, namesrvs: int, settings: dict[str, Any]) -> None:
        self.simulation = simulation
        self.node = simulation.node("broker")
        self.namesrvs = [Namesrv(simulation.node(f"n{number}")) for number in range(namesrvs)]
        self.settings = BrokerSettings(broker_name="broker-a", **settings)

    async def boot(self) -> None:
        """Start the broker's part, with the topics that its file has."""
        self.topics = TopicTable(self.node.world, self.settings, "/store/config/topics.json")
        self.topics.load()
        self.client = RemotingClient(self.node.world)
        self.broker_id = 0
        self.registration = Registrar(
            self.node.world,
            self.settings,
            self.topics,
            self.client,
            broker_addr=ADDR,
            ha_addr="10.0.0.1:10912",
            broker_id=lambda: self.broker_id,
        )
        await self.registration.start()

    async def down(self, *, killed: bool = False) -> None:
        if killed:
            self.registration._running = False
        await self.registration.stop()
        await self.client.close()
        await self.topics.file.flush()

    async def make(self, *names: str, queues: int = 4) -> None:
        for name in names:
            self.topics.put(TopicConfig(name, queues, queues))
        await asyncio.sleep(0.1)

    def knows(self, namesrv: Namesrv, version: DataVersion) -> bool:
        """:meth:`known`, or the topics have changed while it was asked."""
        return version != self.topics.data_version or self.known(namesrv)

    def known(self, namesrv: Namesrv, masked: int = 7) -> bool:
        """Whether the name server knows each topic of the broker as it is, with these bits of its permission."""
        return all(
            _routed(namesrv.routes, dataclasses.replace(config, perm=config.perm & masked))
            for config in self.topics.all()
        )


def _routed(routes: RouteTable, config: TopicConfig) -> bool:
    route = routes.route(config.topic_name)
    return route is not None and [(q.read_queue_nums, q.perm) for q in route.queue_datas] == [
        (config.read_queue_nums, config.perm)
    ]


def scenario(test: Callable[[Scene], Awaitable[None]], namesrvs: int = 1, **settings: Any) -> None:
    async def main() -> None:
        scene = Scene(Simulation(seed=5), namesrvs, settings)
        scene.settings.namesrv_addr = ";".join([await namesrv.start() for namesrv in scene.namesrvs])
        for namesrv in scene.namesrvs:
            namesrv.knows = partial(scene.knows, namesrv)
        await scene.boot()
        try:
            await test(scene)
            assert [namesrv.lies for namesrv in scene.namesrvs] == [0] * namesrvs
        finally:
            await scene.down()
            for namesrv in scene.namesrvs:
                await namesrv.server.stop()

    run(main())


@pytest.mark.parametrize("compressed", [False, True])
def test_a_new_topic_of_many_is_told_by_itself(compressed: bool) -> None:
    async def test(scene: Scene) -> None:
        await scene.make(*(f"T{number}" for number in range(1000)))
        whole = sum(size for size, _ in scene.namesrvs[0].came)
        for namesrv in scene.namesrvs:
            namesrv.came.clear()
        await scene.make("New")
        scene.topics.delete("T1")
        await scene.make("T2", queues=8)
        await asyncio.sleep(100)
        for namesrv in scene.namesrvs:
            assert scene.known(namesrv)
            assert len(namesrv.came) == 6, "three changes, of which two came at once, and the periods"
            assert sum(size for size, _ in namesrv.came) < whole / 4
            assert all(increment_of for _, increment_of in namesrv.came)

    scenario(test, namesrvs=2, compressed_register=compressed)


@pytest.mark.parametrize("fate", ["request lost", "answer lost", "late", "twice"])
@pytest.mark.parametrize("force", [True, False])
def test_an_increment_that_meets_a_fault_is_followed_by_everything(fate: str, force: bool) -> None:
    async def test(scene: Scene) -> None:
        (namesrv,) = scene.namesrvs
        namesrv.came.clear()
        namesrv.fates = [fate, fate]
        await scene.make("A")
        await scene.make("B")
        await scene.make("A", queues=7)
        await asyncio.sleep(20)
        assert scene.known(namesrv)
        if fate != "twice":
            assert [increment_of is None for _, increment_of in namesrv.came[:3]] == [False, True, True]
        scene.topics.put(TopicConfig("C", 4, 4))
        await asyncio.sleep(35)
        assert scene.known(namesrv)
        assert namesrv.routes.version_of(ADDR) == scene.topics.data_version

    scenario(test, force_register=force)


def test_what_changes_while_a_registration_is_under_way_is_told_by_itself() -> None:
    async def test(scene: Scene) -> None:
        (namesrv,) = scene.namesrvs
        namesrv.came.clear()
        namesrv.fates = ["slow"]
        await scene.make("A")
        await scene.make("B")
        await asyncio.sleep(2)
        assert scene.known(namesrv)
        assert [increment_of is None for _, increment_of in namesrv.came] == [False, False]

    scenario(test)


def test_a_name_server_that_forgot_the_broker_hears_everything() -> None:
    async def test(scene: Scene) -> None:
        (namesrv,) = scene.namesrvs
        await scene.make("A")
        namesrv.routes.unregister("broker-a", 0, ADDR)
        await scene.make("B")
        assert scene.known(namesrv)
        await namesrv.restart()
        scene.topics.put(TopicConfig("C", 4, 4))
        await asyncio.sleep(1)
        assert scene.known(namesrv)

    scenario(test)


def test_a_name_server_of_java_is_told_everything_with_each_change() -> None:
    async def test(scene: Scene) -> None:
        (namesrv,) = scene.namesrvs
        namesrv.java = True
        await namesrv.restart()
        await asyncio.sleep(1)
        namesrv.came.clear()
        await scene.make("A")
        await scene.make("B")
        assert [increment_of for _, increment_of in namesrv.came] == [None, None]
        assert namesrv.came[-1][0] > 1000

    scenario(test)


def test_what_moves_the_version_without_a_change_is_no_gap() -> None:
    """Ordered topics come with an answer and move the version; the broker's permission is in every topic."""

    async def test(scene: Scene) -> None:
        (namesrv,) = scene.namesrvs
        await scene.make("A")
        before = scene.topics.data_version
        scene.topics.set_order_topics(["A"])
        assert scene.topics.changed_since(before) == ["A"]
        await scene.make("B")
        assert namesrv.came[-1][1] is not None
        scene.settings.broker_permission = 4
        scene.topics.touch()
        await asyncio.sleep(0.1)
        assert namesrv.came[-1][1] is None
        assert scene.known(namesrv, masked=4)
        await scene.make("C")
        assert scene.known(namesrv, masked=4)
        assert namesrv.routes.version_of(ADDR) == scene.topics.data_version

    scenario(test)


@pytest.mark.parametrize("seed", range(30))
def test_faults_changes_and_restarts_in_any_order_end_with_every_topic_known(seed: int) -> None:
    chance = random.Random(seed)

    async def test(scene: Scene) -> None:
        for _ in range(40):
            namesrv = chance.choice(scene.namesrvs)
            match chance.randrange(10):
                case 0 | 1 | 2 | 3:
                    scene.topics.put(TopicConfig(f"T{chance.randrange(20)}", chance.randrange(1, 9), 4))
                case 4:
                    scene.topics.delete(f"T{chance.randrange(20)}")
                case 5 | 6:
                    namesrv.fates.append(chance.choice(["request lost", "answer lost", "late", "twice"]))
                case 7:
                    await namesrv.restart()
                case 8:
                    await scene.down(killed=chance.random() < 0.5)
                    await scene.boot()
                case _:
                    scene.simulation.net.cut(scene.node.address, namesrv.node.address)
                    await asyncio.sleep(chance.choice([0.01, 8.0]))
                    scene.simulation.net.heal()
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.1, 1.0, 9.0]))
        for namesrv in scene.namesrvs:
            namesrv.fates.clear()
        await asyncio.sleep(75)
        for namesrv in scene.namesrvs:
            assert scene.known(namesrv)
            assert namesrv.routes.version_of(ADDR) == scene.topics.data_version

    scenario(test, namesrvs=2, force_register=bool(seed % 2))


def test_a_broker_of_another_id_tells_everything() -> None:
    async def check(scene: Scene) -> None:
        (namesrv,) = scene.namesrvs
        await scene.make("A")
        assert namesrv.came[-1][1] is not None, "an increment"
        for number in (3, 0):
            namesrv.came.clear()
            scene.broker_id = number
            scene.registration.announce()
            await asyncio.sleep(0.1)
            assert [increment_of for _, increment_of in namesrv.came] == [None]
        assert scene.known(namesrv)
        await scene.make("B")
        assert namesrv.came[-1][1] is not None
        assert scene.known(namesrv)
        scene.broker_id = 0

    scenario(check)
