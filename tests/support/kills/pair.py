"""A SYNC_MASTER and its slave as processes, and the wire between them: it cuts, splits, gathers and flips."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess
from tests.support.peers.ports import broker_port

__all__ = ["ProcessPair", "Way", "Wire", "process_pair"]

#: What catching up may take (H01).
_CATCH_UP = 30.0
_READ = 1 << 16
#: Bytes of a connection that are of the newest record that the slave has: it is never shorter.
_COMPARED = 1000
#: Bodies are digits, and nothing else has so many of them.
_IN_A_BODY = re.compile(rb"\d{40}")


@dataclass(frozen=True, slots=True)
class Way:
    """How one connection carries what the master sends.

    :param cut: it ends after so many bytes.
    :param piece: no more than so many bytes at a time.
    :param gather: nothing before so many bytes are there, or none has come for a moment.
    :param flip: of this byte one bit is another one; behind the newest record, which is compared whole, of the next
        byte of a body: the stream has no sums, and records have one of their bodies.
    """

    cut: int | None = None
    piece: int = _READ
    gather: int = 0
    flip: int | None = None


class Wire:
    """Takes the slave's connections and makes one to the master for each.

    :param port: of the master's HA listener.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0
        #: How the next connections go, one after the other, and how all that follow them do.
        self.ways: list[Way] = []
        self.way = Way()
        #: Where the slave began, at each connection: its first report.
        self.begun: list[int] = []
        #: The highest report of all of them, and the most by which a first one was less than what was reported before.
        self.acked = 0
        self.asked_again = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._linked, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._links, return_exceptions=True)

    def cut(self) -> None:
        """End all connections."""
        for link in self._links:
            link.cancel()

    async def _linked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        way = self.ways.pop(0) if self.ways else self.way
        ends = [writer]
        try:
            theirs, to_master = await asyncio.open_connection("127.0.0.1", self._port)
            ends.append(to_master)
            both = [
                asyncio.create_task(self._reports(reader, to_master)),
                asyncio.create_task(self._units(theirs, writer, way)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass  # the master is away
        except asyncio.CancelledError:
            pass  # cut; a task of a server that is cancelled would be told of as an error
        finally:
            self._links.discard(link)
            for end in ends:
                end.transport.abort()

    async def _reports(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = True
        while data := await reader.readexactly(8):
            at = int.from_bytes(data, "big")
            if first:
                self.begun.append(at)
                self.asked_again = max(self.asked_again, self.acked - at)
                first = False
            self.acked = max(self.acked, at)
            writer.write(data)

    async def _units(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        sent = 0
        flip = way.flip
        held = b""
        while True:
            try:
                async with asyncio.timeout(0.1 if held else None):
                    more = await reader.read(_READ)
                if not more:
                    return
                held += more
            except TimeoutError:
                more = b""
            if more and len(held) < way.gather:
                continue
            data = bytearray(held)
            held = b""
            if flip is not None and (at := _flipped_at(data, flip, sent)) >= 0:
                data[at] ^= 1
                flip = None
            if way.cut is not None:
                del data[max(0, way.cut - sent) :]
            for at in range(0, len(data), way.piece):
                writer.write(data[at : at + way.piece])
                await writer.drain()
            sent += len(data)
            if way.cut is not None and sent >= way.cut:
                writer.close()
                await writer.wait_closed()  # with all that was written
                return


def _flipped_at(data: bytes | bytearray, flip: int, sent: int) -> int:
    """Where in these bytes one is to be flipped, -1 = in none of them.

    :param sent: how many came before them.
    """
    if flip < _COMPARED:
        return flip - sent if 0 <= flip - sent < len(data) else -1
    body = _IN_A_BODY.search(data, max(0, flip - sent))
    return body.start() + len(body[0]) // 2 if body else -1


class ProcessPair:
    """Both processes and their wire.

    :param folder: their homes.
    :param settings: ``RMQ_*`` variables of both.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        port = broker_port()
        self.wire = Wire(port + 1)
        self._folder = folder
        self._settings = settings
        self.client = RemotingClient(World.real())
        #: Whoever sends ends.
        self.silent = False
        self.master = BrokerProcess(
            folder / "master", RMQ_BROKER_ROLE="SYNC_MASTER", RMQ_LISTEN_PORT=str(port),
            RMQ_HA_COPY_FROM_FIRST_FILE="true", RMQ_HA_SLAVE_FALLBEHIND_MAX=str(1 << 30), **settings,
        )  # fmt: skip
        self.slave: BrokerProcess

    async def open(self) -> None:
        await self.wire.open()
        self.slave = BrokerProcess(
            self._folder / "slave", RMQ_BROKER_ROLE="SLAVE", RMQ_BROKER_ID="1", RMQ_LISTEN_PORT=str(broker_port()),
            RMQ_HA_MASTER_ADDRESS=f"127.0.0.1:{self.wire.port}", RMQTEST_AGAIN="0.01", **self._settings,
        )  # fmt: skip
        await asyncio.gather(self.master.start(), self.slave.start())

    async def close(self) -> None:
        await self.client.close()
        for broker in (self.slave, self.master):
            await broker.__aexit__()
        await self.wire.close()

    async def end_of(self, broker: BrokerProcess) -> int:
        """Where its log ends."""
        answer = await self.client.request(broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 30)
        return int(KVTable.decode(answer.body).table["commitLogMaxOffset"] or 0)

    async def caught_up(self) -> int:
        """The slave has its master's log, which nobody adds to; where it ends."""
        loop = asyncio.get_running_loop()
        began, end = loop.time(), await self.end_of(self.master)
        while (there := await self.end_of(self.slave)) < end:
            assert loop.time() < began + _CATCH_UP, f"the slave is at {there} of {end} after {_CATCH_UP:.0f} s"
            await asyncio.sleep(0.01)
        return end

    def differences(self) -> list[str]:
        """Where the files of both differ that both have: nothing is added to them now."""
        found = []
        one, other = (broker.store / "commitlog" for broker in (self.master, self.slave))
        names = {path.name for path in one.iterdir()} & {path.name for path in other.iterdir()}
        for name in sorted(names):
            mine, theirs = (one / name).read_bytes(), (other / name).read_bytes()
            if mine != theirs:
                at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), len(mine))
                found.append(f"I8: the logs differ at {int(name) + at} of {LOG_FILE_SIZE} bytes a file")
        return found

    async def until(self, condition: Callable[[], Awaitable[bool]], left: Callable[[], int] = lambda: 0) -> None:
        """Wait until it holds.

        :param left: how much is still to come; what goes on may take its time.
        """
        loop = asyncio.get_running_loop()
        moved, before = loop.time(), left()
        while not await condition():
            if (now := left()) != before:
                moved, before = loop.time(), now
            assert loop.time() < moved + _CATCH_UP, f"nothing has moved for {_CATCH_UP:.0f} s, and {before} are left"
            await asyncio.sleep(0.005)

    @staticmethod
    def resident_mib(broker: BrokerProcess) -> float:
        for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"no VmRSS of {broker.pid}")


@asynccontextmanager
async def process_pair(folder: Path, **settings: str) -> AsyncIterator[ProcessPair]:
    """A pair that runs; killed at the end if it still does."""
    pair = ProcessPair(folder, **settings)
    try:
        await pair.open()
        yield pair
    finally:
        await pair.close()
