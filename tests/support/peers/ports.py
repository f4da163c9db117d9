"""Ports for servers of other processes: free ones, and those of servers that are away."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections.abc import Iterator

# Below Linux's range for outgoing connections (32768 and up), so that no client socket takes a port in between.
_LOW, _HIGH = 20_000, 32_000
#: Ports that a process takes together: between a choice and the server that listens there, no other process chooses.
_BLOCK = 40
#: Choices among the ports of the blocks that are ours before there is another block.
_TRIES = 50
#: Choices after which no port is free that was never given.
_MANY = 10_000
_random = random.Random(os.getpid() ^ int.from_bytes(os.urandom(4), "big"))
_given: set[int] = set()
_blocks: set[int] = set()
#: Tests start servers in threads, too.
_choosing = threading.Lock()


def _ours(port: int) -> bool:
    """Whether this process has the port's block, which it takes when nobody has it; until it ends."""
    block = port // _BLOCK
    if block in _blocks:
        return True
    if sys.platform == "linux":  # elsewhere no name is as well kept as its ports are
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0rmq-tests-ports-{block}")
        except OSError:
            lock.close()
            return False
        lock.detach()
    _blocks.add(block)
    return True


def _free(port: int) -> bool:
    if port in _given or not _ours(port):
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _choices(last: int) -> Iterator[int]:
    """Ports below ``last``: some of our blocks, then any."""
    for _ in range(_TRIES if _blocks else 0):
        port = _random.choice(tuple(_blocks)) * _BLOCK + _random.randrange(_BLOCK)
        if port < last:
            yield port
    while True:
        yield _random.randrange(_LOW, last)


def free_port(*offsets: int) -> int:
    """A port that is free together with port + each offset, all below _HIGH; never the same twice in one
    process, as long as there are others.

    No other process of these tests is given any of them while this one lives.
    """
    with _choosing:
        for number, port in enumerate(_choices(_HIGH - max((0, *offsets)))):
            if number % _MANY == _MANY - 1:  # the ports of servers that have ended are free again
                _given.clear()
            wanted = [port, *(port + offset for offset in offsets)]
            if all(_free(each) for each in wanted):
                _given.update(wanted)
                return port
    raise AssertionError("choices do not end")


def broker_port() -> int:
    """A broker's listenPort: port - 2 (VIP), port and port + 1 (replication) are free."""
    return free_port(-2, 1)


def knocked(address: str, patience: float = 120.0) -> None:
    """Return when somebody connects to "host:port", where a server is away; the connection is closed at once."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as door:
        door.settimeout(patience)
        door.accept()[0].close()
