"""``--watch``: a command again and again, on a terminal in place."""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from rmq.cli.mqadmin.changes import CHANGING
from rmq.cli.mqadmin.failures import REFUSED, failure
from rmq.protocol.errors import RMQError
from rmq.runtime.world import World

__all__ = ["WATCH_WORDS", "Rounds", "watch_options", "watched"]

WATCH_WORDS = ("watch", "every_of_watch", "rounds_of_watch")
#: Those that send, write files, or go on by themselves.
_UNWATCHED = frozenset({
    "top", "apply", "export", "diff",
    "startMonitoring", "clusterRT", "sendMessage", "recallMessage", "checkMsgSendRT", "sendMsgStatus",
    "exportMetadata", "exportConfigs", "exportMetrics",
})  # fmt: skip
_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J"

watch_options: tuple[Callable[[Any], Any], ...] = (
    click.option("--rounds", "rounds_of_watch", type=click.IntRange(1), metavar="N",
                 help="With --watch: end after so many times; else Ctrl-C."),
    click.option("--every", "every_of_watch", type=click.FloatRange(0.1, 86_400), metavar="SECONDS",
                 help=f"With --watch: the time between two looks.  [default: {_SECONDS:g}]"),
    click.option("--watch", "watch", is_flag=True, help="Look again and again; on a terminal in place."),
)  # fmt: skip


def watched(name: str) -> bool:
    """Whether a command of this name may be watched: it only looks, and it ends."""
    return name not in CHANGING and name not in _UNWATCHED


@dataclass(frozen=True, slots=True)
class Rounds:
    """:param every: seconds between two. :param count: how many; None: until Ctrl-C."""

    every: float
    count: int | None

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Rounds | None:
        """What was typed. :raises click.UsageError: how to watch was said, and not to watch."""
        every, count = words.get("every_of_watch"), words.get("rounds_of_watch")
        if words.get("watch"):
            return cls(every or _SECONDS, count)
        if every is not None or count is not None:
            raise click.UsageError("--every and --rounds are for --watch", click.get_current_context())
        return None

    async def run(self, once: Callable[[], Awaitable[int | None]], ctx: click.Context) -> int:
        """Do it again and again; a look that fails is told of and the next one comes. :returns: the last one's code."""
        in_place = sys.stdout.isatty()
        done = 0
        while True:
            if in_place:
                code, text = await _captured(once)
                click.echo(_CLEAR + self._screen(ctx, text), nl=False)
            else:
                code = await _told(once)
            done += 1
            if done == self.count:
                return code
            await asyncio.sleep(self.every)

    def _screen(self, ctx: click.Context, text: str) -> str:
        """As much as fits, under a line that says what it is."""
        width, height = shutil.get_terminal_size()
        at = datetime.fromtimestamp(World.around().clock.now_ms() / 1000)
        lines = [f"{ctx.command_path}, every {self.every:g} s, {at:%H:%M:%S}, Ctrl-C ends it"[:width], ""]
        shown = text.splitlines()
        room = max(1, height - len(lines) - 1)
        if len(shown) > room:
            shown = [*shown[: room - 1], f"... {len(shown) - room + 1} lines more: they do not fit"]
        return "\n".join([*lines, *(line[:width] for line in shown)]) + "\n"


async def _told(once: Callable[[], Awaitable[int | None]]) -> int:
    try:
        return await once() or 0
    except RMQError as error:
        text, code = failure(error)
        click.echo(f"mqadmin: {' '.join(text.split())}", err=True)
        return code
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            raise
        click.echo(f"mqadmin: {error.format_message()}", err=True)
        return REFUSED


async def _captured(once: Callable[[], Awaitable[int | None]]) -> tuple[int, str]:
    """What it prints, errors too."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        code = await _told(once)
    return code, text.getvalue()
