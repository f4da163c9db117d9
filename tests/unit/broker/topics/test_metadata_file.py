"""Metadata files: whatever is on disk, the newest good content is used, and nothing good is replaced in silence."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from rmq.broker.topics.metadata import MetadataFile
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

T = TypeVar("T")

PATH = "/store/config/topics.json"


def disk_with(**contents: bytes) -> SimDisk:
    disk = SimDisk()
    files = SimFiles(disk)
    files.mkdir("/store/config")
    for name, content in contents.items():
        files.write_atomic(PATH if name == "main" else f"{PATH}.bak", content)
    return disk


def made(disk: SimDisk) -> MetadataFile:
    return MetadataFile(replace(World.real(), files=SimFiles(disk)), PATH, lambda: b"new")


def parse_into(found: list[bytes]) -> Callable[[bytes], None]:
    def parse(data: bytes) -> None:
        if data.startswith(b"bad"):
            raise ValueError("it is bad")
        found.append(data)

    return parse


@pytest.mark.parametrize(
    ("contents", "wanted", "warned"),
    [
        ({"main": b"one", "backup": b"zero"}, b"one", ""),
        ({"main": b"", "backup": b"zero"}, b"zero", "cannot be used (no content): the backup"),
        ({"backup": b"zero"}, b"zero", "cannot be used (no content): the backup"),
        ({"main": b"bad", "backup": b"zero"}, b"zero", "cannot be used (it is bad): the backup"),
        ({}, None, ""),
    ],
)
def test_what_is_read(
    contents: dict[str, bytes], wanted: bytes | None, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[bytes] = []
    assert made(disk_with(**contents)).load(parse_into(found)) == (wanted is not None)
    assert found == ([] if wanted is None else [wanted])
    assert warned in caplog.text
    assert bool(caplog.text) == bool(warned)


def test_nothing_good_is_one_error_that_names_both(caplog: pytest.LogCaptureFixture) -> None:
    both = rf"{PATH}: neither the file nor its .bak can be read \(it is bad; .*\.bak: it is bad\)"
    with pytest.raises(StoreError, match=both):
        made(disk_with(main=b"bad", backup=b"bad too")).load(parse_into([]))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ({"main": b""}, "no content"),
        ({"main": b" \n", "backup": b""}, r"no content; .*\.bak: no content"),
        ({"main": b"bad", "backup": b""}, r"it is bad; .*\.bak: no content"),
        ({"backup": b""}, r".*\.bak: no content"),
    ],
)
def test_an_empty_file_is_no_fresh_start(contents: dict[str, bytes], told: str) -> None:
    with pytest.raises(StoreError, match=rf"{PATH}: .*\({told}\); .*remove both to start without"):
        made(disk_with(**contents)).load(parse_into([]))


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EISDIR])
@pytest.mark.parametrize("action", ["open", "pread"])
def test_a_file_that_is_bad_itself_gives_way_to_its_backup(action: str, number: int) -> None:
    disk = disk_with(main=b"one", backup=b"zero")
    disk.fail(action, number, PATH)
    found: list[bytes] = []
    assert made(disk).load(parse_into(found))
    assert found == [b"zero"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EMFILE, errno.ENFILE])
def test_an_older_backup_never_stands_for_a_file_that_may_not_be_read(number: int) -> None:
    disk = disk_with(main=b"one", backup=b"zero")
    disk.fail("open", number, PATH)
    disk.fail("pread", number, PATH)
    with pytest.raises(StoreError, match=f"{PATH}: .*: "):
        made(disk).load(parse_into([]))


def test_a_directory_that_cannot_be_written_is_told_at_start() -> None:
    disk = disk_with(main=b"one")
    file = made(disk)
    file.check()
    assert SimFiles(disk).list("/store/config") == ["topics.json"]
    disk.fail("open", errno.EACCES, f"{PATH}.tmp", count=-1)
    with pytest.raises(StoreError, match=f"{PATH}.tmp: Permission denied: let the user"):
        file.check()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_the_old_or_the_new(seed: int) -> None:
    async def main() -> None:
        simulation = Simulation(seed)
        node = simulation.node("a", fsync_seconds=0.0)
        node.files.mkdir("/store/config")
        node.files.sync_dir("/")
        node.files.sync_dir("/store")
        texts = [b"one" * 100, b"two" * 100, b"three" * 100]
        left = iter(texts)
        file = MetadataFile(node.world, PATH, lambda: next(left))
        for _ in texts:
            file.changed()
            await file.flush()
        world = simulation.power_cut(node)
        found: list[bytes] = []
        again = MetadataFile(world, PATH, lambda: b"")
        assert again.load(parse_into(found))
        assert found == [texts[-1]], "what flush() has waited for is on disk"
        assert world.files.read(f"{PATH}.bak") in texts

    run(main())


def test_what_was_asked_for_before_the_broker_ran_is_written_for_who_waits() -> None:
    simulation = Simulation(1)
    node = simulation.node("a")
    node.files.mkdir("/store/config")
    file = MetadataFile(node.world, PATH, lambda: b"new")
    file.changed()  # no loop runs: nothing writes it

    async def main() -> None:
        async with asyncio.timeout(10):
            await file.saved()
        assert node.files.read(PATH) == b"new"

    run(main())


class Watched:
    """Offload that notes how many calls run at a time."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(1)
            return what(*args)
        finally:
            self.running -= 1


def test_a_write_that_is_tried_again_is_the_only_one() -> None:
    """After a failed write a flush and a change came together: two wrote the same temporary file."""

    async def main() -> None:
        disk = disk_with(main=b"one")
        watched = Watched()
        texts = [b"two"]
        world = replace(World.real(), files=SimFiles(disk), offload=watched)
        file = MetadataFile(world, PATH, lambda: texts[-1])
        disk.fail("open", errno.ENOSPC, f"{PATH}.tmp")
        file.changed()
        await file.flush()
        await file.flush()
        assert SimFiles(disk).read(PATH) == b"two"
        disk.fail("open", errno.ENOSPC, f"{PATH}.tmp")
        file.changed()
        await file.saved()
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        texts.append(b"three")
        file.changed()
        await flushing
        await file.close()
        assert watched.most == 1
        assert SimFiles(disk).read(PATH) == b"three"
        file.changed()
        await file.saved()
        await file.flush()
        assert SimFiles(disk).read(PATH) == b"three", "closed: nothing is written any more, and nobody waits for it"

    run(main())


def test_a_content_that_cannot_be_rendered_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        disk = disk_with(main=b"one")
        texts: list[str] = ["\ud800"]
        file = MetadataFile(replace(World.real(), files=SimFiles(disk)), PATH, lambda: texts[-1].encode())
        file.changed()
        await file.saved()
        assert SimFiles(disk).read(PATH) == b"one"
        assert "writing topics.json fails: 'utf-8' codec" in caplog.text
        texts.append("two")
        await file.close()
        assert SimFiles(disk).read(PATH) == b"two"

    run(main())


def test_a_change_during_a_write_that_fails_is_written_for_who_waits() -> None:
    async def main() -> None:
        disk = disk_with(main=b"one")
        texts = [b"two"]
        world = replace(World.real(), files=SimFiles(disk), offload=Watched())
        file = MetadataFile(world, PATH, lambda: texts[-1])
        disk.fail("open", errno.ENOSPC, f"{PATH}.tmp")
        file.changed()
        await asyncio.sleep(0.5)
        assert file.writing
        texts.append(b"three")
        file.changed()
        async with asyncio.timeout(60):
            await file.saved()
        assert SimFiles(disk).read(PATH) == b"three"
        await file.close()

    run(main())


def test_what_goes_before_a_write_is_done_before_it_and_who_asked_is_told_after_it() -> None:
    async def main() -> None:
        disk = disk_with(main=b"one")
        file = made(disk)
        seen: list[tuple[str, bytes]] = []

        async def before() -> None:
            seen.append(("before", SimFiles(disk).read(PATH)))

        file.before_write = before
        file.on_settled = lambda: seen.append(("settled", SimFiles(disk).read(PATH)))
        file.changed()
        await file.saved()
        assert seen == [("before", b"one"), ("settled", b"new")]
        await file.close()

    asyncio.run(main())
