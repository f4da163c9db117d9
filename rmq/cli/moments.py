"""Times as people type them: relative, ISO 8601, Java's form, milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

__all__ = ["Moment", "Zone", "moment"]

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE = re.compile(r"-((?:\d+(?:ms|[smhdw]))+)")
_PART = re.compile(r"(\d+)(ms|[smhdw])")
#: Java's tools: yyyy-MM-dd#HH:mm:ss:SSS.
_JAVA = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d)(?::(\d{3}))?")
#: Milliseconds of the year 1973 at least: what is shorter is no time that a message could have.
_EPOCH_MS = re.compile(r"\d{12,14}")
#: The last millisecond that a datetime has.
_LATEST = 253_402_300_799_999
_FORMS = "-10m, now, today, yesterday, 2026-11-29, 2026-11-29T18:30, 2026-11-29#18:30:00:000 or milliseconds"


def moment(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """Milliseconds since the epoch of what was typed.

    :param text: ``now``; ``today`` and ``yesterday`` (their midnight); ``-10m``, ``-1h30m``, ``-2d`` (before now); a
        date or time of ISO 8601, ``Z`` and offsets included; Java's ``yyyy-MM-dd#HH:mm:ss:SSS``; milliseconds.
    :param now_ms: what they are relative to.
    :param zone: of times without one; None = this machine's.
    :raises ValueError: it is none of these, with the forms that are.
    """
    word = text.strip()
    if word == "now":
        return now_ms
    if word in ("today", "yesterday"):
        day = datetime.fromtimestamp(now_ms / 1000, zone).date() - timedelta(days=word == "yesterday")
        return _ms(datetime(day.year, day.month, day.day), zone)
    if relative := _RELATIVE.fullmatch(word):
        before = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(relative[1]))
        if before > now_ms:
            raise ValueError(f"{text!r} is before 1970")
        return now_ms - before
    if _EPOCH_MS.fullmatch(word):
        return min(int(word), _LATEST)
    java = _JAVA.fullmatch(word)
    iso = f"{java[1]}T{java[2]}.{java[3] or '000'}" if java else word
    try:
        # A number alone would be taken for a year and month.
        return _ms(datetime.fromisoformat(iso if "-" in iso else ""), zone)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time: {_FORMS}") from None


def _ms(when: datetime, zone: tzinfo | None) -> int:
    if when.tzinfo is None and zone is not None:
        when = when.replace(tzinfo=zone)
    # In whole numbers: a float loses the last millisecond of some times.
    return (when.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Moment(click.ParamType[str]):
    """An option that takes a time; the command gets the text, since what it means depends on when the command runs."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            moment(value, 1 << 40)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


class Zone(click.ParamType[tzinfo]):
    """An option that takes a time zone by name: Europe/Berlin, UTC."""

    name = "zone"

    def convert(self, value: str | tzinfo, param: click.Parameter | None, ctx: click.Context | None) -> tzinfo:
        if isinstance(value, tzinfo):
            return value
        try:
            return ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.fail(f"{value!r} is no time zone: give one as Europe/Berlin or UTC", param, ctx)
