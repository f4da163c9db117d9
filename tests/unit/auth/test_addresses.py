"""Address patterns of white lists (field case B108)."""

from __future__ import annotations

import pytest

from rmq.auth.addresses import parse_pattern
from rmq.protocol.errors import ConfigError

V6 = "1050:0:0:0:5:600:300c:"


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["1.2.3.4", ""]),
        ("  ", [], ["1.2.3.4"]),
        ("*", ["1.2.3.4", "::1", "strange"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("*:*:*:*:*:*:*:*", ["::1"], []),
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.30", "10.1.2", "110.1.2.3", "::1", ""]),
        ("10.1.2.3, 10.1.2.4", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5"]),
        ("10.1.2.{3,4}", ["10.1.2.3", "10.1.2.4"], ["10.1.2.34", "10.1.3.3"]),
        ("10.1.2.1-100", ["10.1.2.1", "10.1.2.100"], ["10.1.2.0", "10.1.2.101", "10.1.3.1"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.0"]),
        ("10.1.1-9.*", ["10.1.9.7"], ["10.1.10.7", "10.2.1.1"]),
        ("10.*.*.*", ["10.255.0.1"], ["11.0.0.1"]),
        ("10.*.*.1-50", ["10.7.7.50"], ["10.7.7.51"]),  # Java compares nothing behind the first star
        (V6 + "{1,1f}", [V6 + "1", "1050::5:600:300C:001f"], [V6 + "2"]),
        (V6 + "1-20", [V6 + "20"], [V6 + "21", V6 + "0"]),
        (V6 + "*", [V6 + "ffff"], ["1050:0:0:0:5:600:300d:1"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1", "[::1]"], ["::2", "0.0.0.1"]),
        ("fe80::1", ["fe80::1%eth0"], []),
    ],
)
def test_what_a_pattern_matches(pattern: str, inside: list[str], outside: list[str]) -> None:
    """Field case B108."""
    found = parse_pattern(pattern)
    assert [host for host in inside if not found.matches(host)] == []
    assert [host for host in outside if found.matches(host)] == []


@pytest.mark.parametrize(
    "text",
    [
        "10.x.y", "10.1.2", "10.1.2.256", "10.1.2.9-3", "10.1.2.1-", "10.1.2.{3,4", "10.1.{2,3}.4", "1-9.*.*.*",
        "*.1.1.1", "10.1.2.3,", "10.1.2.3:80", "1:2", "g::1", "10.1.2.-1", "10.1.2.٣", ",".join(["1.1.1.1"] * 1001),
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        parse_pattern(text)
