"""Damage that a start meets only when it fills the index: queues filled before it keep no way to it."""

from __future__ import annotations

from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.boot import spoil
from tests.support.scenes.store import opened, put, records, small


def test_queues_that_were_filled_without_checksums_lose_their_entry() -> None:
    async def main() -> None:
        simulation = Simulation(3)
        node = simulation.node("a")
        store = await opened(node.world, small())
        for number in range(200):
            store.append([put(store.queues.get_or_create("T", 0), b"%d" % number * 40, key=f"k{number}")])
        await store.stop()
        offset = spoil(node, 3000)
        for folder in ("consumequeue", "index"):
            store.queues.disk.remove_tree(f"/store/{folder}")
        node.files.unlink("/store/checkpoint")
        store = await opened(simulation.kill(node), small(), start=False)
        assert [damage.start for damage in store.recovered.damages] == [offset]
        assert len(await records(store, store.queues.get_or_create("T", 0))) == 199
        await store.stop()

    run(main())
