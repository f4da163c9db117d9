"""Streaming queries that end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["TOO_BUSY", "to_the_end"]

#: What Spark says when the process that plans a stream was not there within ten seconds, which cannot be configured.
TOO_BUSY = "Python worker failed to connect back"


def to_the_end(start: Callable[[], Any]) -> Any:
    """Start a query and wait for its end; it is returned.

    One that a busy machine kept from starting at all is started again: it has neither planned nor read anything.
    """
    from pyspark.errors import StreamingQueryException  # collected where there is no Spark

    while True:
        query = start()
        try:
            assert query.awaitTermination(300)
            return query
        except StreamingQueryException as failed:
            if TOO_BUSY not in str(failed) or query.lastProgress is not None:
                raise
