"""A Java producer and a Java push consumer, as they come, beside a group of ours whose leader is killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import AdminClient
from rmq.runtime import patience
from tests.support.interop import fresh
from tests.support.peers import Client
from tests.support.raft.processes import ProcessGroup

TOPIC = "Failover"
#: Messages before the kill and after it.
SOME = 100
#: Milliseconds between two looks of a Java client at the route: 30 s unless it is set, and that is how long it may miss
#: a new leader.
POLL = 1000
#: Seconds that a Java consumer may wait for what a dead broker was to answer: 30, which nobody can set, and 3 until it
#: asks again. It notices the end of a connection only when that was reset.
PULL = 33


class Java:
    """Both clients, in one JVM."""

    def __init__(self, client: Client, namesrv: str, poll: int) -> None:
        self._client = client
        self._poll = poll
        self._namesrv = namesrv
        self.handle = fresh("failover")

    async def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.call, op, handle=self.handle, **arguments)

    async def begin(self) -> None:
        await self.call(
            "subscribe", namesrv=self._namesrv, group=fresh("g-failover"), topic=TOPIC, expression="*",
            model="clustering", orderly=False, fail=False, poll=self._poll,
        )  # fmt: skip
        await self.call(
            "sendon", namesrv=self._namesrv, group=fresh("p-failover"), topic=TOPIC, prefix="k", tags=["A"],
            poll=self._poll,
        )  # fmt: skip

    async def more(self) -> None:
        """Wait until some more were acknowledged."""
        wanted = None
        async with patience.timeout(50):
            while True:
                count = len((await self.call("senton"))["acknowledged"])
                wanted = wanted or count + SOME
                if count >= wanted:
                    return
                await asyncio.sleep(0.2)

    async def consumed(self, keys: set[str]) -> list[list[Any]]:
        """What the consumer was given, as soon as all these keys are there, or when it ought to be."""
        until = asyncio.get_running_loop().time() + PULL + 10
        while True:
            rows: list[list[Any]] = (await self.call("received", count=0, timeout=0))["rows"]
            if keys <= {row[0] for row in rows} or asyncio.get_running_loop().time() > until:
                return rows
            await asyncio.sleep(0.2)


@pytest.mark.timeout(240, func_only=True)  # not what the first one resolves and compiles; 45 s when pulls time out
async def test_java_clients_ride_through_a_killed_leader(
    tmp_path: Path, clients: Callable[[str, str], Client], say: Callable[[str], None]
) -> None:
    client = clients("java-4.9.8", "tested")
    async with ProcessGroup(tmp_path) as group, AdminClient(namesrv=group.namesrv) as admin:
        leader = await group.leader()
        await admin.create_and_update_topic(f"127.0.0.1:{group.ports[leader]}", TOPIC)
        java = Java(client, group.namesrv, POLL)
        await java.begin()
        await java.more()
        await group.kill(leader)
        killed = asyncio.get_running_loop().time()
        await group.leader()
        await java.more()
        sent = await java.call("sendoff")
        acknowledged = {key: digest for key, digest, _ in sent["acknowledged"]}
        rows = await java.consumed(set(acknowledged))
        behind = asyncio.get_running_loop().time() - killed
        await java.call("unsubscribe")
    given = {row[0]: row[1] for row in rows}
    assert {key: given.get(key) for key in acknowledged} == acknowledged
    times = [at for _, _, at in sent["acknowledged"]]
    pause = max(later - before for before, later in itertools.pairwise(times)) / 1e9
    say(
        f"{len(acknowledged)} acknowledged and consumed, {len(rows) - len(given)} of them twice or more; nothing was "
        f"acknowledged for {pause:.1f} s, and {len(sent['others'])} sends failed meanwhile; the consumer had all of it "
        f"{behind:.0f} s after the kill"
    )
    assert pause < 20, sent["others"][:3]
