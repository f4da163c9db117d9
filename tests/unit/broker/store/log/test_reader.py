"""The reader at the end of the log: it reads nothing behind it, and waits for a record that is not all there."""

from __future__ import annotations

import pytest

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.reader import LogReader
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import LOG_SIZE, opened, put, small


class Scene:
    """A log that gets the bytes of another one, and a reader that tells what it reads of the files."""

    def __init__(self) -> None:
        self.machine = Simulation(1).node("slave")
        self.log = CommitLog(self.machine.world, small())
        self.reader = LogReader(self.machine.world, self.log)
        self.reads: list[tuple[int, int]] = []
        read = self.reader._read_all

        async def counted(file: LogFile, offset: int, size: int) -> bytes:
            self.reads.append((offset, size))
            return await read(file, offset, size)

        self.reader._read_all = counted  # type: ignore[method-assign]

    async def records(self, start: int = 0, stop: int = 1 << 40) -> list[tuple[int, int]]:
        """Commit-log offset and size of each record that the reader gives."""
        self.reads.clear()
        return [(at, size) async for _, found in self.reader.records(start, stop) for _, at, size in found]


async def log_of(*bodies: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes of a log with these messages, the offset and size of each."""
    store = await opened(Simulation(2).node("master").world, small())
    queue = store.queues.get_or_create("T", 0)
    places = []
    for body in bodies:
        span = store.append([put(queue, body)])
        places.append((span.start, span.end - span.start))
    data = b"".join([store.log.read(file.start, LOG_SIZE) or b"" for file in store.log.segments[:-1]])
    data += store.log.read(len(data), store.log.end - len(data)) or b""
    await store.stop()
    return data, places


@pytest.mark.parametrize("there", [1, 7, 8, 50, 90, 91, 150])
def test_half_a_record_is_waited_for_and_nothing_behind_it_is_read(there: int) -> None:
    async def main() -> None:
        data, places = await log_of(b"a" * 200, b"b" * 200)
        scene, half = Scene(), places[1][0]
        scene.log.append_raw(0, data[: half + there])
        assert await scene.records() == places[:1]
        assert (scene.reader.half, scene.reader.position, scene.reader.damages) == (True, half, [])
        assert scene.reads == [(0, half + there)]
        assert await scene.records(half) == []
        assert scene.reads == [(half, there)]
        scene.log.append_raw(half + there, data[half + there :])
        assert await scene.records(half) == places[1:]
        assert not scene.reader.half

    run(main())


def test_a_file_that_ends_blank_is_passed_as_soon_as_it_says_so() -> None:
    async def main() -> None:
        data, places = await log_of(b"a" * 9000, b"b" * 9000)
        behind = sum(places[0])
        scene = Scene()
        scene.log.append_raw(0, data[: behind + 4])
        assert await scene.records() == places[:1]
        assert scene.reader.half
        scene.log.append_raw(behind + 4, data[behind + 4 : behind + 8])
        assert await scene.records(behind) == []
        assert (scene.reader.half, scene.reader.position, scene.reader.damages) == (False, LOG_SIZE, [])
        scene.log.append_raw(behind + 8, data[behind + 8 : LOG_SIZE])
        scene.log.append_raw(LOG_SIZE, data[LOG_SIZE:])
        assert await scene.records(LOG_SIZE) == places[1:]

    run(main())


def test_damage_before_the_end_is_passed_over_and_the_search_ends_with_the_log() -> None:
    async def main() -> None:
        data, places = await log_of(b"a" * 200, b"b" * 200, b"c" * 200)
        (_, size), (second, _), (third, _) = places
        bad = data[:second] + bytes(40) + data[second + 40 :]
        scene = Scene()
        scene.log.append_raw(0, bad[: third + 120])
        assert await scene.records() == places[:1]
        assert (scene.reader.half, scene.reader.position) == (False, size)
        assert max(at + count for at, count in scene.reads) == scene.log.end
        scene.log.append_raw(third + 120, bad[third + 120 :])
        assert await scene.records(second) == places[2:]
        assert scene.reader.damages == [(second, third)]

    run(main())
