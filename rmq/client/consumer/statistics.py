"""What a consumer counts, for 307 and for whoever looks (protocol.md 4.13). Pure: times come in."""

from __future__ import annotations

from collections import deque

from rmq.protocol.bodies.running import ConsumeStatus

__all__ = ["TopicStatistics"]

_WINDOW = 60.0
_SLICE = 1.0


class _Sum:
    """Count and total over the last minute, in slices of a second."""

    __slots__ = ("_count", "_slices", "_total")

    def __init__(self) -> None:
        self._slices: deque[list[float]] = deque()
        self._count = 0.0
        self._total = 0.0

    def add(self, count: int, value: float, now: float) -> None:
        slices = self._slices
        if not slices or now - slices[-1][0] >= _SLICE:
            slices.append([now, 0.0, 0.0])
            self._expire(now)
        last = slices[-1]
        last[1] += count
        last[2] += value
        self._count += count
        self._total += value

    def _expire(self, now: float) -> None:
        while self._slices and now - self._slices[0][0] > _WINDOW:
            _, count, value = self._slices.popleft()
            self._count -= count
            self._total -= value

    def read(self, now: float) -> tuple[float, float]:
        self._expire(now)
        return self._count, self._total


class TopicStatistics:
    """Pulls and listener calls of one topic; durations in seconds."""

    __slots__ = ("_failed", "_failed_ever", "_ok", "_pull_rt", "_pulled", "_rt")

    def __init__(self) -> None:
        self._pull_rt = _Sum()
        self._pulled = _Sum()
        self._rt = _Sum()
        self._ok = _Sum()
        self._failed = _Sum()
        self._failed_ever = 0

    def on_pull(self, messages: int, duration: float, now: float) -> None:
        self._pull_rt.add(1, duration, now)
        self._pulled.add(messages, 0.0, now)

    def on_consume(self, ok: int, failed: int, duration: float, now: float) -> None:
        self._rt.add(ok + failed, duration, now)
        if ok:
            self._ok.add(ok, 0.0, now)
        if failed:
            self._failed.add(failed, 0.0, now)
            self._failed_ever += failed

    def status(self, now: float) -> ConsumeStatus:
        """Rates a second and mean durations in milliseconds over the last minute."""

        def mean(total: _Sum) -> float:
            count, value = total.read(now)
            return value * 1000 / count if count else 0.0

        def rate(total: _Sum) -> float:
            return total.read(now)[0] / _WINDOW

        return ConsumeStatus(
            pull_rt=mean(self._pull_rt),
            pull_tps=rate(self._pulled),
            consume_rt=mean(self._rt),
            consume_ok_tps=rate(self._ok),
            consume_failed_tps=rate(self._failed),
            consume_failed_msgs=self._failed_ever,
        )
