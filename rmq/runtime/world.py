"""The ports through which every service touches the world.

Outside ``rmq.runtime`` nothing imports time, random, uuid, secrets, threading or socket, nor hands work to a thread:
a service is given a :class:`World` and asks it. Tests give it another one (virtual time, torn files, cut networks).
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from rmq.runtime.bridge import Bridge

__all__ = [
    "Clock",
    "File",
    "FileLock",
    "Files",
    "Identity",
    "Listener",
    "Network",
    "Offload",
    "Pool",
    "Random",
    "Reserved",
    "StallWatch",
    "Usage",
    "World",
]

#: What ``World.random`` is; for annotations outside this package.
Random = random.Random

T = TypeVar("T")


class Clock(Protocol):
    """Two clocks that are never mixed: stamps come from the wall, durations from the monotonic one."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch: for stamps that are stored or sent."""

    def monotonic(self) -> float:
        """Monotonic clock, seconds: for durations and deadlines (field case B142)."""


class File(Protocol):
    """One open file, read and written at positions."""

    path: str

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to ``size`` bytes at ``offset``; may touch the disk. Fewer bytes only at the end of the file."""

    def pread_hot(self, size: int, offset: int) -> bytes | None:
        """The same, from the page cache alone: None when some of it would come from the disk, or cannot be read."""

    def pread_aside(self, size: int, offset: int) -> bytes:
        """:meth:`pread` for what is read once: it does not stay in the page cache when it was not there before.

        The file is one that nothing else is read through: it is not read ahead from then on.
        """

    def hot_view(self, size: int, offset: int) -> memoryview | None:
        """A view of the file from its first byte on, nothing copied, when ``size`` bytes at ``offset`` are in memory.

        Only those bytes may be looked at. What is written to them later shows: ask for bytes that do not change any
        more.

        :returns: None when any of them is not in the page cache, or files have no views here.
        """

    def data_from(self, offset: int) -> int:
        """Where the next bytes begin, at ``offset`` or behind it, that were ever written: before them all is zeros.

        :returns: the size of the file when there are none.
        """

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of ``data`` at ``offset`` (loops over short writes). Errors: OSError."""

    def allocate(self, size: int) -> None:
        """Extend to ``size`` bytes of zeros, sparse; never shrinks."""

    def truncate(self, size: int) -> None: ...

    def datasync(self) -> None:
        """Force written data to the disk. Blocking: call through :class:`Offload`."""

    def size(self) -> int: ...

    def named(self) -> bool:
        """Whether its path still leads to this file: nobody has removed, renamed or replaced it, or its folder."""

    def close(self) -> None: ...


class FileIdentity(NamedTuple):
    """A file and its last change, as the system knows them."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class FileLock(Protocol):
    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Usage:
    """A file system's space in bytes; ``free`` is what this process may still use."""

    total: int
    used: int
    free: int

    @property
    def ratio(self) -> float:
        """Used share, 0.0 to 1.0, as ``ceil(used * 100 / (used + free)) / 100`` (store-and-broker.md 5.4)."""
        whole = self.used + self.free
        return -1.0 if whole <= 0 else -(-self.used * 100 // whole) / 100


class Files(Protocol):
    """A tree of files. All paths are text; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names (not paths) in a directory, sorted; empty when the directory does not exist."""

    def is_dir(self, path: str) -> bool: ...

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link, wherever that leads."""

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def identity(self, path: str) -> FileIdentity | None:
        """What a file must still be to be the same, unchanged; None where the file system's word means nothing."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; existing ones are fine."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Force directory entries to the disk (a new or renamed file exists after a power cut only then)."""

    def sync_tree(self, path: str) -> None:
        """Force everything below a directory to the disk, names, too: where that is thousands of files, all at once."""

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        """Take the POSIX record lock on byte 0 (what Java's FileLock takes on Linux). BlockingIOError when held.

        :param shared: for reading only: keeps writers out, and neither makes the file nor changes it.
        """

    def lock_directory(self, path: str, *, shared: bool = False) -> FileLock | None:
        """Lock a directory itself: nobody can take that away with a file. BlockingIOError when held.

        :returns: None where the file system has no such locks.
        """

    def usage(self, path: str) -> Usage: ...

    def read(self, path: str, most: int | None = None) -> bytes:
        """All of a file.

        :param most: bytes of a file that somebody has named: an OSError where it is longer, or never ends.
        """

    def write_atomic(self, path: str, data: bytes, *, backup: bool = False, private: bool = False) -> None:
        """Replace ``path``: temporary file, fsync, rename, fsync of the directory.

        ``backup`` keeps the replaced content as ``path + '.bak'``. ``private``: what was not there is its
        owner's alone to read; what was keeps its permissions.
        """


class Offload(Protocol):
    """System calls that may block, run on a thread. Never CPU work (design.md section 2).

    A call that is cancelled has ended all the same, or was not begun, when the caller hears of it.
    """

    async def __call__(self, what: Callable[..., T], *args: object) -> T: ...


class Pool(Protocol):
    """A bounded number of threads that users' functions run on: a consumer's listeners, a producer's checkers.

    Created and called on the loop that gets the results.
    """

    @property
    def most(self) -> int:
        """Functions that run at a time, at most."""

    def inside(self) -> bool:
        """The calling thread is one of this pool."""

    def resize(self, most: int) -> None:
        """Another number at most; what runs beyond it ends first."""

    def keep(self, least: int) -> None:
        """Threads beyond so many end when nothing is to do for a minute; without this call all stay."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run ``work`` on a thread; ``done(result, error)`` is called on the loop afterwards.

        :raises RuntimeError: the pool is closed.
        """

    def close(self) -> None:
        """Take no more work; threads end after the work they have."""


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port the kernel chose when 0 was asked for."""

    async def close(self) -> None: ...


class Reserved(Protocol):
    """Ports that a network's own :meth:`Network.listen` gets, and nobody else."""

    @property
    def port(self) -> int:
        """The one that was chosen; the others stand beside it."""

    def release(self) -> None:
        """Give back those on which nobody has listened."""


class Network(Protocol):
    async def reserve(self, host: str, beside: Sequence[int] = ()) -> Reserved:
        """Choose a port of ``host`` ("" = every interface) that is free, and keep it until somebody listens on it.

        :param beside: others, counted from it, that are free and kept, too.
        :raises OSError: the host is no address of this machine, or there are no such ports.
        """

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        backlog: int = 1024,
    ) -> Listener:
        """Accept on ``host``:``port`` (``host`` "" = every interface). OSError when the address is taken."""

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Open a connection.

        :param server_name: whose certificate the other side must show, when that is not ``host``.
        """

    async def resolve(self, host: str) -> list[str]:
        """The addresses that a name leads to now. Errors: OSError."""

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        *,
        server_side: bool,
    ) -> asyncio.BaseTransport | None:
        """Upgrade an open connection to TLS."""

    async def http_get(self, url: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
        """Status and body of a plain HTTP GET (the name-server address server)."""


class Identity(Protocol):
    """Who this process is on this machine."""

    @property
    def pid(self) -> int: ...

    @property
    def hostname(self) -> str: ...

    def addresses(self) -> Sequence[tuple[str, str]]:
        """(interface name, address text) of every address of this machine, IPv4 first."""

    def physical_memory(self) -> int:
        """Bytes of memory of the machine."""

    def processors(self) -> int:
        """Those that this process may run on."""

    def boot_id(self) -> str:
        """What differs after every start of the machine's kernel; "" where that is not known."""


class StallWatch(Protocol):
    """Sees from outside what the running loop does while it stands still."""

    def start(self) -> None:
        """Watch the loop that runs now."""

    def beat(self) -> None:
        """The loop runs."""

    def take(self) -> str | None:
        """What it was doing when it was late, told once."""

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    random: Random
    files: Files
    network: Network
    offload: Offload
    identity: Identity
    #: Makes a pool of so many threads at most, with the name that they get.
    pool: Callable[[int, str], Pool]
    #: How blocking calls get to a loop of this world.
    bridge: Callable[[], Bridge]
    #: Makes a watch over the running loop from the seconds it may stand still; None where time is not real.
    stalls: Callable[[float], StallWatch] | None = None

    @staticmethod
    def real() -> World:
        """The world as it is: kernel, disk, system clock."""
        from rmq.runtime.real import real_world

        return real_world()

    @staticmethod
    def around() -> World:
        """Where a client lives that was given no world: the real one, or one that a test has :meth:`entered`."""
        return _entered[-1] if _entered else World.real()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Clients that are given no world live in this one meanwhile, on whatever thread they are made."""
        _entered.append(self)
        try:
            yield
        finally:
            _entered.remove(self)


_entered: list[World] = []


Awaiter = Callable[[], Awaitable[None]]
