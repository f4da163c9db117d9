"""Tools for a stopped store over a disk that does not give some places: they go on behind each, and name it."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rmq.broker.store.stopped.dump import index_entries, queue_entries, records
from rmq.broker.store.stopped.findings import Finding
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore, fitted
from rmq.broker.store.stopped.verify import verify
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root as mqadmin
from rmq.runtime.files import RealFile
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.golden_store import INDEX_OPTIONS, unpack
from tests.support.scenes.store import LOG_SIZE, body_of, opened, put, small

PAGE = 4096
COUNT = 400
SETTINGS = small(queue_file_size=20_000, index_slots=100, index_entries=1000, ext_enable=True, ext_file_size=8192)
FIRST = f"{0:020d}"


class Scene:
    """A store that was stopped: every message in one of two queues by turns, each with a key."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        #: Commit-log offset and topic of each message.
        self.sent: list[tuple[int, str]] = []
        self.end = 0

    async def written(self) -> None:
        store = await opened(self.node.world, SETTINGS)
        for number in range(COUNT):
            topic = "AB"[number % 2]
            queue = store.queues.get_or_create(topic, 0)
            span = store.append([put(queue, b"%d" % number, key=f"k{number}", tag="t")])
            self.sent.append((span.start, topic))
        self.end = store.log.end
        await store.stop()

    def spoil(self, start: int, end: int) -> set[int]:
        """The pages from one offset of the log to another cannot be read; the offsets of messages in them."""
        start, end = start - start % PAGE, -(-end // PAGE) * PAGE
        file = start - start % LOG_SIZE
        self.node.disk.fail_at(f"*/commitlog/{file:020d}", start - file, end - file)
        size = self.sent[1][0]
        return {offset for offset, _ in self.sent if offset < end and start < offset + size}


def in_scene(main: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene(Simulation(5).node("a"))
        await scene.written()
        await main(scene)

    run(whole())


async def found_in(scene: Scene) -> list[Finding]:
    async with StoppedStore(scene.node.world, SETTINGS) as store:
        return (await verify(store)).findings.damages


PLACES = [(PAGE + 500, PAGE + 501), (0, 1), (LOG_SIZE + 100, LOG_SIZE + 3 * PAGE), (LOG_SIZE - 10, LOG_SIZE - 9)]


@pytest.mark.parametrize(("start", "end"), PLACES)
def test_a_place_of_the_log_is_one_finding_and_the_rest_is_compared(start: int, end: int) -> None:
    async def main(scene: Scene) -> None:
        lost = scene.spoil(start, end)
        assert lost
        async with StoppedStore(scene.node.world, SETTINGS) as store:
            found = await verify(store)
        (one,) = found.findings.damages
        assert (one.part, one.kind, os.path.basename(one.path)) == (
            "commitlog", "unreadable", f"{start - start % LOG_SIZE:020d}",
        )  # fmt: skip
        assert one.start is not None
        assert one.end is not None
        passed = {offset for offset, _ in scene.sent if one.start <= offset < one.end}
        assert passed == lost if end - start < PAGE else passed > lost
        assert found.records == COUNT - len(passed)
        assert found.entries == COUNT

    in_scene(main)


def test_a_place_where_the_log_ends_is_one_finding() -> None:
    async def main(scene: Scene) -> None:
        lost = scene.spoil(scene.end - 100, scene.end)
        one, *others = await found_in(scene)
        assert others == []
        assert (one.part, one.kind, one.start) == ("commitlog", "unreadable", min(lost))

    in_scene(main)


def test_a_file_of_the_log_that_cannot_be_opened_costs_what_is_in_it() -> None:
    async def main(scene: Scene) -> None:
        scene.node.disk.fail("open", errno.EIO, f"*/commitlog/{LOG_SIZE:020d}", count=-1)
        found = await found_in(scene)
        assert {(one.part, one.kind, os.path.basename(one.path)) for one in found} == {
            ("commitlog", "unreadable", f"{LOG_SIZE:020d}")
        }

    in_scene(main)


def _bad_queue_page(node: SimNode) -> None:
    node.disk.fail_at(f"*/consumequeue/A/0/{FIRST}", 0, 10)


def _bad_queue_file(node: SimNode) -> None:
    node.disk.fail("open", errno.EIO, f"*/consumequeue/A/0/{FIRST}", count=-1)


def _bad_topic(node: SimNode) -> None:
    node.disk.fail("list", errno.EIO, "*/consumequeue/A", count=-1)


def _bad_queues(node: SimNode) -> None:
    node.disk.fail("list", errno.EIO, "*/consumequeue", count=-1)


def _bad_unit(node: SimNode) -> None:
    node.disk.fail_at(f"*/consumequeue_ext/A/0/{FIRST}", 0, 10)


def _bad_units(node: SimNode) -> None:
    node.disk.fail("list", errno.EIO, "*/consumequeue_ext/A/0", count=-1)


def _bad_index_head(node: SimNode) -> None:
    node.disk.fail_at("*/index/*", 0, 10)


def _bad_index_entries(node: SimNode) -> None:
    node.disk.fail_at("*/index/*", PAGE, PAGE + 10)


def _bad_index(node: SimNode) -> None:
    node.disk.fail("list", errno.EIO, "*/index", count=-1)


def _bad_checkpoint(node: SimNode) -> None:
    node.disk.fail_at("*/checkpoint", 0, 10)


@pytest.mark.parametrize(
    ("spoil", "part", "path"),
    [
        (_bad_queue_page, "consumequeue", "A/0"),
        (_bad_queue_file, "consumequeue", FIRST),
        (_bad_topic, "consumequeue", "consumequeue/A"),
        (_bad_queues, "consumequeue", "consumequeue"),
        (_bad_unit, "consumequeue_ext", ""),
        (_bad_units, "consumequeue_ext", "A/0"),
        (_bad_index_head, "index", ""),
        (_bad_index_entries, "index", ""),
        (_bad_index, "index", "index"),
        (_bad_checkpoint, "checkpoint", "checkpoint"),
    ],
)
def test_a_place_of_any_other_file_is_found(spoil: Callable[[SimNode], None], part: str, path: str) -> None:
    async def main(scene: Scene) -> None:
        spoil(scene.node)
        found = [one for one in await found_in(scene) if one.kind == "unreadable"]
        assert found
        assert {one.part for one in found} == {part}
        assert any(one.path.endswith(path) for one in found)

    in_scene(main)


def test_an_entry_that_the_disk_does_not_give_is_not_called_missing() -> None:
    async def main(scene: Scene) -> None:
        _bad_queue_page(scene.node)
        (one,) = await found_in(scene)
        assert (one.kind, one.start, one.end) == ("unreadable", 0, -(-PAGE // 20))

    in_scene(main)


def test_a_dump_goes_on_behind_each_place() -> None:
    async def main(scene: Scene) -> None:
        lost = scene.spoil(PAGE + 500, PAGE + 501) | scene.spoil(scene.end - 1, scene.end)
        disk = scene.node.disk
        _bad_queue_page(scene.node)
        _bad_index_entries(scene.node)
        told: list[Finding] = []
        async with StoppedStore(scene.node.world, SETTINGS) as store:
            offsets = [record.physical_offset async for record in records(store, unread=told.append)]
            assert offsets == [offset for offset, _ in scene.sent if offset not in lost]
            assert [(one.part, one.start in lost) for one in told] == [("commitlog", True)] * 2
            told.clear()
            found = [entry.queue_offset async for entry in queue_entries(store, "A", 0, unread=told.append)]
            assert found == []
            assert [(one.part, one.start, one.end) for one in told] == [("consumequeue", 0, PAGE)]
            told.clear()
            keys = [entry.offset async for entry in index_entries(store, unread=told.append)]
            assert 0 < len(keys) < COUNT
            assert [(one.part, one.start, one.end) for one in told] == [("index", PAGE, 2 * PAGE)]
            disk.heal()

    in_scene(main)


@pytest.mark.parametrize(("start", "end"), [*PLACES, (-1, 0)])
def test_a_rebuild_goes_on_and_keeps_what_the_queues_knew(start: int, end: int) -> None:
    """What cannot be read is served when it can, and no offset is given twice."""

    async def main(scene: Scene) -> None:
        at = (start, end) if start >= 0 else (scene.end - 100, scene.end)
        lost = scene.spoil(*at)
        made = await rebuild(scene.node.world, SETTINGS)
        (part,) = made.unread
        passed = {offset for offset, _ in scene.sent if part.start <= offset < part.end}
        assert passed == lost if end - start < PAGE else passed > lost
        assert made.damages == []
        store = await opened(scene.node.world, SETTINGS)
        for topic in "AB":
            queue = store.queues.get_or_create(topic, 0)
            if start:
                assert queue.min == 0
            assert queue.next == COUNT // 2
            scene.node.disk.heal()
            bodies = []
            for index in range(queue.min, queue.next):
                entry = await store.queues.entries_cold(queue, index, 1)
                bodies.append(
                    body_of(await store.log.read_cold(int.from_bytes(entry[:8]), int.from_bytes(entry[8:12])))
                )
            expected = [b"%d" % number for number in range(COUNT) if "AB"[number % 2] == topic]
            assert bodies == expected[queue.min :]
        await store.stop()

    in_scene(main)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return unpack(tmp_path)


def test_the_commands_end_with_1_and_name_the_place(
    golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = RealFile.pread

    def pread(self: RealFile, size: int, offset: int) -> bytes:
        if "/commitlog/00000000000000000000" in self.path and offset < 2 * PAGE and offset + size > PAGE:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return real(self, size, offset)

    monkeypatch.setattr(RealFile, "pread", pread)
    said = {}
    for words in (("verify",), ("verify", "--json"), ("dump", "records"), ("rebuild",)):
        assert invoke(mqadmin, "mqadmin", ["store", *words, "-s", str(golden), *INDEX_OPTIONS]) == 1
        said[words] = capsys.readouterr()
    assert re.search(r"DAMAGED +commitlog +unreadable +\S+/0{20} \d+ to \d+: \d+ bytes", said["verify",].out)
    assert [one["kind"] for one in json.loads(said["verify", "--json"].out)["damages"]] == ["unreadable"]
    dumped = said["dump", "records"]
    assert re.fullmatch(r"UNREAD +commitlog +unreadable +\S+/0{20} \d+ to \d+: \d+ bytes[^\n]+\n", dumped.err)
    assert len(dumped.out.splitlines()) > 300
    assert re.search(
        r"UNREAD +commitlog \d+ to \d+: the disk does not give some of these \d+ bytes", said["rebuild",].out
    )


def test_sizes_are_found_out_though_one_file_does_not_say_its_own() -> None:
    async def main(scene: Scene) -> None:
        scene.node.disk.fail("size", errno.EIO, f"*/{FIRST}", count=-1)
        settings = fitted(scene.node.files, small(), ())
        assert settings.commit_log_file_size == LOG_SIZE

    in_scene(main)
