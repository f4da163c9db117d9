"""Masters and slaves for tests: small logs with something of everything, over a simulated network."""

from __future__ import annotations

from rmq.broker.store.store import Store
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import LOG_SIZE as SIZE
from tests.support.scenes.store import opened, put, small

__all__ = ["SIZE", "fill", "filled_log", "log_bytes"]


def fill(store: Store, count: int, first: int = 0) -> None:
    """Append messages of growing sizes to three topics; 90 of them reach into the third file."""
    for n in range(first, first + count):
        queue = store.queues.get_or_create(f"T{n % 3}", n % 2)
        message = put(queue, bytes([n % 256]) * (200 + 5 * (n % 100)), key=f"k{n}", tag="A" if n % 2 else "")
        store.append([message], 1_000_000 + 10 * n)


def log_bytes(store: Store, start: int | None = None, end: int | None = None) -> bytes:
    """The log as it lies in its files."""
    log = store.log
    start = log.start if start is None else start
    end = log.end if end is None else end
    data = b"".join(file.file.pread(SIZE, 0) for file in log.segments)
    base = log.segments[0].start if log.segments else 0
    return data[start - base : end - base]


async def filled_log(count: int, first: int = 0) -> bytes:
    """The bytes of a log of its own."""
    store = await opened(Simulation(7).node("m").world, small())
    fill(store, count, first)
    data = log_bytes(store)
    await store.stop()
    return data
