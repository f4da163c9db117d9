"""Sends to a queue that cannot be written: taken up to a bound, then refused for that queue alone, and taken again."""

from __future__ import annotations

import asyncio
import errno

import pytest

from rmq.broker.store.queues import stuck
from rmq.protocol import batch, frame
from rmq.protocol.command import Command
from rmq.testing.simworld import Simulation
from tests.support.odd.campaign import Campaign, Line
from tests.support.raw_peer import pull, send
from tests.support.virtual import in_virtual_time


class Sender:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._opaque = 0

    async def ask(self, command: Command, queue: int = 0) -> Command:
        self._opaque += 1
        command.opaque = self._opaque
        if command.code == 310:
            command.ext = {**command.ext, "e": str(queue)}
        self._line.transport.write(frame.encode(command))
        answer = await self._line.answer(command.opaque, 5.0)
        assert answer is not None
        return answer


def batched() -> Command:
    command = send(body=batch.encode([(0, b"one", {}), (0, b"two", {})]))
    command.ext = {**command.ext, "m": "true"}
    return command


@in_virtual_time
async def test_sends_to_it_alone_are_refused_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "_MOST_WAITING", 100)
    async with Campaign(Simulation(1).node("one"), {}) as made:
        sender = Sender(await made.line(made.broker))
        for queue in range(4):
            assert (await sender.ask(send(), queue)).code == 0
        await asyncio.sleep(2)
        made.node.disk.fail("pwrite", errno.EIO, "*/consumequeue/T/0/*", count=-1)
        for _ in range(5):
            assert (await sender.ask(send())).code == 0
        await asyncio.sleep(120)
        for command in (send(), batched(), send(props="DELAY\x013\x02")):
            refused = await sender.ask(command)
            assert refused.code == 14
            assert refused.remark == (
                "queue 0 of topic[T] takes no messages now: its entries cannot be written (Input/output error); other "
                "queues do"
            )
        assert [(await sender.ask(send(), queue)).code for queue in (1, 2, 3)] == [0, 0, 0]
        assert (await sender.ask(send("Other"))).code == 0
        assert (await sender.ask(pull(offset=1))).code == 0
        made.node.disk.heal()
        await asyncio.sleep(3)
        assert [(await sender.ask(command)).code for command in (send(), batched())] == [0, 0]
