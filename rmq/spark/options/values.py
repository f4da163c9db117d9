"""The values of options, out of the texts that Spark hands over; each reader says what it takes instead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from rmq.protocol import addresses
from rmq.protocol.errors import RMQError
from rmq.protocol.names import LMQ_PREFIX, group_fault, topic_fault

__all__ = [
    "columns",
    "duration",
    "group",
    "namespace",
    "password",
    "pattern",
    "servers",
    "text",
    "topics",
    "truth",
    "whole",
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 36_500 * 86_400.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.IGNORECASE)


def duration(given: str) -> float:
    """Seconds of ``500ms``, ``10s``, ``5m``, ``1h`` or ``1d``, a hundred years at most.

    :raises ValueError: none of these.
    """
    found = _DURATION.fullmatch(given.strip())
    if not found:
        raise ValueError("a number with ms, s, m, h or d, such as 15m")
    seconds = float(found[1]) * _UNITS[found[2].lower()]
    if seconds > _LONGEST:  # neither Spark nor a calendar counts as far
        raise ValueError("at most 36500d")
    return seconds


def truth(given: str) -> bool:
    if given.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return given.strip().lower() == "true"


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(given: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", given.strip()) or not least <= int(given) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(given)

    return read


def text(given: str) -> str:
    return password(given).strip()


def password(given: str) -> str:
    """As it is: blanks may belong to it."""
    if not given.strip():
        raise ValueError("a text that is not empty")
    return given


def topics(given: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name for part in given.split(",") if (name := part.strip())))
    if not found:
        raise ValueError("one name, or several separated by commas")
    for name in found:
        if fault := topic_fault(name):
            raise ValueError(f"a topic's name: {fault}")
        if name.startswith(LMQ_PREFIX):
            raise ValueError(f"a topic that has queues of its own: {name} is a light queue within another topic")
    return found


def group(given: str) -> str:
    if fault := group_fault(given.strip()):
        raise ValueError(f"a group's name: {fault}")
    return given.strip()


def pattern(given: str) -> str:
    try:
        re.compile(text(given))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text(given)


def servers(given: str) -> tuple[str, ...]:
    try:
        found = addresses.parse_list(given)
    except RMQError as error:
        raise ValueError(f"a list of host:port ({error})") from None
    if not found:
        raise ValueError("a list of host:port, such as 127.0.0.1:9876")
    return tuple(addresses.join(*each) for each in found)


def columns(given: str) -> tuple[str, ...]:
    found = tuple(name for part in given.split(",") if (name := part.strip()))
    if not found:
        raise ValueError("names of columns separated by commas, or legacy")
    again = [name for name, times in Counter(name.lower() for name in found).items() if times > 1]
    if again:
        raise ValueError(f"each column once: {again[0]} is there several times")
    return found


def namespace(given: str) -> str:
    if not given.strip() or "%" in given or topic_fault(given.strip()):
        raise ValueError("a name of letters, digits, _ and -")
    return given.strip()
