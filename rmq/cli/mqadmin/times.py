"""Times as options take them."""

from __future__ import annotations

import click

from rmq.cli import moments
from rmq.client.admin.reset import TO_END
from rmq.runtime.world import World

__all__ = ["GIVEN", "moment", "moment_or_now"]

#: In the context of a command: what :func:`moment_or_now` was given, as it stood.
GIVEN = f"{__name__}.given"


def moment(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Milliseconds since the epoch."""
    return None if text is None else _read(ctx, param, text, "")


def moment_or_now(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """The same; ``now`` and -1 are the end of each queue."""
    ctx.meta[GIVEN] = text
    if text in ("now", "-1"):
        return TO_END
    return None if text is None else _read(ctx, param, text, "now, ")


def _read(ctx: click.Context, param: click.Parameter, text: str, also: str) -> int:
    if text.isdecimal() and text.isascii():
        return int(text)
    try:
        return moments.moment(text, World.around().clock.now_ms())
    except ValueError:
        forms = f"{also}milliseconds since 1970, yyyy-MM-dd#HH:mm:ss:SSS, 2026-11-29T18:30, -10m, today or yesterday"
        raise click.BadParameter(f"{text}: {forms}", ctx, param) from None
