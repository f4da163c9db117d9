"""``host:port`` texts and lists of them, IPv6 literals included (field case B087)."""

from __future__ import annotations

import re

from rmq.protocol.errors import ConfigError

__all__ = ["bare", "join", "parse", "parse_list"]

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
