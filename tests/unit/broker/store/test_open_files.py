"""A store leaves no file open, wherever the disk fails it and wherever whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import Offload, World
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import opened, put, records, small

_SETTINGS = small(ext_enable=True, ext_file_size=4096)
T = TypeVar("T")


class _Cancelling:
    """Cancels whoever makes call number ``at``, while that runs."""

    def __init__(self, offload: Offload, at: int) -> None:
        self._offload = offload
        self.at = at
        self.calls = 0
        self.cancelled = False

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        self.calls += 1
        if self.calls == self.at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            self.cancelled = True
        return await self._offload(what, *args)


async def _life(world: World) -> None:
    """A start, a few appends over several files, reads, and a stop."""
    store = Store(world, _SETTINGS)
    await store.load()
    try:
        await store.start()
        queue = store.queues.get_or_create("T", 0)
        for number in range(3):
            store.append([put(queue, bytes(5000), key=f"k{number}")])
            await asyncio.sleep(1)
        store.queues.open_files.close_all()
        await records(store, queue)
    finally:
        if isinstance(world.offload, _Cancelling):
            world.offload.at = 0
        await store.stop()


async def _look(world: World) -> None:
    async with StoppedStore(world, _SETTINGS):
        pass


async def _rebuild(world: World) -> None:
    await rebuild(world, _SETTINGS, lambda *_: None)


_LIVES: list[Callable[[World], Awaitable[None]]] = [_life, _look, _rebuild]


async def _used(seed: int) -> tuple[Simulation, SimNode]:
    """A machine with a store that was killed: there is something to open and to recover."""
    simulation = Simulation(seed)
    machine = simulation.node("a")
    store = await opened(machine.world, _SETTINGS)
    queue = store.queues.get_or_create("T", 0)
    for number in range(6):
        store.append([put(queue, bytes(5000), key=f"k{number}")])
    await asyncio.sleep(3)
    simulation.kill(machine)
    await store.tasks.close()
    return simulation, machine


@pytest.mark.parametrize("live", _LIVES)
@pytest.mark.parametrize("action", ["open", "pread", "pwrite", "allocate", "datasync", "sync_dir", "unlink", "mkdir"])
def test_no_failure_of_the_disk_leaves_a_file_open(action: str, live: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        failed, after = True, 0
        while failed:
            _, machine = await _used(after)
            machine.disk.fail(action, errno.EIO, "/store*", after=after)
            with contextlib.suppress(OSError, StoreError):
                await live(machine.world)
            assert machine.files.opened == [], f"the failure of {action} number {after}"
            failed = machine.disk._faults[0].count == 0
            after += 1

    run(main())


@pytest.mark.parametrize("live", _LIVES)
def test_no_cancellation_leaves_a_file_open(live: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        cancelled, at = True, 1
        while cancelled:
            _, machine = await _used(at)
            offload = _Cancelling(machine.world.offload, at)
            task = asyncio.ensure_future(live(dataclasses.replace(machine.world, offload=offload)))
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
            assert machine.files.opened == [], f"cancelled in call {at}"
            cancelled = offload.cancelled
            at += 1

    run(main())
