"""Java's way of writing names, addresses and times."""

from __future__ import annotations

import unicodedata
from datetime import datetime

__all__ = ["address", "cut", "plain", "seconds", "stamp", "width"]


def address(host: tuple[str, int]) -> str:
    """``10.0.0.1:10911`` or ``[::1]:10911``."""
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def plain(text: str) -> str:
    """Harmless to a terminal, on one line: what another machine says may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width(text: str) -> int:
    """How many columns of a terminal a text takes: wide letters (Chinese, Japanese, Korean) two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def cut(text: str, width: int) -> str:
    """At most ``width`` characters from the end, as Java's tools shorten names."""
    return text[-width:] if len(text) > width else text


def stamp(ms: int) -> str:
    """Local time with milliseconds, ``2026-11-28 00:27:17,113``; the number itself when it is beyond any calendar."""
    try:
        return f"{datetime.fromtimestamp(ms // 1000):%Y-%m-%d %H:%M:%S},{ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return f"{ms:<23}"


def seconds(ms: int) -> str:
    """Local time to the second, or ``N/A`` for none."""
    return f"{datetime.fromtimestamp(ms // 1000):%Y-%m-%d %H:%M:%S}" if ms > 0 else "N/A"
