"""The clusters that the pages of the manual show, each in the state that its page is about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmq.aio import (
    AdminClient,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.testing.simcluster import SimCluster
from rmq.testing.simloop import SimLoop
from tests.support.accounts import SECRET, in_simulation
from tests.support.manual.shell import Shell, Still, began_then
from tests.support.raft.brokers import GroupCluster

__all__ = ["SCENES", "Scene", "staged"]

#: What a scene leaves running: it is shut down at its end.
Clients = list[Any]
Prepare = Callable[[SimCluster], Awaitable[Clients]]


@dataclass(frozen=True)
class Scene:
    """:param prepare: brings the cluster into its state. :param settings: Java key -> text of every broker."""

    prepare: Prepare
    brokers: int = 2
    slaves: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    accounts: str | None = None
    #: The brokers are one group of three that elects its master.
    elects: bool = False


class _StillGroup(Still):
    """A group that elects its master, and hands that stop and start its members."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(brokers=0)
        self._time.close()
        self.group = GroupCluster(seed=3, settings=settings, loop=SimLoop())
        self.cluster = self.group
        self._time = self.group.simulation.bridge()

    def act(self, words: list[str]) -> None:
        """``n1 systemctl stop|start|kill ...``, and what comes of it within seconds."""
        member, _, verb = words[:3]

        async def done(_: SimCluster) -> None:
            if verb == "start":
                await self.group.begin(member)
            elif verb == "stop":
                await self.group.stop_broker(self.group.members.pop(member))
            else:
                await self.group.kill(member)
            await asyncio.sleep(3)

        self.call(done)


@contextmanager
def staged(scene: Scene, folder: Path) -> Iterator[Shell]:
    """A terminal beside the cluster of a scene."""
    with began_then():
        if scene.elects:
            cluster: Still = _StillGroup(dict(scene.settings))
        else:
            cluster = Still(brokers=scene.brokers, slaves=scene.slaves, settings=dict(scene.settings))
        environment = {}
        if scene.accounts is not None:
            in_simulation(cluster.cluster, scene.brokers, scene.accounts)
            environment = {"ROCKETMQ_ACCESS_KEY": "operator", "ROCKETMQ_SECRET_KEY": SECRET}
        quiet = logging.NullHandler()  # what a scene's own clients log is on no terminal
        logging.getLogger("rmq").addHandler(quiet)
        with cluster:
            clients: Clients = cluster.call(lambda inner: _prepared(scene, inner))
            try:
                shell = Shell(cluster, folder, **environment)
                shell.act = cluster.act if isinstance(cluster, _StillGroup) else None
                yield shell
            finally:
                logging.getLogger("rmq").removeHandler(quiet)
                for client in clients:
                    cluster.call(lambda _, client=client: client.shutdown())  # type: ignore[misc]


async def _prepared(scene: Scene, cluster: SimCluster) -> Clients:
    return await scene.prepare(cluster)


# -- pieces ---------------------------------------------------------------------------------------------------


async def _made(cluster: SimCluster, *topics: str, queues: int = 4, groups: tuple[str, ...] = (), **group: Any) -> None:
    async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
        for address in (await admin.masters("DefaultCluster")).values():
            for topic in topics:
                await admin.create_and_update_topic(address, topic, read_queue_nums=queues, write_queue_nums=queues)
            for name in groups:
                config = SubscriptionGroupConfig(name, **group)
                await admin.create_and_update_subscription_group(address, config)


async def _producer(cluster: SimCluster, group: str = "shop", **options: Any) -> Producer:
    producer = Producer(group, namesrv=cluster.namesrv_addr, instance_name=group, **options)
    await producer.start()
    return producer


async def _sent(
    producer: Producer, topic: str, count: int, *, first: int = 1, brokers: int = 2, queues: int = 4
) -> None:
    """Orders, one after the other, over all queues."""
    for number in range(first, first + count):
        tag = "paid" if number % 3 == 0 else "new"
        message = Message(topic, f'{{"order": {number}}}', tags=tag, keys=f"order-{number}")
        queue = MessageQueue(topic, f"broker-{number % brokers}", number // brokers % queues)
        await producer.send(message, queue=queue)


async def _member(
    cluster: SimCluster,
    group: str,
    listener: Callable[[MessageExt], Awaitable[None]],
    expression: str = "*",
    *,
    name: str = "1",
    **options: Any,
) -> PushConsumer:
    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv_addr,
        instance_name=name,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        **options,
    )
    consumer.on("orders", expression)(listener)
    await consumer.start()
    return consumer


async def _taken(message: MessageExt) -> None:
    """It is consumed."""


# -- scenes ---------------------------------------------------------------------------------------------------


async def _shop(cluster: SimCluster) -> Clients:
    """Orders that billing reads; audit read some of them yesterday, and is offline."""
    await _made(cluster, "orders", "payments", groups=("billing", "audit"))
    producer = await _producer(cluster)
    await _sent(producer, "orders", 12)
    audit = await _member(cluster, "audit", _taken)
    await cluster.advance(15)
    await audit.shutdown()
    billing = await _member(cluster, "billing", _taken)
    await _sent(producer, "orders", 8, first=13)
    await cluster.advance(60)
    return [producer, billing]


async def _pair(cluster: SimCluster) -> Clients:
    """A master with its slave."""
    await _made(cluster, "orders", groups=("billing",))
    producer = await _producer(cluster)
    billing = await _member(cluster, "billing", _taken)
    await _sent(producer, "orders", 12, brokers=1)
    await cluster.advance(40)
    return [producer, billing]


async def _elected(cluster: SimCluster) -> Clients:
    """A group of three whose first member leads."""
    await cluster.advance(5)
    async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
        if (await admin.group_leader("group")).id != "n0":
            await admin.elect_master("group", 1)
    await cluster.advance(5)
    await _made(cluster, "orders", groups=("billing",))
    producer = await _producer(cluster)
    for number in range(12):
        await producer.send(Message("orders", f'{{"order": {number}}}'))
    await cluster.advance(35)
    return [producer]


# -- at night -------------------------------------------------------------------------------------------------


async def _lag(cluster: SimCluster) -> Clients:
    """A listener that takes half a second a message, and ten messages a second for one member."""

    async def slow(message: MessageExt) -> None:
        await asyncio.sleep(8)

    await _made(cluster, "orders", groups=("billing",))
    producer = await _producer(cluster)
    billing = await _member(cluster, "billing", slow, consume_thread_min=8, consume_thread_max=8)
    for round_ in range(12):
        await _sent(producer, "orders", 100, first=1 + 100 * round_)
        await cluster.advance(10)
    return [producer, billing]


async def _stuck(cluster: SimCluster) -> Clients:
    """Orders are to be taken in their order, and the first of a queue is never done with."""

    async def waits(message: MessageExt) -> None:
        if message.keys == "order-1":
            await released.wait()

    released = asyncio.Event()
    await _made(cluster, "orders", groups=("billing",))
    producer = await _producer(cluster)
    billing = await _member(cluster, "billing", waits, orderly=True)
    await _sent(producer, "orders", 24)
    await cluster.advance(minutes=5)
    return [producer, _After(released, billing)]


class _After:
    """A client that can be shut down once what it waits for has come."""

    def __init__(self, released: asyncio.Event, client: PushConsumer) -> None:
        self._released = released
        self._client = client

    async def shutdown(self) -> None:
        self._released.set()
        await self._client.shutdown()


async def _gone(cluster: SimCluster) -> Clients:
    """One of two brokers was killed."""
    clients = await _shop(cluster)
    await cluster.kill_broker(1)
    await cluster.advance(minutes=3)
    return clients


async def _behind(cluster: SimCluster) -> Clients:
    """A slave whose line to its master is cut."""
    clients = await _pair(cluster)
    master, slave = (cluster.simulation.nodes[name].address for name in ("broker-0", "broker-0-1"))
    cluster.simulation.net.cut(master, slave)
    await _sent(clients[0], "orders", 40, first=13, brokers=1)
    await cluster.advance(minutes=2)
    return clients


async def _full(cluster: SimCluster) -> Clients:
    """A disk that somebody else has filled."""
    clients = await _shop(cluster)
    disk = cluster.simulation.nodes["broker-1"].disk
    disk.capacity = max(1, int(disk.used / 0.96))
    await cluster.advance(minutes=2)
    return clients


async def _filtered(cluster: SimCluster) -> Clients:
    """A group that subscribes paid orders alone."""
    await _made(cluster, "orders", groups=("billing",))
    producer = await _producer(cluster)
    billing = await _member(cluster, "billing", _taken, "paid")
    await _sent(producer, "orders", 6)
    await cluster.advance(30)
    return [producer, billing]


async def _dead(cluster: SimCluster) -> Clients:
    """A listener that can do nothing with one order, tried three times."""

    async def fails(message: MessageExt) -> None:
        if message.keys == "order-3":
            raise ValueError("no such currency")

    await _made(cluster, "orders", groups=("billing",), retry_max_times=3)
    producer = await _producer(cluster)
    billing = await _member(cluster, "billing", fails, max_reconsume_times=3)
    await _sent(producer, "orders", 6)
    await cluster.advance(minutes=10)
    return [producer, billing]


async def _halves(cluster: SimCluster) -> Clients:
    """A transaction that nobody ends: its producer does not know yet, whenever it is asked."""

    async def unknown(message: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    await _made(cluster, "orders")
    producer = TransactionProducer("shop", unknown, namesrv=cluster.namesrv_addr, instance_name="shop")
    await producer.start()
    await producer.send_in_transaction(Message("orders", '{"order": 1}', keys="order-1"), unknown)
    await cluster.advance(minutes=3)
    return [producer]


async def _misrouted(cluster: SimCluster) -> Clients:
    """A broker that tells clients an address which leads nowhere."""
    broker = await cluster.start_broker(1, brokerIP1="172.17.0.2")
    host, port = broker.address
    async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
        await admin.create_and_update_topic(f"{host}:{port}", "orders", read_queue_nums=4, write_queue_nums=4)
    await cluster.advance(40)
    return []


ACCOUNTS_OF_THE_MANUAL = f"""\
globalWhiteRemoteAddresses:
  - 10.0.0.*
accounts:
  - accessKey: operator
    secretKey: {SECRET}
    admin: true
  - accessKey: billing
    secretKey: {SECRET}
    defaultTopicPerm: DENY
    topicPerms:
      - orders=SUB
    groupPerms:
      - billing=SUB
"""


async def _nothing(cluster: SimCluster) -> Clients:
    await cluster.advance(1)
    return []


SCENES = {
    "shop": Scene(_shop),
    "pair": Scene(_pair, brokers=1, slaves=1),
    "accounts": Scene(_nothing, brokers=1, accounts=ACCOUNTS_OF_THE_MANUAL),
    "lag": Scene(_lag),
    "stuck": Scene(_stuck),
    "gone": Scene(_gone),
    "behind": Scene(_behind, brokers=1, slaves=1),
    "full": Scene(_full),
    "filtered": Scene(_filtered),
    "dead": Scene(_dead),
    "halves": Scene(_halves, brokers=1),
    "misrouted": Scene(_misrouted, brokers=1),
    "elected": Scene(_elected, elects=True),
}
