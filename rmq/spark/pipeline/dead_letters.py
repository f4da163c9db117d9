"""The job ``dead-letters``: who fails, since when, in which consumers; a report with charts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rmq.protocol.names import group_fault
from rmq.spark.pipeline.job import Job
from rmq.spark.pipeline.kinds import Duration, Flag, Many, Moment, Text, Whole
from rmq.spark.pipeline.spec import key, maybe

__all__ = ["DeadLetters"]


class DeadLetters(Job):
    """Reports on dead letters: which consumer groups give up on messages, since when, of which topics and tags.

    It reads the topics %DLQ%GROUP, and asks the brokers who is connected. No bodies are shown.
    """

    groups = maybe(
        Many(Text("a group's name", group_fault)),
        "Consumer groups to look at. Default: all.",
        sample="[order_consumers]",
    )
    since = maybe(
        Moment(lambda: datetime.now(UTC)),
        "Only messages that died since then: a time, or a duration before now.",
        sample="7d",
    )
    until = maybe(Moment(lambda: datetime.now(UTC)), "Only messages that died before.", sample="2026-03-02T00:00:00Z")
    report = key(
        Text("a folder"), "Folder on this machine for report.html, report.json and the charts.", sample="dead-letters"
    )
    charts = key(Flag(), "Draw charts (needs the extra charts: pip install 'rmq[charts]').", default="true")
    bucket = key(Duration(1.0), "Width of a bar on the axis of time.", default="1h")
    top = key(Whole(1, 1_000), "Rows of the tables of topics, tags and keys.", default="20")
    connections = key(Flag(), "Ask the brokers which consumers of the groups are connected now.", default="true")

    def faults(self) -> Iterator[tuple[str, str]]:
        if self.since is not None and self.until is not None and self.since >= self.until:
            yield "until", "not after since"
