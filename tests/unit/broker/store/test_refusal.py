"""A store that cannot be used is left as it was, and the error says which file it is about and what to do."""

from __future__ import annotations

import errno

import pytest

from rmq.protocol.errors import StoreError
from rmq.testing.simdisk import SimDisk
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import opened, put, small


async def filled() -> SimNode:
    node = Simulation(1).node("a")
    store = await opened(node.world, small())
    for number in range(300):
        store.append([put(store.queues.get_or_create("T", number % 4), b"x" * 100, key=f"k{number}")])
    await store.stop()
    return node


def contents(disk: SimDisk) -> dict[str, bytes | None]:
    return {path: inode and inode.read(inode.size, 0) for path, inode in disk._entries.items()}


ACCESS = "let the user that runs the broker read and write it"
REFUSALS = [
    ("/store/lock", errno.EACCES, ACCESS),
    ("/store/abort", errno.EACCES, ACCESS),
    ("/store/abort", errno.EROFS, "mount that file system writable"),
    ("/store/checkpoint", errno.EPERM, ACCESS),
    (f"/store/commitlog/{4 * 16384:020d}", errno.EACCES, ACCESS),
    ("/store/commitlog/00000000000000000000", errno.EMFILE, "allow more open files"),
    # The file in which the log ends: nothing could be written behind it.
    (f"/store/commitlog/{3 * 16384:020d}", errno.EIO, "check that disk"),
    ("/store/consumequeue/T/1/*", errno.ENFILE, "allow more open files on the machine"),
]


@pytest.mark.parametrize(("path", "number", "remedy"), REFUSALS)
def test_what_cannot_be_opened_is_named_and_nothing_changes(path: str, number: int, remedy: str) -> None:
    async def main() -> None:
        node = await filled()
        before = contents(node.disk)
        assert [f"/store/commitlog/{n * 16384:020d}" in before for n in (3, 4)] == [True, False]
        node.disk.fail("open", number, path, count=-1)
        with pytest.raises(StoreError, match=rf"^the store in /store cannot be used: {path}.*: {remedy}"):
            await opened(node.world, small())
        assert contents(node.disk) == before
        node.disk.heal()
        store = await opened(node.world, small())
        assert store.recovered.clean
        await store.stop()

    run(main())


def test_a_full_disk_serves_what_is_there() -> None:
    async def main() -> None:
        node = await filled()
        node.disk.fail("allocate", errno.ENOSPC, f"/store/commitlog/{4 * 16384:020d}", count=-1)
        store = await opened(node.world, small())
        assert sum(queue.visible for queue in store.queues) == 300
        await store.stop()

    run(main())


def test_queue_files_of_another_size_are_refused_though_each_queue_has_one() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world, small())
        for number in range(8):
            store.append([put(store.queues.get_or_create("T", number % 4), b"x")])
        await store.stop()
        before = contents(node.disk)
        for size in (400, 1600):
            with pytest.raises(StoreError, match=r"/T/0/0{20} has 800 bytes, .* set mappedFileSizeConsumeQueue"):
                await opened(node.world, small(queue_file_size=size))
        assert contents(node.disk) == before
        # One short file is what a crash leaves.
        node.disk.open("/store/consumequeue/T/0/00000000000000000000").truncate(400)
        store = await opened(node.world, small())
        assert sum(queue.visible for queue in store.queues) == 8
        await store.stop()

    run(main())
