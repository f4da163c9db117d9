"""The end of a connection whose answers are still on their way.

A socket that is closed while something unread lies in it is reset, and a reset takes away what the peer was sent and
has not read yet: answers to messages that are stored. So a server that stops says that nothing more comes, and drops
what the peer sends until that has closed, too.
"""

from __future__ import annotations

import asyncio

__all__ = ["leave"]


class _Leaving(asyncio.Protocol):
    """Takes the place of a connection's protocol: drops what comes, and passes on the end alone."""

    def __init__(self, inner: asyncio.BaseProtocol) -> None:
        self._inner = inner

    def data_received(self, data: bytes) -> None:
        """Nobody reads it."""

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


def leave(transport: asyncio.Transport) -> None:
    """End a connection behind what was written; whoever gives the peer no more time aborts the transport."""
    if transport.is_closing() or not transport.can_write_eof():
        transport.close()
        return
    transport.set_protocol(_Leaving(transport.get_protocol()))
    transport.write_eof()
    transport.resume_reading()
