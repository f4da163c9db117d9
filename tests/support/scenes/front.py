"""What serves clients, over a simulated store and without sockets: the lane's step, pulls, and connections that keep
what they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rmq.broker.parts import Ground
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.store import Store
from rmq.broker.wiring.front import make_front
from rmq.broker.wiring.state import make_counted, make_members, make_tables
from rmq.protocol import frame
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.command import Command
from rmq.protocol.errors import AuthError
from rmq.protocol.permissions import Need
from rmq.remoting.conn import Conn
from rmq.remoting.router import Router
from rmq.runtime.tasks import TaskOwner
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import HOST, bodies

__all__ = ["Allowing", "FrontScene", "Line", "as_conn", "in_front"]


class Line:
    """A connection that keeps what it is sent; its peer takes what it is told to take."""

    def __init__(self, scene: FrontScene) -> None:
        self._scene = scene
        self.peer, self.host = "127.0.0.1:5000", "127.0.0.1"
        self.born_host, self.born_v6 = HOST, False
        self.fast = self.closed = False
        self.read_at = scene.world.clock.monotonic()
        self.frames: list[tuple[bytes, int, int]] = []
        self.owed_bytes = self.promised = 0
        self.malformed_by: str | None = None
        #: Writes, in order.
        self.sent: list[bytes] = []
        #: What was to run once there is room; None: there is room.
        self.waiting: list[Callable[[], None]] | None = None
        self.most_waiting = 10

    def came(self, *commands: Command | bytes) -> None:
        """Frames arrived in one piece; numbered from 1 on where they have no opaque."""
        frames = []
        for number, command in enumerate(commands, 1):
            if isinstance(command, Command):
                command.opaque = command.opaque or number
                command = frame.encode(command)
            frames.append(command)
        data, end = b"".join(frames), 0
        for one in frames:
            self.frames.append((data, end + 4, end := end + len(one)))

    def answers(self) -> list[Command]:
        """Answers so far, in the order they were sent; they are taken away."""
        data, found = b"".join(self.sent), []
        self.sent.clear()
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            found.append(frame.decode(data[4:size]))
            data = data[size:]
        return found

    def codes(self) -> dict[int, int]:
        """Codes by opaque, in the order they were sent; they are taken away."""
        return {answer.opaque: answer.code for answer in self.answers()}

    # -- what a connection does

    def send(self, data: bytes) -> None:
        if not self.closed:
            self.sent.append(data)

    send_at_once = send

    def send_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        whole = b"".join(parts)
        assert len(whole) == size
        self.send(whole)

    def send_command(self, command: Command) -> None:
        self.send(frame.encode(command))

    def settle(self, size: int) -> None:
        self.owed_bytes -= size

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        self._scene.tasks.spawn(work, name)

    def malformed(self, why: str) -> None:
        self.malformed_by = why

    def has_room(self) -> bool:
        return self.waiting is None

    def when_room(self, call: Callable[[], None]) -> bool:
        assert self.waiting is not None
        if len(self.waiting) == self.most_waiting:
            return False
        self.waiting.append(call)
        return True

    def promise(self, size: int) -> None:
        self.promised += size

    def makes_room(self) -> None:
        """The peer has taken its answers."""
        waiting, self.waiting = self.waiting, None
        for call in waiting or []:
            call()


class FrontScene:
    """A broker's front with topic T (two queues) and group G."""

    def __init__(self, **settings: str) -> None:
        self.node = Simulation().node("b")
        self.world = self.node.world
        sizes = {"mappedFileSizeCommitLog": "16384", "maxMessageSize": "4096", "maxHashSlotNum": "64"}
        self.settings = BrokerSettings.from_sources(overrides={"storePathRootDir": "/store", **sizes, **settings})
        self.store = Store(self.world, self.settings.store_settings())
        ground = Ground(self.world, self.settings, self.store, HOST)
        self.tables = make_tables(ground)
        self.members = make_members(ground, self.tables)
        self.counted = make_counted(ground)
        self.router = Router()
        self.front = make_front(ground, self.tables, self.members, self.counted, self.router)
        self.lane, self.delivery = self.front.lane, self.front.delivery
        self.store.durability.on_visible = self.delivery.holds.wake
        self.tasks = TaskOwner("scene")

    async def begin(self) -> None:
        await self.store.load()
        await self.store.start()
        self.tables.topics.put(TopicConfig("T", 2, 2))
        self.tables.groups.put(SubscriptionGroupConfig("G"))
        await asyncio.sleep(1)  # topics.json is written

    async def end(self) -> None:
        await self.tasks.close()
        await self.delivery.close()
        await self.store.stop()

    def line(self) -> Line:
        return Line(self)

    def tick(self, *lines: Line) -> None:
        """Serve what has come over these connections."""
        ready: Any = list(lines)
        self.lane.step(ready)
        self.lane.after()

    async def stored(self, topic: str = "T", queue: int = 0) -> list[bytes]:
        """Bodies of what consumers may see."""
        found = self.store.queues.get(topic, queue)
        return [] if found is None else await bodies(self.store, found)

    def ask(self, *commands: Command) -> list[Command]:
        """Answers to requests that come in one tick."""
        line = self.line()
        line.came(*commands)
        self.tick(line)
        return line.answers()


class Allowing:
    """What an account may do, until it may not."""

    account = "tested"

    def __init__(self) -> None:
        self.asked: list[tuple[Need, ...]] = []
        self.refuses = False
        self.charged = 0

    def demand(self, *wanted: Need) -> None:
        self.asked.append(wanted)
        if self.refuses:
            raise AuthError("no longer yours")

    def charge(self, size: int) -> None:
        self.charged += size

    def allows(self, need: Need) -> bool:
        return not self.refuses


def as_conn(line: Line) -> Conn:
    """A line, where a connection is asked for."""
    made: Any = line
    return made


@asynccontextmanager
async def front(**settings: str) -> AsyncIterator[FrontScene]:
    """A front that has begun."""
    scene = FrontScene(**settings)
    await scene.begin()
    try:
        yield scene
    finally:
        await scene.end()


def in_front(**settings: str) -> Callable[[Callable[[FrontScene], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """A test of a front with these settings, in virtual time."""

    def decorate(test: Callable[[FrontScene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def whole() -> None:
            async def main() -> None:
                async with front(**settings) as scene:
                    await test(scene)

            run(main())

        whole.__name__ = test.__name__
        return whole

    return decorate
