"""Sending no faster than is allowed, within a task of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rmq.runtime.dial import Dial, RealDial

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["paced"]


def paced(rate: int, clock: Dial | None = None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: hands rows on in portions of a tenth of a second, so that ``rate`` a second is kept.

    :param rate: rows a second of this task.
    :param clock: the real one when not given.
    """

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        world = clock or RealDial()
        begin = world.monotonic()
        portion = max(1, rate // 10)
        handed = 0
        for batch in batches:
            for at in range(0, batch.num_rows, portion):
                early = handed / rate - (world.monotonic() - begin)
                if early > 0:
                    world.sleep(early)
                piece = batch.slice(at, portion)
                handed += piece.num_rows
                yield piece

    return hand_on
