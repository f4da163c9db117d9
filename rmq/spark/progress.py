"""Reading a streaming query's progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmq.spark.options.positions import queues_of

__all__ = ["lag"]


def _offsets(value: object) -> dict[Any, int]:
    """Offsets as a progress holds them, which is as text or as an object; empty when they are not ours."""
    try:
        return queues_of(json.loads(value) if isinstance(value, str) else value, int)
    except (ValueError, TypeError):
        return {}


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """How many messages of each topic a query has still to read.

    :param progress: ``json.loads(query.lastProgress.json)``.
    :returns: empty where this Spark does not report it (before 4.2), or for other sources.
    """
    found: dict[str, int] = {}
    for source in progress.get("sources", ()):
        end = _offsets(source.get("endOffset"))
        for queue, latest in _offsets(source.get("latestOffset")).items():
            found[queue.topic] = found.get(queue.topic, 0) + max(0, latest - end.get(queue, 0))
    return found
