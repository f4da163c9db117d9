"""Masters and slaves for tests: small logs with something of everything, over a simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from rmq.broker.replication.master_service import MasterReplication, SlaveSeen
from rmq.broker.replication.slave_service import SlaveClient
from rmq.broker.replication.wire import report
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.durability import Answers
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.store import Store
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE as SIZE
from tests.support.scenes.store import die, opened, put, small
from tests.support.virtual import eventually

__all__ = [
    "PUT_OK",
    "SIZE",
    "Follower",
    "Pair",
    "RawSlave",
    "Sender",
    "caught_up",
    "fill",
    "filled_log",
    "log_bytes",
    "pair",
    "raw_slave",
    "record_head",
]

#: What a send is answered with when all that was promised has happened.
PUT_OK = 0


def fill(store: Store, count: int, first: int = 0, *, mirrored: bool = False) -> None:
    """Append messages of growing sizes to three topics; 90 of them reach into the third file.

    :param mirrored: others of the same sizes.
    """
    for n in range(first, first + count):
        queue = store.queues.get_or_create(f"T{n % 3}", n % 2)
        letter = (255 - n if mirrored else n) % 256
        message = put(queue, bytes([letter]) * (200 + 5 * (n % 100)), key=f"k{n}", tag="A" if n % 2 else "")
        store.append([message], 1_000_000 + 10 * n)


def log_bytes(store: Store, start: int | None = None, end: int | None = None) -> bytes:
    """The log as it lies in its files."""
    log = store.log
    start = log.start if start is None else start
    end = log.end if end is None else end
    data = b"".join(file.file.pread(log.file_size, 0) for file in log.segments)
    base = log.segments[0].start if log.segments else 0
    return data[start - base : end - base]


def _parted_at(one: bytes, other: bytes) -> int:
    """Behind the last record that both logs have."""
    at = 0
    while size := int.from_bytes(one[at : at + 4], "big"):
        if one[at : at + size] != other[at : at + size]:
            break
        at += size
    return at


def record_head(offset: int, size: int) -> bytes:
    """A record as far as it is looked at, and zeros."""
    head = size.to_bytes(4, "big") + bytes.fromhex("daa320a7") + bytes(20) + offset.to_bytes(8, "big")
    return head + bytes(size - len(head))


async def filled_log(count: int, first: int = 0) -> bytes:
    """The bytes of a log of its own."""
    store = await opened(Simulation(7).node("m").world, small())
    fill(store, count, first)
    data = log_bytes(store)
    await store.stop()
    return data


@dataclass
class Follower:
    """A slave."""

    node: SimNode
    store: Store
    client: SlaveClient
    alive: bool = True


class Pair:
    """A master and its slaves on one simulated network; 10.0.0.1 is the master, the slaves follow in order."""

    def __init__(self, store: StoreSettings, settings: BrokerSettings) -> None:
        self.simulation = Simulation(11)
        self.store_settings = store
        self.settings = settings
        self.master_node = self.simulation.node("master")
        self.slaves: list[Follower] = []
        self.master: Store
        self.service: MasterReplication

    async def start_master(self) -> None:
        """Open the store and listen."""
        self.master = await opened(self.master_node.world, replace(self.store_settings))
        self.service = MasterReplication(self.master_node.world, self.settings, self.master)
        await self.service.listen()

    async def stop_master(self) -> None:
        """Stop as a broker does."""
        await self.service.stop()
        await self.master.stop()

    async def restart_master(self, cut_to: int | None = None) -> None:
        """Stop it, perhaps lose the end of its log, and start it again."""
        await self.service.stop()
        if cut_to is not None:
            await self.master.truncate(cut_to)
        await self.master.stop()
        await self.start_master()

    async def kill_master(self) -> None:
        """Its process is gone; :meth:`start_master` is the next one."""
        self.simulation.kill(self.master_node)
        await self.service.stop()
        await die(self.master)

    async def add_slave(self) -> int:
        """One more, empty; its number."""
        node = self.simulation.node(f"slave{len(self.simulation.nodes)}")
        self.slaves.append(await self._follower(node))
        return len(self.slaves) - 1

    async def _follower(self, node: SimNode) -> Follower:
        store = await opened(node.world, replace(self.store_settings, sync_master=False, sync_flush=False))
        store.log.gate |= Gate.SLAVE
        client = SlaveClient(
            node.world, store, lambda: f"{self.master_node.address}:{self.settings.ha_listen_port}", self.settings
        )
        client.start()
        return Follower(node, store, client)

    async def kill_slave(self, number: int, *, power: bool = False) -> None:
        """Its process is gone; with ``power`` what was not forced to its disk as well."""
        slave = self.slaves[number]
        slave.alive = False
        (self.simulation.power_cut if power else self.simulation.kill)(slave.node)
        await slave.client.stop()
        await die(slave.store)

    async def restart_slave(self, number: int) -> int:
        """A new process; where its log ends."""
        slave = self.slaves[number] = await self._follower(self.slaves[number].node)
        return slave.store.log.end

    async def swap(self, number: int) -> int:
        """Both processes are gone; the slave's is a master from now on, and the old master follows it.

        What it alone has is cut before that, as ``mqadmin store truncate --to-master`` does; the offset where.
        """
        old, new = self.master_node, self.slaves[number].node
        if self.slaves[number].alive:
            await self.kill_slave(number)
        await self.kill_master()
        self.master_node = new
        await self.start_master()
        store = await opened(old.world, replace(self.store_settings, sync_master=False, sync_flush=False))
        at = _parted_at(log_bytes(store), log_bytes(self.master))
        if at < store.log.end:
            await store.truncate(at)
        await store.stop()
        self.slaves[number] = await self._follower(old)
        return at

    def seen(self, number: int) -> SlaveSeen | None:
        """A slave as the master sees it; None while it does not."""
        host = f"{self.slaves[number].node.address}:"
        return next((slave for slave in self.service.slaves() if slave.address.startswith(host)), None)


@asynccontextmanager
async def pair(
    *, slaves: int = 1, files: int = SIZE, sync: bool = False, sync_flush: bool = False, **settings: object
) -> AsyncIterator[Pair]:
    """A master that serves, and so many empty slaves."""
    values = BrokerSettings()
    values.ha_listen_port = 10912
    for key, value in settings.items():
        setattr(values, key, value)
    store = small(
        commit_log_file_size=files, sync_master=sync, sync_flush=sync_flush, ack_slaves=values.ha_ack_slaves,
        slave_timeout_ms=values.slave_timeout, queue_file_size=200_000,
    )  # fmt: skip
    made = Pair(store, values)
    await made.start_master()
    for _ in range(slaves):
        await made.add_slave()
    try:
        yield made
    finally:
        for slave in made.slaves:
            if slave.alive:
                await slave.client.stop()
                await slave.store.stop()
        await made.stop_master()


async def caught_up(p: Pair, number: int = 0) -> None:
    """Until a slave has all of its master's log, in its queues, too, and has said so."""
    slave = p.slaves[number].store
    await eventually(lambda: slave.log.end == p.master.log.end and not slave.dispatcher.behind)
    await eventually(lambda: (seen := p.seen(number)) is not None and seen.acked == p.master.log.end)


class Sender:
    """Appends one message at a time; the codes, and the seconds until each answer."""

    def __init__(self, p: Pair) -> None:
        self.p = p
        self.answers: dict[int, tuple[int, float]] = {}
        self.sent = 0

    def send(self) -> int:
        """Append one; its number."""
        number = self.sent
        self.sent += 1
        began = asyncio.get_running_loop().time()
        fill(self.p.master, 1, number)
        end = self.p.master.log.end
        sender = self

        class Conn:
            def send(self, data: bytes) -> None:
                sender.answers[number] = (data[0], asyncio.get_running_loop().time() - began)
                sender.answered(end, data[0])

        def answers(code: int) -> Answers:
            made: list[tuple[Any, bytes]] = [(Conn(), bytes([code]))]
            return made

        self.p.master.acks.hold(end, answers(PUT_OK), answers)
        return number

    def answered(self, end: int, code: int) -> None:
        """An answer to the message that ends at ``end``."""

    async def code(self) -> int:
        """Send one and wait for its answer."""
        number = self.send()
        await eventually(lambda: number in self.answers)
        return self.answers[number][0]


class RawSlave(asyncio.Protocol):
    """A connection to a master's HA port without a slave behind it."""

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads
        self.got = b""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self._reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def report(self, offset: int) -> None:
        """Say that everything before ``offset`` is here."""
        self.transport.write(report(offset))


async def raw_slave(p: Pair, name: str, made: RawSlave | None = None, *, reads: bool = True) -> RawSlave:
    """Connect from the node with this name, which is made when it is not there."""
    node = p.simulation.nodes.get(name) or p.simulation.node(name)
    made = made or RawSlave(reads=reads)
    await node.network.connect(lambda: made, p.master_node.address, p.settings.ha_listen_port)
    return made
