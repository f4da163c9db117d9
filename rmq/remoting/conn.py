"""One connection: bytes in, frames out, whether it is read, and its end. What it sends: :mod:`rmq.remoting.outgoing`.

``data_received`` only frames. A chunk that holds whole frames is not copied: ``frames`` gets ``(chunk, lo, hi)`` with
``lo`` at the serialize-type byte. The chunks of a frame that is not whole yet are kept as they came and joined once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from rmq.remoting.leaving import leave
from rmq.remoting.outgoing import Outgoing
from rmq.runtime.aside import logger
from rmq.runtime.sudden_end import end_in_order, reset_when_killed

if TYPE_CHECKING:
    from rmq.remoting.endpoint import Endpoint
    from rmq.remoting.tls import TlsPipe

__all__ = ["Conn"]

log = logger(__name__)

#: Length of the frame, then serialize type (8 bits) and header length (24 bits).
_HEAD = Struct(">II")
_HEAD_SIZE = 8
_unpack_head = _HEAD.unpack_from
_PORT = Struct(">i")
#: Pieces of a frame that are kept one by one.
_MOST_CHUNKS = 512
#: ``_need`` of a connection whose first byte has not come.
_FIRST = -1
#: How others begin whom people connect with us by mistake.
_OTHERS = {b"HTTP": "HTTP", b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"PUT ": "HTTP", b"PRI ": "HTTP/2",
           b"SSH-": "SSH"}  # fmt: skip


def _spoken(length: int) -> str | None:
    """What else speaks so that its first four bytes are this length of a frame."""
    first = length.to_bytes(4, "big")
    return "TLS" if first[:2] in (b"\x15\x03", b"\x16\x03") else _OTHERS.get(first)


class Conn(Outgoing, asyncio.Protocol):
    """One connection of a server or a client (Java: Channel).

    A handler may use: ``peer``, ``host``, ``port``, ``born_host``, ``born_v6``, ``fast``, ``data``, ``closed``,
    :meth:`send`, :meth:`send_command`, :meth:`request`, :meth:`oneway`, :meth:`close`. A step besides: ``frames``,
    ``owed_bytes`` with :meth:`settle`, ``out_bytes``.
    """

    __slots__ = (
        "_broken",
        "_chunks",
        "_clear",
        "_doomed",
        "_have",
        "_lost",
        "_max_header",
        "_max_length",
        "_max_queued",
        "_need",
        "_noted",
        "_paused",
        "_ready",
        "_since",
        "active",
        "address",
        "born_host",
        "born_v6",
        "congested",
        "data",
        "fast",
        "frames",
        "handshake",
        "heard_at",
        "held",
        "host",
        "idle_since",
        "inbound",
        "opened_at",
        "peer",
        "port",
        "principal",
        "queued",
        "read_at",
        "secure",
        "writing_paused",
    )

    def __init__(self, endpoint: Endpoint, *, fast: bool = False, inbound: bool = True, address: str = "") -> None:
        super().__init__(endpoint, inbound=inbound)
        self._max_length = endpoint.limits.frame - 4
        self._max_header = endpoint.limits.header
        self._max_queued = endpoint.limits.queued
        self._noted = endpoint.limits.unfinished_noted if inbound else sys.maxsize
        self._chunks: list[bytes | bytearray] = []
        self._have = 0
        self._need = _FIRST if inbound else 0
        self._since = 0.0
        self._ready = False
        self._paused = False
        self._doomed: str | None = None
        self._broken = False
        self._lost = False
        #: Nothing is the matter: it is read, the peer takes its answers, and it is not about to end.
        self._clear = True
        #: Whole frames not handled yet: (buffer, position of the serialize-type byte, end).
        self.frames: list[tuple[bytes, int, int]] = []
        #: Bytes of ``frames``.
        self.queued = 0
        #: Bytes of a frame that is not whole, when they are counted (:mod:`rmq.remoting.unfinished`).
        self.held = 0
        #: When the oldest of ``frames`` was read, monotonic seconds.
        self.read_at = 0.0
        #: The peer does not take its answers: nothing is read or served until it does.
        self.congested = False
        #: The same of a connection opened by us. It is read all the same: if it were not, two ends that are both full
        #: would wait for each other.
        self.writing_paused = False
        #: Came in through the VIP port (listenPort - 2).
        self.fast = fast
        #: Accepted by us, not opened by us.
        self.inbound = inbound
        #: ``host:port`` this connection was opened to; "" for accepted ones.
        self.address = address
        #: Carried by TLS.
        self.secure = False
        #: The TLS handshake that is under way.
        self.handshake: TlsPipe | None = None
        #: Who authenticated on it; None without access control.
        self.principal: object = None
        #: Notes of services, by a key of theirs.
        self.data: dict[object, Any] = {}
        #: Something came in since the last sweep; who connects to us counts as heard.
        self.active = inbound
        self.idle_since = 0.0
        #: When something came in last, to the second; what it was opened at while nothing has.
        self.heard_at = self.opened_at = 0.0
        self.host = ""
        self.port = 0
        self.peer = ""
        self.born_host = b"\0" * 8
        self.born_v6 = False

    def __repr__(self) -> str:
        return f"<Conn {self.peer}{' closed' if self.closed else ''}>"

    # -- what the loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        self._transport = made
        name = transport.get_extra_info("peername")
        if isinstance(name, (tuple, list)) and len(name) >= 2:
            self._name(str(name[0]), int(name[1]))
        limits = self._endpoint.limits
        if self.inbound:
            made.set_write_buffer_limits(limits.write_noted, min(limits.write_low, limits.write_noted))
            reset_when_killed(made)
        else:
            made.set_write_buffer_limits(limits.write_high, limits.write_high // 4)
        self._endpoint.opened(self)

    def _name(self, host: str, port: int) -> None:
        try:
            ip = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            self.host, self.port, self.peer = host, port, f"{host}:{port}"
            return
        if isinstance(ip, ipaddress.IPv6Address):
            ip = ip.ipv4_mapped or ip
        self.host = str(ip)
        self.port = port
        self.born_v6 = ip.version == 6
        self.peer = f"[{ip}]:{port}" if self.born_v6 else f"{ip}:{port}"
        self.born_host = ip.packed + _PORT.pack(port)

    def secured(self, pipe: TlsPipe) -> None:
        """TLS carries the connection from now on."""
        self._transport = pipe
        self.secure = True
        self.handshake = pipe
        self._since = self._endpoint.now()

    def data_received(self, data: bytes) -> None:
        self.active = True
        if self._need:
            whole = self._collect(data)
            if whole is None:
                return
            data = whole
        size = len(data)
        length, head = _unpack_head(data) if size > _HEAD_SIZE else (0, 0)
        if length + 4 == size and head <= self._max_header and head + 4 <= length <= self._max_length:
            # One whole frame is what nearly every chunk holds of a connection that waits for its answers.
            self.frames.append((data, 4, size))
            position = size
        else:
            position = 0
            last = size - _HEAD_SIZE
            append = self.frames.append
            max_length = self._max_length
            max_header = self._max_header
            while position <= last:
                length, head = _unpack_head(data, position)
                # A JSON head is the header's length itself (type 0): one chain of comparisons for the common case.
                if not (head <= max_header and head + 4 <= length <= max_length):
                    header = head & 0xFFFFFF
                    if head > 0x1FFFFFF or header > max_header or header + 4 > length or length > max_length:
                        self._enqueue(position)
                        self._refuse(length, head)
                        return
                end = position + 4 + length
                if end > size:
                    self._keep(data, position, end - position)
                    break
                append((data, position + 4, end))
                position = end
            else:
                if position != size:
                    self._keep(data, position, _HEAD_SIZE)
        if position:
            self.queued += position
            if self.queued > self._max_queued:
                self._pause()
            if not self._ready:
                self._ready = True
                endpoint = self._endpoint
                endpoint.ready.append(self)
                if not endpoint.scheduled:
                    endpoint.come()
                self.read_at = endpoint.woken

    def _enqueue(self, size: int) -> None:
        """``size`` more bytes are framed: have them served (``data_received`` has the same in line)."""
        if size:
            self.queued += size
            if not self._ready:
                self._ready = True
                endpoint = self._endpoint
                endpoint.ready.append(self)
                if not endpoint.scheduled:
                    endpoint.schedule()
                self.read_at = endpoint.woken

    def _collect(self, data: bytes) -> bytes | None:
        """The slow way in: the first bytes of a connection, and frames that come in pieces."""
        if self._need == _FIRST:
            self._need = 0
            if not data or not self._endpoint.greet(self, data):
                return None
            return data
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            if len(self._chunks) > _MOST_CHUNKS:
                self._gather()
            if self._need == _HEAD_SIZE and self._have >= 4:
                self._check_length(b"".join(self._chunks))
            if self._have > self._noted:
                self._endpoint.unfinished.note(self, self._have)
            return None
        whole = b"".join(self._chunks)
        self._drop_chunks()
        return whole

    def _drop_chunks(self) -> None:
        """The frame that was being collected is whole, or will never be."""
        self._chunks.clear()
        self._need = self._have = 0
        if self.held:
            self._endpoint.unfinished.forget(self)

    def _gather(self) -> None:
        """Make one of many pieces: a list of small ones takes many times their bytes."""
        first = self._chunks[0]
        gathered = first if isinstance(first, bytearray) else bytearray(first)
        gathered += b"".join(self._chunks[1:])
        self._chunks[:] = (gathered,)

    def _keep(self, data: bytes, position: int, need: int) -> None:
        """Keep the beginning of a frame of ``need`` bytes (so far as known)."""
        rest = data[position:] if position else data
        self._chunks.append(rest)
        self._have = len(rest)
        self._need = need
        self._since = self._endpoint.now()
        if need == _HEAD_SIZE and self._have >= 4:
            self._check_length(rest)
        elif self._have > self._noted:
            self._endpoint.unfinished.note(self, self._have)

    def _check_length(self, data: bytes) -> None:
        """A length beyond the limit, or too short, is refused at once; the rest is not awaited (protocol.md 1.1)."""
        length = int.from_bytes(data[:4], "big")
        if not 4 <= length <= self._max_length:
            self._refuse(length, None)

    def _refuse(self, length: int, head: int | None) -> None:
        signed = length - (1 << 32) if length >= 1 << 31 else length
        if length > self._max_length or length < 4 or head is None:
            why = f"a frame of length {signed} (4 to {self._max_length} are allowed)"
            if (other := _spoken(length)) is not None:
                why = f"it speaks {other}" if self.inbound else f"it speaks {other}: this is no port of RocketMQ's"
        elif head > 0x1FFFFFF:
            why = f"unknown serialize type {head >> 24}"
        elif (head & 0xFFFFFF) + 4 > length:
            why = f"header length {head & 0xFFFFFF} in a frame of length {length}"
        else:
            why = f"a header of {head & 0xFFFFFF} bytes ({self._max_header} are allowed)"
        self._doom(why)

    def malformed(self, why: str) -> None:
        """A frame of right lengths did not decode: what is behind it is not served, the connection closes.

        A step calls it and goes on with the next connection; one line in the log.
        """
        self._broken = True
        self._clear = False
        self._doom(why)

    def _doom(self, why: str) -> None:
        """Serve what came before, then close."""
        if self.closed or self._doomed is not None:
            return
        self._endpoint.cut_off["malformed"] += 1
        self._endpoint.complain("%s: closed: %s", self.peer, why)
        self._drop_chunks()
        if self._ready:
            self._doomed = why
            self._clear = False
            self._pause()
        else:
            self.close(why)

    def pause_writing(self) -> None:
        if not self.inbound:
            self.writing_paused = True
        else:
            self._endpoint.unread.begin(self)

    def congest(self) -> None:
        """The peer owes too much: neither read nor serve it until it has taken nearly everything."""
        if not self.congested:
            self.congested = True
            self._clear = False
            self._pause()

    def resume_writing(self) -> None:
        if not self.inbound:
            self.writing_paused = False
            self.write_held()
            return
        self.congested = False
        self._endpoint.unread.end(self)
        self._resume()
        if self.frames and not self._ready:
            self._ready = True
            self._endpoint.ready.append(self)
            self._endpoint.schedule()
            self.read_at = self._endpoint.woken  # until now it was the peer who kept them waiting

    def eof_received(self) -> bool | None:
        end_in_order(self._transport)
        return None  # a half-closed connection is closed, as the Java side does

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._lost = True
        self._clear = False
        self.out.clear()
        self.out_bytes = 0
        self._drop_chunks()
        self._endpoint.unread.forget(self)
        # Frames that came before the end are still served (oneway sends): the tick reports the loss after them.
        if not self._ready:
            if self.frames:
                self._ready = True
                self._endpoint.ready.append(self)
                self._endpoint.schedule()
            else:
                self._end(exc)

    def _end(self, exc: Exception | None = None) -> None:
        self.end_calls(self._doomed or self._endpoint.why(self, exc))
        self._endpoint.lost(self)

    # -- flow ---------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self._clear = False
            self._ask(self._transport.pause_reading)

    def _resume(self) -> None:
        if (
            self._paused
            and not self.closed
            and not self.congested
            and self._doomed is None
            and self.owed_bytes <= self._endpoint.limits.owed // 2
            and not self._endpoint.draining
            and self not in self._endpoint.unfinished.waiting
        ):
            self._paused = False
            self._ask(self._transport.resume_reading)

    def _ask(self, what: Callable[[], None]) -> None:
        """Have the transport do something. One that cannot ends its own connection only, not the round that asks it."""
        try:
            what()
        except Exception as error:
            self._endpoint.complain("%s: closed: its transport failed: %r", self.peer, error)
            self.abort(repr(error))

    def settle(self, size: int) -> None:
        """Give back ``size`` bytes of ``owed_bytes``; reads on when that was what held the connection."""
        self.owed_bytes -= size
        if self._paused:
            self._resume()
            if not self.owed_bytes:
                self._endpoint.settled()

    # -- end -----------------------------------------------------------------------------------------------------------

    def close(self, reason: str = "") -> None:
        """Close after what was sent is written."""
        if self.closed:
            return
        self._doomed = self._doomed or reason or "closed here"
        self._clear = False
        if self.out:
            self.flush()
        if not self.closed:
            self.closed = True
            self.idle_since = self._endpoint.now()
            end_in_order(self._transport)
            self._ask(self._transport.close)

    def leave(self, reason: str) -> None:
        """Close after what was sent is written and read: the peer closes first, or :meth:`abort` ends it."""
        if self.closed or not self.inbound:
            self.close(reason)
            return
        self._doomed = self._doomed or reason
        self._clear = False
        self.flush()
        if not self.closed:
            self.closed = True
            self.idle_since = self._endpoint.now()
            self._ask(self._say_farewell)

    def _say_farewell(self) -> None:
        carrier = self._transport
        end_in_order(carrier)
        leave(cast("TlsPipe", carrier).farewell() if self.secure else cast(asyncio.Transport, carrier))

    def abort(self, reason: str) -> None:
        """Close at once; what was not written is lost."""
        self._doomed = self._doomed or reason
        self._clear = False
        self.closed = True
        self.frames.clear()
        self.queued = 0
        end_in_order(self._transport)
        try:
            self._transport.abort()
        except Exception as error:  # it will not tell that the connection is lost
            log.warning("%s: given up: its transport failed at the end: %r", self.peer, error)
            asyncio.get_running_loop().call_soon(self.connection_lost, error)

    def descriptor(self) -> int | None:
        """The number of its socket, where the transport has one; a forked child closes its copy."""
        find = getattr(self._transport, "get_extra_info", None)
        handle = find("socket") if find is not None else None
        return int(handle.fileno()) if handle is not None else None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a coroutine as a task of the endpoint (it ends when the endpoint does, not with the connection)."""
        self._endpoint.tasks.spawn(work, name)
