"""Files of queues with bytes too many, or with a name at which none begins: each costs itself, told once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rmq.broker.store.queues.files import QueueDisk
from rmq.protocol.errors import StoreError
from rmq.runtime.files import RealFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import QUEUE_SIZE, bodies, die, opened, put, small

NAMES = ("A", "B", "C")
FILES = {"consumequeue": QUEUE_SIZE, "consumequeue_ext": 4096}


@pytest.mark.parametrize("extra", [b"\0", b"x" * 20, b"\0" * 4096])
@pytest.mark.parametrize("folder", FILES)
def test_a_longer_file_is_cut_and_told_once(folder: str, extra: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = f"/store/{folder}/A/0/{0:020d}"

    async def main() -> None:
        node = Simulation(1).node("a")
        settings = small(ext_enable=True, ext_file_size=FILES["consumequeue_ext"])
        store = await opened(node.world, settings)
        for number in range(60):
            store.append([put(store.queues.get_or_create(NAMES[number % 3], 0), b"%d" % number, tag="t")])
        await store.stop()
        node.disk.open(path).pwrite(extra, FILES[folder])
        for told in (1, 0):
            caplog.clear()
            store = await opened(node.world, settings)
            for at, name in enumerate(NAMES):
                expected = [b"%d" % number for number in range(at, 60, 3)]
                assert await bodies(store, store.queues.get_or_create(name, 0)) == expected
            await store.stop()
            assert [path in line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING] == [
                True
            ] * told
            assert node.files.size(path) == FILES[folder]

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("folder", FILES)
def test_a_file_cut_behind_what_is_used_is_told_after_a_clean_stop(
    folder: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"/store/{folder}/A/0/{0:020d}"

    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        settings = small(ext_enable=True, ext_file_size=FILES["consumequeue_ext"])
        store = await opened(node.world, settings)
        store.append([put(store.queues.get_or_create("A", 0), b"x", tag="t")])
        if clean:
            await store.stop()
        else:
            await store.force()
            simulation.kill(node)
            await die(store)
        node.disk.open(path).truncate(FILES[folder] - 100)
        for told in (clean, False):
            caplog.clear()
            store = await opened(node.world, settings)
            assert await bodies(store, store.queues.get_or_create("A", 0)) == [b"x"]
            await store.stop()
            assert any("it was cut" in line.getMessage() for line in caplog.records) is told
            assert node.files.size(path) == FILES[folder]

    run(main())


def test_a_file_that_no_setting_makes_is_damaged_though_there_is_no_other(tmp_path: Path) -> None:
    disk = QueueDisk(RealFiles(), str(tmp_path), 800, mends=True)
    folder = tmp_path / "consumequeue/T/0"
    folder.mkdir(parents=True)
    path = folder / f"{0:020d}"
    path.write_bytes(bytes(801))
    assert disk.other_size() is None
    disk.read_files([(str(folder), 0)])
    assert path.stat().st_size == 800


def test_who_only_reads_changes_nothing(tmp_path: Path) -> None:
    for queue, name, size in ((0, 0, 801), (1, 0, 800), (1, 7, 800)):
        folder = tmp_path / f"consumequeue/T/{queue}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name:020d}").write_bytes(bytes(size))
    before = sorted((str(path), path.stat().st_size) for path in tmp_path.rglob("*"))
    disk = QueueDisk(RealFiles(), str(tmp_path), 800)
    assert disk.list_queues(["T"]) == [("T", 0, [0], []), ("T", 1, [0, 7], [])]
    disk.read_files([(disk.directory("T", 0), 0)])
    assert sorted((str(path), path.stat().st_size) for path in tmp_path.rglob("*")) == before


def test_a_name_at_which_no_file_begins_is_moved_aside_where_the_setting_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "consumequeue/T/0"
    folder.mkdir(parents=True)
    odd = folder / f"{7:020d}"
    odd.write_bytes(b"x" * 820)
    disk = QueueDisk(RealFiles(), str(tmp_path), 800, mends=True)
    with pytest.raises(StoreError, match=rf"{odd}: .*set mappedFileSizeConsumeQueue"):
        disk.list_queues(["T"])
    (folder / f"{800:020d}").write_bytes(bytes(800))
    assert disk.list_queues(["T"]) == [("T", 0, [800], [])]
    assert (tmp_path / "aside" / f"0-{7:020d}").read_bytes() == b"x" * 820
    assert [str(odd) in line.getMessage() for line in caplog.records] == [True]
