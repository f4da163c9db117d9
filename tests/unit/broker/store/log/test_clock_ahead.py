"""Store times: a clock that was ahead, by a second, an hour or a year, and what is found by time after it (B142)."""

from __future__ import annotations

import asyncio
import random

import pytest

from rmq.broker.store.log.stamps import AHEAD_MS, MOST_STEPS, Steps, stamped
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.message import decode_record
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import die, opened, put, records, small

SECOND, HOUR, YEAR = 1_000, 3_600_000, 365 * 86_400_000


def machine() -> tuple[Simulation, SimNode]:
    simulation = Simulation(1)
    return simulation, simulation.node("a")


async def times(store: Store, queue: Queue) -> list[int]:
    return [decode_record(record, 0).store_timestamp for record in await records(store, queue)]


async def send(store: Store, count: int, pause: float = 1.0) -> None:
    queue = store.queues.get_or_create("T", 0)
    for _ in range(count):
        store.append([put(queue, b"x" * 50, key=f"k{queue.next}")])
        await asyncio.sleep(pause)


def test_a_clock_that_hesitates_does_not_make_store_times_go_back() -> None:
    """Field case B142."""
    assert [stamped(now, 5_000) for now in (4_000, 5_000, 6_000)] == [5_000, 5_000, 6_000]
    assert stamped(5_000, 5_000 + AHEAD_MS) == 5_000 + AHEAD_MS
    assert stamped(5_000, 5_001 + AHEAD_MS) == 5_000


@pytest.mark.parametrize("ahead", [HOUR, YEAR])
@pytest.mark.parametrize("end", ["none", "stop", "kill"])
def test_store_times_follow_a_clock_back_that_was_far_ahead(
    ahead: int, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And messages are found by their times: those before, those meanwhile, those after, then and days later."""

    async def main() -> None:
        simulation, node = machine()
        store = await opened(node.world, small())
        await send(store, 100)
        node.clock.skew_ms = ahead
        await send(store, 5)
        node.clock.skew_ms = 0
        if end == "stop":
            await store.stop()
            store = await opened(node.world, small())
        elif end == "kill":
            simulation.kill(node)
            await die(store)
            store = await opened(node.world, small())
        back = store.log.end
        now = node.clock.now_ms()
        await send(store, 60)
        assert (
            f"store times were {ahead // 1000 - 1} s ahead of the clock, and follow it back from offset" in caplog.text
        )
        await store.force()
        caplog.clear()
        # Two hours more, so that times pass those of the hour ahead; and another start.
        node.clock.skew_ms = 2 * HOUR
        await send(store, 10)
        await store.stop()
        store = await opened(node.world, small())
        await send(store, 10)
        assert "ahead of the clock" not in caplog.text
        assert store.checkpoint.steps.offsets == [back]
        queue = store.queues.get("T", 0)
        assert queue is not None
        stored = await times(store, queue)
        assert stored[105] == now
        assert stored == [*sorted(stored[:105]), *sorted(stored[105:])]
        for index in [*range(0, 100, 7), *range(100, 105), *range(105, 185, 3)]:
            assert await store.offset_by_time(queue, stored[index]) == index, index
        assert await store.offset_by_time(queue, stored[-1] + HOUR // 3) == 185, "nothing is that young"
        # By key and time, too: the file of the index that the time ahead begins holds nothing of later.
        for index in (150, 184):
            found = (await store.query_message("T", f"k{index}", 8, now, stored[-1] + 1)).records
            assert [decode_record(record, 0).queue_offset for record in found] == [index]
        await store.stop()

    run(main())


def test_the_place_is_kept_though_the_process_dies_a_moment_later() -> None:
    async def main() -> None:
        simulation, node = machine()
        store = await opened(node.world, small())
        await send(store, 20)
        node.clock.skew_ms = YEAR
        await send(store, 5)
        node.clock.skew_ms = 0
        back = store.log.end
        await send(store, 1, pause=0.01)
        world = simulation.kill(node)
        await die(store)
        store = await opened(world, small())
        assert store.checkpoint.steps.offsets == [back]
        await send(store, 20)
        queue = store.queues.get("T", 0)
        assert queue is not None
        stored = await times(store, queue)
        for index in range(46):
            assert await store.offset_by_time(queue, stored[index]) == index, index
        await store.stop()

    run(main())


def test_a_clock_that_was_behind_once_hides_nothing() -> None:
    """A machine that starts in 1970 until it is told the time."""

    async def main() -> None:
        _, node = machine()
        store = await opened(node.world, small())
        await send(store, 20)
        node.clock.skew_ms = -10 * YEAR
        await send(store, 5)
        node.clock.skew_ms = 0
        await send(store, 20)
        queue = store.queues.get("T", 0)
        assert queue is not None
        stored = await times(store, queue)
        assert stored[20] < stored[0]
        for index in range(45):
            assert await store.offset_by_time(queue, stored[index]) == index, index
        await store.stop()

    run(main())


def test_many_steps_are_bounded_and_kept() -> None:
    disk = SimDisk()
    files = SimFiles(disk)
    files.mkdir("/store")
    steps = Steps()
    rng = random.Random(3)
    offsets = sorted(rng.randrange(1 << 50) for _ in range(MOST_STEPS + 10))
    checkpoint = Checkpoint(files, "/store/checkpoint")
    for offset in offsets:
        steps.add(offset)
        checkpoint.went_back(offset, 5_000)
    assert steps.offsets == offsets[10:]
    checkpoint.save()
    again = Checkpoint(files, "/store/checkpoint")
    again.load()
    assert again.steps.offsets == offsets[10:]
    steps.forget(offsets[12], offsets[20])
    assert steps.offsets == offsets[13:20]
    # A log that was cut back, and goes back again before where it did.
    steps.add(offsets[15])
    assert steps.offsets == offsets[13:16]


def test_no_time_of_the_checkpoint_claims_what_is_stored_after_a_step_back() -> None:
    """Java's recovery begins where these times say that everything before is on disk."""
    disk = SimDisk()
    checkpoint = Checkpoint(SimFiles(disk), "/store/checkpoint")
    checkpoint.physic, checkpoint.logics, checkpoint.index = 9_000, 4_000, 9_000
    checkpoint.went_back(77, 5_000)
    assert (checkpoint.physic, checkpoint.logics, checkpoint.index) == (4_999, 4_000, 4_999)
