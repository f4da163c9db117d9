"""R02, R04 and R09 on real processes: a leader stands still, or is cut off, both ways and one way, clients beside it.

Clients go on at the new leader. Others ask the old one all the time, over connections that they have: what it says is
stored is in the end in everybody's log, and it answers them within the time that is set.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rmq.aio import Producer
from rmq.client.message import Message
from rmq.protocol.errors import RMQError
from rmq.runtime import patience
from tests.support.kills.campaign import amount
from tests.support.raft.processes import NAMES, ProcessGroup
from tests.support.raw_peer import RawPeer, send
from tests.support.virtual import eventually

ROUNDS = amount(1, 25)
#: Milliseconds that a leader waits for a majority before it answers that it has none.
WAIT = 1500


class Clients:
    """Some that follow the route, and one that asks a member whatever the route says."""

    def __init__(self, group: ProcessGroup, producer: Producer) -> None:
        self.group = group
        self.producer = producer
        self.acknowledged: list[bytes] = []
        self.ended = asyncio.Event()
        #: Answers of members that were asked directly, by code.
        self.codes: Counter[int] = Counter()
        self._number = 0

    def body(self) -> bytes:
        self._number += 1
        return b"%d" % self._number

    async def follow(self) -> None:
        while not self.ended.is_set():
            body = self.body()
            try:
                result = await self.producer.send(Message("Topic", body))
            except RMQError:
                await asyncio.sleep(0.05)
                continue
            if result.send_status.name == "SEND_OK":
                self.acknowledged.append(body)

    async def more(self, count: int = 30) -> None:
        wanted = len(self.acknowledged) + count
        await eventually(lambda: len(self.acknowledged) >= wanted, 90)

    async def knock(self, name: str, ended: asyncio.Event) -> None:
        """Ask a member again and again, until that is over; every request is answered."""
        async with RawPeer("127.0.0.1", self.group.ports[name]) as peer:
            asked = []
            while not ended.is_set():
                body = self.body()
                asked.append((body, peer.submit(send("Topic", body))))
                await asyncio.sleep(0.1)
            async with patience.timeout(60):
                for body, answer in asked:
                    code = (await answer).code
                    self.codes[code] += 1
                    if code == 0:
                        self.acknowledged.append(body)

    async def scene(self, leader: str, ways: Iterable[tuple[str, str]], *, stopped: bool = False) -> None:
        """A leader is away in one way; another one leads; it comes back, and follows."""
        group = self.group
        over = asyncio.Event()
        knocking = asyncio.create_task(self.knock(leader, over))
        await asyncio.sleep(0.3)
        lines = [group.lines[way] for way in ways]
        for line in lines:
            line.silence()
        if stopped:
            group.signal(leader, signal.SIGSTOP)
        await group.leader(leader)
        await self.more()
        if stopped:
            group.signal(leader, signal.SIGCONT)
        else:
            # It is reached, leads nothing any more, and says so at once.
            asked = asyncio.get_running_loop().time()
            async with RawPeer("127.0.0.1", group.ports[leader]) as peer, patience.timeout(20):
                assert (await peer.ask(send("Topic", self.body()))).code != 0
            assert asyncio.get_running_loop().time() - asked < 15
        for line in lines:
            line.heal()
        over.set()
        await knocking
        await self.more()


async def test_a_leader_that_is_silent_acknowledges_nothing_that_is_lost(tmp_path: Path) -> None:
    async with (
        ProcessGroup(tmp_path, lines=True, settings={"slaveTimeout": str(WAIT)}) as group,
        Producer("silent_leaders", namesrv=group.namesrv) as producer,
    ):
        clients = Clients(group, producer)
        await group.leader()
        following = asyncio.create_task(clients.follow())
        await clients.more()
        for _ in range(ROUNDS):
            leader = await group.leader()
            await clients.scene(leader, [], stopped=True)
            leader = await group.leader()
            await clients.scene(leader, [way for way in group.lines if leader in way])
            leader = await group.leader()
            await clients.scene(leader, [(one, to) for one, to in group.lines if one == leader])
            leader = await group.leader()
            await clients.scene(leader, [(one, to) for one, to in group.lines if to == leader])
            # A follower that stands still holds nobody up.
            leader = await group.leader()
            follower = next(name for name in NAMES if name != leader)
            group.signal(follower, signal.SIGSTOP)
            await clients.more()
            group.signal(follower, signal.SIGCONT)
        clients.ended.set()
        await following
        await group.alike()
        await group.stop()

    assert clients.codes[14] + clients.codes[12] + clients.codes[10] > 0, clients.codes
    for name, records in group.logs().items():
        lost = set(clients.acknowledged) - {record.body for record in records}
        assert not lost, f"{name} lacks {len(lost)}"
    assert all(len(names) == 1 for names in group.terms().values()), group.terms()
