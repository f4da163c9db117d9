"""Numbers in texts are looked at by their length first, and taken between two bounds."""

from __future__ import annotations

import pytest

from rmq.protocol.numbers import INT_MAX, LONG_MAX, is_whole, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("+7", 7), ("007", 7), (str(LONG_MAX), LONG_MAX), (b"12", 12), (b"+3", 3),
        (str(LONG_MAX + 1), None), ("9" * 400, None), ("9" * 5000, None), ("0" * 400, None), ("-1", None),
        ("", None), (None, None), ("-", None), ("+", None), ("1.0", None), ("1e3", None), (" 7", None), ("7 ", None),
        ("٣", None), ("²", None), ("1_0", None), ("--1", None), (b"\xff", None), (b"", None),
    ],
)  # fmt: skip
def test_whole(text: str | bytes | None, value: int | None) -> None:
    assert whole(text) == value


def test_bounds() -> None:
    assert [whole(text, 5, -5) for text in ("-6", "-5", "-0", "5", "6")] == [None, -5, 0, 5, None]
    assert [is_whole(value, 5, -1) for value in (-2, -1, 5, 6, True, 1.0, "1", None)] == [
        False, True, True, False, False, False, False, False,
    ]  # fmt: skip
    assert INT_MAX == 2_147_483_647
