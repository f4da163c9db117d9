"""Bugs of a Spark source: each makes a random history break a promise, or the histories are worth nothing.

A bug is a patch of the product, made in the test's process only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rmq.protocol.queue import MessageQueue
from rmq.spark.source import advance, task
from rmq.spark.source.advance import Advance
from rmq.spark.source.one_range import _Puller
from rmq.spark.source.ranges import DataLost, Oldest, Range
from rmq.spark.source.renewal import Renewal
from rmq.spark.source.task import Reading

Patch = pytest.MonkeyPatch


def renewals_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(Renewal, "made_anew", lambda self, begin, news, as_of: {})


def renewals_without_news_are_not_looked_for(patch: Patch) -> None:
    """A queue with as many messages as before is taken for the same."""
    real = Renewal.made_anew
    patch.setattr(Renewal, "made_anew", lambda self, begin, news, as_of: real(self, {}, news, as_of) if news else {})


def renewals_under_an_open_batch_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(Advance, "_as_planned", lambda self, ranges, as_of: ranges)


def renewals_under_a_task_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(task, "renewed", lambda brokers, ranges: set())


def a_topic_made_anew_and_empty_is_not_noticed(patch: Patch) -> None:
    patch.setattr(Renewal, "ends_before", lambda self, queue, end, place: end < place)


def the_oldest_messages_are_not_kept(patch: Patch) -> None:
    patch.setattr(advance, "read_oldest", lambda document: {})


def offsets_of_the_oldest_are_ignored(patch: Patch) -> None:
    """What has expired is taken for a topic made anew."""
    real = Renewal._look

    def look(self: Renewal, queues: Any) -> dict[MessageQueue, Oldest]:
        return {queue: replace(oldest, offset=0) for queue, oldest in real(self, queues).items()}

    patch.setattr(Renewal, "_look", look)


def offset_and_time_of_the_oldest_are_of_two_messages(patch: Patch) -> None:
    def look(self: Renewal, queues: Any) -> dict[MessageQueue, Oldest]:
        offsets = self._brokers.min_offsets(queues) if queues else {}
        times = self._brokers.oldest_times(queues) if queues else {}
        return {queue: Oldest(offsets[queue], times[queue]) for queue in offsets if times.get(queue)}

    patch.setattr(Renewal, "_look", look)


def fewer_queues_are_not_told(patch: Patch) -> None:
    patch.setattr(Advance, "_not_served", lambda self, begin: {})


def what_has_gone_is_not_told(patch: Patch) -> None:
    real = _Puller._gone

    def gone(self: _Puller, first: int, after: int, why: str) -> None:
        self._fresh = True
        real(self, first, after, why)

    patch.setattr(_Puller, "_gone", gone)
    patch.setattr(Reading, "_strict", lambda self, wanted: False)


def a_new_topic_is_read_from_its_end(patch: Patch) -> None:
    real = Renewal.made_anew

    def made_anew(self: Renewal, begin: Any, news: Any, as_of: int) -> dict[MessageQueue, int]:
        found = real(self, begin, news, as_of)
        ends = self._brokers.max_offsets(found)
        return {queue: ends[queue].offset if queue in ends else place for queue, place in found.items()}

    patch.setattr(Renewal, "made_anew", made_anew)


def _shifted(patch: Patch, by: int) -> None:
    real = Advance.ranges

    def ranges(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        return [replace(each, start=max(0, each.start + by)) for each in real(self, start, end)]

    patch.setattr(Advance, "ranges", ranges)


def ranges_begin_a_message_late(patch: Patch) -> None:
    _shifted(patch, 1)


def ranges_begin_a_message_early(patch: Patch) -> None:
    _shifted(patch, -1)


def losses_are_told_where_none_is(patch: Patch) -> None:
    def ranges(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        raise DataLost("nothing is lost")

    patch.setattr(Advance, "ranges", ranges)


#: With the first history that shows each: the search begins there, and goes on where draws have changed since.
PLANTS = [
    (renewals_are_not_looked_for, 1),
    (renewals_without_news_are_not_looked_for, 7),
    (renewals_under_an_open_batch_are_not_looked_for, 98),
    (renewals_under_a_task_are_not_looked_for, 75),
    (a_topic_made_anew_and_empty_is_not_noticed, 282),
    (the_oldest_messages_are_not_kept, 6),
    (offsets_of_the_oldest_are_ignored, 1),
    (offset_and_time_of_the_oldest_are_of_two_messages, 142),
    (fewer_queues_are_not_told, 30),
    (what_has_gone_is_not_told, 8),
    (a_new_topic_is_read_from_its_end, 1),
    (ranges_begin_a_message_late, 0),
    (ranges_begin_a_message_early, 0),
    (losses_are_told_where_none_is, 0),
]
