"""Rows: what a client says of the messages it sent or received, and what they should have been."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One message as one side saw it; tests/interop/programs/README.md has the order. None: the call cannot know."""

    key: str
    digest: str
    queue: int | None
    offset: int | None
    tag: str | None
    reconsume_times: int
    offset_id: str | None
    unique_id: str | None


def rows_of(answer: dict[str, Any]) -> list[Row]:
    """The rows of a program's answer, without the warming messages."""
    return [row for row in map(Row._make, answer["rows"]) if not row.key.startswith("warm")]


def body(key: str, i: int) -> bytes:
    """The body of message i, the same in every language (tests/interop/programs/README.md)."""
    size = 6000 if i % 50 == 0 else 16 + (37 * i) % 1000
    unit = f"{key} ".encode()
    return (unit * (size // len(unit) + 1))[:size]


def digest(content: bytes) -> str:
    """The first 16 hex digits of the SHA-1."""
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:16]


def expected(prefix: str, count: int) -> set[tuple[str, str]]:
    """(key, digest) of messages 0..count-1 of a prefix, computed here and by no client."""
    return {(key := f"{prefix}-{i}", digest(body(key, i))) for i in range(count)}


def contents(rows: Iterable[Row]) -> set[tuple[str, str]]:
    """(key, digest) of rows."""
    return {(row.key, row.digest) for row in rows}


def placed(rows: Iterable[Row]) -> set[tuple[str, str, int | None, int | None]]:
    """(key, digest, queue, offset) of rows: what both sides must agree on."""
    return {(row.key, row.digest, row.queue, row.offset) for row in rows}


def assert_same(sent: Sequence[Row], seen: Sequence[Row]) -> None:
    """Both sides saw the same messages at the same places, each once; the error says how many and which differ."""
    wanted, found = placed(sent), placed(seen)
    if wanted != found:
        lost, strange = sorted(wanted - found), sorted(found - wanted)
        raise AssertionError(
            f"sent {len(wanted)}, seen {len(found)}: "
            f"{len(lost)} not seen {lost[:3]}, {len(strange)} not sent {strange[:3]}"
        )
    assert len(seen) == len(found), f"{len(seen) - len(found)} messages were delivered twice"
