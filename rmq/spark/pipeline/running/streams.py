"""What the streaming jobs have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.spark.pipeline.job import ONCE

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Running", "trigger"]


@dataclass(frozen=True, slots=True)
class Running:
    """A query under way.

    :param finish: what is to be done once it has ended by itself.
    """

    query: StreamingQuery
    finish: Callable[[], None] = lambda: None


def trigger(writer: DataStreamWriter, seconds: float) -> DataStreamWriter:
    """Set how often batches are made; ``ONCE`` is what there is now, in batches of the size that limits say."""
    if seconds == ONCE:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
