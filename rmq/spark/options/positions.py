"""Where reading starts or ends, as options say it: a word, offsets or times, for all queues or a queue each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from rmq.protocol.queue import MessageQueue

__all__ = [
    "EARLIEST",
    "LATEST",
    "META",
    "OTHERS",
    "Position",
    "nested",
    "parse_offsets",
    "parse_timestamps",
    "queues_of",
]

LATEST = -1
EARLIEST = -2
#: Members of an offset JSON that begin with this are no topics.
META = "@"
#: Where queues begin or end that an offset JSON does not name: ``earliest`` or ``latest``.
OTHERS = f"{META}others"
#: A queue's number as it is always written: another way of writing it would be the same queue again.
_QUEUE = re.compile("0|[1-9][0-9]{0,8}")

V = TypeVar("V")


@dataclass(frozen=True)
class Position:
    """One end of a read.

    :param word: ``LATEST``, ``EARLIEST`` or None, for queues that ``queues`` does not name.
    :param queues: offsets (or the two words) a queue; with ``timed`` milliseconds since the epoch.
    :param group: where the group stands; ``word`` serves queues in which it has not been.
    :param time: milliseconds since the epoch for every queue.
    """

    word: int | None = None
    queues: Mapping[MessageQueue, int] | None = None
    group: bool = False
    time: int | None = None
    timed: bool = False


def nested(offsets: Mapping[MessageQueue, V]) -> dict[str, dict[str, dict[str, V]]]:
    """``{topic: {broker: {queue: value}}}``, sorted: Spark compares offsets as texts."""
    made: dict[str, dict[str, dict[str, V]]] = {}
    for queue in sorted(offsets):
        made.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return made


def queues_of(document: object, value: Callable[[Any], V]) -> dict[MessageQueue, V]:
    """The inverse of :func:`nested`. :raises ValueError: says which member is wrong."""
    found: dict[MessageQueue, V] = {}
    for topic, brokers in _object(document, "a topic").items():
        if topic.startswith(META):
            continue
        for broker, queues in _object(brokers, f"a broker of {topic}").items():
            for queue, given in _object(queues, f"a queue of {topic} on {broker}").items():
                if not _QUEUE.fullmatch(queue):
                    raise ValueError(f"queue numbers as members, not {queue!r} ({topic} on {broker})")
                try:
                    found[MessageQueue(topic, broker, int(queue))] = value(given)
                except ValueError as error:
                    raise ValueError(f"{error} for queue {queue} of {topic} on {broker}, not {given!r}") from None
    return found


def _object(value: object, of: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f'{{"topic":{{"broker":{{"0":5}}}}}}: {value!r} stands where members, {of} each, belong')
    return value


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError("an offset, -1 (latest) or -2 (earliest)")
    return value


def _json(text: str, words: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{words} or JSON such as {{"topic":{{"broker":{{"0":5}}}}}} ({error})') from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; the later of two equal members would hide the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        again = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ValueError(f"the member {again!r} is there twice")
    return found


def parse_offsets(text: str) -> Position:
    """``earliest``, ``latest``, ``group`` or a JSON of offsets. :raises ValueError: none of these."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Position(word=EARLIEST if word == "earliest" else LATEST)
    if word == "group":
        return Position(word=EARLIEST, group=True)
    document = _json(text, "earliest, latest, group")
    found = queues_of(document, _offset)
    if not found:
        raise ValueError("offsets of one queue at least")
    return Position(queues=found, word=_others(document))


def _others(document: object) -> int | None:
    """The word for queues that a JSON does not name."""
    if not isinstance(document, dict) or OTHERS not in document:
        return None
    match document[OTHERS]:
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case other:
            raise ValueError(f"earliest or latest for {OTHERS}, not {other!r}")


def _moment(value: object) -> int:
    """Milliseconds since the epoch of a number or an ISO 8601 text; UTC where it names no zone."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch("[0-9]{1,15}", text):
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    raise ValueError("milliseconds since 1970 or a time such as 2026-01-31T12:00:00+01:00")


def parse_timestamps(text: str) -> Position:
    """One time, or a JSON of times a queue. :raises ValueError: none of these."""
    if text.strip().startswith("{"):
        return Position(queues=queues_of(_json(text, "a time"), _moment), timed=True)
    return Position(time=_moment(text))
