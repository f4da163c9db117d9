"""What a peer is told when this process is killed: that its connections are reset, not that they ended in order.

A system that closes a dead process's connections ends them as the process would have. Clients of 4.x (Java, Go) take
that for nothing: a pull that waits at a broker is given up after 30 s, whatever has become of the connection. A reset
they notice at once, and ask whoever leads now. So a connection that was accepted is to be reset at its end, until this
process itself ends it, behind what it was to say: then as ever.
"""

from __future__ import annotations

import contextlib
import socket
from struct import pack
from typing import Any

__all__ = ["end_in_order", "reset_when_killed"]


def reset_when_killed(transport: object) -> None:
    """Have the system reset it when nobody closes it."""
    _linger(transport, on=True)


def end_in_order(transport: object) -> None:
    """Have it end as any: it is about to be closed, and what was written is still to arrive."""
    _linger(transport, on=False)


def _linger(transport: object, *, on: bool) -> None:
    find: Any = getattr(transport, "get_extra_info", None)
    handle = None if find is None else find("socket")
    if handle is not None:
        with contextlib.suppress(OSError):  # no TCP, or it is gone
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", on, 0))
