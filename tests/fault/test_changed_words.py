"""A group between whose members bits change on their way: nothing is lost, nothing is made up, and nobody stops."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rmq.aio import Message, Producer, SendStatus
from rmq.broker.raft.incoming import Incoming
from rmq.protocol.errors import RMQError
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import in_virtual_time


class BadWires:
    """Between all members: now and then a bit of what comes is another one."""

    def __init__(self, patched: pytest.MonkeyPatch, seed: int) -> None:
        self.changed = 0
        self.share = 0.0
        random, received = Random(seed), Incoming.data_received

        def take(link: Incoming, data: bytes) -> None:
            if random.random() < self.share:
                self.changed += 1
                spoilt = bytearray(data)
                bit = random.randrange(8 * len(data))
                spoilt[bit // 8] ^= 1 << bit % 8
                data = bytes(spoilt)
            received(link, data)

        patched.setattr(Incoming, "data_received", take)


@pytest.mark.parametrize("seed", [1, 2])
@in_virtual_time
async def test_what_members_say_arrives_as_it_was_said_or_not_at_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires = BadWires(monkeypatch, seed)
    async with GroupCluster(seed=seed) as cluster:
        await cluster.led_by()
        watching = asyncio.create_task(cluster.watch())
        sent: list[bytes] = []
        async with Producer("p", namesrv=cluster.namesrv_addr, send_msg_timeout=3.0) as producer:
            wires.share = 0.05
            for number in range(200):
                body = f"{number} ".encode() * 40
                try:
                    result = await producer.send(Message("T", body, keys=f"k{number}"))
                except RMQError:
                    continue
                if result.send_status is SendStatus.SEND_OK:
                    sent.append(body)
            wires.share = 0.0
            assert wires.changed > 10
            await producer.send(Message("T", b"end"))
        await cluster.led_by()
        await cluster.alike()
        watching.cancel()
        for name, app in cluster.members.items():
            assert cluster.driver(name).parted is None
            assert app.store.damaged.parts == []
            assert set(sent) <= set(await cluster.bodies(name, "T"))
        assert len(sent) > 100
