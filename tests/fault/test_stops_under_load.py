"""SIGTERM while producers send on and on: every message that is stored was answered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from tests.support.kills.killer import BrokerProcess
from tests.support.raw_peer import RawPeer, send

PEERS = 4
IN_FLIGHT = 256


class Producer:
    """Keeps ``IN_FLIGHT`` sends under way over one connection, and counts the answers until it ends."""

    def __init__(self, queue_id: int) -> None:
        self._queue_id = queue_id
        self._opaque = 0
        self.answered = 0
        self.begun = asyncio.Event()

    def _some(self, count: int) -> bytes:
        parts = []
        for _ in range(count):
            self._opaque += 1
            command = send("T1", b"x" * 200)
            assert command.ext is not None
            command.ext["e"] = str(self._queue_id)
            command.opaque = self._opaque
            parts.append(frame.encode(command))
        return b"".join(parts)

    async def run(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection((host, port)) as peer:
            peer.setblocking(False)
            room = asyncio.Semaphore(IN_FLIGHT)

            async def write() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        await room.acquire()
                        await loop.sock_sendall(peer, self._some(1))

            writing = asyncio.create_task(write())
            held = b""
            # Not streams of asyncio: they drop what came before a write that failed.
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(peer, 1 << 16):
                    held += data
                    while len(held) >= 4 and len(held) >= (size := 4 + int.from_bytes(held[:4], "big")):
                        assert frame.decode(held[4:size]).code == 0
                        held = held[size:]
                        self.answered += 1
                        room.release()
                    if self.answered > 4 * IN_FLIGHT:
                        self.begun.set()
            self.begun.set()
            writing.cancel()
            await asyncio.wait([writing])


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_is_stored_was_answered(tmp_path: Path, flush: str) -> None:
    async with BrokerProcess(tmp_path / "broker", RMQ_FLUSH_DISK_TYPE=flush) as broker:
        host, _, port = (await broker.start()).rpartition(":")
        producers = [Producer(queue_id) for queue_id in range(PEERS)]
        running = [asyncio.create_task(one.run(host, int(port))) for one in producers]
        for one in producers:
            await one.begun.wait()
        assert await broker.stop() == 0
        await asyncio.gather(*running)
        host, _, port = (await broker.start()).rpartition(":")
        async with RawPeer(host, int(port)) as peer:
            stored = await ends(peer)
        assert stored == [one.answered for one in producers]


async def ends(peer: RawPeer) -> list[int]:
    found = []
    for queue_id in range(PEERS):
        answer = await peer.ask(Command(30, ext={"topic": "T1", "queueId": str(queue_id)}))
        found.append(int(str((answer.ext or {}).get("offset", "0"))))
    return found
