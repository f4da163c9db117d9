"""Where a start after an unclean stop of another boot begins its check of the commit log."""

import asyncio

from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, bodies, die, opened, put, small

#: So many entries in a file that they are added up by the thousand.
SETTINGS = small(queue_file_size=4000 * 20, index_enable=False)
FILES = 16


async def _killed() -> tuple[SimNode, list[int], list[bytes]]:
    """A store of many files, all on disk, whose process is gone; when each file begins, and what was sent."""
    simulation = Simulation(4)
    machine = simulation.node("a")
    store = await opened(machine.world, SETTINGS)
    queue = store.queues.get_or_create("T", 0)
    begins: list[int] = []
    sent: list[bytes] = []
    while len(store.log.segments) < FILES:
        if len(store.log.segments) > len(begins):
            await asyncio.sleep(5)
            begins.append(store.log.stamp)
        sent.append(b"n%05d" % len(sent) * 12)
        store.append([put(queue, sent[-1])])
    await asyncio.sleep(70)
    simulation.power_cut(machine)
    await die(store)
    return machine, begins, sent


async def _started(machine: SimNode, sent: list[bytes]) -> int:
    store: Store = await opened(machine.world, SETTINGS)
    assert await bodies(store, store.queues.get_or_create("T", 0)) == sent
    checked = store.recovered.checked_from
    await store._give_up()
    return checked


def test_the_newest_three_files_where_queues_have_all_of_the_others() -> None:
    async def main() -> None:
        machine, _, sent = await _killed()
        assert len(sent) > 1024
        assert await _started(machine, sent) == (FILES - 3) * LOG_SIZE

    run(main())


def test_from_before_the_times_of_the_checkpoint_where_those_are_older() -> None:
    async def main() -> None:
        machine, begins, sent = await _killed()
        checkpoint = Checkpoint(machine.files, "/store/checkpoint")
        checkpoint.load()
        # Three seconds are taken off, as by Java: between the first messages of files 5 and 6.
        checkpoint.physic = checkpoint.logics = begins[6] + 3000 + 500
        checkpoint.save()
        assert await _started(machine, sent) == 6 * LOG_SIZE

    run(main())


def test_from_the_first_file_on_where_nothing_is_known_to_be_that_old() -> None:
    async def main() -> None:
        machine, begins, sent = await _killed()
        checkpoint = Checkpoint(machine.files, "/store/checkpoint")
        checkpoint.load()
        checkpoint.physic = checkpoint.logics = begins[0] - 60_000
        checkpoint.save()
        assert await _started(machine, sent) == 0

    run(main())
