"""Addresses as users write them."""

from __future__ import annotations

import pytest

from rmq.protocol.errors import (
    ConfigError,
)
from rmq.remoting.client import split_address


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker.example:10911 ", ("broker.example", 10911)),
        ("[::1]:9876", ("::1", 9876)),
        ("fe80::1:9876", ("fe80::1", 9876)),
    ],
)
def test_addresses(text: str, pair: tuple[str, int]) -> None:
    assert split_address(text) == pair


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        split_address(text)
