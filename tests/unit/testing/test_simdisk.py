"""The simulated disk keeps POSIX's promises and no others."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.runtime.world import Files
from rmq.testing import simloop
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimCrash, SimFiles
from rmq.testing.siminode import PAGE
from rmq.testing.simworld import Simulation


def made(path: str = "/d/f") -> tuple[SimDisk, SimFiles]:
    """A disk with a forced folder and a forced empty file."""
    disk = SimDisk()
    files = SimFiles(disk)
    files.mkdir("/d")
    files.sync_dir("/")
    files.open(path, create=True).datasync()
    files.sync_dir("/d")
    return disk, files


def test_the_port_is_the_ports() -> None:
    files: Files = SimFiles(SimDisk())
    files.mkdir("a/b")
    file = files.open("a/b/c", create=True)
    file.pwrite(b"hello", 3)
    assert files.read("a/b/c") == b"\0\0\0hello"
    assert file.pread(100, 4) == b"ello"
    assert file.pread(2, 100) == b""
    file.allocate(10_000)
    file.allocate(5)
    assert (file.size(), files.size("/a/b/c")) == (10_000, 10_000)
    assert file.pread(4, 9_998) == b"\0\0"
    file.truncate(4)
    file.allocate(6)
    assert file.pread(10, 0) == b"\0\0\0h\0\0"
    assert files.list("a/b") == ["c"]
    assert files.list("nowhere") == []
    assert (files.is_dir("a"), files.is_dir("a/b/c"), files.exists("a/x")) == (True, False, False)
    files.rename("a/b/c", "a/d")
    file.pwrite(b"!", 0)  # an open file follows its rename
    assert files.read("a/d")[:1] == b"!"
    files.unlink("a/d")
    assert file.pread(1, 0) == b"!"  # and outlives its unlinking
    files.rmdir("a/b")
    assert files.list("a") == []
    for call in (lambda: files.open("a/x"), lambda: files.unlink("a/x"), lambda: files.open("no/x", create=True)):
        with pytest.raises(FileNotFoundError):
            call()


def test_what_was_not_forced_is_lost() -> None:
    disk, files = made()
    file = files.open("/d/f")
    file.pwrite(b"forced", 0)
    file.datasync()
    file.pwrite(b"LOST", 0)
    file.pwrite(b"tail", 100_000)
    disk.power_cut()
    after = SimFiles(disk)
    assert after.read("/d/f") == b"forced"


def test_an_entry_that_was_not_forced_is_lost_whatever_its_file() -> None:
    disk, files = made()
    file = files.open("/d/new", create=True)
    file.pwrite(b"x", 0)
    file.datasync()
    files.rename("/d/f", "/d/g")
    disk.power_cut()
    assert SimFiles(disk).list("/d") == ["f"]


def test_a_forced_rename_and_unlink_last() -> None:
    disk, files = made()
    files.open("/d/other", create=True)
    files.sync_dir("/d")
    files.rename("/d/f", "/d/g")
    files.unlink("/d/other")
    files.sync_dir("/d")
    disk.power_cut()
    assert SimFiles(disk).list("/d") == ["g"]


@pytest.mark.parametrize("seed", range(8))
def test_files_that_have_taken_each_others_names(seed: int) -> None:
    disk, files = made()
    files.open("/d/g", create=True)
    files.sync_dir("/d")
    for source, target in (("f", "h"), ("g", "f"), ("h", "g")):
        files.rename(f"/d/{source}", f"/d/{target}")
    disk.power_cut(random.Random(seed))
    assert set(SimFiles(disk).list("/d")) <= {"f", "g", "h"}


@pytest.mark.parametrize("seed", range(20))
def test_a_rename_happens_or_does_not(seed: int) -> None:
    disk, files = made()
    files.rename("/d/f", "/d/g")
    files.rename("/d/g", "/d/h")
    disk.power_cut(random.Random(seed))
    assert SimFiles(disk).list("/d") in (["f"], ["h"])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("forced", [False, True])
def test_a_directory_takes_its_files_along(seed: int, forced: bool) -> None:
    """``/d`` gives its name to ``/new``: one of them is there, whole."""
    disk, files = made()
    for name in ("/new", "/away"):
        files.mkdir(name)
    files.open("/new/n", create=True)
    files.sync_dir("/new")
    files.sync_dir("/")
    files.rename("/d", "/away/d")
    files.rename("/new", "/d")
    if forced:
        files.sync_dir("/away")
        files.sync_dir("/")
    disk.power_cut(random.Random(seed))
    after = SimFiles(disk)
    found = {name: after.list(name) for name in ("/d", "/new", "/away/d")}
    done = {"/d": ["n"], "/new": [], "/away/d": ["f"]}
    assert found == done or (
        not forced and found in ({"/d": ["f"], "/new": ["n"], "/away/d": []}, {**done, "/d": [], "/new": ["n"]})
    )


@pytest.mark.parametrize("seed", range(20))
def test_pages_are_kept_lost_or_torn_at_sectors(seed: int) -> None:
    disk, files = made()
    file = files.open("/d/f")
    file.pwrite(b"a" * 20 * PAGE, 0)
    file.datasync()
    file.pwrite(b"b" * 20 * PAGE, 0)
    disk.power_cut(random.Random(seed))
    data = SimFiles(disk).read("/d/f")
    assert len(data) == 20 * PAGE
    kinds = {data[at : at + 512] for at in range(0, len(data), 512)}
    assert kinds <= {b"a" * 512, b"b" * 512}
    assert len(kinds) == 2


def test_the_same_seed_tears_alike() -> None:
    def run(seed: int) -> bytes:
        disk, files = made()
        files.open("/d/f").pwrite(bytes(range(256)) * 200, 0)
        disk.power_cut(random.Random(seed))
        return SimFiles(disk).read("/d/f")

    assert run(5) == run(5)
    assert len({run(seed) for seed in range(8)}) > 1


def test_a_kill_keeps_the_page_cache_and_frees_the_locks() -> None:
    disk, files = made()
    files.lock("/d/lock")
    other = SimFiles(disk)
    with pytest.raises(BlockingIOError):
        other.lock("/d/lock")
    file = files.open("/d/f")
    file.pwrite(b"cached", 0)
    files.freeze()
    for call in (lambda: file.pwrite(b"x", 0), lambda: files.open("/d/f"), file.size, lambda: files.list("/d")):
        with pytest.raises(SimCrash):
            call()
    assert other.read("/d/f") == b"cached"
    lock = other.lock("/d/lock")
    lock.release()
    other.lock("/d/lock")


def test_a_torn_write_is_the_end_of_the_process() -> None:
    disk, files = made()
    disk.tear("/d/*", keep=3)
    file = files.open("/d/f")
    with pytest.raises(SimCrash):
        file.pwrite(b"abcdef", 0)
    with pytest.raises(SimCrash):
        file.pread(1, 0)
    assert SimFiles(disk).read("/d/f") == b"abc"


def test_a_failed_fsync_loses_the_pages_and_the_next_one_succeeds() -> None:
    disk, files = made()
    file = files.open("/d/f")
    file.pwrite(b"old", 0)
    file.datasync()
    disk.fail("datasync", errno.EIO, "/d/*")
    file.pwrite(b"new", 0)
    with pytest.raises(OSError, match="Input/output"):
        file.datasync()
    file.datasync()  # succeeds, as on Linux, and forces nothing: the pages count as clean
    assert file.pread(3, 0) == b"new"
    disk.power_cut()
    assert SimFiles(disk).read("/d/f") == b"old"


def test_pages_of_a_failed_fsync_leave_the_cache_or_are_written_again() -> None:
    disk, files = made()
    file = files.open("/d/f")
    disk.fail("datasync", errno.EIO, "/d/*", count=2)
    for _ in range(2):
        file.pwrite(b"new", 0)
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        disk.evict("/d/*")
        assert file.pread(3, 0) == bytes(3)
    file.pwrite(b"new", 0)
    file.datasync()
    disk.power_cut()
    assert SimFiles(disk).read("/d/f") == b"new"


def test_ordered_failures() -> None:
    disk, files = made()
    file = files.open("/d/f")
    disk.fail("pwrite", errno.EIO, "*/f", after=2, count=1)
    for offset in (0, 1):
        file.pwrite(b"x", offset)
    with pytest.raises(OSError, match="Input/output"):
        file.pwrite(b"x", 2)
    file.pwrite(b"x", 3)
    disk.fail("rename", errno.EACCES, count=-1)
    for _ in range(3):
        with pytest.raises(PermissionError):
            files.rename("/d/f", "/d/g")
    disk.heal()
    files.rename("/d/f", "/d/g")


def test_a_full_disk_takes_what_fits() -> None:
    disk, files = made()
    disk.capacity = 3 * PAGE
    file = files.open("/d/f")
    file.allocate(1 << 30)  # sparse: costs nothing
    file.pwrite(b"x" * PAGE, 0)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"y" * 5 * PAGE, PAGE)
    assert file.pread(1, 3 * PAGE - 1) == b"y"
    assert file.pread(1, 3 * PAGE) == b"\0"
    assert files.usage("/").free == 0
    assert files.usage("/").ratio == 1.0
    file.pwrite(b"z", 5)  # a page that is there already
    disk.capacity = 4 * PAGE
    file.pwrite(b"w", 3 * PAGE)


def test_cold_pages_are_refused_until_they_are_read() -> None:
    disk, files = made()
    file = files.open("/d/f")
    file.pwrite(b"x" * 3 * PAGE, 0)
    assert file.pread_hot(10, 0) == b"x" * 10
    disk.evict("/d/*")
    assert file.pread_hot(10, 0) is None
    assert file.pread(10, 0) == b"x" * 10
    assert file.pread_hot(10, 0) == b"x" * 10
    assert file.pread_hot(10, PAGE - 5) is None
    assert file.pread_hot(10, 3 * PAGE) == b""


@pytest.mark.parametrize("stage", ["open", "pwrite", "datasync", "rename", "sync_dir"])
@pytest.mark.parametrize("count", range(4))
def test_an_atomic_write_is_old_or_new_whatever_fails(stage: str, count: int) -> None:
    disk, files = made("/d/topics.json")
    files.write_atomic("/d/topics.json", b"first")
    files.write_atomic("/d/topics.json", b"old", backup=True)
    disk.fail(stage, errno.EIO, "/d*", after=count)
    try:
        files.write_atomic("/d/topics.json", b"new", backup=True)
        finished = True
    except OSError:
        finished = False
    disk.heal()
    disk.power_cut(random.Random(count))
    after = SimFiles(disk)
    content = after.read("/d/topics.json")
    assert content == b"new" if finished else content in (b"old", b"new")
    if after.exists("/d/topics.json.bak"):
        assert after.read("/d/topics.json.bak") in (b"first", b"old")


_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3 * PAGE), st.integers(1, 2 * PAGE), st.integers(1, 255)),
        st.tuples(st.just("truncate"), st.integers(0, 4 * PAGE)),
        st.tuples(st.just("allocate"), st.integers(0, 4 * PAGE)),
        st.tuples(st.just("sync")),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(_ACTIONS)
def test_against_a_plain_model(actions: list[tuple[object, ...]]) -> None:
    disk, files = made()
    file = files.open("/d/f")
    model, forced = bytearray(), b""
    for action in actions:
        match action:
            case ("write", int(at), int(size), int(byte)):
                file.pwrite(bytes([byte]) * size, at)
                model.extend(bytes(max(0, at + size - len(model))))
                model[at : at + size] = bytes([byte]) * size
            case ("truncate", int(size)):
                file.truncate(size)
                model = model[:size] + bytes(max(0, size - len(model)))
            case ("allocate", int(size)):
                file.allocate(size)
                model.extend(bytes(max(0, size - len(model))))
            case _:
                file.datasync()
                forced = bytes(model)
        assert files.read("/d/f") == model
    disk.power_cut()
    assert SimFiles(disk).read("/d/f") == forced


def test_a_machine_survives_its_processes() -> None:
    async def main() -> None:
        simulation = Simulation(seed=3)
        node = simulation.node("broker")
        world = node.world
        world.files.mkdir("/s")
        world.files.sync_dir("/")
        world.files.open("/s/f", create=True).datasync()
        world.files.sync_dir("/s")
        file = world.files.open("/s/f")
        file.pwrite(b"x", 0)
        await world.offload(file.datasync)
        file.pwrite(b"y", 1)
        after_kill = simulation.kill(node)
        assert after_kill.files.read("/s/f") == b"xy"
        with pytest.raises(SimCrash):
            file.pread(1, 0)
        after_cut = simulation.power_cut(node, all_lost=True)
        assert after_cut.files.read("/s/f") == b"x"
        assert node.world is after_cut

    simloop.run(main())


def test_virtual_time_passes_at_once_and_deadlock_is_told() -> None:
    async def main() -> int:
        world = Simulation().node("a").world
        began = world.clock.now_ms()
        await asyncio.sleep(86_400)
        return world.clock.now_ms() - began

    assert simloop.run(main()) == 86_400_000

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(simloop.SimDeadlock, match="every task waits"):
        simloop.run(stuck())


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[tuple[float, str]]:
        async def main() -> list[tuple[float, str]]:
            simulation = Simulation(seed)
            worlds = [simulation.node(name).world for name in "abc"]
            seen: list[tuple[float, str]] = []

            async def work(name: str, number: int) -> None:
                for _ in range(5):
                    await asyncio.sleep(worlds[number].random.random())
                    seen.append((asyncio.get_running_loop().time(), name))

            await asyncio.gather(*(work(name, number) for number, name in enumerate("abc")))
            return seen

        return simloop.run(main())

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_error_nobody_catches_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 / 0)
        await asyncio.sleep(2)

    with pytest.raises(RuntimeError, match="unhandled in the loop"):
        simloop.run(main())
