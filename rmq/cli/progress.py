"""A bar on standard error while something long runs; nothing where that is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import click

from rmq.cli.command import is_quiet

__all__ = ["Bar"]


class Bar:
    """``with Bar() as bar``: called with (what is being done, how much of it is done, of how much).

    It ends with the block, or when nothing is done any more.
    """

    def __init__(self) -> None:
        self._what = ""
        self._bar: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if not sys.stderr.isatty() or is_quiet():
            return
        if what != self._what:
            self._end()
            if not what:
                return
            self._what = what
            self._bar = click.progressbar(length=max(total, 1), label=what, file=sys.stderr, width=30)
            self._bar.__enter__()
        if self._bar is not None:
            self._bar.update(min(done, total) - self._bar.pos)

    def _end(self) -> None:
        bar, self._bar = self._bar, None
        self._what = ""
        if bar is not None:
            bar.update(bar.length - bar.pos)
            bar.render_finish()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end()
        elif self._bar is not None:
            click.echo(err=True)
