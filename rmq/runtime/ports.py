"""Ports of this machine that nobody listens on."""

from __future__ import annotations

import socket
from collections.abc import Iterable

__all__ = ["free"]


def free(host: str, ports: Iterable[int]) -> bool:
    """Whether all of them can be listened on now; who asks may still lose them to another one."""
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As listeners do: a port that clients of an earlier run are leaving is no less free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except (OSError, OverflowError):
                return False
    return True
