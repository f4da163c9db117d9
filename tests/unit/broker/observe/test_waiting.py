"""What is read for a page of metrics, when some of it cannot be read."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

from rmq.broker.observe.waiting import WaitingMetrics
from tests.support.virtual import in_virtual_time


class Search:
    async def time_at(self, queue: Any, index: int) -> int:
        await asyncio.sleep(0.1)
        if queue.topic == "Deleted":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/store/consumequeue_ext/Deleted/0/0")
        return 900


@in_virtual_time
async def test_a_queue_that_goes_while_a_page_is_made_costs_its_own_figure() -> None:
    async def oldest_time() -> int:
        return 500

    def queue(topic: str, queue_id: int) -> Any:
        return SimpleNamespace(topic=topic, min=0, visible=5)

    store = SimpleNamespace(search=Search(), queues=SimpleNamespace(get=queue), oldest_time=oldest_time)
    lags = [SimpleNamespace(topic=topic, total=5, queues={0: 5}) for topic in ("Deleted", "There")]
    figures = SimpleNamespace(
        master=lambda: None, clock=SimpleNamespace(now_ms=lambda: 1_000), store=store, lags=lambda: iter(lags)
    )
    waiting = WaitingMetrics(figures)  # type: ignore[arg-type]
    for pages in (1, 3):  # of several that are made at a time each has every figure once
        await asyncio.gather(*(waiting.read() for _ in range(pages)))
        assert [(lag.topic, waited) for lag, waited in waiting.latencies()] == [("Deleted", 0), ("There", 100)]
