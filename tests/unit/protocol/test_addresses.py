"""Networks, and addresses as they are compared."""

from __future__ import annotations

import pytest

from rmq.protocol import addresses


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.2", "10.0.0.2", "10.0.0.3"),
        ("192.168.0.0/16; 10.0.0.2", "192.168.7.7", "192.169.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ("fd00::/8;", "fd12::1", "fe80::1%eth0"),
    ],
)
def test_who_is_within(text: str, inside: str, outside: str) -> None:
    networks = addresses.parse_networks(text)
    assert any(addresses.host(inside) in network for network in networks)
    assert not any(addresses.host(outside) in network for network in networks)


def test_no_text_is_no_network() -> None:
    assert addresses.parse_networks(" ; ") == []
