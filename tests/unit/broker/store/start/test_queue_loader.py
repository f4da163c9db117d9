"""Queues of a store that was stopped, of whatever length, are what they were."""

from __future__ import annotations

import pytest

from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import entries, opened, put, small


# Entries are taken 1,024 at a time: none, one, some before and behind that, and files that end there or elsewhere.
@pytest.mark.parametrize("file_entries", [1024, 1025, 2048, 5000])
@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 2048, 2050, 3000])
def test_a_queue_of_any_length_comes_back(count: int, file_entries: int) -> None:
    async def main() -> None:
        simulation = Simulation(count)
        machine = simulation.node("a")
        settings = small(commit_log_file_size=1 << 20, queue_file_size=20 * file_entries, index_enable=False)
        store = await opened(machine.world, settings)
        queue = store.queues.get_or_create("T", 0)
        for _ in range(0, count, 100):
            store.append([put(queue, b"x")] * min(100, count - queue.next))
        before = await entries(store, queue)
        assert [*before] == [*range(count)]
        end = queue.max_phys
        await store.stop()
        machine.disk.evict("*")
        store = await opened(machine.world, settings, start=False)
        found = store.queues.get("T", 0)
        assert found is not None
        assert (found.min, found.visible, found.next, found.max_phys) == (0, count, count, end)
        assert await entries(store, found) == before
        # What a clean start takes from the files, it does not make of the log again.
        assert store.recovered.dispatched_from == store.log.end
        await store.stop()

    run(main())
