"""What two looks at a cluster say of the time between them; nothing here asks servers.

Rates are counted between the looks, by the offsets of queues: a broker's own figures are means of the last ten seconds,
and of the last minute for a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmq.protocol.names import BUILT_IN_GROUPS, is_dlq_topic, is_retry_topic, is_system_group
from rmq.protocol.queue import MessageQueue

__all__ = ["BrokerFigures", "Stand", "View", "between"]

#: Seconds after which nobody waits for an end that comes.
_NEVER = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """:param put: messages stored since it started. :param got: messages given to consumers. :param disk: 0 to 1."""

    put: int
    got: int
    disk: float
    #: Milliseconds that the oldest send waits.
    wait: int
    #: Of a group that elects its master: who leads, and how many of the others are there; "" of other brokers.
    elected: str = ""


@dataclass(slots=True)
class Stand:
    """One look.

    :param at: seconds, of a clock that only goes forward.
    :param brokers: by name. :param silent: those that did not answer.
    :param groups: by group, each queue's end and where the group is there; -1: it has no offset.
    :param ends: of queues of topics that nobody consumes.
    """

    at: float
    brokers: dict[str, BrokerFigures] = field(default_factory=dict)
    groups: dict[str, dict[MessageQueue, tuple[int, int]]] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def every_end(self) -> dict[MessageQueue, int]:
        """The ends of all queues that were looked at."""
        found = dict(self.ends)
        for table in self.groups.values():
            for queue, (end, _) in table.items():
                found[queue] = max(end, found.get(queue, 0))
        return found


@dataclass(frozen=True, slots=True)
class View:
    """Rows, those that matter most first."""

    brokers: list[dict[str, Any]]
    topics: list[dict[str, Any]]
    groups: list[dict[str, Any]]

    def table(self) -> dict[str, Any]:
        """For programs."""
        return {"brokers": self.brokers, "topics": self.topics, "groups": self.groups}


def between(old: Stand, new: Stand, *, by: str = "lag", whole: bool = True) -> View:
    """What went on.

    :param whole: every broker has told; else what waits is no less than this, and nobody knows when it is done.
    :param by: what groups are ordered by: ``lag``, ``in`` or ``out``; the other tables are by what comes in.
    """
    seconds = max(new.at - old.at, 1e-3)

    def rate(before: int | None, now: int) -> float | None:
        # A counter that went back is that of another life of its broker, or of a group that was moved.
        return None if before is None or now < before else round((now - before) / seconds, 1)

    brokers: list[dict[str, Any]] = [
        {
            "broker": name,
            "inTps": rate(was.put if (was := old.brokers.get(name)) else None, one.put),
            "outTps": rate(was.got if was else None, one.got),
            "waitMs": one.wait,
            "disk": round(one.disk, 2),
            **({"group": one.elected} if one.elected else {}),
        }
        for name, one in sorted(new.brokers.items())
    ]
    nothing = dict.fromkeys(("inTps", "outTps", "waitMs", "disk"))
    brokers += [{"broker": name, **nothing} for name in sorted(new.silent)]
    ends_before, ends = old.every_end(), new.every_end()
    topics: list[dict[str, Any]] = []
    for topic in sorted({queue.topic for queue in ends if not is_retry_topic(queue.topic)}):
        queues = [queue for queue in ends if queue.topic == topic]
        came = [rate(ends_before.get(queue), ends[queue]) for queue in queues]
        topics.append(
            {
                "topic": topic,
                "queues": len(queues),
                "inTps": _sum(came),
                "groups": sum(any(queue.topic == topic for queue in table) for table in new.groups.values()),
                "messages": sum(ends[queue] for queue in queues),
            }
        )
    topics.sort(key=lambda row: -(row["inTps"] or 0.0))
    groups = [
        _row(group, topic, old.groups.get(group, {}), table, rate)
        for group, table in sorted(new.groups.items())
        if group not in BUILT_IN_GROUPS and not is_system_group(group)
        for topic in sorted({queue.topic for queue in table if not is_dlq_topic(queue.topic)})
    ]
    # A retry topic where nothing waits says nothing.
    groups = [row for row in groups if row["lag"] or row["inTps"] or row["outTps"] or not is_retry_topic(row["topic"])]
    if not whole:
        groups = [{**row, "doneIn": "?"} for row in groups]
    key = {"lag": "lag", "in": "inTps", "out": "outTps"}[by]
    groups.sort(key=lambda row: -(row[key] or 0.0))
    return View(brokers, topics, groups)


def _row(
    group: str,
    topic: str,
    before: Mapping[MessageQueue, tuple[int, int]],
    table: Mapping[MessageQueue, tuple[int, int]],
    rate: Any,
) -> dict[str, Any]:
    queues = {queue: at for queue, at in table.items() if queue.topic == topic}
    lag = sum(max(0, end - offset) for end, offset in queues.values() if offset >= 0)
    came = _sum(rate(before[queue][0] if queue in before else None, end) for queue, (end, _) in queues.items())
    gone = _sum(
        rate(before[queue][1] if queue in before else None, offset)
        for queue, (_, offset) in queues.items()
        if offset >= 0
    )
    return {"group": group, "topic": topic, "lag": lag, "inTps": came, "outTps": gone, "doneIn": _end(lag, came, gone)}


def _end(lag: int, came: float | None, gone: float | None) -> str:
    """When nothing waits any more, at this pace."""
    if not lag:
        return "done"
    if came is None or gone is None:
        return "?"
    pace = gone - came
    if pace <= 0:
        return "never" if came > gone or gone == 0 else "stays"
    seconds = lag / pace
    if seconds > _NEVER:
        return "never"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _sum(rates: Iterable[float | None]) -> float | None:
    """Over those that are known; None where none is."""
    known = [one for one in rates if one is not None]
    return round(sum(known), 1) if known else None
