"""Where reading begins and ends in each queue, as people type it: `--from -10m --to now`, `--from offset:120`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo

import click

from rmq.cli.moments import moment
from rmq.client.consumer.pull import PullConsumer
from rmq.client.message import MessageQueue

__all__ = ["Place", "PlaceType", "resolve"]

_LAST = re.compile(r"-(\d+)")
_OFFSET = re.compile(r"offset:(\d+)")
_MOST = 1 << 62
#: How far the search for the first message of a time goes back at first.
_BACK = 32


@dataclass(frozen=True, slots=True)
class Place:
    """One of its fields says it; none of them: the end of a queue as it is now.

    :param last: this many messages before the end of each queue.
    :param offset: this queue offset.
    :param time: what was typed, see :func:`~rmq.cli.moments.moment`.
    """

    last: int | None = None
    offset: int | None = None
    time: str | None = None

    @property
    def at_end(self) -> bool:
        return (self.last, self.offset, self.time) == (None, None, None)


class PlaceType(click.ParamType[Place]):
    """``earliest``, ``latest``, ``-N`` messages, ``offset:N``, or a time."""

    name = "place"

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if isinstance(value, Place):
            return value
        if value == "earliest":
            return Place(offset=0)
        if value == "latest":
            return Place()
        if last := _LAST.fullmatch(value):
            return Place(last=min(int(last[1]), _MOST))
        if offset := _OFFSET.fullmatch(value):
            return Place(offset=min(int(offset[1]), _MOST))
        try:
            moment(value, 1 << 40)
        except ValueError as error:
            self.fail(f"{error}; or earliest, latest, -5 (messages of each queue), offset:120", param, ctx)
        return Place(time=value)


async def resolve(
    consumer: PullConsumer, queue: MessageQueue, place: Place, now_ms: int, zone: tzinfo | None
) -> tuple[int, int | None]:
    """The offset that a place means in a queue, and the time that its messages have at least, if it is a time.

    :raises RMQError: the queue's broker does not answer.
    """
    end = await consumer.max_offset(queue)
    if place.offset is not None:
        return min(max(place.offset, await consumer.min_offset(queue)), end), None
    if place.last is not None:
        return max(end - place.last, await consumer.min_offset(queue)), None
    if place.time is None:
        return end, None
    when = moment(place.time, now_ms, zone)
    return await _first_at(consumer, queue, when, end), when


async def _first_at(consumer: PullConsumer, queue: MessageQueue, when: int, end: int) -> int:
    """An offset with no message of this time or a later one before it.

    Brokers answer some message of the time or near it: 4.9's the nearest, and any of those of one millisecond. So this
    goes back until a message is older.
    """
    least = await consumer.min_offset(queue)
    offset = min(max(await consumer.search_offset(queue, when), least), end)
    back = _BACK
    while offset > least:
        offset = max(offset - back, least)
        found = await consumer.pull(queue, "*", offset, 1)
        if not found.messages or found.messages[0].store_timestamp < when:
            break
        back *= 2
    return offset
