"""The writing half of a connection: what is sent in a loop tick is gathered, and written once when it ends.

What the peer does not take is counted for all connections together by :mod:`rmq.remoting.unread`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.remoting.calls import Calls

if TYPE_CHECKING:
    from rmq.remoting.endpoint import Endpoint

__all__ = ["Outgoing", "Transport"]

#: Answers gathered to more bytes are written before the tick ends, so that what the peer does not take is seen.
_AT_ONCE = 64 << 10


class Transport(Protocol):
    """What a connection writes to: the loop's transport, or TLS in front of it."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int: ...


class Outgoing(Calls):
    """What a connection sends; :class:`rmq.remoting.conn.Conn` has what is only named here."""

    __slots__ = (
        "_at_once",
        "_dirty",
        "_endpoint",
        "_transport",
        "closed",
        "given",
        "out",
        "out_bytes",
        "owed_bytes",
        "owing",
        "owing_since",
        "promised",
        "unread",
        "wrote",
    )

    congested: bool
    close: Callable[[str], None]
    congest: Callable[[], None]
    settle: Callable[[int], None]

    def __init__(self, endpoint: Endpoint, *, inbound: bool) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._at_once = _AT_ONCE if inbound else sys.maxsize
        self._dirty = False
        self._transport: Transport
        self.closed = False
        #: Answers that wait for the end of the tick, and their bytes.
        self.out: list[bytes | memoryview] = []
        self.out_bytes = 0
        #: Bytes of requests that a handler holds: added by who takes them, given back with :meth:`settle`.
        self.owed_bytes = 0
        #: It owes so much that it is counted (:mod:`rmq.remoting.unread`): since when, what it was given since and
        #: before, and what of that it had not taken when that was last looked at.
        self.owing = False
        self.owing_since = 0.0
        self.given = 0
        self.unread = 0
        #: Bytes of answers that are being made.
        self.promised = 0
        #: Something went out since the last sweep.
        self.wrote = True

    def send(self, data: bytes) -> None:
        """Write whole frames; gathered with all that is sent in the same loop tick. Nothing when it is closed."""
        if self.closed:
            return
        self.out.append(data)
        self.out_bytes += len(data)
        if not self._dirty:
            self._dirty = True
            endpoint = self._endpoint
            endpoint.dirty.append(self)
            if not endpoint.scheduled:
                endpoint.schedule()
        if self.out_bytes > self._at_once:
            self.flush()

    def send_at_once(self, data: bytes) -> None:
        """:meth:`send` of what the peer waits for: between two ticks it is written now, and no tick has to come."""
        if self._endpoint.scheduled or self.closed:
            self.send(data)
            return
        self.out.append(data)
        self.flush()

    def send_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """:meth:`send` of a frame in pieces of ``size`` bytes together: they are put together once, when written.

        Views must stay as they are until the end of the tick.
        """
        if self.closed:
            return
        self.out += parts
        self.out_bytes += size
        if not self._dirty:
            self._dirty = True
            endpoint = self._endpoint
            endpoint.dirty.append(self)
            if not endpoint.scheduled:
                endpoint.schedule()
        if self.out_bytes > self._at_once:
            self.flush()

    def send_command(self, command: Command) -> None:
        """Encode and :meth:`send`."""
        if not self.closed:
            self.send(frame.encode(command))

    def flush(self) -> None:
        """Hand what is gathered to the transport; the endpoint does so at the end of each tick."""
        self._dirty = False
        out = self.out
        if not out or self.closed:
            return
        first = out[0]
        data = first if len(out) == 1 and isinstance(first, bytes) else b"".join(out)
        out.clear()
        self.out_bytes = 0
        self.wrote = True
        if self.owing:
            self.given += len(data)
        try:
            self._transport.write(data)
        except Exception as error:  # a transport that broke between two turns of the loop
            self._endpoint.complain("%s: closed: writing failed: %r", self.peer, error)
            self.abort(repr(error))
            return
        if self._leaving:
            self.left()
        if self.owing:
            self._endpoint.unread.note(self)
            if self.unread > self._endpoint.limits.write_most:
                self._endpoint.complain("%s: closed: it does not read what it is sent", self.peer)
                self.abort("it does not read what it is sent")

    def unsent(self) -> int:
        """Bytes that were written and the peer has not taken."""
        return self._transport.get_write_buffer_size()

    def has_room(self) -> bool:
        """Whether the peer takes its answers well enough for one more of some size; asked before that is made."""
        unread = self._endpoint.unread
        # Mostly nobody owes anything: asked with every pull.
        return not (unread.total or unread.waiting) or unread.has_room(self)

    def when_room(self, call: Callable[[], None]) -> bool:
        """Have ``call`` run once: when there is room, or when the connection has ended (it looks at ``closed``).

        :returns: False when too many wait already: it will not be called.
        """
        return self._endpoint.unread.wait(self, call)

    async def room(self, size: int) -> bool:
        """Wait until there is room, or the connection has ended, and :meth:`promise` ``size`` bytes.

        :returns: False at once, and nothing is promised: too many wait already.
        """
        if not self.has_room():
            there = asyncio.Event()

            def take() -> None:
                self.promise(size)
                there.set()

            return self.when_room(take) and await there.wait()
        self.promise(size)
        return True

    def promise(self, size: int) -> None:
        """An answer of about ``size`` bytes is being made by a task; given back with ``-size`` when it is sent."""
        self._endpoint.unread.promise(self, size)
