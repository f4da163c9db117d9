"""R05 and C01 for a group: three brokers as processes, whose leader is killed again and again while producers send."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from rmq.aio import AdminClient, Producer
from rmq.client.message import Message
from rmq.protocol.errors import RMQError
from rmq.runtime import patience
from tests.support.daemons import Running, environment, running
from tests.support.kills.campaign import amount
from tests.support.kills.killer import OsTree
from tests.support.peers.ports import broker_port, free_port
from tests.support.store_scan import scan_log

KILLS = amount(1, 500)
FILE_SIZE = 4 << 20
_NAMES = ("n0", "n1", "n2")


class ProcessGroup:
    """A name server, and a group of three on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namesrv = f"127.0.0.1:{free_port()}"
        self.ports = {name: broker_port() for name in _NAMES}
        self._peers = ";".join(f"{name}-127.0.0.1:{free_port()}" for name in _NAMES)
        self._lives: dict[str, tuple[AsyncExitStack, Running]] = {}
        self._stack = AsyncExitStack()

    def store(self, name: str) -> Path:
        return self.folder / name / "store"

    async def __aenter__(self) -> ProcessGroup:
        home = self.folder / "namesrv"
        home.mkdir()
        port = self.namesrv.rpartition(":")[2]
        env = environment(home, RMQ_LISTEN_PORT=port)
        await self._stack.enter_async_context(running("mqnamesrv", env=env))
        await asyncio.gather(*(self.begin(name) for name in _NAMES))
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
            f"dLegerGroup=group\ndLegerPeers={self._peers}\ndLegerSelfId={name}\n"
        )
        stack = AsyncExitStack()
        life = await stack.enter_async_context(running("mqbroker", "-c", str(conf), env=environment(home)))
        self._lives[name] = (stack, life)

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

    async def leader(self, admin: AdminClient, but: str | None = None) -> str:
        """Wait until a member leads; its name."""
        async with patience.timeout(90):
            while True:
                for name in _NAMES:
                    if name in self._lives and name != but:
                        try:
                            info = await admin.broker_runtime_stats(f"127.0.0.1:{self.ports[name]}")
                        except RMQError:
                            continue
                        if info["brokerRole"] == "master":
                            return name
                await asyncio.sleep(0.1)


async def test_leaders_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    ended = asyncio.Event()

    async def send(producer: Producer) -> None:
        number = 0
        while not ended.is_set():
            body = b"%d" % number
            number += 1
            try:
                result = await producer.send(Message("Topic", body))
            except RMQError:
                await asyncio.sleep(0.05)
                continue
            if result.send_status.name == "SEND_OK":
                acknowledged.append(body)

    async def more(count: int = 50) -> None:
        wanted = len(acknowledged) + count
        async with patience.timeout(90):
            while True:
                if len(acknowledged) >= wanted:
                    return
                await asyncio.sleep(0.02)

    async with (
        ProcessGroup(tmp_path) as group,
        AdminClient(namesrv=group.namesrv) as admin,
        Producer("killed_leaders", namesrv=group.namesrv) as producer,
    ):
        await group.leader(admin)
        sending = asyncio.create_task(send(producer))
        await more()
        for _ in range(KILLS):
            leader = await group.leader(admin)
            await more()
            await group.kill(leader)
            await group.leader(admin)
            await more()
            await group.begin(leader)
        ended.set()
        await sending
        await group.stop()

    scans = [scan_log(OsTree(), str(group.store(name) / "commitlog"), FILE_SIZE).records for name in _NAMES]
    lacking = [set(acknowledged) - {record.body for record in records} for records in scans]
    # The one that was stopped first may lack what came last.
    assert sum(not lost for lost in lacking) >= 2, [len(lost) for lost in lacking]
    logs = [[record.raw for record in records] for records in scans]
    shortest = min(len(log) for log in logs)
    assert logs[0][:shortest] == logs[1][:shortest] == logs[2][:shortest]
