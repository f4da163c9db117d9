"""The report on dead letters: what it holds, as JSON for programs and as one HTML page for people."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from rmq.protocol.names import dlq_topic

__all__ = ["Cause", "Dead", "Report", "Unread", "page", "to_json", "when"]

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.25em .8em;border-bottom:1px solid #ddd;"
    "text-align:left;vertical-align:top}td.n{text-align:right}img{max-width:100%}h2{margin-top:2em}.quiet{color:#777}"
)


@dataclass
class Cause:
    """Dead letters of one kind: of a topic, a tag, a host of producers."""

    topic: str
    tag: str
    born_host: str
    count: int
    first: datetime
    last: datetime


@dataclass
class Dead:
    """What one consumer group gave up on.

    :param tried: most deliveries that a message had. :param keys: most frequent keys of messages, with their counts.
    :param bars: (start of a span of time, dead letters in it). :param consumers: who is connected; or why that is not
        known, as ``unknown``.
    """

    group: str
    count: int
    first: datetime
    last: datetime
    tried: int
    causes: list[Cause] = field(default_factory=list)
    keys: list[tuple[str, int]] = field(default_factory=list)
    bars: list[tuple[datetime, int]] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)
    unknown: str | None = None


@dataclass
class Unread:
    """Dead letters that the brokers do not let be read.

    :param brokers: which. :param whole: all that have the topic. :param messages: how many they keep; 0 when not known.
    """

    group: str
    brokers: list[str]
    whole: bool
    messages: int

    def text(self) -> str:
        """Says so, and what to do."""
        count = f"{self.messages:,} dead letters" if self.messages else "dead letters"
        return (
            f"{count} of {self.group} on {', '.join(self.brokers)} may not be read: "
            f"open them with mqadmin updateTopic -t {dlq_topic(self.group)} -p 6"
        )


@dataclass
class Report:
    """:param quiet: groups that were asked for and have no dead letters."""

    made: datetime
    cluster: str
    since: datetime | None
    until: datetime | None
    groups: list[Dead]
    quiet: list[str]
    unread: list[Unread] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(dead.count for dead in self.groups)


def to_json(report: Report) -> str:
    """The whole report; times in ISO 8601."""
    return json.dumps(asdict(report), default=when, indent=2) + "\n"


def when(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def page(report: Report, charts: Mapping[str, bytes]) -> str:
    """One HTML file with everything in it; what comes out of messages is escaped.

    :param charts: title to PNG.
    """
    span = f"{when(report.since) if report.since else 'the oldest that is kept'} to {when(report.until or report.made)}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Dead letters</title><style>{_STYLE}</style>",
        f"<h1>{report.count:,} dead letters of {len(report.groups)} consumer groups</h1>",
        f"<p>{_safe(report.cluster)}, {span}. Made {when(report.made)}.</p>",
        _table(
            ("group", "dead letters", "since", "last", "deliveries", "connected now"),
            ((d.group, d.count, when(d.first), when(d.last), d.tried, _connected(d)) for d in report.groups),
        ),
    ]
    parts += [f"<p>{_safe(closed.text())}</p>" for closed in report.unread]
    for title, image in charts.items():
        source = base64.b64encode(image).decode()
        parts.append(f'<h2>{_safe(title)}</h2><img alt="{_safe(title)}" src="data:image/png;base64,{source}">')
    for dead in report.groups:
        parts.append(f"<h2>{_safe(dead.group)}</h2>")
        parts.append(
            _table(
                ("topic", "tag", "sent from", "dead letters", "since", "last"),
                ((c.topic, c.tag, c.born_host, c.count, when(c.first), when(c.last)) for c in dead.causes),
            )
        )
        if dead.keys:
            parts.append(_table(("key", "dead letters"), dead.keys))
        if dead.consumers:
            parts.append("<ul>" + "".join(f"<li>{_safe(one)}</li>" for one in dead.consumers) + "</ul>")
    if report.quiet:
        parts.append(f"<p class=quiet>No dead letters: {_safe(', '.join(report.quiet))}</p>")
    return "\n".join(parts) + "\n"


def _connected(dead: Dead) -> str:
    if dead.unknown is not None:
        return dead.unknown
    return f"{len(dead.consumers)} consumers" if len(dead.consumers) != 1 else "1 consumer"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class=n>{value:,}</td>" if isinstance(value, int) else f"<td>{_safe(value)}</td>" for value in row
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{cells}</tr>{body}</table>"


def _safe(text: object) -> str:
    return html.escape(str(text))
