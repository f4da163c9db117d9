"""Peers that do not read what they are answered: what they owe is bounded, others are served, nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from rmq.broker.app import BrokerApp
from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.remoting.limits import Limits
from rmq.remoting.router import LARGE, Router
from rmq.remoting.server import Server
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import pull, send
from tests.support.virtual import eventually, in_virtual_time, one_world

#: What one pull brings: 31 messages of 8 KiB.
_ANSWER = 256 << 10
_MIB = 1 << 20


class Peer(asyncio.Protocol):
    """A connection of the simulated network, which keeps nothing that is not read."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.data = b""
        #: Answers by opaque.
        self.answers: Counter[int] = Counter()
        #: Of those with a body.
        self.found: Counter[int] = Counter()
        self.lost = False

    @classmethod
    async def to(cls, world: World, address: tuple[str, int]) -> Peer:
        transport, peer = await world.network.connect(cls, *address)
        assert isinstance(peer, cls)
        assert isinstance(transport, asyncio.Transport)
        peer.transport = transport
        return peer

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + int.from_bytes(self.data[:4], "big"):
            end = 4 + int.from_bytes(self.data[:4], "big")
            answer = frame.decode(self.data[4:end])
            self.data = self.data[end:]
            self.answers[answer.opaque] += 1
            if answer.body:
                self.found[answer.opaque] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def ask(self, *commands: Command) -> None:
        """Send commands, the first with opaque 0."""
        for opaque, command in enumerate(commands):
            command.opaque = opaque
        self.transport.write(b"".join(map(frame.encode, commands)))

    async def asked(self, *commands: Command) -> float:
        """Send commands and read their answers; the seconds that took."""
        self.answers.clear()
        self.ask(*commands)
        return await eventually(lambda: len(self.answers) == len(commands))


async def filled(world: World, broker: BrokerApp, messages: int = 40, queues: int = 1) -> Peer:
    """A topic ``T`` with messages of 8 KiB, and a peer that reads."""
    reader = await Peer.to(world, broker.address)
    topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "64", "writeQueueNums": "64", "perm": "6"}
    topic |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    await reader.asked(Command(17, ext=dict(topic)))
    sends = []
    for queue in range(queues):
        for _ in range(messages):
            one = send(body=bytes(8_192))
            assert one.ext is not None
            one.ext["e"] = str(queue)
            sends.append(one)
    await reader.asked(*sends)
    return reader


def owed(broker: BrokerApp) -> list[int]:
    """What each connection owes, counted where it lies."""
    return [conn.unsent() + conn.out_bytes for conn in broker.server.connections]


class Watch:
    """The most that was owed at any time, by one connection and by all."""

    def __init__(self, broker: BrokerApp) -> None:
        self.one = self.all = 0
        self._broker = broker
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            found = owed(self._broker)
            self.one = max(self.one, *found)
            self.all = max(self.all, sum(found))
            await asyncio.sleep(0.0001)

    def stop(self) -> None:
        self._task.cancel()


@in_virtual_time
async def test_many_that_pull_and_do_not_read(tmp_path: Path) -> None:
    world = one_world()
    async with Cluster(tmp_path, world=world, settings={"unreadAnswersMaxBytes": str(32 * _MIB)}) as cluster:
        (broker,) = cluster.brokers
        reader = await filled(world, broker)
        watch = Watch(broker)
        stuck = [await Peer.to(world, broker.address) for _ in range(60)]
        for peer in stuck:
            peer.transport.pause_reading()
            peer.ask(*[pull() for _ in range(50)])
        await asyncio.sleep(1)
        # Meanwhile those who read are served.
        for _ in range(10):
            assert await reader.asked(pull(), Command(28), send()) < 0.5
        unread = broker.server.unread
        assert unread.total == sum(owed(broker))
        assert unread.total > 16 * _MIB
        # And when the others read, each gets every answer, once.
        for peer in stuck:
            peer.transport.resume_reading()
        await eventually(lambda: all(len(peer.found) == 50 for peer in stuck))
        assert all(set(peer.answers.values()) == {1} for peer in stuck)
        watch.stop()
        assert watch.one <= _MIB + 2 * _ANSWER  # a 32nd of 32 MiB
        assert watch.all <= 32 * _MIB + 2 * _ANSWER
        assert (unread.total, unread.waiting, len(unread.owing)) == (0, 0, 0)
        assert all(conn.owed_bytes == 0 for conn in broker.server.connections)


@in_virtual_time
async def test_one_that_pulls_and_does_not_read(tmp_path: Path) -> None:
    world = one_world()
    async with Cluster(tmp_path, world=world) as cluster:
        (broker,) = cluster.brokers
        await filled(world, broker)
        watch = Watch(broker)
        peer = await Peer.to(world, broker.address)
        peer.transport.pause_reading()
        peer.ask(*[pull() for _ in range(200)])
        await asyncio.sleep(1)
        assert 4 * _MIB < watch.one <= 8 * _MIB
        peer.transport.abort()
        await eventually(lambda: broker.server.unread.total == 0)
        watch.stop()
        assert broker.server.unread.waiting == 0


@in_virtual_time
async def test_parked_pulls_that_are_woken_together(tmp_path: Path) -> None:
    world = one_world()
    async with Cluster(tmp_path, world=world) as cluster:
        (broker,) = cluster.brokers
        reader = await filled(world, broker, 1)
        peer = await Peer.to(world, broker.address)
        peer.ask(*[pull(queue=queue, offset=int(queue == 0), hold_ms=30_000) for queue in range(64)])
        holds = broker.front.delivery.holds
        await eventually(lambda: holds.count == 64)
        peer.transport.pause_reading()
        watch = Watch(broker)
        sends = []
        for queue in range(64):
            one = send(body=bytes(200_000))
            assert one.ext is not None
            one.ext["e"] = str(queue)
            sends.append(one)
        await reader.asked(*sends)
        await asyncio.sleep(1)
        assert holds.count > 30  # those wait, parked as before
        assert watch.one <= 8 * _MIB
        peer.transport.resume_reading()
        await eventually(lambda: len(peer.found) == 64)
        watch.stop()
        assert (holds.count, len(peer.answers)) == (0, 64)


@in_virtual_time
async def test_a_woken_pull_whose_time_is_up_is_answered_without_messages(tmp_path: Path) -> None:
    world = one_world()
    async with Cluster(tmp_path, world=world) as cluster:
        (broker,) = cluster.brokers
        reader = await filled(world, broker)
        peer = await Peer.to(world, broker.address)
        parked = pull(queue=1, hold_ms=5_000)
        peer.ask(parked, *[pull() for _ in range(40)])
        peer.transport.pause_reading()
        await asyncio.sleep(1)
        woken = send()
        assert woken.ext is not None
        woken.ext["e"] = "1"
        await reader.asked(woken)
        await asyncio.sleep(10)
        peer.transport.resume_reading()
        await eventually(lambda: len(peer.answers) == 41)
        assert len(peer.found) == 40  # and not the first


class Target:
    """A server with an answer of 1 MiB (1), and one that a task makes (2)."""

    def __init__(self, world: World, limits: Limits) -> None:
        router = Router()
        router.on(1, lambda conn, request: request.reply(0, body=bytes(_MIB)))
        router.add(self)
        self.making = self.most_made = 0
        self.server = Server(world, router, limits)

    from rmq.remoting.router import handles

    @handles(2, answer=LARGE)
    async def slow(self, conn: object, request: Command) -> Command:
        self.making += 1
        self.most_made = max(self.most_made, self.making)
        await asyncio.sleep(0.01)
        self.making -= 1
        return request.reply(0, body=bytes(LARGE))


@in_virtual_time
async def test_large_answers_of_any_request() -> None:
    world = one_world()
    target = Target(world, Limits(unread=64 * _MIB, write_high=2 * _MIB))
    address = await target.server.start("127.0.0.1", 0)
    peer = await Peer.to(world, address)
    peer.transport.pause_reading()
    peer.ask(*[Command(1) for _ in range(50)], *[Command(2) for _ in range(50)])
    await asyncio.sleep(1)
    (conn,) = target.server.connections
    assert _MIB < conn.unsent() <= 3 * _MIB + 1_000
    peer.transport.resume_reading()
    await eventually(lambda: len(peer.answers) == 100)
    assert target.most_made <= 9
    assert (target.server.unread.total, conn.promised, conn.owed_bytes) == (0, 0, 0)
    await target.server.stop()


@in_virtual_time
async def test_the_bound_held_by_those_who_never_read() -> None:
    """Who takes his answers is served one at a time, and in the end the others are closed."""
    world = one_world()
    target = Target(world, Limits(unread=8 * _MIB, unread_seconds=10))
    address = await target.server.start("127.0.0.1", 0)
    stuck = [await Peer.to(world, address) for _ in range(20)]
    for peer in stuck:
        peer.transport.pause_reading()
        peer.ask(Command(1), Command(1))
    await asyncio.sleep(1)
    unread = target.server.unread
    assert 8 * _MIB <= unread.total <= 10 * _MIB
    assert unread.waiting > 20
    reader = await Peer.to(world, address)
    reader.ask(*[Command(1) for _ in range(10)])
    await eventually(lambda: len(reader.answers) == 10, within=30)
    assert unread.closed > 0
    assert not reader.lost
    for peer in stuck:
        peer.transport.resume_reading()
    await eventually(lambda: all(peer.lost or len(peer.answers) == 2 for peer in stuck))
    assert unread.closed == sum(peer.lost for peer in stuck) < 20
    assert (unread.total, unread.waiting) == (0, 0)
    await target.server.stop()
