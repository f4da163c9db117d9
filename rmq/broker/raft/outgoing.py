"""The connection that a member opens to another: it speaks, and hears that it was heard, or why it is not taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from rmq.broker.raft.wire import Kind
from rmq.broker.replication.wire import UnitDecoder
from rmq.protocol import addresses
from rmq.protocol.errors import ReplicationError

__all__ = ["Outgoing"]

#: Seconds without a word that what was sent was heard, after which a connection is over: a machine that is gone says
#: nothing, for as long as the system goes on trying.
_UNHEARD = 3.0
#: Bytes that wait for one member; what comes beyond is lost, and asked for again.
_UNSENT = 8 << 20
#: Bytes that wait for the next span, at most.
_MOST_HELD = 1 << 20


class Outgoing(asyncio.Protocol):
    """The connection to a member.

    :param hello: gives what says who speaks, as it is when the connection is there; the first unit.
    :param now: monotonic seconds.
    :param heard: called when the other has said that it hears.
    """

    def __init__(self, hello: Callable[[], bytes], now: Callable[[], float], heard: Callable[[], None]) -> None:
        self._hello = hello
        self._now = now
        self._heard = heard
        #: The other side has said that it does not take this member.
        self.refused = False
        #: and that it understands what a leader tells of spans.
        self.listens = False
        #: The other side has said anything.
        self._spoken = False
        #: When it was opened, and bytes of units that had bytes of the log.
        self._since = now()
        self._sent = 0
        #: Since when nothing has come back for what was sent; None while nothing waits for that.
        self._unheard: float | None = None
        #: What goes with the next span.
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._decoder = UnitDecoder()
        #: Where the other side is.
        self.host: addresses.Host | None = None
        #: Done when it is over: why it was refused, or None.
        self.ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        return self._transport is not None

    @property
    def answers(self) -> bool:
        """Whether the other side has said anything: the system takes connections for a process that stands still."""
        return self._transport is not None and self._spoken

    @property
    def speed(self) -> int:
        """Bytes of the log that were sent, a second, since the connection was opened."""
        return int(self._sent / max(self._now() - self._since, 1.0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._since = self._now()
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its classes
        if self.ended.done():
            self._transport.abort()
            return
        name = self._transport.get_extra_info("peername")
        self.host = addresses.host(name[0]) if name else None
        self._transport.write(self._hello())

    def data_received(self, data: bytes) -> None:
        self._unheard = None
        try:
            for _, body in self._decoder.units(data):
                self._spoken = True
                if not body:
                    self._heard()
                elif body[:1] == bytes([Kind.LISTENS]):
                    self.listens = True
                elif body[:1] == bytes([Kind.REFUSED]):
                    self.refused = True
                    text = body[1:1025].decode("utf-8", "replace")
                    self._end("".join(char if char.isprintable() else "?" for char in text))
                    return
        except ReplicationError as error:
            self._end(str(error))

    def hold(self, unit: bytes) -> None:
        """Send a unit with the next span, before it. Nobody needs it: of many the oldest are dropped."""
        held = self._held
        held.append(unit)
        self._held_bytes += len(unit)
        while self._held_bytes > _MOST_HELD:
            self._held_bytes -= len(held.popleft())

    def send(self, pieces: list[bytes], *, span: bool = False) -> None:
        """Send a unit, given in pieces.

        :param span: it has bytes of the log.
        """
        transport = self._transport
        if transport is None:
            return
        now = self._now()
        if self._unheard is None:
            self._unheard = now
        elif now - self._unheard > _UNHEARD:
            self._end(f"nothing has come back for {_UNHEARD:.0f} s")
            return
        size = sum(map(len, pieces))
        if transport.get_write_buffer_size() + size > _UNSENT:
            return
        if span:
            self._sent += size
            if self._held:
                pieces = [*self._held, *pieces]
                self._held.clear()
                self._held_bytes = 0
        transport.writelines(pieces)

    def introduce(self) -> None:
        """Say again who speaks: there is more to say. It is short, and nobody asks for it again: never lost."""
        if self._transport is not None:
            self._transport.write(self._hello())

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(
            None if self._spoken else "it closes the connection and says nothing: no member listens there, perhaps"
        )

    def _end(self, why: str | None) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if not self.ended.done():
            self.ended.set_result(why)

    def close(self) -> None:
        self._end(None)
