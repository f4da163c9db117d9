"""Bugs of a Spark source: each makes a random history break a promise, or the histories are worth nothing.

A bug is a patch of the product, made in the test's process only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rmq.protocol.queue import MessageQueue
from rmq.spark.source import advance, task
from rmq.spark.source.advance import FROM, Advance
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
    patch.setattr(Advance, "_as_planned", lambda self, ranges: ranges)


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


def the_starts_of_a_first_batch_are_not_kept(patch: Patch) -> None:
    """What it begins with is asked for anew when it is read again: other queues, or another end of them."""
    real = Advance.ranges

    def ranges(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        return real(self, start, {name: value for name, value in end.items() if name != FROM})

    patch.setattr(Advance, "ranges", ranges)


def when_offsets_were_written_is_not_known(patch: Patch) -> None:
    """Of a queue that was empty then nothing else tells that it was made anew."""
    real = Renewal.made_anew
    patch.setattr(Renewal, "made_anew", lambda self, begin, news, as_of: real(self, begin, news, 0))


def an_open_batch_ends_where_queues_end_now(patch: Patch) -> None:
    real = Advance.ranges

    def ranges(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        found = real(self, start, end)
        ends = self._brokers.max_offsets([each.queue for each in found])
        return [
            replace(each, end=max(each.end, ends[each.queue].offset)) if each.queue in ends else each for each in found
        ]

    patch.setattr(Advance, "ranges", ranges)


def new_queues_begin_at_their_end(patch: Patch) -> None:
    def starts(self: Advance, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: bound.offset for queue, bound in self._brokers.max_offsets(queues).items()} if queues else {}

    patch.setattr(Advance, "_starts_of_new", starts)


def starts_that_options_say_are_ignored(patch: Patch) -> None:
    patch.setattr(
        advance, "resolve", lambda brokers, options, positions, queues, otherwise: brokers.min_offsets(queues)
    )


def losses_are_told_where_none_is(patch: Patch) -> None:
    def ranges(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        raise DataLost("nothing is lost")

    patch.setattr(Advance, "ranges", ranges)


def _place_is(patch: Patch, place: Callable[[Advance], dict[str, Any] | None]) -> None:
    """Where Spark does not say where it is, a stream goes on from another place."""
    real = Advance.latest

    def latest(self: Advance, start: dict[str, Any] | None, *, limited: bool = True) -> dict[str, Any]:
        if start is None:
            self._place = place(self)
        return real(self, start, limited=limited)

    patch.setattr(Advance, "latest", latest)


def a_stream_begins_with_all_there_is(patch: Patch) -> None:
    """Options say where to begin, and Spark before 4.2 asks for that when the first batch is planned already."""
    _place_is(patch, lambda advance: advance._place or {})


def a_stream_goes_on_from_where_it_began(patch: Patch) -> None:
    _place_is(patch, lambda advance: advance._began or advance._place)


def an_open_batch_is_taken_for_a_planned_one(patch: Patch) -> None:
    """Spark before 4.2 begins a run with the end of the open batch."""
    real = Advance.ranges

    def ranges(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        self._planned = end if start == end else self._planned
        return real(self, start, end)

    patch.setattr(Advance, "ranges", ranges)


#: With the first history that shows each: the search begins there, and goes on where draws have changed since.
PLANTS = [
    (renewals_are_not_looked_for, 1),
    (renewals_without_news_are_not_looked_for, 10),
    (renewals_under_an_open_batch_are_not_looked_for, 47),
    (renewals_under_a_task_are_not_looked_for, 75),
    (a_topic_made_anew_and_empty_is_not_noticed, 143),
    (the_oldest_messages_are_not_kept, 251),
    (offsets_of_the_oldest_are_ignored, 1),
    (offset_and_time_of_the_oldest_are_of_two_messages, 421),
    (fewer_queues_are_not_told, 32),
    (what_has_gone_is_not_told, 30),
    (a_new_topic_is_read_from_its_end, 1),
    (ranges_begin_a_message_late, 0),
    (ranges_begin_a_message_early, 0),
    (the_starts_of_a_first_batch_are_not_kept, 44),
    (when_offsets_were_written_is_not_known, 75),
    (an_open_batch_ends_where_queues_end_now, 2),
    (new_queues_begin_at_their_end, 0),
    (starts_that_options_say_are_ignored, 0),
    (losses_are_told_where_none_is, 0),
]

#: The same for Spark before 4.2.
OLD_PLANTS = [
    (a_stream_begins_with_all_there_is, 0),
    (a_stream_goes_on_from_where_it_began, 0),
    (an_open_batch_is_taken_for_a_planned_one, 8),
    (renewals_under_an_open_batch_are_not_looked_for, 8),
    (the_starts_of_a_first_batch_are_not_kept, 11),
]
