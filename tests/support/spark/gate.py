"""Keeps a batch open for as long as a test needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["gate"]


def gate(folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For ``mapInArrow``: lets the first rows of each task through, then waits for the file ``go``.

    Meanwhile there is a file ``open-<partition>-<attempt>-<pid>-<pid of its parent>`` for each task. What the reader
    has still to read stays at the broker, but for what fits between the processes: nothing takes it from Spark.
    """
    place = str(folder)

    def keep(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"open-{context.partitionId()}-{context.attemptNumber()}-{os.getpid()}-{os.getppid()}"
        for number, rows in enumerate(batches):
            if number == 1 and not os.path.exists(os.path.join(place, "go")):
                open(os.path.join(place, name), "w").close()
                while not os.path.exists(os.path.join(place, "go")):
                    time.sleep(0.02)
            yield rows

    return keep
