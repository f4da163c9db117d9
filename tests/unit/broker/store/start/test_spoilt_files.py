"""Files made of the commit log that cannot be opened or read: each costs itself, is told once, and made anew."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import QUEUE_SIZE, bodies, die, opened, put, small

COUNT = 130
NAMES = ("A", "B")
BAD = [("open", errno.EUCLEAN), ("open, unlink", errno.EIO), ("pread", errno.EBADMSG)]
SECOND = f"{QUEUE_SIZE:020d}"
SETTINGS = small(ext_enable=True, ext_file_size=4096)


def errors(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in found if path in text]


def append(store: Store, number: int) -> None:
    for name in NAMES:
        store.append([put(store.queues.get_or_create(name, 0), b"%d" % number, key=f"k{number}", tag="t")])


async def written(*, clean: bool, ext: bool = False) -> tuple[Simulation, SimNode]:
    simulation = Simulation(3)
    node = simulation.node("a")
    store = await opened(node.world, SETTINGS if ext else small())
    for number in range(COUNT):
        append(store, number)
    if clean:
        await store.stop()
    else:
        await store.flusher.flush_all()
        await store.force()
        simulation.kill(node)
        await die(store)
    return simulation, node


async def whole(store: Store, count: int) -> None:
    """Every message is in its queue at its offset, and found by its key."""
    for name in NAMES:
        assert await bodies(store, store.queues.get_or_create(name, 0)) == [b"%d" % number for number in range(count)]
    for number in (0, count // 2, count - 1):
        assert len((await store.query_message("B", f"k{number}", 10, 0, 1 << 62)).records) == 1


async def goes_on(node: SimNode, *, ext: bool = False) -> None:
    """A start over what is bad, messages, a stop, and a start of what that left."""
    settings = SETTINGS if ext else small()
    store = await opened(node.world, settings)
    await whole(store, COUNT)
    append(store, COUNT)
    await asyncio.sleep(70)
    assert not store.log.gate
    await store.stop()
    store = await opened(node.world, settings)
    assert store.recovered.clean
    await whole(store, COUNT + 1)
    await store.stop()


def replace_by_a_folder(node: SimNode, path: str) -> None:
    if node.files.exists(path):
        node.files.unlink(path)
    node.files.mkdir(f"{path}/somebody's")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("action", "number"), BAD)
@pytest.mark.parametrize("path", [f"consumequeue/B/0/{0:020d}", f"consumequeue/B/0/{SECOND}", "index/*", "checkpoint"])
def test_a_file_that_cannot_be_read_costs_itself(
    clean: bool, action: str, number: int, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        _, node = await written(clean=clean)
        node.disk.fail(action.partition(",")[0], number, f"/store/{path}")
        if "," in action:
            node.disk.fail("unlink", number, f"/store/{path}")
        caplog.clear()
        store = await opened(node.world, small())
        told = errors(caplog, path.partition("*")[0])
        assert len([text for text in told if text.count("check that disk")]) == 1
        await whole(store, COUNT)
        await store.stop()
        node.disk.heal()
        await goes_on(node)

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("path", [f"consumequeue/B/0/{0:020d}", f"consumequeue/B/0/{SECOND}", "index", "checkpoint"])
def test_a_folder_in_place_of_a_file_is_moved_aside(clean: bool, path: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        _, node = await written(clean=clean)
        if path == "index":
            name = node.files.list("/store/index")[-2]
            replace_by_a_folder(node, f"/store/index/{name}")
        else:
            name = path.rpartition("/")[2]
            replace_by_a_folder(node, f"/store/{path}")
        await goes_on(node)
        assert node.files.list("/store/aside") == [f"0-{name}"]
        assert node.files.list(f"/store/aside/0-{name}") == ["somebody's"], "nobody's things are deleted"
        assert len([text for text in errors(caplog, name) if "it is /store/aside/0-" in text]) == 1

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("what", ["open", "pread", "folder"])
def test_units_that_cannot_be_read_cost_themselves(clean: bool, what: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        _, node = await written(clean=clean, ext=True)
        folder = "/store/consumequeue_ext/B/0"
        newest = f"{folder}/{node.files.list(folder)[-1]}"
        if what == "folder":
            replace_by_a_folder(node, newest)
        else:
            node.disk.fail(what, errno.EIO, newest)
        caplog.clear()
        await goes_on(node, ext=True)
        told = [text for text in errors(caplog, newest) if "its queue is made of the commit log again" in text]
        assert len(told) == 1
        assert node.files.exists(f"/store/aside/0-{newest[-20:]}/somebody's") == (what == "folder")

    run(main())


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EROFS])
@pytest.mark.parametrize(
    "path", ["consumequeue/B/0/*", "index/*", "checkpoint", "consumequeue_ext/B/0/*", "deletions.json"]
)
def test_what_whoever_runs_it_can_mend_refuses_the_start(number: int, path: str) -> None:
    async def main() -> None:
        _, node = await written(clean=True, ext=True)
        node.files.write_atomic("/store/deletions.json", b"{}")
        node.disk.fail("open", number, f"/store/{path}", count=-1)
        with pytest.raises(StoreError, match=r"^the store in /store cannot be used: /store/\S*: [A-Z].*: \w+"):
            await opened(node.world, SETTINGS)
        node.disk.heal()
        node.files.unlink("/store/deletions.json")
        await goes_on(node, ext=True)

    run(main())


def test_a_queue_is_made_of_the_log_where_its_folder_had_to_go() -> None:
    """The disk does not even let go of the name."""

    async def main() -> None:
        _, node = await written(clean=True)
        node.disk.fail("open", errno.EUCLEAN, f"/store/consumequeue/B/0/{SECOND}")
        node.disk.fail("unlink", errno.EUCLEAN, f"*/{SECOND}", count=-1)
        for _ in range(2):
            store = await opened(node.world, small())
            await whole(store, COUNT)
            assert QueueDisk(node.files, "/store", QUEUE_SIZE).trash() == ["/store/trash/0-0"]
            await store.stop()
        node.disk.heal()
        await goes_on(node)
        assert node.files.list("/store/trash") == []

    run(main())


@pytest.mark.parametrize("ext", [False, True])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize("path", ["consumequeue/B/0", "consumequeue/B", "consumequeue"])
def test_a_folder_of_queues_that_cannot_be_listed_is_made_of_the_log(
    path: str, lasts: bool, clean: bool, ext: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        _, node = await written(clean=clean, ext=ext)
        node.disk.fail("list", errno.EIO, f"/store/{path}", count=-1 if lasts else 1)
        caplog.clear()
        settings = SETTINGS if ext else small()
        store = await opened(node.world, settings)
        told = f"/store/{path}: Input/output error: check that disk; its queues are made of the commit log again"
        assert caplog.messages.count(told) == 1
        await whole(store, COUNT)
        await store.stop()
        node.disk.heal()
        await goes_on(node, ext=ext)

    run(main())
