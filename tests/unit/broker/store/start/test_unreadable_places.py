"""A start over a commit log that the disk does not give whole: it costs the records in that place, and no more."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, body_of, die, opened, put, small
from tests.support.store_scan import scan_log

PAGE = 4096
FILES = 4
ROUND = (("A", 0), ("A", 1), ("B", 0))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


class Scene:
    """A store with messages in two queues of A and one of B by turns, and one of C in the first pages of each file.

    D begins in the second page of the newest file.

    :param stop: ``clean``, ``killed``, ``killed at once`` or ``power``: how its process ends.
    """

    def __init__(self, stop: str) -> None:
        self.simulation = Simulation(7)
        self.node: SimNode = self.simulation.node("a")
        self.stop = stop
        self.sent: dict[tuple[str, int, int], tuple[int, bytes]] = {}
        self._count = 0

    def append(self, store: Store, topic: str, queue_id: int) -> None:
        queue = store.queues.get_or_create(topic, queue_id)
        body = b"n%05d" % self._count * 12
        self._count += 1
        (index, offset), *_ = store.append([put(queue, body, key=f"k{self._count}")]).offsets
        assert (topic, queue_id, index) not in self.sent, "an offset is used twice"
        self.sent[topic, queue_id, index] = (offset, body)

    async def written(self) -> None:
        store = await opened(self.node.world, small())
        where = -1
        while store.log.end < (FILES - 1) * LOG_SIZE + 3 * PAGE:
            for topic, queue_id in ROUND:
                self.append(store, topic, queue_id)
            page = (store.log.end - 1000) // PAGE
            if page > where:
                where = page
                if page * PAGE % LOG_SIZE < 2 * PAGE:
                    self.append(store, "C", 0)
                if page * PAGE >= (FILES - 1) * LOG_SIZE + PAGE:
                    self.append(store, "D", 0)
                # Of what follows queues know nothing when the process dies at once.
                await store.force()
        await self.end(store)

    async def end(self, store: Store) -> None:
        if self.stop == "clean":
            await store.stop()
            return
        await store.flusher.flush_all()
        if self.stop != "killed at once":
            await store.force()
        if self.stop == "power":
            self.simulation.power_cut(self.node, all_lost=True)
        else:
            self.simulation.kill(self.node)
        await die(store)

    def spoil(self, start: int, end: int) -> set[tuple[str, int, int]]:
        """The pages from one offset of the log to another cannot be read; the messages in them."""
        records = scan_log(self.node.files, "/store/commitlog", LOG_SIZE).records
        behind = {record.offset: record.offset + record.size for record in records}
        start, end = start - start % PAGE, -(-end // PAGE) * PAGE
        file = start - start % LOG_SIZE
        self.node.disk.fail_at(f"*/commitlog/{file:020d}", start - file, end - file)
        return {key for key, (offset, _) in self.sent.items() if offset < end and start < behind[offset]}

    async def served(self, store: Store) -> dict[tuple[str, int, int], bytes]:
        """What pulls give, message by message; nothing of one that cannot be read."""
        found: dict[tuple[str, int, int], bytes] = {}
        for queue in store.queues:
            for index in range(queue.min, queue.visible):
                entry = await store.queues.entries_cold(queue, index, 1)
                offset, size = int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:12], "big")
                if size == 0x7FFFFFFF:
                    continue
                try:
                    found[queue.topic, queue.id, index] = body_of(await store.log.read_cold(offset, size))
                except OSError:
                    continue
        return found

    def key(self, number: int) -> tuple[str, str]:
        """Topic and key of a message, counted from 1."""
        return list(self.sent)[number - 1][0], f"k{number}"

    def without(self, lost: set[tuple[str, int, int]]) -> dict[tuple[str, int, int], bytes]:
        return {key: body for key, (_, body) in self.sent.items() if key not in lost}

    def damaged(self) -> list[list[int]]:
        if not self.node.files.exists("/store/scrub.json"):
            return []
        return list(json.loads(self.node.files.read("/store/scrub.json"))["damaged"])


def in_scene(stop: str, main: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene(stop)
        await scene.written()
        await main(scene)

    run(whole())


STOPS = pytest.mark.parametrize("stop", ["clean", "killed", "killed at once", "power"])


@STOPS
@pytest.mark.parametrize("gone", [(), ("consumequeue",), ("index",), ("checkpoint",)],
                         ids=lambda gone: "+".join(gone) or "nothing")  # fmt: skip
@pytest.mark.parametrize("file", [0, FILES - 1])
def test_a_place_costs_the_records_in_it(
    stop: str, gone: tuple[str, ...], file: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(scene: Scene) -> None:
        node = scene.node
        for name in gone:
            if name == "checkpoint":
                node.files.unlink("/store/checkpoint")
            else:
                QueueDisk(node.files, "/store", QUEUE_SIZE).remove_tree(f"/store/{name}")
        lost = scene.spoil(file * LOG_SIZE + PAGE + 500, file * LOG_SIZE + PAGE + 501)
        assert lost
        assert "C" in {topic for topic, _, _ in lost}
        for life in range(2):
            caplog.clear()
            store = await opened(node.world, small())
            assert await scene.served(store) == scene.without(lost)
            if store.recovered.unreadable:
                assert len(told(caplog)) == 1
                assert f"/store/commitlog/{file * LOG_SIZE:020d} cannot be read at " in told(caplog)[0]
                assert 0 < store.scrub.unreadable_bytes < 2 * PAGE
            else:
                assert file < FILES - 1, "it was checked"
                assert life or gone in ((), ("checkpoint",)), "it was read"
            for topic, queue_id in (*ROUND, ("C", 0)):
                scene.append(store, topic, queue_id)
            for number in (1, len(scene.sent)):
                assert len((await store.query_message(*scene.key(number), 10, 0, 1 << 62)).records) == 1
            assert await scene.served(store) == scene.without(lost)
            await scene.end(store)
            assert scene.damaged() == []
        store = await opened(node.world, small())
        node.disk.heal()
        if "consumequeue" not in gone:
            assert await scene.served(store) == scene.without(set()), "what can be read again is there at once"
        await scene.end(store)
        store = await opened(node.world, small())
        assert await scene.served(store) == scene.without(set())
        assert store.scrub.unreadable_bytes == 0
        await store.stop()

    in_scene(stop, main)


@STOPS
def test_a_file_of_which_nothing_can_be_read_costs_its_messages(stop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(scene: Scene) -> None:
        lost = scene.spoil(LOG_SIZE, 2 * LOG_SIZE)
        for _ in range(2):
            caplog.clear()
            store = await opened(scene.node.world, small())
            assert await scene.served(store) == scene.without(lost)
            assert len(told(caplog)) == len(store.recovered.unreadable)
            for topic, queue_id in (*ROUND, ("C", 0)):
                scene.append(store, topic, queue_id)
            await scene.end(store)
        scene.node.disk.heal()
        store = await opened(scene.node.world, small())
        assert await scene.served(store) == scene.without(set())
        await store.stop()

    in_scene(stop, main)


def test_messages_that_came_last_are_kept_where_a_stop_noted_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def main(scene: Scene) -> None:
        ends = [max(offset for offset, _ in scene.sent.values())]
        lost = scene.spoil(ends[0], FILES * LOG_SIZE)
        for _ in range(2):
            caplog.clear()
            store = await opened(scene.node.world, small())
            ends.append(store.log.end)
            assert ends[-1] > ends[-2]
            assert [part.end for part in store.recovered.unreadable] == [store.log.end]
            assert len(told(caplog)) == 1
            assert await scene.served(store) == scene.without(lost)
            before = set(scene.sent)
            for topic, queue_id in ROUND:
                scene.append(store, topic, queue_id)
            lost |= set(scene.sent) - before
            await scene.end(store)
        scene.node.disk.heal()
        store = await opened(scene.node.world, small())
        assert await scene.served(store) == scene.without(set())
        await store.stop()

    in_scene("clean", main)


@pytest.mark.parametrize("stop", ["killed", "killed at once", "power"])
def test_nothing_is_cut_away_that_could_not_be_read(stop: str) -> None:
    async def main(scene: Scene) -> None:
        newest = max(offset for offset, _ in scene.sent.values())
        before = scan_log(scene.node.files, "/store/commitlog", LOG_SIZE)
        scene.spoil(newest, newest + 1)
        path = f"/store/commitlog/{newest - newest % LOG_SIZE:020d}"
        for _ in range(2):
            with pytest.raises(
                StoreError, match=f"{path} cannot be read at .* nothing is cut away: have the disk checked"
            ):
                await opened(scene.node.world, small())
        scene.node.disk.heal()
        assert scan_log(scene.node.files, "/store/commitlog", LOG_SIZE) == before
        store = await opened(scene.node.world, small())
        assert await scene.served(store) == scene.without(set())
        await store.stop()

    in_scene(stop, main)


def test_what_a_disk_refuses_for_another_reason_keeps_refusing_the_start() -> None:
    async def main(scene: Scene) -> None:
        scene.node.disk.fail("pread", errno.EACCES, "*/commitlog/*", count=-1)
        with pytest.raises(StoreError, match=r"commitlog/0+49152: Permission denied: let the user"):
            await opened(scene.node.world, small())

    in_scene("clean", main)


@STOPS
@pytest.mark.parametrize("file", [0, 1])
def test_a_file_that_cannot_be_opened_costs_what_is_in_it(
    stop: str, file: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(scene: Scene) -> None:
        node = scene.node
        records = scan_log(node.files, "/store/commitlog", LOG_SIZE).records
        in_it = {record.offset for record in records if file * LOG_SIZE <= record.offset < (file + 1) * LOG_SIZE}
        lost = {key for key, (offset, _) in scene.sent.items() if offset in in_it}
        assert lost
        node.disk.fail("open", errno.EIO, f"*/commitlog/{file * LOG_SIZE:020d}", count=-1)
        store = await opened(node.world, small())
        assert [line for line in told(caplog) if f"{file * LOG_SIZE:020d}: Input/output error" in line]
        assert await scene.served(store) == scene.without(lost)
        for topic, queue_id in ROUND:
            scene.append(store, topic, queue_id)
        node.disk.heal()
        # It is opened with the next read.
        assert await scene.served(store) == scene.without(set())
        await store.stop()

    in_scene(stop, main)


def test_the_file_in_which_the_log_may_end_has_to_be_opened() -> None:
    async def main(scene: Scene) -> None:
        scene.node.disk.fail("open", errno.EIO, f"*/commitlog/{(FILES - 1) * LOG_SIZE:020d}", count=-1)
        with pytest.raises(StoreError, match=f"{(FILES - 1) * LOG_SIZE:020d}"):
            await opened(scene.node.world, small())

    for stop in ("clean", "killed"):
        in_scene(stop, main)
