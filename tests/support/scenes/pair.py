"""A name server, a master and its slave in virtual time, each on a machine of its own, and a client that asks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rmq.broker.app import BrokerApp
from rmq.broker.settings import BrokerSettings
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.topic import CreateTopicRequest
from rmq.remoting.client import RemotingClient
from rmq.testing.simworld import SimNode, Simulation
from tests.support.raw_peer import send
from tests.support.virtual import eventually

__all__ = ["ROUND", "Pair", "pair", "rounds"]

#: Seconds in which a slave has asked its master at least once more, and what was asked has arrived.
ROUND = 12.0


class Pair:
    """``master`` and ``slave`` are the processes that run now, None while one does not."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.simulation = Simulation(1)
        self.settings = settings
        self.nodes = {name: self.simulation.node(name) for name in ("namesrv", "master", "slave", "client")}
        self.outside = self.nodes["client"].world
        self.client = RemotingClient(self.outside)
        self.namesrv: NamesrvApp = None  # type: ignore[assignment]
        self.master: BrokerApp = None  # type: ignore[assignment]
        self.slave: BrokerApp = None  # type: ignore[assignment]

    def _on(self, name: str) -> SimNode:
        return self.nodes[name]

    async def start_namesrv(self) -> None:
        node = self._on("namesrv")
        made = NamesrvSettings.from_sources(overrides={"bindAddress": node.address, "listenPort": "9876"})
        self.namesrv = NamesrvApp(node.world, made)
        await self.namesrv.start()

    async def start_master(self, **settings: str) -> None:
        self.master = await self._start("master", settings)

    async def start_slave(self, **settings: str) -> None:
        made = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true", **settings}
        self.slave = await self._start("slave", made)

    async def _start(self, name: str, settings: dict[str, str]) -> BrokerApp:
        node = self._on(name)
        made = BrokerSettings.from_sources(
            overrides={
                "brokerIP1": node.address,
                "bindAddress": node.address,
                "brokerName": "b",
                "namesrvAddr": self.namesrv_addr,
                "listenPort": "10911",
                "storePathRootDir": "/store",
                "mappedFileSizeCommitLog": str(4 << 20),
                "mappedFileSizeConsumeQueue": "600000",
                "maxHashSlotNum": "1000",
                "maxIndexNum": "4000",
                **self.settings,
                **settings,
            }
        )
        app = BrokerApp(node.world, made)
        await app.start()
        return app

    async def stop(self) -> None:
        for app in (self.slave, self.master, self.namesrv):
            if app is not None:
                await app.stop()
        await self.client.close()

    @property
    def namesrv_addr(self) -> str:
        return f"{self._on('namesrv').address}:9876"

    def addr(self, name: str) -> str:
        return f"{self._on(name).address}:10911"

    async def ask(self, name: str, command: Command) -> Command:
        return await self.client.request(self.addr(name), command, 60)

    async def topic(self, name: str, queues: int = 1) -> None:
        header = CreateTopicRequest(
            topic=name, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        answer = await self.ask("master", Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        assert answer.code == 0, answer.remark

    async def delete_topic(self, name: str) -> None:
        answer = await self.ask("master", Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": name}))
        assert answer.code == 0, answer.remark

    async def send(self, topic: str, *bodies: str) -> None:
        for body in bodies:
            answer = await self.ask("master", send(topic, body.encode()))
            assert answer.code == 0, answer.remark

    async def commit(self, name: str, group: str, topic: str, offset: int) -> None:
        ext: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
        assert (await self.ask(name, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))).code == 0

    def offset(self, group: str = "g", topic: str = "T") -> int:
        """Where the slave knows a group to be, on queue 0."""
        return self.slave.offsets.query(group, topic, 0)

    def delays(self) -> dict[int, int]:
        """How far the slave knows delay levels to be delivered."""
        assert self.slave.roles.slave is not None
        return self.slave.roles.slave.metadata._takeover._delays.table

    async def replicated(self) -> None:
        """Wait until the slave has the master's log, and consumers see it."""
        store = self.slave.store
        await eventually(lambda: store.log.end == self.master.store.log.end and store.dispatcher.behind == 0)

    async def unfollow(self) -> None:
        """The slave gets no more of the log."""
        assert self.slave.roles.slave is not None
        await self.slave.roles.slave.client.stop()

    async def copy_by_hand(self) -> None:
        """Bring what is missing of the log to a slave that does not follow."""
        source, target = self.master.store.log, self.slave.store
        (data,) = await source.read_many_cold([(target.log.end, source.end - target.log.end)])
        target.append_raw(target.log.end, data)
        await eventually(lambda: target.dispatcher.behind == 0)


async def rounds(scene: Pair) -> None:
    """Let the slave ask its master, with everything of the log at hand."""
    await scene.replicated()
    await asyncio.sleep(ROUND)


@asynccontextmanager
async def pair(**settings: str) -> AsyncIterator[Pair]:
    """All of them, started.

    :param settings: Java keys for both brokers.
    """
    made = Pair(settings)
    await made.start_namesrv()
    await made.start_master()
    await made.start_slave()
    try:
        yield made
    finally:
        await made.stop()
