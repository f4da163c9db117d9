"""Times as options take them."""

from __future__ import annotations

from datetime import datetime

import click

from rmq.client.reset import TO_END

__all__ = ["GIVEN", "moment", "moment_or_now"]

#: In the context of a command: what :func:`moment_or_now` was given, as it stood.
GIVEN = f"{__name__}.given"

#: Java's form: a date, a hash sign, a time with milliseconds.
_FORMS = ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


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
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
    raise click.BadParameter(f"{text}: {also}milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS", ctx, param)
