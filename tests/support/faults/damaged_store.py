"""A store on a simulated disk with one of every kind of record, to be damaged in many ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.runtime.world import World
from rmq.testing.simfiles import SimFiles
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, die, found_keys, opened, put, small, snapshot
from tests.support.store_scan import Record, scan_log

__all__ = ["Image", "Keys", "filled", "recovered", "taken"]

#: How many messages are found by a key.
Keys = dict[str, int]
_SIX = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")


@dataclass
class Image:
    """A stopped or killed store: its files by path, and what it told when it lived."""

    files: dict[str, bytes]
    told: dict[str, Any]
    keys: Keys
    records: list[Record]

    def paths(self, part: str) -> list[str]:
        return sorted(path for path in self.files if part in path)

    def machine(self, change: Callable[[SimNode], None] | None = None) -> SimNode:
        """A new machine with these files, changed."""
        machine = Simulation(5).node("a")
        for path, data in self.files.items():
            machine.files.mkdir(path.rpartition("/")[0])
            file = machine.disk.open(path, create=True)
            file.allocate(len(data))
            stripped = data.rstrip(b"\0")
            if stripped:
                file.pwrite(stripped, 0)
            file.datasync()
        if change is not None:
            change(machine)
        return machine


def _one_of_each(store: Store, number: int) -> list[Put]:
    def queue(topic: str, index: int = 0) -> Queue:
        return store.queues.get_or_create(topic, index)

    text = b"record %d " % number
    plain = put(queue("T", number % 2), text * 9, key=f"k{number}", tag="TagA")
    six = Put(
        queue("Six"), text, b"KEYS\x01six%d\x02" % number, 7, 0x30, 1, _SIX, _SIX, 2, 0, 0, (b"six%d" % number,)
    )  # fmt: skip
    ended = put(queue("Ended"), text * 3, key=f"end{number}", sys_flag=8)._replace(prepared_offset=77)
    return [plain, six, ended, put(queue("T", 1), b"%d" % number)]


async def filled(*, rounds: int = 60, clean: bool = True) -> Image:
    """Several files of log, queues and index."""
    numbers = iter(range(rounds))
    return await taken(lambda store: store.append(_one_of_each(store, next(numbers))), rounds, clean=clean)


async def taken(append: Callable[[Store], object], rounds: int, *, clean: bool = False) -> Image:
    """The image of a store after ``rounds`` appends."""
    machine = Simulation(4).node("a")
    store = await opened(machine.world, small())
    for _ in range(rounds):
        append(store)
    if clean:
        await store.stop()
        store = await opened(machine.world, small(), start=False)
    else:
        await store.force()
    told = await snapshot(store)
    keys = await _keys(store, rounds)
    if clean:
        await store.stop()
    else:
        machine.files.freeze()
        await die(store)
    files = SimFiles(machine.disk)
    held = {path: files.read(path) for path, inode in machine.disk._entries.items() if inode is not None}
    return Image(held, told, keys, scan_log(files, "/store/commitlog", LOG_SIZE).records)


async def _keys(store: Store, rounds: int) -> Keys:
    found = await found_keys(store, "T", [f"k{n}" for n in range(rounds)])
    return found | await found_keys(store, "Six", [f"six{n}" for n in range(rounds)])


async def recovered(world: World, rounds: int) -> tuple[Store, dict[str, Any], Keys]:
    """Open it; what it tells."""
    store = await opened(world, small(), start=False)
    return store, await snapshot(store), await _keys(store, rounds)
