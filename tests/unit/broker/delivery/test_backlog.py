"""Runs of entries on disk: the right ones, read once a block, forgotten when the queue loses entries."""

from __future__ import annotations

from struct import Struct
from typing import cast

from rmq.broker.delivery.backlog import Backlog
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, Queue

_entry = Struct(">qiq").pack


class Table:
    """The part of a queue table that a backlog reads; ``hot`` entries can be read at once."""

    def __init__(self, count: int) -> None:
        self.cuts = 0
        self.hot = count
        self.reads = 0
        self.moved = 0
        self.queue = Queue("T", 0)
        self.queue.next = self.queue.visible = self.queue.tail_from = count

    def entries(self, queue: Queue, index: int, count: int) -> bytes | None:
        self.reads += 1
        if index + count > self.hot:
            return None
        return b"".join(_entry(self.moved + 1000 * at, 100 + at, 7) for at in range(index, index + count))

    def backlog(self) -> Backlog:
        return Backlog(cast(QueueTable, self))


def run(first: int, count: int, moved: int = 0) -> tuple[int, ...]:
    return tuple(number for at in range(first, first + count) for number in (moved + 1000 * at, 100 + at))


def test_runs_of_one_block_are_read_once() -> None:
    table = Table(1024)
    backlog = table.backlog()
    for first, count in ((0, 32), (32, 32), (1000, 24), (1023, 1), (0, 1024)):
        assert backlog.find(table.queue, first, count) == run(first, count)
    assert table.reads == 1


def test_a_run_over_two_blocks() -> None:
    table = Table(2048)
    backlog = table.backlog()
    assert backlog.find(table.queue, 1010, 32) == run(1010, 32)
    assert backlog.find(table.queue, 1, 1024) == run(1, 1024)
    assert table.reads == 2


def test_only_whole_blocks_on_disk_are_kept() -> None:
    table = Table(1500)
    backlog = table.backlog()
    assert backlog.find(table.queue, 1100, 32) is None
    assert backlog.find(table.queue, 1020, 32) is None
    table.queue.min = 1
    assert table.backlog().find(table.queue, 10, 32) is None


def test_cold_entries_are_asked_for_again() -> None:
    table = Table(1024)
    table.hot = 0
    backlog = table.backlog()
    assert backlog.find(table.queue, 0, 32) is None
    table.hot = 1024
    assert backlog.find(table.queue, 0, 32) == run(0, 32)


def test_a_cut_makes_everything_void() -> None:
    table = Table(1024)
    backlog = table.backlog()
    assert backlog.find(table.queue, 5, 2) == run(5, 2)
    table.moved = 1 << 40
    table.cuts += 1
    assert backlog.find(table.queue, 5, 2) == run(5, 2, 1 << 40)


def test_what_is_kept_is_bounded() -> None:
    table = Table(1024 * 300)
    backlog = table.backlog()
    for block in range(300):
        assert backlog.find(table.queue, block * 1024, 1) == run(block * 1024, 1)
    assert len(backlog._blocks) == 256
    assert sum(map(len, backlog._blocks.values())) == 256 * 1024 * ENTRY_SIZE
