"""Hosts of a cluster, as certificates and settings name them: which are addresses, and which are this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from rmq.protocol.addresses import Network

__all__ = ["elsewhere", "everybody", "is_address", "on_this_machine"]

#: A network with fewer bits is not that of one's own slaves: of IPv4 10.0.0.0/8 is the largest that anybody has.
_WIDEST = {4: 8, 6: 32}


def is_address(host: str) -> bool:
    """Whether it is an address and no name."""
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def on_this_machine(host: str) -> bool:
    """Whether nobody else reaches it."""
    if host == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback


def elsewhere(hosts: Iterable[str]) -> tuple[str, ...]:
    """The addresses of several machines; nothing where one address at most is none of this machine alone."""
    found = tuple(host for host in hosts if is_address(host) and not on_this_machine(host))
    return found if len(found) > 1 else ()


def everybody(networks: Iterable[Network]) -> Network | None:
    """The first network that is larger than anybody's own."""
    return next((one for one in networks if one.prefixlen < _WIDEST[one.version]), None)
