"""How late the event loop is, and who made it late: the first figure to look at when a daemon feels slow.

A timer beats 40 times a second; what it comes late is the loop's lag. A stall beyond the limit is counted and logged
with what the loop was running, as the watch of the runtime saw it from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rmq.remoting.limits import Rationed
from rmq.remoting.metrics import Family, Sample
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["LoopLag"]

log = logger(__name__)

_BEAT_SECONDS = 0.025
#: The greatest lag is told over one to two of these.
_WINDOW_SECONDS = 15.0


class LoopLag:
    """Measures the running loop from :meth:`start` to :meth:`stop`.

    :param limit_ms: stalls longer than it are counted and logged.
    :param name: begins the log line.
    """

    def __init__(self, world: World, limit_ms: int, name: str) -> None:
        self._monotonic = world.clock.monotonic
        self._limit = limit_ms / 1000
        self._name = name
        self._watch = world.stalls(self._limit) if world.stalls is not None else None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ration = Rationed(world.clock, most=6, seconds=60.0)
        #: Stalls beyond the limit since start, and their seconds.
        self.stalls = 0
        self.stalled_seconds = 0.0
        self._now_most = self._before_most = 0.0
        self._turn = 0.0

    def start(self) -> None:
        if self._watch is not None:
            self._watch.start()
        self._turn = self._monotonic() + _WINDOW_SECONDS
        self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watch is not None:
            self._watch.stop()

    @property
    def greatest(self) -> float:
        """The greatest lag of the last 15 to 30 s, seconds."""
        return max(self._now_most, self._before_most)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._monotonic() + _BEAT_SECONDS
        self._timer = loop.call_later(_BEAT_SECONDS, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._monotonic()
        lag = now - self._due
        if now >= self._turn:
            self._turn = now + _WINDOW_SECONDS
            self._before_most, self._now_most = self._now_most, 0.0
        if lag > self._now_most:
            self._now_most = lag
        watch = self._watch
        if lag > self._limit:
            self.stalls += 1
            self.stalled_seconds += lag
            seen = watch.take() if watch is not None else None
            if self._ration.passes():
                log.warning(
                    "%s: the event loop stood still for %d ms: %s%s",
                    self._name,
                    lag * 1000,
                    seen or "nobody was caught at it",
                    self._ration.note(),
                )
        if watch is not None:
            watch.beat()
        self._arm(loop)

    def families(self) -> list[Family]:
        """The figures as metrics."""

        def one(value: float) -> Iterator[Sample]:
            yield "", (), value

        return [
            Family(
                "rmq_loop_lag_seconds",
                "gauge",
                "Greatest lag of the event loop in the last 15 to 30 s",
                one(self.greatest),
            ),
            Family(
                "rmq_loop_stalls_total",
                "counter",
                "Stalls of the event loop beyond loopStallWarnMills",
                one(self.stalls),
            ),
            Family(
                "rmq_loop_stalled_seconds_total",
                "counter",
                "Time lost in these stalls, seconds",
                one(self.stalled_seconds),
            ),
        ]
