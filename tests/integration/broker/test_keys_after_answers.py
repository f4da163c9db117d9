"""Keys go into the index when the tick's answers are written, and nobody can tell."""

from __future__ import annotations

import pytest

from rmq.broker.store.index.fresh import FreshKeys
from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.testing.simworld import Simulation
from tests.support.odd.campaign import Campaign, Line
from tests.support.raw_peer import send
from tests.support.virtual import in_virtual_time


def query(key: str, *, opaque: int) -> Command:
    ext = {"topic": "T", "key": key, "maxNum": "8", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
    return Command(12, ext=dict(ext), opaque=opaque)


def keyed(key: str, *, opaque: int) -> Command:
    command = send(props=f"KEYS\x01{key}\x02")
    command.opaque = opaque
    return command


async def ask(line: Line, *commands: Command) -> list[Command]:
    """Requests that arrive together."""
    line.transport.write(b"".join(map(frame.encode, commands)))
    answers = [await line.answer(command.opaque, 5.0) for command in commands]
    assert None not in answers
    return [answer for answer in answers if answer is not None]


@in_virtual_time
async def test_a_query_of_the_same_tick_finds_what_was_sent_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[int] = []
    real = FreshKeys.put

    def watched(self: FreshKeys) -> None:
        waiting.append(len(self))
        real(self)

    monkeypatch.setattr(FreshKeys, "put", watched)
    async with Campaign(Simulation(1).node("one"), {}) as made:
        line = await made.line(made.broker)
        await ask(line, keyed("first", opaque=1))
        waiting.clear()
        sent, found = await ask(line, keyed("k", opaque=2), query("k", opaque=3))
        assert (sent.code, found.code) == (0, 0)
        assert found.body.count(b"KEYS\x01k") == 1
        assert waiting[0] == 1  # they had waited for the answer


@in_virtual_time
async def test_keys_are_there_at_the_end_of_their_tick() -> None:
    async with Campaign(Simulation(1).node("one"), {}) as made:
        line = await made.line(made.broker)
        await ask(line, keyed("first", opaque=1))
        store = made._cluster.brokers[0].store
        assert store.index is not None
        for number in range(2, 5):
            start = store.log.end
            await ask(line, keyed(f"k{number}", opaque=number))
            assert (len(store.indexing.fresh), store.index.end[1]) == (0, start)
