"""Derived files are made anew from the log, byte for byte what they were; killed anywhere, nothing is lost."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import verify
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.files import RealFiles
from rmq.runtime.world import File, World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimCrash, SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.golden_store import golden_settings, state_of, unpack
from tests.support.scenes.store import ENTRIES, LOG_SIZE, QUEUE_SIZE, SLOTS, opened, put, small, snapshot
from tests.support.store_scan import check_store, scan_index

#: What changes the disk; a kill comes before one of these.
STEPS = frozenset({"mkdir", "rename", "unlink", "rmdir", "sync_dir", "write_atomic", "open"})


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def root(unpacked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked, tmp_path / "store"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def index_content(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def _gone(root: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()


def _rubbish(root: Path) -> None:
    for path in [*(root / "consumequeue").rglob("0*"), *(root / "index").iterdir()]:
        if path.is_file():
            path.write_bytes(b"\x5a" * path.stat().st_size)


def _nothing(root: Path) -> None:
    pass


@pytest.mark.parametrize("spoil", [_gone, _rubbish, _nothing])
async def test_the_same_files_come_back(unpacked: Path, root: Path, spoil: Callable[[Path], None]) -> None:
    spoil(root)
    log = content(root / "commitlog")
    made = await rebuild(World.real(), golden_settings(root))
    assert (made.log_start, made.queues, made.entries, made.index_files, made.damages) == (0, 35, 427, 2, [])
    assert content(root / "consumequeue") == content(unpacked / "consumequeue")
    assert index_content(root) == index_content(unpacked)
    assert content(root / "commitlog") == log
    assert names(root) == {"checkpoint", "commitlog", "config", "consumequeue", "index", "lock"}
    async with StoppedStore(World.real(), golden_settings(root)) as store:
        assert (await verify(store)).clean
    checkpoint = Checkpoint(RealFiles(), str(root / "checkpoint"))
    checkpoint.load()
    # Nobody has forced the log to disk here: what the old checkpoint said of it holds, or nothing does.
    assert checkpoint.physic == (0 if spoil is _gone else checkpoint.logics)


async def test_a_store_in_use_is_refused_untouched(root: Path) -> None:
    lock = RealFiles().lock(str(root / "lock"))
    before = state_of(root)
    try:
        with pytest.raises(StoreError, match="another broker uses"):
            await rebuild(World.real(), golden_settings(root))
    finally:
        lock.release()
    assert state_of(root) == before


async def test_without_a_log_nothing_is_replaced(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    queues = content(root / "consumequeue")
    with pytest.raises(StoreError, match="commitlog is not there, and storePathCommitLog names it"):
        await rebuild(World.real(), golden_settings(root))
    assert content(root / "consumequeue") == queues
    assert not (root / "rebuild").exists()


async def test_what_is_no_store_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(StoreError, match=f"{tmp_path} holds no store"):
        await rebuild(World.real(), golden_settings(tmp_path))
    assert names(tmp_path) == {"mine"}


@pytest.mark.parametrize("part", ["consumequeue", "index"])
async def test_a_directory_that_is_a_link_is_refused_untouched(root: Path, tmp_path: Path, part: str) -> None:
    shutil.move(root / part, tmp_path / "elsewhere")
    (root / part).symlink_to(tmp_path / "elsewhere")
    before = state_of(root)
    with pytest.raises(StoreError, match=f"{root}/{part} is a symbolic link"):
        await rebuild(World.real(), golden_settings(root))
    assert state_of(root) == before


async def test_a_file_in_the_place_of_a_directory_is_refused_untouched(root: Path) -> None:
    shutil.rmtree(root / "index")
    (root / "index").touch()
    before = state_of(root)
    with pytest.raises(StoreError, match=f"{root}/index is no directory: move it away"):
        await rebuild(World.real(), golden_settings(root))
    assert state_of(root) == before


async def test_what_cannot_be_moved_away_stays(root: Path) -> None:
    """A mounted file system, say."""

    class Mounted(RealFiles):
        def rename(self, old: str, new: str) -> None:
            raise OSError(errno.EBUSY, "Device or resource busy", old)

    before = set(state_of(root))
    with pytest.raises(OSError, match=rf"busy: '{root}/consumequeue'"):
        await rebuild(replace(World.real(), files=Mounted()), golden_settings(root))
    assert set(state_of(root)) == before


async def test_a_log_that_lacks_its_end_is_refused_and_told(tmp_path: Path) -> None:
    """A disk that is not mounted: what is on it must not get lost by a rebuild."""
    settings = small(str(tmp_path / "store"))
    store = await opened(World.real(), settings)
    for _ in range(40):
        store.append([put(store.queues.get_or_create("T", 0), bytes(1000))])
    await store.stop()
    last = max((tmp_path / "store/commitlog").iterdir())
    last.rename(tmp_path / last.name)
    queues = content(tmp_path / "store/consumequeue")
    with pytest.raises(StoreError, match=r"ends at .*mount what is missing"):
        await rebuild(World.real(), settings)
    assert content(tmp_path / "store/consumequeue") == queues
    async with StoppedStore(World.real(), settings) as stopped:
        damages = (await verify(stopped)).findings.damages
    assert ("commitlog", "missing", int(last.name)) in [(one.part, one.kind, one.start) for one in damages]
    (tmp_path / last.name).rename(last)
    assert (await rebuild(World.real(), settings)).entries == 40


async def test_damage_in_the_log_is_passed_over_and_told(root: Path) -> None:
    with (root / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff")
    made = await rebuild(World.real(), golden_settings(root))
    assert [damage.start for damage in made.damages] == [0]
    assert made.entries == 426


class _Dying:
    """A tree whose process is killed before the step with a number."""

    def __init__(self, files: SimFiles, steps: int) -> None:
        self._files = files
        self.left = steps

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)
        if name not in STEPS:
            return method

        def step(*args: Any, **kwargs: Any) -> File | None:
            if self.left == 0:
                self._files.freeze()
                raise SimCrash("killed")
            self.left -= 1
            result: File | None = method(*args, **kwargs)
            return result

        return step


async def _filled(node: SimNode, *, clean: bool) -> dict[str, Any]:
    store = await opened(node.world, small())
    for number in range(60):  # two files of the index
        queue = store.queues.get_or_create(f"T{number % 3}", number % 2)
        store.append([put(queue, b"body %d" % number, key=f"k{number}", tag="A")])
    seen = await snapshot(store)
    await store.stop()
    if not clean:
        node.disk.open("/store/abort", create=True)
    return seen


# A kill of what had ended without a stop leaves more than a power cut does.
@pytest.mark.parametrize(("power", "clean"), [(False, True), (True, True), (True, False)])
def test_killed_at_any_step(power: bool, clean: bool) -> None:
    """The next start finds everything, whatever the old derived files were and however far the rebuild had come."""
    steps = 0
    ended = False
    while not ended:

        async def main(steps: int = steps) -> bool:
            simulation = Simulation(steps)
            node = simulation.node("a")
            seen = await _filled(node, clean=clean)
            files = _Dying(node.files, steps)
            done = True
            try:
                await rebuild(replace(node.world, files=files), small())  # type: ignore[arg-type]
            except SimCrash:
                done = False
            world = simulation.power_cut(node) if power else simulation.kill(node)
            there = world.files.list("/store")
            if not {"consumequeue", "index"} <= set(there):
                assert "abort" in there, "Java would take it for whole"
            store = Store(world, small())
            await store.load()
            assert await snapshot(store) == seen
            assert len((await store.query_message("T1", "k1", 8, 0, 1 << 62)).records) == 1
            await store.stop()
            return done

        ended = run(main())
        steps += 1
    assert steps > 60


def test_what_was_made_is_on_disk() -> None:
    """Java trusts what it finds: nothing of it may be in the page cache only."""

    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        await _filled(node, clean=True)
        for queue in (0, 1):
            for name in node.files.list(f"/store/consumequeue/T1/{queue}"):
                node.files.unlink(f"/store/consumequeue/T1/{queue}/{name}")
        await rebuild(node.world, small())
        world = simulation.power_cut(node, all_lost=True)
        assert "abort" not in world.files.list("/store")
        check_store(node.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        async with StoppedStore(world, small()) as store:
            assert (await verify(store)).findings.damages == []

    run(main())


def test_a_store_that_ended_without_a_stop_stays_marked() -> None:
    """Its log was not forced to disk: the next start has to look at more of it than after a stop."""

    async def main() -> None:
        node = Simulation(1).node("a")
        await _filled(node, clean=False)
        await rebuild(node.world, small())
        assert "abort" in node.files.list("/store")

    run(main())


def test_the_checkpoint_says_no_more_than_what_a_power_cut_leaves() -> None:
    """Java looks at no message that is older than what it says, and old names may be all that is on disk."""
    before, after = 0, 0
    ended = False
    while not ended:

        async def main(steps: int = before + after) -> tuple[bool, bool]:
            simulation = Simulation(1)
            node = simulation.node("a")
            await _filled(node, clean=False)
            for folder in ("/store/consumequeue/T1/0", "/store/consumequeue/T1/1", "/store/index"):
                for name in node.files.list(folder):
                    node.files.unlink(f"{folder}/{name}")
                node.files.sync_dir(folder)
            checkpoint = node.disk.open("/store/checkpoint")
            checkpoint.pwrite(bytes(24), 0)
            checkpoint.datasync()
            files = _Dying(node.files, steps)
            done = True
            try:
                await rebuild(replace(node.world, files=files), small())  # type: ignore[arg-type]
            except SimCrash:
                done = False
            left = simulation.power_cut(node, all_lost=True).files
            said = any(left.read("/store/checkpoint")[8:16])
            if said:
                check_store(node.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
                keys = [entry for file in scan_index(node.files, "/store", SLOTS, ENTRIES) for entry in file["entries"]]
                assert len(keys) == 60
            return said, done

        said, ended = run(main())
        before, after = before + (not said), after + said
    assert before > 40
    assert after > 10


def test_a_full_disk_leaves_the_store_as_it_was() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        await _filled(node, clean=True)
        disk: SimDisk = node.disk
        before = {path: node.files.read(path) for path, inode in disk._entries.items() if inode is not None}
        disk.fail("pwrite", 28, "/store/rebuild/*", after=3)
        with pytest.raises(OSError, match="No space left"):
            await rebuild(node.world, small())
        after = {path: node.files.read(path) for path, inode in disk._entries.items() if inode is not None}
        assert after == before

    run(main())


def test_messages_that_queues_had_and_the_log_has_not_are_told_and_their_offsets_stay_theirs() -> None:
    async def main() -> None:
        node = Simulation(3).node("a")
        store = await opened(node.world, small())
        queue, other = store.queues.get_or_create("T", 0), store.queues.get_or_create("Last", 0)
        store.append([put(queue, b"message") for _ in range(30)])
        end = store.append([put(queue, b"lost"), put(other, b"lost")]).start
        await store.stop()
        file = node.disk.open(f"/store/commitlog/{0:020d}")
        file.pwrite(bytes(LOG_SIZE - end), end)
        made = await rebuild(node.world, small())
        assert (made.lost, made.damages, made.log_end) == (2, [], end)
        assert (await rebuild(node.world, small())).lost == 0
        store = await opened(node.world, small())
        for topic, count in (("T", 31), ("Last", 1)):
            queue = store.queues.get_or_create(topic, 0)
            assert queue.next == count
            assert store.append([put(queue, b"new")]).offsets[0][0] == count
        await store.stop()

    run(main())


@pytest.mark.parametrize("known", [True, False])
def test_light_queues_come_back_whatever_the_settings_say(known: bool) -> None:
    """Without them the broker would not fill them again."""

    async def main() -> None:
        node = Simulation(1).node("a")
        settings = small(multi_dispatch=True, lmq=True)
        store = await opened(node.world, settings)
        while store.log.end < 2 * LOG_SIZE:
            one = put(store.queues.get_or_create("A", 0), b"x" * 1000)
            store.append([one._replace(properties=b"INNER_MULTI_DISPATCH\x01%LMQ%x,%LMQ%y\x02")])
        await store.stop()
        await rebuild(node.world, settings if known else small())
        store = await opened(node.world, settings)
        places = [await store.queues.entries_cold(queue, 0, 1) for queue in store.queues]
        assert places == [places[0]] * 3
        await store.stop()

    run(main())


async def test_log_files_with_each_others_names_are_told_as_by_a_start(root: Path) -> None:
    first, second = sorted((root / "commitlog").iterdir())
    for old, new in ((first, root / "x"), (second, first), (root / "x", second)):
        old.rename(new)
    before = content(root)
    said = f"{first} holds the messages of {second.name}: files have got other names; rename them"
    async with StoppedStore(World.real(), golden_settings(root)) as store:
        found = (await verify(store)).findings.damages
    assert any(said in f"{one.path} {one.detail}" for one in found if one.kind == "name")
    with pytest.raises(StoreError, match=said):
        await rebuild(World.real(), golden_settings(root))
    assert content(root) == before
