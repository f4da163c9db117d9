"""A bare connection to a server: whole commands out, answers by opaque in."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from rmq.protocol import frame
from rmq.protocol.command import Command

__all__ = ["RawPeer", "pull", "send", "subscribe", "with_peer"]

T = TypeVar("T")


class RawPeer:
    """``async with RawPeer(host, port) as peer: answer = await peer.ask(command)``."""

    def __init__(self, host: str, port: int, *, ssl: ssl.SSLContext | None = None) -> None:
        self._where = (host, port)
        self._ssl = ssl
        self._answers: dict[int, asyncio.Future[Command]] = {}
        self._opaque = 0
        #: Answers so far.
        self.answered = 0
        #: What the server sent of its own.
        self.pushed: list[Command] = []

    async def __aenter__(self) -> Self:
        self._reader, self.writer = await asyncio.open_connection(*self._where, ssl=self._ssl)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            command = frame.decode(await self._reader.readexactly(size))
            if command.is_response:
                self.answered += 1
                self._answers.pop(command.opaque).set_result(command)
            else:
                self.pushed.append(command)

    def submit(self, command: Command) -> asyncio.Future[Command]:
        """Send without waiting; commands submitted in one turn of the loop arrive together."""
        self._opaque += 1
        command.opaque = self._opaque
        future = asyncio.get_running_loop().create_future()
        if not command.is_oneway:
            self._answers[command.opaque] = future
        self.writer.write(frame.encode(command))
        return future

    async def ask(self, command: Command) -> Command:
        return await self.submit(command)

    async def settled(self, topic: str, end: int, queue: int = 0) -> None:
        """Wait until a queue ends there: Java dispatches a message a millisecond after it has acknowledged it."""
        where = {"topic": topic, "queueId": str(queue)}
        found: str | None = None
        for _ in range(6000):
            found = ((await self.ask(Command(30, ext=dict(where)))).ext or {}).get("offset")
            if found == str(end):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{topic}-{queue} ends at {found}, not at {end}")


def with_peer(address: str, what: Callable[[RawPeer], Coroutine[Any, Any, T]]) -> T:
    """Do something with a connection to ``host:port``, from a test that is no coroutine."""

    async def main() -> T:
        host, port = address.split(":")
        async with RawPeer(host, int(port)) as peer:
            return await what(peer)

    return asyncio.run(main())


def send(topic: str = "T", body: bytes = b"x", *, props: str = "", oneway: bool = False, queue: int = 0) -> Command:
    """A plain send (code 310)."""
    ext = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1", "h": "0"}
    ext |= {"i": props, "j": "0", "k": "false", "m": "false"}
    command = Command(310, ext=dict(ext), body=body)
    return command.mark_oneway() if oneway else command


def pull(group: str = "G", topic: str = "T", offset: int = 0, *, hold_ms: int = 0, queue: int = 0) -> Command:
    """A pull (code 11) that brings its subscription along."""
    ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "queueOffset": str(offset)}
    ext |= {"maxMsgNums": "32", "sysFlag": "6" if hold_ms else "4", "commitOffset": "0"}
    ext |= {"suspendTimeoutMillis": str(hold_ms), "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    return Command(11, ext=dict(ext))


def subscribe(group: str = "G", topic: str = "T", *, model: str = "CLUSTERING", client: str = "c") -> Command:
    """A heartbeat (code 34) of one consumer."""
    subscription = {
        "topic": topic,
        "subString": "*",
        "subVersion": 1,
        "expressionType": "TAG",
        "classFilterMode": False,
    }
    consumer = {
        "groupName": group,
        "messageModel": model,
        "consumeType": "CONSUME_PASSIVELY",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{**subscription, "tagsSet": [], "codeSet": []}],
        "unitMode": False,
    }
    body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "P"}]}
    return Command(34, body=json.dumps(body).encode())
