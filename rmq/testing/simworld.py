"""A world for tests: virtual time, seeded random numbers, a disk and a network in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rmq.protocol.errors import ClientError
from rmq.runtime.lockstep import LockstepPool, loop_of_turn
from rmq.runtime.lockstep_bridge import LockstepBridge
from rmq.runtime.offload import failure_first
from rmq.runtime.real import seeded
from rmq.runtime.world import Random, World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import SimLoop
from rmq.testing.simnet import SimNet, SimNetwork

__all__ = ["SimClock", "SimIdentity", "SimNode", "SimOffload", "Simulation"]

T = TypeVar("T")

#: 2026-01-01T00:00:00Z.
_EPOCH_MS = 1_767_225_600_000
#: Boots of all machines of all simulations: a store that is copied to another one never meets its own again.
_boots = itertools.count(1)


class SimClock:
    """Both clocks of one node; ``skew_ms`` moves the wall clock alone.

    :param loop: whose time it is; the running one's when not given.
    :param begin: when the epoch was, by the loop; its first use when not given.
    """

    def __init__(self, epoch_ms: int = _EPOCH_MS, loop: SimLoop | None = None, begin: float | None = None) -> None:
        self._epoch_ms = epoch_ms
        self._loop = loop
        self._begin = begin
        self.skew_ms = 0

    def monotonic(self) -> float:
        if self._loop is not None:
            return self._loop.time()
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:  # a listener's thread
            return loop_of_turn().time()

    def now_ms(self) -> int:
        now = self.monotonic()
        if self._begin is None:
            self._begin = now
        return self._epoch_ms + int((now - self._begin) * 1000) + self.skew_ms


class SimOffload:
    """Runs at once; the answer comes after a delay, as from a disk.

    :param delay: seconds, or a function that says them.
    """

    def __init__(self, delay: float | Callable[[], float] = 0.0) -> None:
        self.delay = delay
        #: What was offloaded, by name: a test checks it against an allow-list.
        self.seen: set[str] = set()

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        self.seen.add(getattr(what, "__qualname__", repr(what)))
        try:
            result = what(*args)
        except BaseException as failure:
            try:
                await self._wait()
            except asyncio.CancelledError:
                failure_first(failure)
            raise
        await self._wait()
        return result

    async def _wait(self) -> None:
        delay = self.delay() if callable(self.delay) else self.delay
        loop = asyncio.get_running_loop()
        # Where all others sleep for longer, which is most of the time, nobody can tell.
        if not (isinstance(loop, SimLoop) and loop.passed(delay)):
            await asyncio.sleep(delay)


@dataclass(frozen=True, slots=True)
class SimIdentity:
    hostname: str
    address: str
    pid: int = 4242
    memory: int = 8 << 30
    boot: str = ""

    def addresses(self) -> Sequence[tuple[str, str]]:
        return [("lo", "127.0.0.1"), ("eth0", self.address)]

    def physical_memory(self) -> int:
        return self.memory

    def processors(self) -> int:
        return 1

    def boot_id(self) -> str:
        return self.boot


@dataclass(slots=True)
class SimNode:
    """One machine of a simulation: its disk outlives its processes, each of which has a world of its own."""

    name: str
    address: str
    disk: SimDisk
    clock: SimClock
    world: World
    #: Changes when the power fails, not when a process dies.
    boot: str = ""

    @property
    def files(self) -> SimFiles:
        files = self.world.files
        assert isinstance(files, SimFiles)
        return files

    @property
    def network(self) -> SimNetwork:
        network = self.world.network
        assert isinstance(network, SimNetwork)
        return network


@dataclass(slots=True)
class Simulation:
    """Nodes on one loop, one switch, one seed.

    :param seed: what every choice of the simulation comes from.
    :param epoch_ms: what the clocks of its nodes say when it begins, milliseconds since the epoch.
    :param loop: for blocking code: runs, on the thread that waits, while a blocking call does (:attr:`bridge`). Without
        one everything happens in coroutines of the loop that runs.
    """

    seed: int = 0
    loop: SimLoop | None = None
    epoch_ms: int = _EPOCH_MS
    net: SimNet = field(default_factory=SimNet)
    nodes: dict[str, SimNode] = field(default_factory=dict)
    random: Random = field(init=False)
    _begin: float | None = field(init=False, default=None)
    _bridge: LockstepBridge | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.random = seeded(self.seed)
        if self.loop is not None:
            self._bridge = LockstepBridge(self.loop)

    def bridge(self) -> LockstepBridge:
        """How blocking calls get to its loop. :raises ClientError: it has none of its own."""
        if self._bridge is None:
            raise ClientError("this simulation is one of coroutines: blocking clients need one that has a loop")
        return self._bridge

    def node(self, name: str, *, fsync_seconds: float = 0.0005) -> SimNode:
        """A new machine; the first has the address 10.0.0.1.

        :param fsync_seconds: how long offloaded calls take.
        """
        if name in self.nodes:
            raise ValueError(f"the node {name} exists")
        address = f"10.0.{len(self.nodes) // 250}.{len(self.nodes) % 250 + 1}"
        loop = self.loop or asyncio._get_running_loop()
        if self._begin is None and loop is not None:
            self._begin = loop.time()
        clock = SimClock(self.epoch_ms, self.loop, self._begin)
        disk = SimDisk(clock.now_ms)
        boot = _boot()
        node = SimNode(name, address, disk, clock, self._world(name, address, disk, clock, fsync_seconds, boot), boot)
        self.nodes[name] = node
        return node

    def _world(
        self, name: str, address: str, disk: SimDisk, clock: SimClock, fsync_seconds: float, boot: str = ""
    ) -> World:
        return World(
            clock=clock,
            random=seeded(self.random.getrandbits(64)),
            files=SimFiles(disk),
            network=self.net.node(address),
            offload=SimOffload(fsync_seconds),
            identity=SimIdentity(name, address, boot=boot),
            pool=LockstepPool,
            bridge=self.bridge,
        )

    def kill(self, node: SimNode) -> World:
        """kill -9 and a new process: files and network freeze first; the page cache stays. The new process's world.

        The caller drops the old process's tasks afterwards (design.md section 2).
        """
        node.files.freeze()
        self.net.kill(node.address)
        delay = node.world.offload.delay if isinstance(node.world.offload, SimOffload) else 0.0
        node.world = self._world(node.name, node.address, node.disk, node.clock, 0.0, node.boot)
        if isinstance(node.world.offload, SimOffload):
            node.world.offload.delay = delay
        return node.world

    def power_cut(self, node: SimNode, *, all_lost: bool = False, disk_only: bool = False) -> World:
        """:meth:`kill`, and what was not forced to the disk is lost, kept or torn as the seed has it.

        :param disk_only: the disk goes away and comes back; the machine, and so its boot id, goes on.
        """
        node.files.freeze()
        node.disk.power_cut(None if all_lost else self.random)
        if not disk_only:
            node.boot = _boot()
        return self.kill(node)


def _boot() -> str:
    return f"boot-{next(_boots)}"
