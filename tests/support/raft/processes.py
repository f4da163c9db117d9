"""A group of three brokers as processes, for tests that kill them."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from rmq.aio import AdminClient
from rmq.protocol.errors import RMQError
from rmq.runtime import patience
from tests.support.daemons import Running, environment, running
from tests.support.peers.ports import broker_port, free_port
from tests.support.raft.wires import Line

__all__ = ["FILE_SIZE", "NAMES", "ProcessGroup"]

#: Of the commit log, bytes.
FILE_SIZE = 4 << 20
NAMES = ("n0", "n1", "n2")


class ProcessGroup:
    """A name server, and a group of three on this machine.

    :param lines: members reach each other over lines that a test may silence.
    """

    def __init__(self, folder: Path, *, lines: bool = False, settings: str = "") -> None:
        self.folder = folder
        self.namesrv = f"127.0.0.1:{free_port()}"
        self.ports = {name: broker_port() for name in NAMES}
        self._at = {name: free_port() for name in NAMES}
        self._settings = settings
        #: From one member to another.
        self.lines = {(one, to): Line(self._at[to]) for one in NAMES for to in NAMES if lines and one != to}
        self._lives: dict[str, tuple[AsyncExitStack, Running]] = {}
        self._stack = AsyncExitStack()

    def store(self, name: str) -> Path:
        return self.folder / name / "store"

    async def __aenter__(self) -> ProcessGroup:
        for line in self.lines.values():
            await line.open()
            self._stack.push_async_callback(line.close)
        home = self.folder / "namesrv"
        home.mkdir()
        port = self.namesrv.rpartition(":")[2]
        env = environment(home, RMQ_LISTEN_PORT=port)
        await self._stack.enter_async_context(running("mqnamesrv", env=env))
        await asyncio.gather(*(self.begin(name) for name in NAMES))
        return self

    async def __aexit__(self, *_: object) -> None:
        for stack, _life in self._lives.values():
            await stack.aclose()
        await self._stack.aclose()

    async def begin(self, name: str) -> None:
        """Start a member as a process."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        conf = home / "broker.conf"
        conf.write_text(
            f"brokerName=group\nbrokerIP1=127.0.0.1\nlistenPort={self.ports[name]}\nnamesrvAddr={self.namesrv}\n"
            f"storePathRootDir={self.store(name)}\nmappedFileSizeCommitLog={FILE_SIZE}\nenableDLegerCommitLog=true\n"
            f"dLegerGroup=group\ndLegerPeers={self._peers(name)}\ndLegerSelfId={name}\n{self._settings}"
        )
        stack = AsyncExitStack()
        life = await stack.enter_async_context(running("mqbroker", "-c", str(conf), env=environment(home)))
        self._lives[name] = (stack, life)

    def _peers(self, name: str) -> str:
        at = {to: self._at[to] if (line := self.lines.get((name, to))) is None else line.port for to in NAMES}
        return ";".join(f"{one}-127.0.0.1:{port}" for one, port in at.items())

    def signal(self, name: str, number: int) -> None:
        """SIGSTOP, SIGCONT."""
        self._lives[name][1].process.send_signal(number)

    async def kill(self, name: str) -> None:
        """kill -9."""
        stack, life = self._lives.pop(name)
        await life.stop(signal.SIGKILL)
        await stack.aclose()

    async def stop(self) -> None:
        """Stop every member cleanly."""
        for stack, life in list(self._lives.values()):
            assert await life.stop() == 0
            await stack.aclose()
        self._lives.clear()

    async def leader(self, admin: AdminClient, *but: str) -> str:
        """Wait until a member leads that is none of those; its name."""
        async with patience.timeout(90):
            while True:
                for name in NAMES:
                    if name in self._lives and name not in but:
                        try:
                            info = await admin.broker_runtime_stats(f"127.0.0.1:{self.ports[name]}")
                        except RMQError:
                            continue
                        if info["brokerRole"] == "master":
                            return name
                await asyncio.sleep(0.1)
