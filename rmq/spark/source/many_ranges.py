"""The small ranges of a task: their pulls are asked for at once, one round trip for all of a broker.

A micro-batch has a few messages of each queue; asked one after the other, its queues would be most of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import TransportError
from rmq.protocol.headers.pull import PullMessageResponse
from rmq.spark.arrow.pieces import record_starts
from rmq.spark.cluster.brokers import CALL_SECONDS, Brokers
from rmq.spark.source.one_range import CHUNK_RECORDS, Chunk, Pulling, offset_delta, pull_range, pull_request
from rmq.spark.source.ranges import Range

__all__ = ["pull_ranges"]

#: Messages of a range that one pull brings, as a rule.
SMALL = 1024
#: Pulls asked for at once: their answers, some MiB each at worst, are in memory together.
TOGETHER = 16


def pull_ranges(brokers: Brokers, ranges: Iterable[Range], how: Pulling) -> Iterator[tuple[Range, Iterator[Chunk]]]:
    """Each range and its records, as :func:`rmq.spark.source.one_range.pull_range` gives them, which see for errors."""
    for group in _groups(ranges):
        answers = _ask(brokers, group, how) if len(group) > 1 else {}
        for each in group:
            yield each, _chunks(brokers, each, how, answers.pop(each, None))


def _groups(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Small ranges together, larger ones alone, all in order."""
    group: list[Range] = []
    records = 0
    for each in ranges:
        if group and (len(group) == TOGETHER or records + each.records > CHUNK_RECORDS or each.records > SMALL):
            yield group
            group, records = [], 0
        group.append(each)
        records += each.records
    if group:
        yield group


def _ask(brokers: Brokers, ranges: Iterable[Range], how: Pulling) -> dict[Range, Command]:
    """What masters answer to the first pull of each range; those that do not answer are left out."""
    by_master: dict[str, list[Range]] = {}
    found: dict[Range, Command] = {}
    for each in ranges:
        try:
            by_master.setdefault(brokers.master(each.queue), []).append(each)
        except TransportError as error:
            brokers.notices.warn(str(error))
    for address, group in by_master.items():
        try:
            commands = [pull_request(brokers.endpoint, each, each.start, how) for each in group]
            answers = brokers.link(address).ask_all(commands, CALL_SECONDS)
        except TransportError as error:
            brokers.notices.warn(str(error))
            brokers.suspect(group[0].queue)
            continue
        found.update(zip(group, answers, strict=True))
    return found


def _chunks(brokers: Brokers, wanted: Range, how: Pulling, answer: Command | None) -> Iterator[Chunk]:
    """The records of an answer, if it has any, and then whatever is left of the range."""
    if answer is not None and answer.code == ResponseCode.SUCCESS:
        following = answer.header(PullMessageResponse).next_begin_offset
        if following > wanted.start:
            data = bytearray(answer.body)
            starts = record_starts(data, 0, len(data), str(wanted.queue))
            if starts:
                yield Chunk(data, starts, len(data), offset_delta(answer), lasting=True)
            wanted = replace(wanted, start=following)
    if wanted.start < wanted.end:
        yield from pull_range(brokers, wanted, how)
