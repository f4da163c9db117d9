"""Being told to stop: SIGTERM, SIGHUP or Ctrl-C once is asked for politely, a second time it ends at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from rmq.runtime.signals import insists, stop_signals

__all__ = ["Stop"]


class Stop:
    """``with Stop() as stop``: ``stop.asked`` turns true at the first signal."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if insists(number):
            for one in filter(insists, self._before):
                signal.signal(one, signal.default_int_handler)

    def __enter__(self) -> Stop:
        self.listen()
        return self

    def listen(self) -> None:
        """Take the signals, also from Spark, which takes Ctrl-C when it starts."""
        if self.asked:
            return
        try:
            for one in stop_signals():
                self._before.setdefault(one, signal.signal(one, self._note))
        except ValueError:
            # Signals come to the main thread alone; elsewhere whoever runs us sets ``asked``.
            pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
