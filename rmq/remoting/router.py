"""Handlers as data: a method says which request code it answers, the router collects and calls it.

::

    class RouteQueries:
        @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, header=GetRouteInfoRequest)
        def route(self, conn: Conn, request: Command, header: GetRouteInfoRequest) -> Command:
            return request.reply(ResponseCode.SUCCESS, body=...)

A handler is a plain function or a coroutine function. It returns the response, or None: no answer now (a long poll
that answers later with ``conn.send_command``) or ever. To refuse it raises ``ResponseError(code, remark)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.header import Header
from rmq.remoting.faults import Faults
from rmq.remoting.latency import CallLatency, polled
from rmq.runtime.aside import logger

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn

__all__ = ["BUSY", "LARGE", "SHORT", "Handler", "Refusal", "Router", "handles"]

log = logger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "_rmq_handles"
#: Bytes of a body that is parsed in one go by any parser.
SHORT = 64 << 10
#: What an answer with messages, or a list of much, counts for while it is made, bytes.
LARGE = 256 << 10
#: The remark of a refusal because too much waits already, as a busy Java broker words it.
BUSY = "[OVERLOAD]system busy, start flow control for a while"
#: What a request under way in a coroutine counts for in ``owed_bytes``, besides its body.
_TASK_COST = 4_096


@dataclass(frozen=True, slots=True)
class Handler:
    """A bound method and what it answers."""

    code: int
    header: type[Header] | None
    call: Callable[..., Any]
    owner: str
    #: Bytes of a body that it takes; None: as many as a frame has.
    body: int | None = None
    #: Bytes that its answers may well have.
    answer: int = 0


class Guard(Protocol):
    """Access control (:mod:`rmq.auth`): asked twice about each request, both times it raises AuthError to refuse."""

    def longest(self, code: int) -> int:
        """Bytes of a body that is taken by a handler which sets no limit of its own: all of it is signed."""

    def admit(self, conn: Conn, request: Command) -> None:
        """Who sent it, before anything of it is read."""

    def check(self, conn: Conn, request: Command, header: Header | None) -> None:
        """Whether he may do what the header says that the handler is about to get."""


class Refusal(NamedTuple):
    """The answer to a request that is not served."""

    code: int
    remark: str


def handles(
    *codes: int, header: type[Header] | None = None, body: int | None = None, answer: int = 0
) -> Callable[[F], F]:
    """Mark a method as the handler of request codes.

    :param header: the typed header; given, the method takes ``(conn, request, header)``, else ``(conn, request)``.
    :param body: a longer body, in bytes, is refused before the method is called: a MiB of JSON that is parsed in one go
        holds the loop for up to 30 ms. None: as many bytes as a frame has, for who passes it on or does not look at it.
    :param answer: bytes that the answers of a coroutine may well have: while one is made they count as owed by the
        connection, so that it cannot have many made at once.
    """

    def mark(function: F) -> F:
        marks = [*getattr(function, _MARK, ()), *((int(code), header, body, answer) for code in codes)]
        setattr(function, _MARK, tuple(marks))
        return function

    return mark


#: The marks of the methods of each kind of service, by method: services come and go with roles.
_known: dict[type, tuple[tuple[str, Any], ...]] = {}


def _marks(kind: type) -> tuple[tuple[str, Any], ...]:
    marks = _known.get(kind)
    if marks is None:
        methods = [(name, inspect.getattr_static(kind, name, None)) for name in dir(kind)]
        marks = tuple((name, mark) for name, method in methods for mark in getattr(method, _MARK, ()))
        _known[kind] = marks
    return marks


class Router:
    """Request code -> handler (Java: the processor table of the remoting server).

    ``guard`` is asked ahead of every handler, when access control is on. ``latency`` counts the answers, when there is
    one. ``faults`` answers what raised.
    """

    __slots__ = ("_handlers", "_refusing", "_served", "faults", "guard", "latency")

    def __init__(self, services: Iterable[object] = ()) -> None:
        #: What services handle, what is refused instead, and both together.
        self._served: dict[int, Handler] = {}
        self._refusing: dict[int, Handler] = {}
        self._handlers: dict[int, Handler] = {}
        self.faults = Faults()
        self.latency: CallLatency | None = None
        self.guard: Guard | None = None
        for service in services:
            self.add(service)

    def add(self, service: object) -> None:
        """Collect the marked methods of a service.

        :raises ValueError: it has none, or a code has a handler already.
        """
        kind = type(service)
        marks = _marks(kind)
        for name, (code, header, body, answer) in marks:
            self._put(Handler(code, header, getattr(service, name), f"{kind.__name__}.{name}", body, answer))
        if not marks:
            raise ValueError(f"{kind.__name__} marks no method with @handles")

    def remove(self, service: object) -> None:
        """Take back what :meth:`add` has collected of a service; what it was asked before it still answers."""
        for _, (code, *_) in _marks(type(service)):
            del self._served[code]
        self._handlers = {**self._served, **self._refusing}

    def refuse(self, refusals: Mapping[int, Refusal]) -> None:
        """Answer these codes so, whoever handles them, and no others any more.

        :param refusals: by request code.
        """

        def refusing(refusal: Refusal) -> Callable[[Conn, Command], Command]:
            def refuse(conn: Conn, request: Command) -> Command:
                raise ResponseError(*refusal)

            return refuse

        self._refusing = {
            code: Handler(code, None, refusing(refusal), "Router.refuse") for code, refusal in refusals.items()
        }
        self._handlers = {**self._served, **self._refusing}

    def on(self, code: int, call: Callable[..., Any], header: type[Header] | None = None) -> None:
        """Have a plain callable handle a code.

        :raises ValueError: the code has a handler already.
        """
        self._put(Handler(int(code), header, call, getattr(call, "__qualname__", repr(call))))

    def _put(self, handler: Handler) -> None:
        before = self._served.get(handler.code)
        if before is not None:
            raise ValueError(f"request code {handler.code} is handled by {before.owner} and by {handler.owner}")
        self._served[handler.code] = handler
        self._handlers = {**self._served, **self._refusing}

    def codes(self) -> list[int]:
        """Every code that has a handler, sorted."""
        return sorted(self._handlers)

    def handler(self, code: int) -> Handler | None:
        return self._handlers.get(code)

    def route(self, conn: Conn, request: Command) -> None:
        """Handle one request; answers on the connection unless the request is oneway. Never raises."""
        began = conn.read_at
        handler = self._handlers.get(request.code)
        try:
            if handler is None:
                raise ResponseError(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
                )
            if not (request.flag & 2 or conn.has_room()):
                if not conn.when_room(lambda: None if conn.closed else self.route(conn, request)):
                    raise ResponseError(ResponseCode.SYSTEM_BUSY, BUSY)
                return
            guard = self.guard
            limit = handler.body
            if limit is None and guard is not None:
                limit = guard.longest(request.code)
            if limit is not None and len(request.body) > limit:
                raise ResponseError(
                    ResponseCode.SYSTEM_ERROR,
                    f"a body of {len(request.body)} bytes: at most {limit} are taken by request {request.code}",
                )
            if guard is not None:
                guard.admit(conn, request)
            header = None if handler.header is None else handler.header.decode(request.ext or {})
            if guard is not None and request.code not in self._refusing:
                guard.check(conn, request, header)
            if header is None:
                answer = handler.call(conn, request)
            else:
                answer = handler.call(conn, request, header)
            if answer is None:
                return
            if inspect.iscoroutine(answer):
                cost = _TASK_COST + len(request.body)
                work = self._finish(conn, request, handler, answer, cost, began)
                try:
                    conn.spawn(work, f"request {request.code}")
                except RuntimeError:  # stopping: the other side finds the connection closed
                    answer.close()
                else:
                    conn.owed_bytes += cost
                    conn.promise(handler.answer)
                return
            self._answer(conn, request, answer, began)
        except Exception as error:
            self._failed(conn, request, "Router.route" if handler is None else handler.owner, error, began)

    async def _finish(
        self,
        conn: Conn,
        request: Command,
        handler: Handler,
        work: Coroutine[Any, Any, Command | None],
        cost: int,
        began: float,
    ) -> None:
        try:
            answer = await work
            if answer is not None:
                self._answer(conn, request, answer, began)
        except Exception as error:
            self._failed(conn, request, handler.owner, error, began)
        finally:
            conn.settle(cost)
            conn.promise(-handler.answer)

    def _answer(self, conn: Conn, request: Command, answer: Command, began: float) -> None:
        if not request.flag & 2:
            conn.send_command(answer)  # one that cannot be encoded is the handler's fault
            if request.grant is not None:
                request.grant.charge(len(answer.body))
        self._answered(request, answer.code, began)

    def _answered(self, request: Command, code: int, began: float) -> None:
        if self.latency is not None:
            result = "oneway" if request.flag & 2 else "success"
            self.latency.add(request.code, code, began, result=result, long_polling=polled.get())

    def _failed(self, conn: Conn, request: Command, owner: str, error: Exception, began: float) -> None:
        self._answered(request, self.faults.fail(conn, request, owner, error), began)
