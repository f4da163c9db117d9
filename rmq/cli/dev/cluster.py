"""A nameserver and brokers in one process on loopback, for trying things out, and a first round of messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import click

from rmq.aio import AdminClient, ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer
from rmq.broker.app import BrokerApp
from rmq.broker.settings import BrokerSettings
from rmq.cli.dev.group import Members
from rmq.cli.dev.place import Place
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.errors import ConfigError, RMQError
from rmq.runtime import patience
from rmq.runtime.world import World

__all__ = ["BROKER_PORT_AFTER", "Dev", "ports_of", "say"]

HOST = "127.0.0.1"
#: The broker's port follows the nameserver's as 10911 follows 9876.
BROKER_PORT_AFTER = 10_911 - 9_876
#: From two below its port to one above, and room.
PORTS_OF_A_BROKER = 10
TOPIC = "DemoTopic"
GROUP = "demo_consumers"
COUNT = 10
SNIPPET = """\
   from rmq import Message, Producer
   with Producer("try_it", namesrv="{namesrv}") as producer:
       print(producer.send(Message("{topic}", "hello")))"""
#: Seconds in which a first round on one machine must be over.
PATIENCE = 60.0


def ports_of(port: int, brokers: int) -> list[int]:
    """Every port that a cluster listens on.

    :param port: of its name server. :param brokers: masters and slaves.
    """
    first = port + BROKER_PORT_AFTER
    return [port, *(first + PORTS_OF_A_BROKER * number + beside for number in range(brokers) for beside in (-2, 0, 1))]


@dataclass
class Dev:
    """The cluster.

    :param port: of the nameserver; the first broker takes ``port + 1035``, the second one below it and the one above,
        and each further broker ten more.
    :param place: where stores, key-value settings and logs are kept.
    :param demo: send and consume ten messages once the cluster is up.
    :param masters: broker sets.
    :param slaves: slaves of each.
    :param topics: queues by topic: made on every master once the cluster is up.
    :param raft: members of a group that elects its master, in place of sets; 0: none.
    """

    port: int
    place: Place
    demo: bool
    masters: int = 1
    slaves: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)
    raft: int = 0
    _received: dict[str, MessageExt] = field(default_factory=dict)

    @property
    def namesrv_addr(self) -> str:
        return f"{HOST}:{self.port}"

    async def run(self) -> int:
        """Serve until cancelled. :raises RMQError: a port is taken, or the store is in use."""
        world = World.real()
        namesrv = NamesrvApp(world, self._namesrv_settings())
        try:
            await namesrv.start()
        except ConfigError as error:
            raise self._taken(error) from error
        async with AsyncExitStack() as running:
            running.callback(self.place.end)  # the last thing: who stops it waits for that
            running.push_async_callback(namesrv.stop)
            say(f"== nameserver on {self.namesrv_addr}")
            if self.raft:
                await self._group(world, running)
            for settings in () if self.raft else self._brokers():
                broker = BrokerApp(world, settings)
                try:
                    await broker.start()
                except ConfigError as error:
                    raise self._taken(error) from error
                running.push_async_callback(broker.stop)
                what = f"slave {settings.broker_id} of" if settings.broker_id else "broker"
                where = f"{HOST}:{broker.address[1]}, its store in {settings.store_path_root_dir}"
                say(f"== {what} {settings.broker_name} on {where}")
            running.callback(say, "== stopping")
            if self.topics:
                await self._make_topics(world)
            if self.demo:
                await self._first_round(world)
            say(f"== its files are in {self.place.folder}; to send a message:")
            say(SNIPPET.format(namesrv=self.namesrv_addr, topic=next(iter(self.topics), "TopicTest")))
            self.place.begin(self.namesrv_addr)
            say(f"== the cluster runs until Ctrl-C; clients reach it with NAMESRV_ADDR={self.namesrv_addr}")
            await asyncio.Event().wait()
        return 0

    async def _group(self, world: World, running: AsyncExitStack) -> None:
        """Start the members of a group, and wait until one leads. :raises RMQError: one does not come up."""
        first = self.port + BROKER_PORT_AFTER
        ports = {f"n{number}": first + PORTS_OF_A_BROKER * number for number in range(self.raft)}
        # In a group nobody else listens there.
        peers = ";".join(f"{name}-{HOST}:{port + 1}" for name, port in ports.items())
        members = Members(self.place, list(ports))
        running.push_async_callback(self._end, members)
        for name, port in ports.items():
            own = {"enableDLegerCommitLog": "true", "dLegerGroup": "dev", "dLegerPeers": peers, "dLegerSelfId": name}
            members.write(name, self._settings_of(port, "dev", f"store-{name}", own))
            members.begin(name)
        for name, port in ports.items():
            where = f"{HOST}:{port}, process {await members.up(name)}, its store in {members.store(name)}"
            say(f"== member {name} of dev on {where}")
        async with AdminClient(namesrv=self.namesrv_addr, world=world) as admin:
            leader = await _leader_of(admin, "dev")
        again = f"rmq dev start {leader} --folder {self.place.folder}"
        say(f"== {leader} leads; kill -9 {members.running()[leader]} has another one lead, {again} brings it back")
        watching = asyncio.ensure_future(members.watch(self._gone))
        running.callback(watching.cancel)

    def _gone(self, name: str) -> None:
        say(f"== {name} has ended; rmq dev start {name} --folder {self.place.folder} starts it again")

    async def _end(self, members: Members) -> None:
        for name in await members.stop():
            say(f"== {name} did not end")

    def _taken(self, error: ConfigError) -> RMQError:
        """No mistake of who typed the command: somebody else has the port."""
        other = self.port + 100 if self.port < 60_000 else 9_876
        return RMQError(f"{error} (make run PORT={other}, or rmq dev --port {other}, takes other ports)")

    def _namesrv_settings(self) -> NamesrvSettings:
        return NamesrvSettings.from_sources(
            overrides={
                "bindAddress": HOST,
                "listenPort": str(self.port),
                "kvConfigPath": os.path.join(self.place.folder, "namesrv", "kvConfig.json"),
                "configStorePath": os.path.join(self.place.folder, "namesrv", "namesrv.properties"),
            }
        )

    def _brokers(self) -> Iterator[BrokerSettings]:
        """The settings of each, masters before their slaves."""
        port = self.port + BROKER_PORT_AFTER
        for number in range(1, self.masters + 1):
            name = "dev" if self.masters == 1 else f"dev-{number}"
            for broker_id in range(self.slaves + 1):
                folder = "store" if self.masters == 1 else f"store-{number}"
                own: dict[str, str] = {}
                if broker_id:
                    own = {"brokerRole": "SLAVE", "brokerId": str(broker_id), "slaveReadEnable": "true"}
                    folder += f"-slave-{broker_id}"
                yield self._broker_settings(port, name, folder, own)
                port += PORTS_OF_A_BROKER

    def _broker_settings(self, port: int, name: str, folder: str, own: Mapping[str, str]) -> BrokerSettings:
        return BrokerSettings.from_sources(overrides=self._settings_of(port, name, folder, own))

    def _settings_of(self, port: int, name: str, folder: str, own: Mapping[str, str]) -> dict[str, str]:
        return {
            "bindAddress": HOST,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "brokerName": name,
            "enablePropertyFilter": "true",  # SQL92 as well: a place to try everything
            "listenPort": str(port),
            "namesrvAddr": self.namesrv_addr,
            "storePathRootDir": os.path.join(self.place.folder, folder),
            **own,
        }

    async def _make_topics(self, world: World) -> None:
        """:raises RMQError: a broker did not take one."""
        async with AdminClient(namesrv=self.namesrv_addr, world=world) as admin:
            for address in [*(await admin.masters("DefaultCluster")).values()]:
                for topic, queues in self.topics.items():
                    await admin.create_and_update_topic(address, topic, read_queue_nums=queues, write_queue_nums=queues)
        for topic, queues in self.topics.items():
            say(f"== topic {topic}, {queues} queues on each master")

    # -- the first round ---------------------------------------------------------------------------------------

    async def _first_round(self, world: World) -> None:
        """Ten messages out and in. :raises RMQError: they did not all come back."""
        run = str(world.clock.now_ms())
        keys = [f"{run}-{number}" for number in range(1, COUNT + 1)]
        say(f"== sending {COUNT} messages to the topic {TOPIC}")
        async with Producer("demo_producers", namesrv=self.namesrv_addr) as producer:
            for number, key in enumerate(keys, 1):
                body = f"message {number} of {COUNT}"
                result = await producer.send(Message(TOPIC, body, tags="Demo", keys=key))
                queue = result.message_queue
                say(f"   sent     {body:<16} {result.send_status.name}, queue {queue.queue_id}, id {result.msg_id}")
        say(f"== consuming them with the group {GROUP}")
        everything = asyncio.Event()
        consumer = PushConsumer(
            GROUP, namesrv=self.namesrv_addr, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )

        @consumer.on(TOPIC, "Demo")
        async def handle(message: MessageExt) -> None:
            key = message.keys or ""
            if key in keys and key not in self._received:
                self._received[key] = message
                body = message.body.decode(errors="replace")
                say(f"   received {body:<16} queue {message.queue_id}, offset {message.queue_offset}")
                if len(self._received) == COUNT:
                    everything.set()

        async with consumer:
            try:
                async with patience.timeout(PATIENCE):
                    await everything.wait()
            except TimeoutError:
                missing = [key for key in keys if key not in self._received]
                raise RMQError(f"{len(missing)} of {COUNT} messages did not come back in {PATIENCE:g} s") from None
        say(f"== all {COUNT} messages were stored and consumed")


async def _leader_of(admin: AdminClient, name: str) -> str:
    """Wait until a member leads, and clients are sent to it. :raises RMQError: none does."""
    try:
        async with patience.timeout(PATIENCE):
            while True:
                with contextlib.suppress(RMQError):
                    leader = await admin.group_leader(name)
                    if leader.address in (await admin.masters("DefaultCluster")).values():
                        return leader.id
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise RMQError(f"no member leads within {PATIENCE:g} s: their logs say why") from None


def say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
