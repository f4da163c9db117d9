"""A connection that another member has opened: it says who it is, and then what a member has to say."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from rmq.broker.raft.wire import Hello, Kind, Word, checked, decode, head, listens, refusal, tells
from rmq.broker.replication.unit_buffer import UnitBuffer
from rmq.broker.replication.wire import header
from rmq.protocol import addresses
from rmq.protocol.errors import ReplicationError, RMQError
from rmq.remoting.tls import ServerTls, TlsPipe

__all__ = ["Incoming", "Listens"]

log = logging.getLogger(__name__)

#: Seconds until who connects has said who it is, and after which it is told that it was heard.
_SILENT, _ECHO = 10.0, 0.2
#: Bytes that it is received into before it has, which have to say so; and then, which a processor keeps in its cache.
_HELLO, _ROOM = 32 << 10, 512 << 10


class Listens(Protocol):
    """What takes them."""

    @property
    def tls(self) -> ServerTls:
        """Whether they have to be TLS."""

    def opened(self, link: Incoming) -> None:
        """Somebody connects.

        :raises ReplicationError: he may not.
        """

    def introduced(self, link: Incoming, hello: Hello) -> None:
        """Somebody says who he is.

        :raises ReplicationError: he is no member of this group.
        """

    def is_known(self, hello: Hello) -> bool:
        """Whether what a member says is heard."""

    def heard(self, message: Word) -> None:
        """A member says something."""

    def left_out(self, link: Incoming, error: ReplicationError) -> None:
        """A word of it is none, and nobody needs it."""

    def refused(self, link: Incoming, error: RMQError) -> None:
        """It is to be closed, and told why."""

    def closed(self, link: Incoming) -> None:
        """It is gone."""


class Incoming(asyncio.BufferedProtocol):
    """One of them: what it says is heard where it was received.

    :param links: takes it.
    """

    def __init__(self, links: Listens) -> None:
        self._links = links
        self._units = UnitBuffer(_HELLO, head)
        self._transport: asyncio.Transport | TlsPipe | None = None
        self._new = True
        self._timer: asyncio.TimerHandle | None = None
        self._echo: asyncio.TimerHandle | None = None
        self._closed = False
        #: It sends a sum with each word, as it did with the first: a member of the release before sends none.
        self._summed = False
        #: Bytes that have come before it has said who it is.
        self._unsaid = 0
        self.peer = "?"
        self.host: addresses.Host | None = None
        self.hello: Hello | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its classes
        name = transport.get_extra_info("peername")
        if not name:  # it was gone again before it was taken
            transport.abort()
            return
        self._transport = transport
        self.host = addresses.host(name[0])
        self.peer = addresses.join(str(self.host), name[1])
        try:
            self._links.opened(self)
        except ReplicationError as error:
            self._links.refused(self, error)
            return
        self._timer = asyncio.get_running_loop().call_later(_SILENT, self._silent)

    def _silent(self) -> None:
        self._timer = None
        if self.hello is None:
            self._links.refused(self, ReplicationError(f"it has not said who it is within {_SILENT:.0f} s"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._units.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        if self._echo is None:
            self._echo = asyncio.get_running_loop().call_later(_ECHO, self._say_heard)
        try:
            if self._new:
                self._new = False
                if self._secured(self._units.room()[:nbytes]):
                    return
            for offset, body in self._units.units(nbytes):
                if self._closed:
                    return
                self._take(body, self._checked(offset, body))
            if self.hello is None:
                self._unsaid += nbytes
                if self._unsaid >= _HELLO:
                    raise ReplicationError(f"its first {self._unsaid} bytes do not say who it is")
        except RMQError as error:
            self._links.refused(self, error)
        except Exception as error:
            log.exception("what a member of the group said could not be taken")
            self._links.refused(self, ReplicationError(repr(error)))

    def data_received(self, data: bytes) -> None:
        """The same of bytes that lie elsewhere: they were encrypted, or the network is a simulated one."""
        view = memoryview(data)
        while view and self._transport is not None:
            room = self._units.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            self.buffer_updated(count)

    def _say_heard(self) -> None:
        self._echo = None
        if self._transport is not None and self.hello is not None:
            self._transport.write(header(0, 0))

    def _checked(self, offset: int, body: memoryview) -> int | None:
        """As :func:`~rmq.broker.raft.wire.checked`.

        :raises ReplicationError: it has changed on its way.
        """
        crc = checked(offset, body)
        summed = crc is not None
        if self.hello is None and (summed or not offset):
            self._summed = summed
        elif self.hello is None or summed != self._summed:
            raise ReplicationError("what it says does not show that nothing has changed on its way, or not always")
        return crc

    def _take(self, body: memoryview, crc: int | None) -> None:
        if self.hello is None or body[:1] == bytes([Kind.HELLO]):
            hello = Hello.decode(body)
            if self.hello is not None and (self.hello.source, self.hello.disk) != (hello.source, hello.disk):
                raise ReplicationError(f"it was {self.hello.source}, and says that it is another one now")
            self._links.introduced(self, hello)
            if self.hello is None:
                self._units.widen(_ROOM)
                if self._transport is not None:
                    self._transport.write(listens())
            self.hello = hello
            return
        if not self._links.is_known(self.hello):
            return
        try:
            word = decode(self.hello.source, body, crc)
        except ReplicationError as error:
            if not tells(body):
                raise
            self._links.left_out(self, error)
        else:
            self._links.heard(word)

    def _secured(self, data: memoryview) -> bool:
        """Whether these first bytes begin a handshake, which they do now: a unit begins with 0.

        :raises TlsRefused: they ought to, or ought not to.
        """
        pipe = self._links.tls.sense(
            data, cast(asyncio.Transport, self._transport), self,
            lambda why: self._links.refused(self, ReplicationError(why)),
            advice="set tls.server.mode=enforcing there, too",
        )  # fmt: skip
        if pipe is None:
            return False
        self._transport = pipe
        pipe.data_received(bytes(data))
        return True

    def refuse(self, why: str) -> None:
        """Say why, and close."""
        if self._transport is not None:
            self._transport.write(refusal(why))
            self._transport.close()
            self._transport = None
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.close()

    def close(self) -> None:
        """Let go of it."""
        self._closed = True
        for timer in (self._timer, self._echo):
            if timer is not None:
                timer.cancel()
        self._timer = self._echo = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._links.closed(self)
