"""Scenes about damage that comes while a broker runs, for the tests and for the table of planted bugs."""

from __future__ import annotations

import asyncio
import struct

from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.boot import spoil, written
from tests.support.scenes.faulty import in_time
from tests.support.scenes.store import body_of, die, opened, small

__all__ = ["PASS", "SETTINGS", "damage_is_found_while_running", "damaged_later", "served"]

#: One pass after the other.
SETTINGS = small(queue_file_size=20_000, index_enable=False, scrub_interval_hours=0)
#: Seconds in which a pass comes by.
PASS = 30.0


async def served(store: Store, queue: Queue) -> dict[int, bytes]:
    """What a pull of everything gives: entries as they are, and the bytes they point to."""
    found: dict[int, bytes] = {}
    data = b""
    while (index := queue.min + len(data) // 20) < queue.visible:
        data += await store.queues.entries_cold(queue, index, queue.visible - index)
    for number, (offset, size, _) in enumerate(struct.iter_unpack(">qiq", data)):
        if size != 0x7FFFFFFF:
            found[queue.min + number] = body_of(await store.log.read_cold(offset, size))
    return found


async def damaged_later(at: int, *, files: int = 5) -> tuple[Simulation, SimNode, Store, list[bytes], int]:
    """A running store in which a bit flips; where."""
    simulation = Simulation(41)
    machine = simulation.node("a")
    store, sent = await written(machine, files, scrub_interval_hours=0)
    return simulation, machine, store, sent, spoil(machine, at)


def damage_is_found_while_running() -> None:
    """I11: it is told, no consumer gets it from then on, and every other message stays where it was."""

    async def main() -> None:
        simulation, machine, store, sent, offset = await damaged_later(20_000)
        await asyncio.sleep(PASS)
        assert [part.start for part in store.damaged.parts] == [offset], "I11: damage was not found"
        queue = store.queues.get("T", 0)
        assert queue is not None
        expected = dict(enumerate(sent))
        given = await served(store, queue)
        lost = expected.keys() - given.keys()
        assert all(expected[index] == body for index, body in given.items()), "I11: a damaged body was served"
        assert len(lost) == 1, f"I11: one damaged record cost {len(lost)}"
        # And it stays so, without the whole log being read at every start.
        for _ in range(2):
            simulation.kill(machine)
            await die(store)
            store = await opened(machine.world, SETTINGS)
            assert store.recovered.checked_from > offset + 20_000, "I10: known damage has the log read again"
            found = store.queues.get("T", 0)
            assert found is not None
            assert await served(store, found) == given
        await store.stop()

    in_time(main())
