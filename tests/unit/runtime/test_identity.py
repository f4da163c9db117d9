"""The address that is told to others, when nobody configured one (field case B096)."""

from __future__ import annotations

import pytest

from rmq.runtime import identity as module
from rmq.runtime.identity import RealIdentity, choose_address

LO = [("lo", "127.0.0.1"), ("lo", "::1")]


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        ([*LO, ("eth0", "10.0.0.5")], "10.0.0.5"),
        ([*LO, ("docker0", "172.17.0.1"), ("eth0", "10.0.0.5")], "10.0.0.5"),
        (
            [("virbr0", "192.168.122.1"), ("br-1a2b", "172.18.0.1"), ("veth9", "10.1.1.1"), ("ens3", "10.0.0.5")],
            "10.0.0.5",
        ),
        ([("eth0", "169.254.3.4"), ("eth1", "172.16.0.9")], "172.16.0.9"),
        ([("eth0", "192.168.1.7"), ("eth1", "10.0.0.5")], "10.0.0.5"),
        ([("eth0", "192.168.1.7"), ("eth1", "192.168.1.8")], "192.168.1.7"),
        ([("eth0", "2001:db8::5"), ("eth0", "192.168.1.7")], "192.168.1.7"),
        ([*LO, ("eth0", "fe80::1"), ("eth0", "2001:db8::5")], "2001:db8::5"),
        ([("brain0", "10.0.0.5")], "10.0.0.5"),
    ],
)
def test_the_first_address_that_others_reach(addresses: list[tuple[str, str]], chosen: str) -> None:
    """Field case B096."""
    made = choose_address(addresses)
    assert made.address == chosen
    assert made.hint == ""


def test_a_bridge_only_when_there_is_nothing_else_and_with_a_hint() -> None:
    """Field case B096."""
    made = choose_address([*LO, ("docker0", "172.17.0.1")])
    assert made.address == "172.17.0.1"
    assert "docker0" in made.hint
    assert "brokerIP1" in made.hint


def test_nothing_but_loopback() -> None:
    made = choose_address(LO)
    assert made.address == "127.0.0.1"
    assert "brokerIP1" in made.hint


def test_this_machine() -> None:
    identity = RealIdentity()
    addresses = identity.addresses()
    assert addresses
    families = [":" in address for _, address in addresses]
    assert families == sorted(families)  # IPv4 first
    assert identity.pid > 0
    assert identity.hostname
    assert identity.physical_memory() > 1 << 20


def test_the_boot_is_told_by_linux_and_unknown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = RealIdentity()
    assert identity.boot_id() == RealIdentity().boot_id()
    monkeypatch.setattr(module, "_BOOT_ID", "/nowhere/boot_id")
    assert identity.boot_id() == ""
