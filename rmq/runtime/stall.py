"""Looks at the event loop from outside: a thread that says what the loop runs while it stands still.

The thread sleeps nearly always; it takes the GIL for some microseconds 40 times a second. That is the price of a name
in the log where asyncio, and uvloop still less, can give none.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from types import FrameType

__all__ = ["ThreadWatch", "describe"]

_LOOK_SECONDS = 0.025
#: Where the loop itself is entered: seen alone they mean that it was waiting, not working.
_ENTRIES = ("runtime/loop.py", "runtime/background.py")
#: The package's folder, with the separator at its end.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_SHOWN = 4


class ThreadWatch:
    """Watches the thread that calls :meth:`start`.

    :param seconds: how long the loop may go without a :meth:`beat`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, _LOOK_SECONDS)
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._ident = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._at = 0.0
        self._seen: tuple[float, str] | None = None

    def start(self) -> None:
        self._ident = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._at = time.monotonic()
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="rmq-stall-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(1.0)
            self._thread = None

    def beat(self) -> None:
        """The loop runs."""
        self._at = time.monotonic()

    def take(self) -> str | None:
        """What the loop was seen doing since the last beat, if it was looked at."""
        seen, self._seen = self._seen, None
        return seen[1] if seen is not None and seen[0] == self._at else None

    def _run(self) -> None:
        looked_at = 0.0
        while not self._end.wait(_LOOK_SECONDS):
            at = self._at
            # The beat comes once a period anyway: the loop is late when one more limit has passed.
            if at != looked_at and time.monotonic() - at > _LOOK_SECONDS + self._seconds / 2:
                looked_at = at
                frame = sys._current_frames().get(self._ident)
                if frame is not None:
                    self._seen = (at, describe(frame, self._task()))
                    del frame

    def _task(self) -> str | None:
        loop = self._loop
        try:
            task = asyncio.current_task(loop) if loop is not None else None
        except RuntimeError:
            return None
        return task.get_name() if task is not None else None


def describe(frame: FrameType | None, task: str | None) -> str:
    """A stack in one line, innermost first: where it stood, then our own functions that led there."""
    lines: list[str] = []
    innermost = frame
    while frame is not None and len(lines) < _SHOWN:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE):
            inside = path[len(_PACKAGE) :]
            if inside in _ENTRIES:
                break
            lines.append(f"{frame.f_code.co_qualname} (rmq/{inside}:{frame.f_lineno})")
        frame = frame.f_back
    if not lines:
        return "it was not running anything of ours: the machine was busy, or asleep"
    if innermost is not None and not innermost.f_code.co_filename.startswith(_PACKAGE):
        lines.insert(0, innermost.f_code.co_qualname)
    whose = f"task {task}: " if task else ""
    return f"{whose}{' < '.join(lines)}"
