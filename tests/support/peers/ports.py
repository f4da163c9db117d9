"""Ports for servers of other processes: free ones, and those of servers that are away."""

from __future__ import annotations

import os
import random
import socket

# Below Linux's range for outgoing connections (32768 and up), so that no client socket takes a port in between.
_LOW, _HIGH = 20_000, 32_000
_random = random.Random(os.getpid() ^ int.from_bytes(os.urandom(4), "big"))
_given: set[int] = set()


def _free(port: int) -> bool:
    if port in _given:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_port(*offsets: int) -> int:
    """A port that is free together with port + each offset, all below _HIGH; never the same twice in one process."""
    while True:
        port = _random.randrange(_LOW, _HIGH - max((0, *offsets)))
        wanted = [port, *(port + offset for offset in offsets)]
        if all(_free(each) for each in wanted):
            _given.update(wanted)
            return port


def broker_port() -> int:
    """A broker's listenPort: port - 2 (VIP), port and port + 1 (replication) are free."""
    return free_port(-2, 1)


def knocked(address: str, patience: float = 120.0) -> None:
    """Return when somebody connects to "host:port", where a server is away; the connection is closed at once."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as door:
        door.settimeout(patience)
        door.accept()[0].close()
