"""The job ``archive``: topics to Parquet folders by event date and hour."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmq.spark.pipeline.job import StreamJob, folder_fault
from rmq.spark.pipeline.kinds import Choice, Duration, Flag, Size, Text, Whole, pattern_fault
from rmq.spark.pipeline.spec import Spec, key, section

__all__ = ["Archive", "Compaction"]

_FIELD = re.compile(r"\$(\.\w+)+")


def _event_time(text: str) -> str | None:
    if text in ("bornTimestamp", "timestamp") or _FIELD.fullmatch(text):
        return None
    return "bornTimestamp (sent), timestamp (stored) or a field of JSON bodies such as $.createdAt is expected"


class Compaction(Spec):
    """Joins the small files of hours that are over, between two batches: those that this job wrote."""

    enabled = key(Flag(), "false leaves all files as they were written.", default="true")
    every = key(Duration(), "How often small files are looked for; also at the end of trigger: once.", default="10m")
    closed_for = key(
        Duration(), "How long an hour must be over; 0s joins those of the running hour, too.", default="15m"
    )
    min_files = key(Whole(2, 100_000), "So many small files in one folder are worth it.", default="4")
    target_size = key(
        Size(1 << 10), "Size of a joined file; what is smaller than half of it is small.", default="128MB"
    )


class Archive(StreamJob):
    """Archives topics to Parquet, in folders topic=NAME/date=YYYY-MM-DD/hour=HH (UTC) of the event's time.

    Every message is in the archive once, with all columns of the data source, also after a crash in the middle of a
    batch. Each file appears whole. Read it with rmq.spark.read_archive(spark, PATH), or replay it with the job replay.
    """

    path = key(
        Text("a folder", fault=pattern_fault),
        "The archive: a folder, or any address that Spark can write.",
        sample="archive/orders",
    )
    event_time = key(
        Text(fault=_event_time),
        "The event's time: bornTimestamp (sent), timestamp (stored), or a field of JSON bodies such as $.createdAt "
        "(ISO 8601, or seconds or milliseconds since 1970; where it cannot be read bornTimestamp counts).",
        default="bornTimestamp",
    )
    compression = key(Choice("zstd", "snappy", "gzip", "none"), "Compression of the files.", default="zstd")
    compaction = section(Compaction)

    def faults(self) -> Iterator[tuple[str, str]]:
        yield from super().faults()
        if fault := folder_fault(self.checkpoint, self.path, "path"):
            yield "checkpoint", fault
