"""The job ``replay``: a range of time, from an archive or a topic, sent again."""

from __future__ import annotations

from collections.abc import Iterator

from rmq.spark.pipeline.job import TOPIC_NAME, Job, Reading, folder_fault, source_faults
from rmq.spark.pipeline.kinds import Choice, Duration, Many, Moment, Text, Whole, pattern_fault
from rmq.spark.pipeline.spec import Spec, key, maybe, section

__all__ = ["Replay"]


class From(Reading):
    """What is replayed: a topic, by the time it was stored, or an archive, by the time of the event."""

    topic = maybe(TOPIC_NAME, "The topic to read from.", sample="OrderEvents", shown=True)
    archive = maybe(
        Text("a folder", fault=pattern_fault),
        "Or the folder of an archive that the job archive wrote.",
        sample="archive/orders",
    )
    archived_topics = maybe(Many(TOPIC_NAME), "Only these topics of the archive.", sample="[OrderEvents]")
    start = key(Moment(), "From this time on (UTC where it names no zone).", sample="2026-03-01T12:00:00Z")
    end = key(Moment(), "Up to this time, without it.", sample="2026-03-01T18:00:00Z")
    tags = maybe(Many(Text("a tag")), "Only messages with one of these tags.", sample="[created, paid]")
    keys_ = maybe(Many(Text("a key")), "Only messages with one of these keys.", sample="[order-17]")

    #: Keys that are no options of the data source.
    OWN = frozenset({"topic", "archive", "archivedTopics", "start", "end", "tags", "keys"})

    def options(self) -> dict[str, str]:
        return {name: value for name, value in super().options().items() if name not in self.OWN}


class To(Spec):
    """Where it is sent."""

    topic = maybe(TOPIC_NAME, "The topic. Default: the one it came from.", sample="OrderReplay", shown=True)
    name_server = maybe(Text("host:port;host:port"), "Another cluster's name servers.", sample="10.0.0.2:9876")
    max_rate = maybe(Whole(1, 10**7), "Messages a second at most.", sample="5000")
    order = key(
        Choice("queue", "none"),
        "queue: messages with one sharding key, or else of one queue, stay in their order, in one queue of the target.",
        default="queue",
    )


class Replay(Job):
    """Sends the messages of a range of time again, slice by slice; a killed replay goes on after the last whole slice.

    Each message carries where it came from (RMQ_REPLAY_TOPIC, _BROKER, _QUEUE, _OFFSET): what a slice sends twice after
    a crash can be told apart by these.
    """

    from_ = section(From, required=True)
    to = section(To, required=True)
    slice = key(Duration(1.0), "Length of a slice of time.", default="10m")
    checkpoint = key(
        Text("a folder"),
        "Where it is kept which slices were sent; a folder of its own for each replay.",
        sample="checkpoints/replay-1",
    )

    def faults(self) -> Iterator[tuple[str, str]]:
        part = self.from_
        if (part.topic is None) == (part.archive is None):
            yield "from", "give topic or archive, one of them"
            return
        if part.start >= part.end:
            yield "from.end", "not after start"
        if part.archive is not None:
            if fault := folder_fault(self.checkpoint, part.archive, "from.archive"):
                yield "checkpoint", fault
            for name in part.options():
                yield f"from.{name}", "is for topics, not for an archive"
        else:
            if part.archived_topics is not None:
                yield "from.archivedTopics", "is for an archive, not for a topic"
            yield from source_faults(self, self.source_options(), "from", part)
        if self.to.topic is None and self.to.name_server is None and part.topic is not None:
            yield "to", "the topic would be sent into itself: give a topic, or the nameServer of another cluster"
        if self.to.topic is not None and self.to.topic == part.topic and self.to.name_server is None:
            yield "to.topic", "the topic would be sent into itself: give another, or the nameServer of another cluster"

    def source_options(self) -> dict[str, str]:
        """Options of the read, without the range."""
        return self.reading(self.from_, {"topic": self.from_.topic or ""}, stream=False)

    def sink_options(self) -> dict[str, str]:
        """Options of the write."""
        options = self.cluster.options() | {"producerGroup": self.title()}
        if self.to.name_server is not None:
            options["nameServer"] = self.to.name_server
        if self.to.topic is not None:
            options["topic"] = self.to.topic
        return options
