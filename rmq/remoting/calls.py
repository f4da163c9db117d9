"""Requests of ours on a connection, whichever end opened it: each is told once how it ended.

The time for an answer begins when the request is with the transport. While that does not take any (the peer does not
read), requests are held here: one whose time is up by then, or that nobody waits for any more, is never written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    RequestTimeout,
    TooManyRequests,
    TransportError,
)
from rmq.runtime import patience
from rmq.runtime.aside import logger

if TYPE_CHECKING:
    from rmq.remoting.endpoint import Endpoint

__all__ = ["Calls", "Deadline", "Done", "Reply", "reply_to"]

log = logger(__name__)

E = TypeVar("E", bound=TransportError)
#: Told how a call ended: the answer, or why there is none.
Done = Callable[["Command | Exception"], None]
#: The same to be awaited: it gives the error, and does not raise it.
Reply = asyncio.Future["Command | Exception"]
#: (connection, opaques, seconds, whether they are for being written).
Deadline = tuple["Calls", Sequence[int], float, bool]

#: Bytes of requests that were held, after which the transport is asked whether it takes more.
_PIECE = 256 << 10


def reply_to(future: Reply) -> Done:
    """A ``done`` for who awaits a plain future, the cheapest thing there is to wait for."""
    return partial(_fulfil, future)


def _fulfil(future: Reply, how: Command | Exception) -> None:
    if not future.done():  # who waited was cancelled
        future.set_result(how)


class Calls:
    """The asking half of :class:`rmq.remoting.conn.Conn`, which has what is only named here."""

    __slots__ = ("_held", "_held_bytes", "_leaving", "_opaque", "_taking", "_unheard_since", "_waiting")

    _endpoint: Endpoint
    active: bool
    address: str
    closed: bool
    heard_at: float
    inbound: bool
    out_bytes: int
    peer: str
    writing_paused: bool
    send: Callable[[bytes], None]
    send_at_once: Callable[[bytes], None]
    flush: Callable[[], None]
    unsent: Callable[[], int]
    abort: Callable[[str], None]

    def __init__(self) -> None:
        self._opaque = 0
        self._waiting: dict[int, Done] = {}
        #: Seconds -> opaques: deadlines of what is gathered for the transport, which begin when it has it.
        self._leaving: dict[float, list[int]] = {}
        #: opaque -> (frame, seconds): what the transport does not take now.
        self._held: dict[int, tuple[bytes, float]] = {}
        self._held_bytes = 0
        #: Done when the transport takes something again; there while somebody waits for that.
        self._taking: asyncio.Future[None] | None = None
        # Since when calls have gone without a byte for them; 0 when something has come.
        self._unheard_since = 0.0

    def next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def call(self, command: Command, timeout: float, done: Done) -> int:
        """Send a request; ``done`` is told once how it ended: the answer, RequestTimeout or ConnectionLost.

        It is told ConnectFailed when the request was not written, and never will be.

        :param timeout: seconds for the answer, and before that as many for being written.
        :returns: the opaque it was given, for :meth:`forget`.
        :raises ConnectionLost: the connection is closed.
        :raises TooManyRequests: too many requests wait already, or too many bytes of them.
        """
        opaque = command.opaque = self.next_opaque()
        return self.call_frame(frame.encode(command), opaque, timeout, done)

    def call_frame(self, data: bytes, opaque: int, timeout: float, done: Done) -> int:
        """:meth:`call` with a frame that was encoded by the caller with an ``opaque`` of :meth:`next_opaque`."""
        if self.closed:
            raise self._of_peer(ConnectionLost, "the connection is closed")
        if len(self._waiting) >= self._endpoint.limits.waiting:
            raise self._of_peer(TooManyRequests, f"{len(self._waiting)} requests wait for answers")
        if self.writing_paused:
            self._refuse_more()
            self._held[opaque] = data, timeout
            self._held_bytes += len(data)
            self._endpoint.timeouts.add(timeout, (self, (opaque,), timeout, True))
            self._waiting[opaque] = done
            return opaque
        alone = not self._waiting
        self._waiting[opaque] = done
        if alone and not self._endpoint.scheduled:
            # Nothing else is on its way that it could go with, and no tick has to come.
            self.send_at_once(data)
            self._endpoint.timeouts.add(timeout, (self, (opaque,), timeout, False))
        else:
            self._leaves(opaque, timeout)
            self.send(data)
        return opaque

    def _leaves(self, opaque: int, timeout: float) -> None:
        """A request is gathered for the transport."""
        leaving = self._leaving.get(timeout)
        if leaving is None:
            self._leaving[timeout] = [opaque]
        else:
            leaving.append(opaque)

    def left(self) -> None:
        """What was gathered is with the transport: the time for its answers begins."""
        for timeout, opaques in self._leaving.items():
            self._endpoint.timeouts.add(timeout, (self, opaques, timeout, False))
        self._leaving.clear()

    async def takes_again(self, seconds: float) -> bool:
        """Wait until the transport takes something, which ``writing_paused`` says it does not.

        :returns: False when it took nothing for so long.
        :raises ConnectionLost: the connection ended.
        """
        if self._taking is None:
            self._taking = asyncio.get_running_loop().create_future()
        try:
            async with patience.timeout(seconds):
                await asyncio.shield(self._taking)
        except TimeoutError:
            return False
        if self.closed:
            raise self._of_peer(ConnectionLost, "the connection is closed")
        return True

    def _tell_taking(self) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.set_result(None)

    def write_held(self) -> None:
        """The transport takes something again."""
        self._tell_taking()
        held = self._held
        while held and not self.writing_paused:
            opaque = next(iter(held))
            data, timeout = self._release(opaque)
            self._leaves(opaque, timeout)
            self.send(data)
            if self.out_bytes >= _PIECE:
                self.flush()

    def _release(self, opaque: int) -> tuple[bytes, float]:
        data, timeout = self._held.pop(opaque)
        self._held_bytes -= len(data)
        return data, timeout

    def _refuse_more(self) -> None:
        """The peer does not take what we send: so much may wait in memory, and no more."""
        waiting = self.unsent() + self.out_bytes + self._held_bytes
        if waiting > self._endpoint.limits.write_most:
            raise self._of_peer(TooManyRequests, f"{waiting >> 20} MiB of requests wait to be sent")

    def forget(self, opaque: int) -> None:
        """No longer wait for the answer to a request of ours, nor write it if it is held."""
        self._waiting.pop(opaque, None)
        if opaque in self._held:
            self._release(opaque)

    def answered(self, answer: Command) -> None:
        """An answer came in. Never raises."""
        done = self._waiting.pop(answer.opaque, None)
        if done is None:
            log.debug("%s: an answer nobody waits for, opaque %d", self.peer, answer.opaque)
        else:
            self._tell(done, answer)

    def end_calls(self, why: str) -> None:
        """The connection is gone: so are the answers that were waited for."""
        waiting, self._waiting = self._waiting, {}
        held, self._held = self._held, {}
        self._held_bytes = 0
        self._leaving.clear()
        self._tell_taking()
        for opaque, done in waiting.items():
            if opaque in held:
                self._tell(done, self._of_peer(ConnectFailed, f"connection lost before the request was written: {why}"))
            else:
                self._tell(done, self._of_peer(ConnectionLost, f"connection lost: {why}"))

    def _of_peer(self, kind: type[E], what: str) -> E:
        """An error that says whose it is."""
        peer = self.address or self.peer
        return kind(f"{peer}: {what}").about(address=peer)

    def _tell(self, done: Done, how: Command | Exception) -> None:
        """A call of ours has ended. Who asked and fails at the answer fails alone."""
        try:
            done(how)
        except Exception:
            log.exception("%s: a caller failed on how its call ended", self.address or self.peer)

    def expired(self, opaque: int, timeout: float, unwritten: bool) -> None:
        """The time of a request of ours is up, if it still waits: for its answer, or for being written."""
        if unwritten:
            if opaque not in self._held:
                return  # it was written, and has time for its answer
            self._release(opaque)
        done = self._waiting.pop(opaque, None)
        if done is None:
            return
        if unwritten:
            self._tell(
                done,
                self._of_peer(ConnectTimeout, f"takes no request: this one waited {timeout:g} s, and was not sent"),
            )
        else:
            self._tell(done, self._of_peer(RequestTimeout, f"no answer in {float(f'{timeout:.3g}'):g} s"))
        if not self.inbound and not self.closed:
            self._look_whether_heard(timeout)

    def _look_whether_heard(self, timeout: float) -> None:
        """A peer whose kernel (or a tunnel before it) takes what we send and that answers nothing is left: the next
        call opens another connection. One that answers something else meanwhile is merely slow with this."""
        now = self._endpoint.now()
        if self.active or self.heard_at > now - timeout:
            self._unheard_since = 0.0
            return
        self._unheard_since = self._unheard_since or now - timeout
        silence = now - self._unheard_since
        if silence >= self._endpoint.limits.unheard_seconds:
            # A note of its close, and no warning: its calls have failed, and who made them says so.
            self.abort(f"nothing has come from it for {silence:.0f} s of calls")

    async def request(
        self, command: Command, timeout: float = 3.0, left: Callable[[], object] | None = None
    ) -> Command:
        """Send a request and wait for its answer, whatever its code.

        :param timeout: seconds.
        :param left: called when it is with the connection; it does not raise.
        :raises ConnectionLost: the connection is or gets closed.
        :raises RequestTimeout: no answer in time; the connection goes on.
        """
        reply: Reply = asyncio.get_running_loop().create_future()
        opaque = self.call(command, timeout, reply_to(reply))
        if left is not None:
            left()
        try:
            answer = await reply
        finally:
            self.forget(opaque)
        if isinstance(answer, Command):
            return answer
        raise answer

    def oneway(self, command: Command) -> None:
        """Send a request that is never answered.

        :raises ConnectionLost: the connection is closed.
        :raises TooManyRequests: too many bytes wait to be sent.
        """
        command.opaque = self.next_opaque()
        self.oneway_frame(frame.encode(command.mark_oneway()))

    def oneway_frame(self, data: bytes) -> None:
        """:meth:`oneway` with a frame that is encoded already."""
        if self.closed:
            raise self._of_peer(ConnectionLost, "the connection is closed")
        self._refuse_more()
        self.send(data)

    @property
    def calls_waiting(self) -> int:
        """Requests of ours on this connection that wait for an answer."""
        return len(self._waiting)
