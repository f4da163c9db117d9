"""R02: the offsets of a queue are linear, whoever leads: sends and looks at its end are held against its log.

A send takes the next offset, and a look says what the next one is. What two sends got is in the order in which they
were made, where one was answered before the other began; what was refused took none. A look at a leader that is cut off
may be old, by the time in which that notices.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from rmq.aio import MessageQueue, Producer, ResponseError
from rmq.client.message import Message
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.raft.leading import Leading
from rmq.remoting.client import RemotingClient
from tests.support.kills.campaign import amount
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

#: Seconds in which a leader that hears no majority leads no more: it looks once in the time of an election.
NOTICED = 2.0
_QUEUE = MessageQueue("Topic", "group", 0)


class Sent(NamedTuple):
    """One message: ``offset`` is what was answered, -1 = nothing was, -2 = it was refused."""

    begin: float
    end: float
    key: bytes
    offset: int


class Look(NamedTuple):
    """What a leader said of the end."""

    begin: float
    end: float
    value: int


def faults(sent: list[Sent], looks: list[Look], log: list[bytes], old: float = NOTICED) -> list[str]:
    """What is wrong with a history, and the log that it ended with.

    :param old: seconds that a look may be behind.
    """
    at = {key: offset for offset, key in enumerate(log)}
    wrong = [f"{one.key!r} is there twice" for one in sent if log.count(one.key) > 1]
    for one in sent:
        if one.offset == -2 and one.key in at:
            wrong.append(f"{one.key!r} was refused, and is there")
        if one.offset >= 0 and at.get(one.key) != one.offset:
            wrong.append(f"{one.key!r} was said to be at {one.offset}, and is at {at.get(one.key)}")
    acknowledged = [one for one in sent if one.offset >= 0]
    begun = [one for one in sent if one.key in at]
    for one in acknowledged:
        early = [other for other in begun if other.begin > one.end and at[other.key] < one.offset]
        wrong += [f"{other.key!r} began when {one.key!r} was answered, and lies before it" for other in early]
    for look in looks:
        least = max((one.offset + 1 for one in acknowledged if one.end < look.begin - old), default=0)
        most = max((at[one.key] + 1 for one in begun if one.begin < look.end), default=0)
        if not least <= look.value <= most:
            wrong.append(f"at {look.begin:.2f} the end was {look.value}, and not from {least} to {most}")
    return wrong


class Clients:
    """Two that send, to whoever the route names, and one that asks every member that is the master, by its own word."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.sent: list[Sent] = []
        self.looks: list[Look] = []
        self.ended = False
        self._client = RemotingClient(cluster.simulation.node("looker").world)

    async def run(self) -> None:
        async with Producer(
            "linear", namesrv=self.cluster.namesrv_addr, retry_times_when_send_failed=0, send_msg_timeout=2.0
        ) as producer:
            result = await producer.send(Message("Topic", b"first"))
            if result.message_queue == _QUEUE:
                self.sent.append(Sent(0.0, asyncio.get_running_loop().time(), b"first", 0))
            await asyncio.gather(self._send(producer, b"a"), self._send(producer, b"b"), self._look())
        await self._client.close()

    async def _send(self, producer: Producer, name: bytes) -> None:
        loop, number = asyncio.get_running_loop(), 0
        while not self.ended:
            key, begin = b"%s%d" % (name, number), loop.time()
            number += 1
            try:
                result = await producer.send(Message("Topic", key), queue=_QUEUE)
                offset = result.queue_offset if result.send_status.name == "SEND_OK" else -1
            except ResponseError as error:
                offset = -2 if error.code == 14 else -1
            except RMQError:
                offset = -1
            self.sent.append(Sent(begin, loop.time(), key, offset))
            await asyncio.sleep(0.05)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        command = {"topic": "Topic", "queueId": "0"}
        while not self.ended:
            for name in self.cluster.names:
                if name not in self.cluster.members or self.cluster.members[name].roles.role.name != "master":
                    continue
                begin = loop.time()
                try:
                    answer = await self._client.request(
                        f"{self.cluster.addresses[name]}:10911", Command(30, ext=dict(command)), 1.0
                    )
                except RMQError:
                    continue
                if answer.code == 0:
                    self.looks.append(Look(begin, loop.time(), int((answer.ext or {})["offset"] or 0)))
            await asyncio.sleep(0.05)


async def history(seed: int) -> list[str]:
    """Leaders are cut off, alone or with another one, and killed."""
    random = Random(seed)
    async with GroupCluster(seed=seed, size=random.choice((3, 5))) as cluster:
        await cluster.led_by()
        clients = Clients(cluster)
        running = asyncio.create_task(clients.run())
        await eventually(lambda: len(clients.sent) > 2)
        for _ in range(4):
            await asyncio.sleep(random.uniform(0.5, 2))
            leader = await cluster.led_by()
            match random.randrange(4):
                case 0:
                    await cluster.kill(leader)
                    await cluster.led_by()
                    await cluster.begin(leader)
                case 1 if len(cluster.names) == 5:
                    beside = random.choice([name for name in cluster.names if name != leader])
                    for one in (leader, beside):
                        for other in [name for name in cluster.names if name not in (leader, beside)]:
                            cluster.simulation.net.cut(cluster.addresses[one], cluster.addresses[other])
                case _:
                    cluster.isolate(leader)
            await asyncio.sleep(random.uniform(1, 5))
            cluster.simulation.net.heal()
        await cluster.led_by()
        await asyncio.sleep(2)
        clients.ended = True
        await running
        await cluster.alike()
        name = await cluster.led_by()
        log = await cluster.of_queue(name, "Topic", 0)
        assert len(clients.looks) > 100
        assert len(log) > 50
        return faults(clients.sent, clients.looks, log)


@pytest.mark.parametrize("seed", range(amount(3, 300)))
@in_virtual_time
async def test_offsets_of_a_queue_are_linear(seed: int) -> None:
    assert await history(seed) == []


# -- what it finds


def test_the_checker() -> None:
    a, b = Sent(0, 1, b"a", 0), Sent(2, 3, b"b", 1)
    assert faults([a, b], [Look(4, 5, 2)], [b"a", b"b"]) == []
    assert faults([a, b], [], [b"b", b"a"]) != []
    assert faults([a, b], [], [b"a"]) == ["b'b' was said to be at 1, and is at None"]
    assert faults([a, Sent(2, 3, b"b", -2)], [], [b"a", b"b"]) == ["b'b' was refused, and is there"]
    assert faults([a, Sent(2, 3, b"b", -1)], [], [b"b", b"a"]) != []
    assert faults([a, Sent(0.5, 3, b"b", -1)], [], [b"b", b"a"]) == ["b'a' was said to be at 0, and is at 1"]
    assert faults([a, b], [Look(6, 7, 1)], [b"a", b"b"]) == ["at 6.00 the end was 1, and not from 2 to 2"]
    assert faults([a, b], [Look(4, 5, 1)], [b"a", b"b"]) == [], "it is old, but not for long"
    assert faults([a, b], [Look(0, 0.5, 2)], [b"a", b"b"]) == ["at 0.00 the end was 2, and not from 0 to 1"]


def nobody_is_heard(patch: pytest.MonkeyPatch) -> None:
    """A leader leads on without a majority."""
    patch.setattr(Leading, "has_majority", lambda self, now: True)


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_is_heard(monkeypatch)

    @in_virtual_time
    async def life() -> None:
        assert await history(0) == []

    with pytest.raises(AssertionError, match=r"the end was \d+, and not from"):
        life()
