"""The tools on a store with consumequeue_ext: units are checked, and made anew or taken away with the queues."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.findings import Finding
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore, fitted
from rmq.broker.store.stopped.verify import verify
from rmq.broker.store.store import Store
from rmq.runtime.world import World
from tests.support.golden_store import state_of
from tests.support.scenes.store import put, small

FIRST = "consumequeue_ext/T/1/00000000000000000000"


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    store = Store(World.real(), settings(tmp_path / "store"))
    store.bit_map = lambda topic, properties: (properties * 20)[:14] if b"Tag9" not in properties else bytes(9000)
    await store.load()
    await store.start()
    for number in range(300):
        queue = store.queues.get_or_create("T", number % 2)
        store.append([put(queue, b"body %d" % number, tag=f"Tag{number % 50}")])
    await store.stop()
    return tmp_path / "store"


def settings(root: Path) -> StoreSettings:
    return small(str(root), ext_enable=True, ext_file_size=16384)


async def damages(root: Path, given: StoreSettings | None = None) -> list[Finding]:
    before = state_of(root)
    async with StoppedStore(World.real(), given or settings(root)) as store:
        found = await verify(store)
    assert state_of(root) == before
    return found.findings.damages


@pytest.mark.parametrize("at", [5, 16], ids=["tags code", "store time"])
async def test_units_are_checked(root: Path, at: int) -> None:
    assert await damages(root) == []
    with (root / FIRST).open("r+b") as file:
        file.seek(34 * 2 + at)
        was = file.read(1)
        file.seek(34 * 2 + at)
        file.write(bytes((was[0] ^ 0xFF,)))
    (one,) = await damages(root)
    assert (one.part, one.kind, one.topic, one.queue_id, one.start, one.end) == (
        "consumequeue_ext", "unit", "T", 1, 2, 3,
    )  # fmt: skip


async def test_lost_units_and_files_of_another_size_are_found(root: Path) -> None:
    found = await damages(root, replace(settings(root), ext_file_size=32768))
    assert ("consumequeue_ext", "size") in {(one.part, one.kind) for one in found}
    (root / FIRST).unlink()
    (one,) = await damages(root)
    assert (one.part, one.kind, one.start) == ("consumequeue_ext", "unit", 0)


async def test_units_are_made_anew_or_go(root: Path) -> None:
    (root / FIRST).unlink()
    await rebuild(World.real(), settings(root))
    assert await damages(root) == []
    assert (root / FIRST).exists()
    await rebuild(World.real(), replace(settings(root), ext_enable=False))
    assert await damages(root) == []
    assert not (root / "consumequeue_ext").exists()


def test_the_size_of_their_files_is_found_out(root: Path) -> None:
    assert fitted(World.real().files, replace(settings(root), ext_file_size=48 << 20), ()).ext_file_size == 16384
