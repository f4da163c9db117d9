"""Ranges of queues, and their distribution over tasks. Pure: the same ranges always make the same tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rmq.protocol.errors import RMQError
from rmq.protocol.queue import MessageQueue

__all__ = ["DataLost", "Oldest", "Range", "ReadAgain", "distribute", "ranges_between"]

#: Small ranges share a task until it has this many messages: a task costs more than reading them one after the other.
TASK_RECORDS = 10_000


class DataLost(RMQError):
    """Messages of a range are gone from their broker, and the query is to fail then."""


class ReadAgain(RMQError):
    """A queue changed while a batch of it was read: the batch has to be read again."""


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest message of a queue; ``time`` is when it was stored, in milliseconds."""

    offset: int
    time: int


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The messages of a queue from ``start`` on, before ``end``.

    :param fresh: the query has not read the queue before: what has expired at its beginning is no loss.
    :param oldest: the queue's oldest message when the range was planned, as far as it is known.
    :param as_of: when it was planned, milliseconds by the driver's clock, which tells where ``oldest`` cannot;
        0: nobody knows.
    """

    queue: MessageQueue
    start: int
    end: int
    fresh: bool = False
    oldest: Oldest | None = field(default=None, compare=False)
    as_of: int = field(default=0, compare=False)

    @property
    def records(self) -> int:
        return self.end - self.start


def ranges_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[Range]:
    """What lies between two sets of offsets, empty ranges left out; a queue without a start is new."""
    found = []
    for queue in sorted(end):
        begin = start.get(queue)
        if end[queue] > (begin or 0):
            found.append(Range(queue, begin or 0, end[queue], fresh=begin is None))
    return found


def distribute(
    ranges: Iterable[Range],
    *,
    least: int | None = None,
    most: int | None = None,
    records: int | None = None,
) -> list[list[Range]]:
    """Ranges for each task.

    :param least: tasks at least, as far as there are messages for them.
    :param most: tasks at most; goes before ``records``.
    :param records: messages a task at most.
    """
    wanted = list(ranges)
    total = sum(each.records for each in wanted)
    if not total:
        return []
    size = min(records, total) if records else None
    if least and len(wanted) < least:
        fair = max(1, total // least)
        size = min(size, fair) if size else fair
    pieces = _split(wanted, size) if size else wanted
    if least and len(pieces) < least:
        pieces = _halve_until(pieces, least)
    room = records or TASK_RECORDS
    if least:
        room = min(room, max(1, total // least))
    tasks = _pack(pieces, room)
    if least and len(tasks) < least:
        tasks = [[piece] for piece in pieces]
    if most and len(tasks) > most:
        tasks = _fewest(pieces, most)
    return tasks


def _split(ranges: Iterable[Range], size: int) -> list[Range]:
    return [
        replace(each, start=at, end=min(at + size, each.end))
        for each in ranges
        for at in range(each.start, each.end, size)
    ]


def _halve_until(pieces: list[Range], count: int) -> list[Range]:
    """Cut the largest ones in two until there are ``count`` or nothing is left to cut."""
    while len(pieces) < count:
        largest = max(pieces, key=lambda each: (each.records, each))
        if largest.records < 2:
            break
        pieces.remove(largest)
        pieces += _split([largest], -(-largest.records // 2))
    return sorted(pieces)


def _pack(pieces: Iterable[Range], room: int) -> list[list[Range]]:
    """Small ones together, in order, until ``room`` messages; a larger one alone."""
    tasks: list[list[Range]] = []
    current: list[Range] = []
    filled = 0
    for piece in pieces:
        if current and filled + piece.records > room:
            tasks.append(current)
            current, filled = [], 0
        current.append(piece)
        filled += piece.records
    if current:
        tasks.append(current)
    return tasks


def _fewest(pieces: Iterable[Range], count: int) -> list[list[Range]]:
    """Into ``count`` tasks of about the same size: the largest first, each to the task with the least."""
    tasks: list[list[Range]] = [[] for _ in range(count)]
    loads = [0] * count
    for piece in sorted(pieces, key=lambda each: (-each.records, each)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(piece)
        loads[lightest] += piece.records
    return [sorted(task) for task in tasks if task]
