"""A job's progress on the terminal: a block that is drawn anew, or plain lines where there is no terminal."""

from __future__ import annotations

import shutil
from typing import TextIO

from rmq.spark.pipeline.running.watch import Watch

__all__ = ["Screen"]


class Screen:
    """Shows a :class:`Watch`.

    :param out: where to; asked whether it is a terminal.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._alive = out.isatty()
        self._drawn = 0

    def __call__(self, watch: Watch, line: str) -> None:
        """Show the watch; ``line`` stays above it."""
        if line:
            self._wipe()
            self._put(f"{watch.title}: {line}")
        if watch.last is None:
            return
        if not self._alive:
            if not line:
                self._put(f"{watch.title}: {'; '.join(figures(watch))}")
            return
        self._wipe()
        width = shutil.get_terminal_size().columns
        for part in (f"{watch.title} ({watch.kind})", *figures(watch), totals(watch)):
            self._put(("  " if self._drawn else "") + part[: width - 3])
            self._drawn += 1

    def _wipe(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _put(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


def figures(watch: Watch) -> list[str]:
    """The last batch in words."""
    last = watch.last
    if last is None:
        return []
    found = [f"batch {last.number}: {last.rows:,} rows in {last.seconds:.2f} s, {last.rate:,.0f} rows/s"]
    if last.upto is not None:
        found.append(f"up to {last.upto}")
    if last.lag:
        found.append("lag " + ", ".join(f"{topic} {behind:,}" for topic, behind in sorted(last.lag.items())))
    counted = [f"{name} {value:,}" for name, value in sorted(watch.counts.items()) if value]
    if counted:
        found.append("since the start " + ", ".join(counted))
    return found


def totals(watch: Watch) -> str:
    """All batches in words."""
    batches = "1 batch" if watch.batches == 1 else f"{watch.batches:,} batches"
    return f"{watch.rows:,} rows in {batches}, {watch.seconds:,.1f} s"
