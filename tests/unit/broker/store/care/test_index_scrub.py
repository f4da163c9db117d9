"""The check of the log compares the index with it, too: what does not lead to its message is put right."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.held import held_by
from tests.support.scenes.scrub import PASS
from tests.support.scenes.store import found_keys, opened, put, small

SLOTS, ENTRIES = 16, 50
#: Messages: two full files and a begun one.
COUNT = 120


@dataclass
class _Scene:
    machine: SimNode
    store: Store

    def paths(self) -> list[str]:
        return [file.path for file in self.store.index.files] if self.store.index is not None else []

    def content(self) -> list[bytes]:
        """Slots and entries of each file, and what its header says of offsets."""
        return [whole[16:32] + whole[40:] for path in self.paths() for whole in (self.machine.files.read(path),)]

    def change(self, file: int, at: int, data: bytes) -> None:
        self.machine.disk.open(self.paths()[file]).pwrite(data, at)

    def flip(self, file: int, at: int, bit: int) -> None:
        opened_ = self.machine.disk.open(self.paths()[file])
        opened_.pwrite(bytes([opened_.pread(1, at)[0] ^ 1 << bit]), at)


async def _scene(*, scrub_interval_hours: int = 0) -> _Scene:
    machine = Simulation(5).node("a")
    settings = small(
        commit_log_file_size=64 << 10, queue_file_size=20_000, index_slots=SLOTS, index_entries=ENTRIES,
        scrub_interval_hours=scrub_interval_hours,
    )  # fmt: skip
    store = await opened(machine.world, settings)
    store.append([put(store.queues.get_or_create("T", 0), b"no key")])
    for number in range(COUNT):
        store.append([put(store.queues.get_or_create("T", number % 2), b"x" * 50, key=f"key-{number}")])
        if number % 10 == 9:
            await asyncio.sleep(2)
    await store.stop()
    return _Scene(machine, await opened(machine.world, settings))


def _entry(number: int, field: int) -> int:
    """Position of a byte of an entry; 0 hash, 4 offset, 12 seconds, 16 the entry before it."""
    return 40 + 4 * SLOTS + 20 * number + field


FLIPS = {"hash": 2, "offset": 10, "seconds": 14, "link": 19}


@pytest.mark.parametrize("field", FLIPS)
@pytest.mark.parametrize(("file", "number"), [(0, 1), (0, 20), (0, 49), (1, 1), (2, 10)])
def test_a_bit_of_an_entry(file: int, number: int, field: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await _scene()
        before = at.content()
        at.flip(file, _entry(number, FLIPS[field]), 2)
        assert at.content() != before
        await _mended(at, before, caplog)

    run(main())


def _page(at: _Scene) -> None:
    at.change(0, _entry(10, 0), bytes(20 * 25))


def _most_of_a_file(at: _Scene) -> None:
    at.change(0, _entry(3, 0), bytes(20 * 47))


def _a_beginning(at: _Scene) -> None:
    at.change(1, _entry(1, 0), bytes(20 * 30))


def _the_end(at: _Scene) -> None:
    at.change(2, _entry(12, 0), bytes(20 * 11))


def _over_files(at: _Scene) -> None:
    at.change(0, _entry(45, 0), bytes(20 * 5))
    at.change(1, _entry(1, 0), bytes(20 * 5))


def _swapped(at: _Scene) -> None:
    whole = at.machine.files.read(at.paths()[1])
    one, other = (whole[_entry(n, 0) : _entry(n + 1, 0)] for n in (7, 30))
    at.change(1, _entry(7, 0), other)
    at.change(1, _entry(30, 0), one)


def _slots(at: _Scene) -> None:
    at.change(1, 40, bytes(4 * SLOTS // 2))


CHANGES = {
    "a page": _page, "most of a file": _most_of_a_file, "a beginning": _a_beginning, "the end": _the_end,
    "over files": _over_files, "swapped": _swapped, "slots": _slots,
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_many_bytes(change: Callable[[_Scene], None], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await _scene()
        before = at.content()
        change(at)
        assert at.content() != before
        await _mended(at, before, caplog)

    run(main())


async def _mended(at: _Scene, before: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    """After a pass all is as it was, keys are found, and it was told once."""
    store = at.store
    await asyncio.sleep(4 * PASS)
    assert at.content() == before
    found = await found_keys(store, "T", [f"key-{number}" for number in range(COUNT)])
    assert set(found.values()) == {1}
    assert store.index_scrub is not None
    mended = store.index_scrub.mended
    assert mended > 0
    assert any(record.levelno == logging.CRITICAL and "/index/" in record.getMessage() for record in caplog.records)
    await asyncio.sleep(4 * PASS)
    assert store.index_scrub.mended == mended, "not at every pass"
    await store.stop()


def test_a_good_index_is_left_alone_while_keys_come_in() -> None:
    async def main() -> None:
        at = await _scene()
        store = at.store
        for number in range(200):
            store.append([put(store.queues.get_or_create("T", 0), b"y", key=f"more-{number}")])
            if number % 10 == 9:
                await asyncio.sleep(5)
        assert store.index_scrub is not None
        assert store.index_scrub.mended == 0
        await store.stop()

    run(main())


@pytest.mark.parametrize("again", [2, 3, 5])
def test_keys_that_were_put_twice_are_left_alone(again: int) -> None:
    """A start puts a message again of whose keys a full file may have some; others have the same word twice."""

    async def main() -> None:
        at = await _scene()
        store = at.store
        queue = store.queues.get_or_create("T", 0)

        def send(*words: str) -> int:
            keys = tuple(word.encode() for word in words)
            return store.append([put(queue, b"y", key=" ".join(words))._replace(keys=keys)]).start

        words = ("a", "b", "c", "d", "e")
        hasher = store.indexing.hasher("T")
        offset = send(*words)
        assert store.index is not None
        store.index.put_many([(hasher.of(word.encode()), offset) for word in words[:again]], store.log.stamp)
        for number in range(40):
            send(f"one-{number}", *("same",) * (number % 7), f"other-{number}")
        for number in range(8):
            send(f"last-{number}")
        await asyncio.sleep(8 * PASS)
        before = at.content()
        assert store.index_scrub is not None
        assert store.index_scrub.mended == 0
        # And what changes on the disk there is put right all the same.
        at.flip(-1, _entry(store.index.files[-1].count - 4, 0), 3)
        await asyncio.sleep(8 * PASS)
        assert store.index_scrub.mended > 0
        assert at.content() == before
        await store.stop()

    run(main())


def test_a_file_that_retention_takes_between_two_passes_is_not_held() -> None:
    async def main() -> None:
        at = await _scene(scrub_interval_hours=24)
        store = at.store
        await asyncio.sleep(4 * PASS)
        assert store.index is not None
        assert store.index_scrub is not None
        assert not store.scrub.active
        last = store.index.files[-1]
        for number in range(ENTRIES):
            store.append([put(store.queues.get_or_create("T", 0), b"y", key=f"more-{number}")])
        await store.index.writer.write()
        await store.index.delete_expired(store.log.end)
        assert last not in store.index.files
        assert held_by(store.index_scrub)["(IndexFile)"] == len(store.index.files)
        await store.stop()

    run(main())
