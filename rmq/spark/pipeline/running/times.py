"""Times of events: read out of what messages hold, and written in UTC whatever time zone the session has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["date", "hour", "iso", "of_epoch", "of_text", "within"]

_DAY = 86_400
#: Years 1 to 9999 in seconds: others can neither be folders nor be read again.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
#: A number of at least so many is milliseconds, a smaller one seconds (of years up to 5138).
_MILLISECONDS = 100_000_000_000


def of_epoch(number: Column, parts: int) -> Column:
    """The time of a number of seconds (``parts`` 1) or milliseconds (1000) since 1970; null outside of years 1 to 9999.

    What does not fit would otherwise end the query, again and again, since the message stays where it is.
    """
    fits = sql.when(number.between(_FIRST * parts, (_LAST + 1) * parts - 1), number)
    return sql.timestamp_micros((fits.cast("decimal(38,6)") * (1_000_000 // parts)).cast("bigint"))


def of_text(text: Column) -> Column:
    """The time that a text tells: ISO 8601 with a date, milliseconds or seconds since 1970; null where it tells none.

    Without a zone it is one of the session's time zone.
    """
    number = text.try_cast("decimal(38,6)")
    milliseconds = sql.abs(number) >= _MILLISECONDS
    numbered = sql.coalesce(
        of_epoch(sql.when(milliseconds, number), 1000), of_epoch(sql.when(~milliseconds, number), 1)
    )
    written = within(sql.when(text.rlike(r"^\s*\d{4}-\d"), text).try_cast("timestamp"))
    return sql.coalesce(numbered, written)


def within(at: Column) -> Column:
    """``at``; null outside of years 1 to 9999."""
    return sql.when(sql.unix_seconds(at).between(_FIRST, _LAST), at)


def date(at: Column) -> Column:
    """``2026-03-01``, in UTC."""
    seconds = sql.unix_seconds(at)
    days = (seconds - sql.pmod(seconds, sql.lit(_DAY))) / _DAY
    return sql.date_from_unix_date(days.cast("int")).cast("string")


def hour(at: Column) -> Column:
    """``00`` to ``23``, in UTC."""
    return _two(sql.pmod(sql.unix_seconds(at), sql.lit(_DAY)) / 3600)


def iso(at: Column) -> Column:
    """``2026-03-01T12:00:00Z``."""
    seconds = sql.unix_seconds(at)
    minutes = sql.pmod(seconds, sql.lit(3600)) / 60
    clock = sql.concat_ws(":", hour(at), _two(minutes), _two(sql.pmod(seconds, sql.lit(60))))
    return sql.concat(date(at), sql.lit("T"), clock, sql.lit("Z"))


def _two(number: Column) -> Column:
    return sql.lpad(sql.floor(number).cast("string"), 2, "0")
