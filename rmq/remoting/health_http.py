"""A small HTTP listener for probes and metrics: GET and HEAD, one exchange a connection, everything bounded.

It is not a web server: request heads of 8 KiB, a few dozen connections, seconds to ask and to take the answer. What
does not fit is refused or cut off, and never reaches the rest of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import parse_qsl

from rmq.runtime.aside import logger
from rmq.runtime.ending import Stop, end_each
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Listener, World

__all__ = ["Admit", "Answer", "HttpListener", "Page"]

log = logger(__name__)

_HEAD_LIMIT = 8_192
_CONNECTIONS = 64
_ASK_SECONDS = 5.0
_TAKE_SECONDS = 30.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_CHALLENGE = "WWW-Authenticate: Bearer\r\n"
_TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """Status, body (whole, or in pieces) and content type of one answer."""

    status: int
    body: bytes | Sequence[bytes]
    content_type: str = _TEXT


#: Makes the answer of a path from the query's parameters (the last one of a name counts).
Page = Callable[[Mapping[str, str]], Awaitable[Answer]]
#: Decides about a request by its path and its ``Authorization`` field, which is empty when there is none.
Admit = Callable[[str, bytes], Awaitable[Answer | None]]


class HttpListener:
    """Serves pages by path.

    :param pages: by path, such as ``/health/live``.
    :param admit: asked before a page is made: None lets it be, an answer takes its place.
    """

    def __init__(self, world: World, pages: Mapping[str, Page], name: str, *, admit: Admit | None = None) -> None:
        self._world = world
        self.pages = pages
        self.admit = admit
        self.tasks = TaskOwner(name)
        self._open: set[_Exchange] = set()
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address with the port that was taken.

        :raises OSError: the address is taken or not ours.
        """
        self._listener = await self._world.network.listen(lambda: _Exchange(self), host, port, backlog=_CONNECTIONS)
        return self._listener.address

    async def stop(self) -> None:
        """Stop listening and cut what is under way."""
        listener, self._listener = self._listener, None
        parts: dict[str, Stop] = {} if listener is None else {"the listener": listener.close}
        parts["its tasks"] = self.tasks.close
        parts |= {f"exchange {number}": exchange.cut for number, exchange in enumerate(self._open, 1)}
        await end_each("metrics and health", parts)
        await asyncio.sleep(0)

    def opened(self, exchange: _Exchange) -> bool:
        """Whether one more connection may be served."""
        if self._listener is None or len(self._open) >= _CONNECTIONS:
            return False
        self._open.add(exchange)
        return True

    def ended(self, exchange: _Exchange) -> None:
        self._open.discard(exchange)


class _Exchange(asyncio.Protocol):
    """One connection: a request head in, an answer out, closed."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._head = b""
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._listener.opened(self):
            self._limit(_ASK_SECONDS)
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._listener.ended(self)

    def cut(self) -> None:
        self._transport.abort()

    def _limit(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.cut)

    def data_received(self, data: bytes) -> None:
        if self._asked:
            return
        self._head += data[: _HEAD_LIMIT + 1]
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= _HEAD_LIMIT:
            return
        self._asked = True
        self._transport.pause_reading()
        self._limit(_TAKE_SECONDS)
        if end < 0:
            self._write(Answer(431, b"the request is too long\n"), head_only=False)
            return
        line, _, fields = self._head[:end].partition(b"\r\n")
        self._head = b""
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self._write(Answer(400, b"not an HTTP request\n"), head_only=False)
        elif words[0] not in (b"GET", b"HEAD"):
            self._write(Answer(405, b"only GET and HEAD are served\n"), head_only=False)
        else:
            path, _, query = words[1].decode("latin-1").partition("?")
            page = self._listener.pages.get(path)
            head_only = words[0] == b"HEAD"
            if page is None:
                known = " ".join(sorted(self._listener.pages))
                self._write(Answer(404, f"not here; there are {known}\n".encode()), head_only=head_only)
            else:
                asked = self._answer(page, path, query, _field(fields, b"authorization"), head_only)
                self._listener.tasks.spawn(asked, path)

    async def _answer(self, page: Page, path: str, query: str, authorization: bytes, head_only: bool) -> None:
        admit = self._listener.admit
        try:
            answer = None if admit is None else await admit(path, authorization)
            if answer is None:
                answer = await page(dict(parse_qsl(query, max_num_fields=32)))
        except ValueError:
            answer = Answer(400, b"the query cannot be read\n")
        except Exception:
            log.exception("a page failed")
            answer = Answer(500, b"internal error; the log says more\n")
        self._write(answer, head_only=head_only)

    def _write(self, answer: Answer, *, head_only: bool) -> None:
        if self._transport.is_closing():
            return
        pieces = (answer.body,) if isinstance(answer.body, bytes) else answer.body
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {sum(map(len, pieces))}\r\nCache-Control: no-store\r\nConnection: close\r\n"
            f"{_CHALLENGE if answer.status == 401 else ''}\r\n"
        ).encode()
        self._transport.writelines((head,) if head_only else (head, *pieces))
        self._transport.close()


def _field(fields: bytes, name: bytes) -> bytes:
    """A field of a request's head, the first of its name; empty when there is none.

    :param name: in small letters.
    """
    for line in fields.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return b""
