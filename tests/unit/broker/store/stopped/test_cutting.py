"""A log is cut, or a store emptied, and the process or the power goes in the middle of that: nothing is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped import cutting
from rmq.broker.store.stopped.dump import records
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.runtime.world import World
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.replication import fill, log_bytes
from tests.support.scenes.store import opened, small
from tests.support.virtual import in_virtual_time

BEFORE, COUNT = 40, 60


async def looked_at(world: World, settings: StoreSettings, at: int) -> cutting.Going:
    async with StoppedStore(world, settings) as store:
        return await cutting.what_goes(store, at, lambda *_: None)


async def offsets_in(world: World, settings: StoreSettings) -> list[int]:
    async with StoppedStore(world, settings) as store:
        return [record.physical_offset async for record in records(store)]


async def kept(node: SimNode, settings: StoreSettings) -> set[int]:
    """Offsets of all that was kept."""
    found: set[int] = set()
    for name in node.files.list(settings.root):
        folder = f"{settings.root}/{name}"
        if name.startswith("gone-") and node.files.is_dir(f"{folder}/commitlog"):
            aside = dataclasses.replace(settings, root=folder, commit_log_paths=(f"{folder}/commitlog",))
            found.update(await offsets_in(node.world, aside))
    return found


async def interrupted(doing: Awaitable[object], seconds: float, ends: Callable[[], object]) -> bool:
    """Whether it was done before its process ended."""
    task = asyncio.ensure_future(doing)
    await asyncio.sleep(seconds)
    done = task.done()
    ends()
    mine = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    for one in mine:
        one.cancel()
    await asyncio.gather(task, *mine, return_exceptions=True)
    return done


@pytest.mark.parametrize("power", [False, True])
@in_virtual_time
async def test_a_cut_that_is_interrupted_loses_nothing_and_can_be_asked_for_again(
    power: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for number in itertools.count():
        simulation = Simulation(number)
        node, settings = simulation.node("n"), small()
        store = await opened(node.world, settings)
        fill(store, BEFORE)
        at = store.log.end
        fill(store, COUNT - BEFORE, BEFORE)
        whole = log_bytes(store)
        await store.stop()
        every = await offsets_in(node.world, settings)
        going = await looked_at(node.world, settings, at)
        assert going.records.total() == COUNT - BEFORE
        ends = simulation.power_cut if power else simulation.kill
        done = await interrupted(cutting.cut(node.world, settings, going), number * 0.004, lambda: ends(node))  # noqa: B023
        again = await looked_at(node.world, settings, at)
        if again.end > at:
            await cutting.cut(node.world, settings, again)
        assert set(every) == {*await offsets_in(node.world, settings), *await kept(node, settings)}
        store = await opened(node.world, settings)
        assert log_bytes(store) == whole[:at]
        assert store.dispatcher.position == at
        assert "although the last stop was a clean one" not in caplog.text
        await store.stop()
        if done:
            assert number > 3
            break


@in_virtual_time
async def test_a_store_that_is_emptied_and_interrupted_can_be_emptied_again() -> None:
    for number in itertools.count():
        simulation = Simulation(number)
        node, settings = simulation.node("n"), small()
        store = await opened(node.world, settings)
        fill(store, COUNT)
        await store.stop()
        every = set(await offsets_in(node.world, settings))
        rename, left = node.files.rename, [number]

        def renamed(old: str, new: str) -> None:
            if not left[0]:  # noqa: B023
                raise OSError(5, "planted")
            left[0] -= 1  # noqa: B023
            rename(old, new)  # noqa: B023

        node.files.rename = renamed  # type: ignore[method-assign]
        try:
            await cutting.empty(node.world, settings)
        except OSError:
            done = False
            node.files.rename = rename  # type: ignore[method-assign]
            await asyncio.sleep(1)
            await cutting.empty(node.world, settings)
        else:
            done = True
        assert await kept(node, settings) == every
        store = await opened(node.world, settings)
        assert (store.log.start, store.log.end) == (0, 0)
        await store.stop()
        if done:
            assert number > 1
            break
