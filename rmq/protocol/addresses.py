"""``host:port`` texts and lists of them, IPv6 literals included (field case B087)."""

from __future__ import annotations

import ipaddress
import re

from rmq.protocol.errors import ConfigError

__all__ = ["Host", "Network", "bare", "host", "join", "parse", "parse_list", "parse_networks"]

Host = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SEPARATORS = re.compile(r"[;,]")


def parse(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[v6]:port`` or ``v6:port``; split at the last colon, a zone is kept.

    :raises ConfigError: says what is wrong.
    """
    given = text.strip()
    host, colon, port = given.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or "[" in host or "]" in host:
        raise ConfigError(f"{given!r} is no address: write host:port, or [v6]:port")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
        raise ConfigError(f"{given!r} has no usable port: write host:port with a port from 1 to 65535")
    return host, int(port)


def bare(host: str) -> str:
    """A host without the brackets that an IPv6 literal may stand in."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host


def join(host: str, port: int) -> str:
    """The address as RocketMQ writes it; an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_list(text: str) -> list[tuple[str, int]]:
    """Addresses separated by ``;`` or ``,``; blanks between are skipped, repeated ones kept once.

    :raises ConfigError: one of them is no address.
    """
    return list(dict.fromkeys(parse(part) for part in _SEPARATORS.split(text) if part.strip()))


def host(text: str) -> Host:
    """An IP address as it is compared: IPv4 on an IPv6 socket is IPv4.

    :raises ValueError: it is none.
    """
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def parse_networks(text: str) -> list[Network]:
    """IP addresses and networks (``10.0.0.0/8``) separated by ``;``.

    :raises ConfigError: one of them is neither.
    """
    try:
        return [ipaddress.ip_network(part.strip()) for part in text.split(";") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"{error}: addresses and networks like 10.0.0.0/8, separated by ';', are expected") from None
