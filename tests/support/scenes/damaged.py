"""Scenes about damage and metadata, for the tests and for the table of planted bugs."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from rmq.broker.topics.metadata import MetadataFile
from rmq.protocol.errors import StoreError
from rmq.runtime.real import seeded
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.faults.damaged_store import filled, recovered
from tests.support.faults.trace import Trace, traced
from tests.support.scenes.faulty import in_time
from tests.support.scenes.store import LOG_SIZE, opened, records, small

__all__ = [
    "an_emptied_file_is_no_fresh_start",
    "damage_costs_only_itself",
    "metadata_is_old_or_new",
    "missing_index_files_are_noticed",
]


def damage_costs_only_itself() -> None:
    """I11: good records behind a damaged one are kept."""

    async def main() -> None:
        image = await filled(rounds=40, clean=False)
        last_file = image.records[-1].offset - image.records[-1].offset % LOG_SIZE
        victim = next(record for record in image.records if record.offset > last_file)

        def flip(machine: SimNode) -> None:
            file = machine.disk.open(f"/store/commitlog/{victim.offset - victim.offset % LOG_SIZE:020d}")
            file.pwrite(b"\xff\xff", victim.offset % LOG_SIZE + 4)

        store = await opened(image.machine(flip).world, small(), start=False)
        kept = {data for queue in store.queues for data in await records(store, queue)}
        lost = {record.raw for record in image.records} - kept
        assert lost == {victim.raw}, f"I11: one damaged record cost {len(lost)}"
        await store.stop()

    run(main())


def missing_index_files_are_noticed() -> None:
    """I10: keys are found again after an index file was deleted from among the others."""

    async def main() -> None:
        image = await filled(rounds=60)
        first = image.paths("/index/")[0]
        store, _, keys = await recovered(image.machine(lambda machine: machine.files.unlink(first)).world, 60)
        assert keys == image.keys, "I10: messages are not found by key"
        await store.stop()

    run(main())


def an_emptied_file_is_no_fresh_start() -> None:
    """I12 and B005: a first version that was emptied, and that has no backup, is not taken for one that never was."""

    async def main() -> None:
        node = Simulation(13).node("a")
        node.files.mkdir("/store/config")
        node.files.write_atomic("/store/config/topics.json", b"")
        file = MetadataFile(node.world, "/store/config/topics.json", lambda: b"")
        with pytest.raises(StoreError, match="remove both to start without"):
            raise AssertionError(f"I12: load() said {file.load(functools.partial(_keep, []))} of an emptied file")

    run(main())


def _keep(found: list[Any], data: bytes) -> None:
    found.append(json.loads(data))


def metadata_is_old_or_new(name: str = "topics.json", subsets: int = 2) -> None:
    """I12 and I18: versions of several sizes, saved one after the other; B005 and B007."""

    async def main() -> None:
        machine = Simulation(12).node("a")
        trace = Trace()
        version = 0
        path = f"/store/config/{name}"
        # Long, short, long: nothing of an earlier version may remain behind a shorter one.
        texts = [json.dumps({"v": n, "x": "y" * (5000 if n % 2 else 3)}).encode() for n in range(8)]
        file = MetadataFile(traced(machine.world, machine.disk, trace), path, lambda: texts[version])
        saved: list[tuple[int, int]] = [(0, -1)]
        for version in range(len(texts)):
            file.changed()
            await file.flush()
            saved.append((len(trace), version))
        for count in range(len(trace) + 1):
            least = max(v for step, v in saved if step <= count)
            for fate in range(2 + subsets):
                disk = trace.disk_after(count)
                if fate:
                    disk.power_cut(None if fate == 1 else seeded(count * 100 + fate))
                found: list[Any] = []
                world = Simulation(1).node("a").world
                object.__setattr__(world, "files", SimFiles(disk))
                there = MetadataFile(world, path, lambda: b"").load(functools.partial(_keep, found))
                where = f"step {count} {trace.describe(count)}, fate {fate}"
                assert there or least < 0, f"I12: {where}: version {least} was saved and there is nothing"
                if there:
                    assert least <= found[-1]["v"] <= least + 1, f"I18: {where}: {found[-1]['v']} instead of {least}"

    in_time(main())
