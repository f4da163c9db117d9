"""A nameserver and brokers that answer as a test says: for what no healthy cluster does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.testing.simworld import Simulation

__all__ = ["Script", "ScriptedBroker", "ScriptedCluster"]

#: What a broker does with a send: the answer, or None for silence.
Script = Callable[[Command], Command | None]


def stored(request: Command) -> Command:
    """The answer to a send that was stored."""
    return Command(
        ResponseCode.SUCCESS,
        ext={"msgId": "0A" * 16, "queueId": (request.ext or {}).get("e") or "0", "queueOffset": "0"},
        flag=1,
        opaque=request.opaque,
    )


def refuse(code: int, remark: str = "no") -> Script:
    return lambda request: request.reply(code, remark)


class ScriptedBroker:
    """One broker on a machine of its own; ``sends`` is what it was sent."""

    def __init__(self, name: str, host: str, world: Any) -> None:
        self.name = name
        self.host = host
        self.script: Script = stored
        self.sends: list[Command] = []
        self.beats: list[Command] = []
        router = Router()
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            router.on(code, self._send)
        router.on(RequestCode.HEART_BEAT, self._beat)
        router.on(RequestCode.UNREGISTER_CLIENT, lambda conn, request: request.reply(0))
        self._server = Server(world, router, Limits(), name=name)
        self.address = ""

    async def start(self) -> None:
        host, port = await self._server.start(self.host, 0)
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        await self._server.stop()

    def _send(self, conn: Conn, request: Command) -> Command | None:
        self.sends.append(request)
        return self.script(request)

    def _beat(self, conn: Conn, request: Command) -> Command:
        self.beats.append(request)
        return request.reply(0)


class ScriptedCluster:
    """A nameserver that knows one topic on some brokers, all on the switch of a simulation.

    :param brokers: their names.
    """

    def __init__(self, *brokers: str, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.world = self.simulation.node("client").world
        self.brokers: dict[str, ScriptedBroker] = {}
        for name in brokers:
            node = self.simulation.node(name)
            self.brokers[name] = ScriptedBroker(name, node.address, node.world)
        self.node = self.simulation.node("namesrv")
        router = Router()
        router.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        router.on(RequestCode.GET_BROKER_CLUSTER_INFO, self._cluster)
        self._server = Server(self.node.world, router, Limits(), name="namesrv")
        self.namesrv = ""
        self.routes_asked: list[str] = []
        #: Topic -> the brokers that have it; what is not here has no route.
        self.topics: dict[str, list[str]] = {"T": list(brokers)}
        self.silent = False
        #: Seconds that the name server takes for a route.
        self.route_takes = 0.0
        #: A name server that has just been started: no broker has registered yet.
        self.fresh = False
        #: Brokers whose master is away and whose slave is there.
        self.headless: set[str] = set()

    async def __aenter__(self) -> ScriptedCluster:
        for broker in self.brokers.values():
            await broker.start()
        host, port = await self._server.start(self.node.address, 0)
        self.namesrv = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()
        for broker in self.brokers.values():
            await broker.stop()

    async def _route(self, conn: Conn, request: Command) -> Command | None:
        topic = (request.ext or {}).get("topic") or ""
        self.routes_asked.append(topic)
        if self.route_takes:
            await asyncio.sleep(self.route_takes)
        if self.silent:
            return None
        names = self.topics.get(topic)
        if names is None or self.fresh:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, "no route")
        route = TopicRouteData(
            broker_datas=[self._data(name) for name in names],
            queue_datas=[QueueData(name, 6, 2, 0, 2) for name in names],
        )
        return request.reply(0, body=route.encode(standard=True))

    def _data(self, name: str) -> BrokerData:
        return BrokerData({1 if name in self.headless else 0: self.brokers[name].address}, name, "c")

    def _cluster(self, conn: Conn, request: Command) -> Command:
        names = [] if self.fresh else list(self.brokers)
        info = ClusterInfo({name: self._data(name) for name in names}, {"c": names})
        return request.reply(0, body=info.encode())
