"""The checkpoint's notes: whose they are, and whom they are not believed from."""

import pytest

from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles

PATH = "/store/checkpoint"


def disk() -> SimFiles:
    files = SimFiles(SimDisk())
    files.mkdir("/store")
    return files


@pytest.mark.parametrize("boot", ["b", "7c2a9a9e-94b4-4a0b-9a24-3f6b3a4d1c55", "x" * 50])
def test_what_was_forced_counts_for_its_boot_alone(boot: str) -> None:
    files = disk()
    written = Checkpoint(files, PATH)
    written.physic, written.logics = 2000, 1000
    written.note_forced(boot, 4711, {})
    written.save()

    read = Checkpoint(files, PATH)
    read.load()
    assert (read.physic, read.logics) == (2000, 1000)
    assert read.forced_in(boot) == 4711
    assert read.forced_once == 4711
    for other in ("", "a", "7c2a9a9e-94b4-4a0b-9a24-3f6b3a4d1c56"):
        assert read.forced_in(other) == -1

    read.forget_forced()
    read.save()
    again = Checkpoint(files, PATH)
    again.load()
    assert (again.forced_in(boot), again.forced_once) == (-1, -1)


def test_what_was_saved_outlives_a_power_cut_and_a_note_need_not() -> None:
    files = disk()
    files.sync_dir("/")
    checkpoint = Checkpoint(files, PATH)
    checkpoint.physic = 1000
    checkpoint.save()
    checkpoint.note_forced("b", 4711, {})
    checkpoint.save(force=False)
    files.disk.power_cut()

    read = Checkpoint(files, PATH)
    read.load()
    assert (read.physic, read.forced_once) == (1000, -1)
