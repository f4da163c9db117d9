"""Who connects to the port of a group's members and is none, or is one that lies."""

from __future__ import annotations

import asyncio
import json
from typing import cast

from rmq.aio import Producer
from rmq.broker.raft.wire import Hello
from rmq.broker.replication.wire import UnitDecoder
from rmq.client.message import Message
from rmq.testing.simworld import SimNode
from tests.support.raft.brokers import GroupCluster

__all__ = ["PORT", "SECRET", "Line", "call", "fill", "said_by", "term"]

PORT = 40911
SECRET = b"not for everybody"


class Line(asyncio.Protocol):
    """One end of a connection that keeps what comes."""

    def __init__(self) -> None:
        self.got = b""
        self.ended = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True

    def say(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    @property
    def refusal(self) -> str:
        """Why it was closed."""
        bodies = [body for _, body in UnitDecoder().units(self.got) if body]
        return b"".join(body[1:] for body in bodies if body[0] == 7).decode()


async def call(node: SimNode, cluster: GroupCluster, to: str, data: bytes = b"") -> Line:
    _, protocol = await node.network.connect(Line, cluster.addresses[to], PORT)
    line = cast(Line, protocol)
    if data:
        line.say(data)
    return line


def said_by(cluster: GroupCluster, one: str, at: str, /, **other: object) -> bytes:
    """What a member says first to another, as somebody says it who has read its disk."""
    files = cluster.simulation.nodes[at].files
    disk = json.loads(files.read("/store/raft/members"))["others"].get(one, "unknown")
    app = cluster.members[at]
    words = {
        "group": "group", "source": one, "to": at, "disk": disk, "members": "n0;n1;n2",
        "file_size": app.store.log.file_size, "broker": "10.9.9.9:10911", "name": "group", **other,
    }  # fmt: skip
    return Hello(**words).encode()  # type: ignore[arg-type]


async def fill(cluster: GroupCluster, count: int = 20) -> None:
    async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
        for number in range(count):
            await producer.send(Message("Topic", b"%s %d" % (SECRET, number)))


def term(cluster: GroupCluster) -> int:
    return max(cluster.driver(name).node.term for name in cluster.members)  # type: ignore[union-attr]
