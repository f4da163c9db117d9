"""A commit log over several directories: where files go, what is read, deleted and refused."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import replace

import pytest

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import Usage
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, die, opened, put, small, snapshot

PATHS = ("/disk1/log", "/disk2/log", "/disk3/log")


def several(**changes: object) -> StoreSettings:
    return small(commit_log_paths=PATHS, delete_when="99", clean_interval_ms=10**9, **changes)


async def filled(node: SimNode, settings: StoreSettings, files: int = 7) -> Store:
    store = await opened(node.world, settings)
    queue = store.queues.get_or_create("T", 0)
    while len(store.log.segments) < files:
        store.append([put(queue, b"%06d" % queue.next * 20, key=f"k{queue.next}")])
        await asyncio.sleep(0)
    await asyncio.sleep(2)
    return store


def where(node: SimNode, *paths: str) -> dict[str, list[int]]:
    return {path: [int(name) // LOG_SIZE for name in node.files.list(path)] for path in paths or PATHS}


@pytest.mark.parametrize("end", ["clean", "killed", "power cut"])
def test_files_take_turns_and_are_found_again(end: str) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await filled(node, several(sync_flush=True))
        seen = await snapshot(store)
        if end == "clean":
            await store.stop()
            assert where(node) == {"/disk1/log": [0, 3, 6], "/disk2/log": [1, 4], "/disk3/log": [2, 5]}
        else:
            world = simulation.kill(node) if end == "killed" else simulation.power_cut(node)
            await die(store)
            node.world = world
        # The order in which they are listed says nothing.
        store = await opened(node.world, replace(several(), commit_log_paths=PATHS[::-1]))
        assert await snapshot(store) == seen
        await store.stop()

    run(main())


def test_full_disks_get_no_new_files_while_there_are_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        used = dict.fromkeys(PATHS, 10)
        monkeypatch.setattr(type(node.files), "usage", lambda self, path: Usage(100, p := used.get(path, 10), 100 - p))
        store = await filled(node, several(), files=2)
        used["/disk1/log"] = 86
        used["/disk3/log"] = 99
        await store.retention.check_disk()
        assert store.log.gate == 0, "one disk with room is enough"
        assert "/disk1/log, /disk3/log: more than 85% of the disk is used" in caplog.text
        queue = store.queues.get_or_create("T", 0)
        while len(store.log.segments) < 7:
            store.append([put(queue, b"%06d" % queue.next * 20)])
            await asyncio.sleep(0)
        placed = where(node)
        # The file made ahead was placed before.
        assert [number for number in placed["/disk1/log"] + placed["/disk3/log"] if number > 2] == []
        used["/disk2/log"] = 90
        await store.retention.check_disk()
        assert [store.log.files.path_for(n * LOG_SIZE).split("/")[1] for n in range(3)] == ["disk1", "disk2", "disk3"]
        assert store.log.gate == 0
        used["/disk2/log"] = 91
        used["/disk1/log"] = 91
        await store.retention.check_disk()
        assert store.log.gate, "no disk has room"
        seen = await snapshot(store)
        await store.stop()
        used.update(dict.fromkeys(PATHS, 10))
        store = await opened(node.world, several())
        assert await snapshot(store) == seen
        await store.stop()

    caplog.set_level(logging.WARNING)
    run(main())


def test_the_oldest_files_go_from_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await filled(node, several())
        monkeypatch.setattr(type(node.files), "usage", lambda self, path: Usage(100, 80, 20))
        for file in store.log.segments[:4]:
            node.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        await store.retention.run()
        assert store.log.start == 4 * LOG_SIZE
        assert {path: numbers[:1] for path, numbers in where(node).items()} == {
            "/disk1/log": [6], "/disk2/log": [4], "/disk3/log": [5],
        }  # fmt: skip
        seen = await snapshot(store)
        await store.stop()
        store = await opened(node.world, several())
        assert await snapshot(store) == seen
        await store.stop()

    run(main())


def test_read_only_directories_are_read_and_never_written() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await filled(node, several())
        seen = await snapshot(store)
        await store.stop()
        before = {
            path: node.files.read(path) for path in ("/disk2/log/" + name for name in node.files.list("/disk2/log"))
        }
        node.disk.recording = True
        store = await opened(node.world, several(read_only_paths=("/disk2/log",)))
        assert await snapshot(store) == seen
        queue = store.queues.get_or_create("T", 0)
        while len(store.log.segments) < 12:
            store.append([put(queue, b"%06d" % queue.next * 20)])
            await asyncio.sleep(0)
        await store.stop()
        assert {path: node.files.read(path) for path in before} == before
        assert where(node, "/disk2/log") == {"/disk2/log": [1, 4]}
        wrote = {"pwrite", "allocate", "truncate", "unlink", "rename", "mkdir"}
        assert [step for step in node.disk.journal if step[0] in wrote and step[1].startswith("/disk2/")] == []

    run(main())


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_the_log_goes_on_in_its_newest_file_wherever_it_is(end: str) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await filled(node, several(), files=5)
        seen = await snapshot(store)
        assert store.log.segments[-1].path.startswith("/disk2/")
        if end == "clean":
            await store.stop()
        else:
            # The file made ahead of need is left, too.
            node.world = simulation.kill(node)
            await die(store)
        closed = several(read_only_paths=("/disk2/log", "/disk3/log"))
        store = await opened(node.world, closed)
        assert await snapshot(store) == seen
        queue = store.queues.get_or_create("T", 0)
        while len(store.log.segments) < 9:
            store.append([put(queue, b"%06d" % queue.next * 20)])
            await asyncio.sleep(0)
        seen = await snapshot(store)
        await store.stop()
        # A recovery has removed the file that was made ahead.
        assert where(node, "/disk2/log", "/disk3/log") == {"/disk2/log": [1, 4], "/disk3/log": [2]}
        node.disk.fail("open", errno.EROFS, "/disk2/log/*")
        store = await opened(node.world, closed)
        assert await snapshot(store) == seen
        await store.stop()

    run(main())


def test_a_newest_file_that_cannot_be_written_is_named() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await filled(node, several(), files=5)
        await store.stop()
        node.disk.fail("open", errno.EROFS, "/disk2/log/*", after=2)
        with pytest.raises(StoreError, match=r"^/disk2/log/0+65536: the commit log goes on in this file, and .*move"):
            await opened(node.world, several(read_only_paths=("/disk2/log",)))

    run(main())


def test_a_directory_that_is_not_there_is_named() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await filled(node, several())
        await store.stop()
        node.files.rename("/disk2", "/unmounted")
        with pytest.raises(
            StoreError, match=r"^/disk2/log is not there, and storePathCommitLog names it: mount its disk"
        ):
            await opened(node.world, several())
        # A mount point without its disk is an empty directory.
        node.files.mkdir("/disk2/log")
        with pytest.raises(StoreError, match="a commit-log file is missing before it"):
            await opened(node.world, several())
        node.files.rmdir("/disk2/log")
        node.files.rmdir("/disk2")
        node.files.rename("/unmounted", "/disk2")
        with pytest.raises(StoreError, match=r"^/old is not there, and readOnlyCommitLogStorePaths names it"):
            await opened(node.world, several(read_only_paths=("/old",)))
        store = await opened(node.world, several())
        await store.stop()

    run(main())


def test_a_young_store_has_all_its_directories() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await filled(node, several(sync_flush=True), files=1)
        seen = await snapshot(store)
        world = simulation.power_cut(node, all_lost=True)
        await die(store)
        store = await opened(world, several())
        assert await snapshot(store) == seen
        await store.stop()

    run(main())


def test_the_newest_files_are_missed_after_a_clean_stop() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await filled(node, several(), files=3)
        seen = await snapshot(store)
        await store.stop()
        node.files.rename("/disk3/log", "/unmounted")
        node.files.mkdir("/disk3/log")
        with pytest.raises(StoreError, match=r"ends at 32768, and /store/checkpoint says that it ended at \d+"):
            await opened(node.world, several())
        node.files.rmdir("/disk3/log")
        node.files.rename("/unmounted", "/disk3/log")
        store = await opened(node.world, several())
        assert await snapshot(store) == seen
        await store.stop()

    run(main())


def test_one_file_in_two_directories_is_refused() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await filled(node, several())
        await store.stop()
        node.disk.open(f"/disk2/log/{0:020d}", create=True).allocate(LOG_SIZE)
        with pytest.raises(StoreError, match=r"/disk1/log/0{20} and /disk2/log/0{20} are the same part"):
            await opened(node.world, several())

    run(main())
