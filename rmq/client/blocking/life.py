"""What the blocking clients share: life, fork, and running coroutines on the loop thread (design.md 6)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from rmq.client.admin import AdminClient as AioAdminClient
from rmq.client.consumer.lite import LitePullConsumer as AioLitePullConsumer
from rmq.client.consumer.pull import PullConsumer as AioPullConsumer
from rmq.client.consumer.push import PushConsumer as AioPushConsumer
from rmq.client.life import not_copied
from rmq.client.producer import Producer as AioProducer
from rmq.runtime.aside import logger
from rmq.runtime.bridge import Bridge

__all__ = ["A", "Blocking", "C", "twin"]

log = logger(__name__)

#: Seconds that the end of a process leaves listeners, of the five that it leaves all clients together.
_LISTENERS_AT_EXIT = 2.0

T = TypeVar("T")
A = TypeVar("A", bound=AioProducer | AioPushConsumer | AioPullConsumer | AioLitePullConsumer | AioAdminClient)
C = TypeVar("C", bound=AioPushConsumer | AioPullConsumer | AioLitePullConsumer)


def twin(aio: type) -> Callable[[type[T]], type[T]]:
    """Give the methods of a blocking class the documentation of their twins."""

    def copy(cls: type[T]) -> type[T]:
        for name, value in vars(cls).items():
            other = getattr(aio, name, None)
            if other is not None and getattr(value, "__doc__", None) is None and callable(value):
                value.__doc__ = other.__doc__
        return cls

    return copy


class Blocking(Generic[A]):
    """What the blocking clients share: life, fork, and running coroutines on the loop thread."""

    #: A forked child starts it anew at first use when the parent had started it.
    _restarts = True
    #: At the end of the process it stops before the clients that its listeners may use.
    _receives = False

    def __init__(self, client: A) -> None:
        self._take(client)
        self._bridge: Bridge | None = None
        self._started = False
        #: One for each thread that waits in :meth:`start`: a shutdown meanwhile cuts it short.
        self._starts: list[object] = []

    def _take(self, client: Any) -> None:
        client._shares_loop = True
        self._client: A = client

    def _alive(self) -> A:
        """The asyncio client of this process: another one after a fork."""
        made = self._bridge_now()
        if made is not self._bridge:
            self._adopt(made)
        return self._client

    def _bridge_now(self) -> Bridge:
        """The way to the loop of this process, in the world of this client."""
        return self._client._world.bridge()

    def _inside(self) -> bool:
        """Whether a function of the application that the client would wait for calls this."""
        client = self._alive()
        inside: Callable[[], bool] | None = getattr(client, "_inside", None)
        return self._bridge_now().elsewhere_inside or (inside is not None and inside())

    def _adopt(self, made: Bridge) -> None:
        with made.renewing:
            if self._bridge is made:
                return
            if self._bridge is not None:
                client = self._client._renew()
                again = self._started and self._restarts
                if again:
                    made.run(client.start())
                self._take(client)
                self._forked()
                self._started = again
                if again:
                    self._keep_track(made)
            self._bridge = made  # last: whatever interrupts this, the next call begins anew

    def _forked(self) -> None:
        """Forget what only the parent goes on with."""

    def _keep_track(self, made: Bridge) -> None:
        """Have it stopped when the process ends, and its sockets closed in children."""
        made.stop_at_exit(self, self._left_open, first=self._receives)
        made.close_in_children(self, self._descriptors)

    async def _left_open(self) -> None:
        settings: Any = self._client._settings
        if (most := getattr(settings, "await_termination_when_shutdown", None)) is not None:
            # The process waits for all of this only so long: of a listener that does not return nothing is to be lost
            # but its own message.
            settings.await_termination_when_shutdown = min(most, _LISTENERS_AT_EXIT)
        await self._client.shutdown()
        warnings.warn(f"{self!r} was not shut down: use it with 'with', or call shutdown()", ResourceWarning, 1, self)

    def _run(self, coro: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        return self._bridge_now().run(coro, seconds)

    def _on_loop(self, call: Callable[[A], T]) -> T:
        """Make a plain call: on the loop while the client runs there, right here otherwise."""
        client = self._alive()
        if not self._started:
            return call(client)

        async def there() -> T:
            return call(client)

        return self._run(there())

    def __repr__(self) -> str:
        return repr(self._client)

    def __reduce__(self) -> NoReturn:
        raise not_copied(self)

    def start(self) -> None:
        """Begin; starting a started client does nothing. See the asyncio class for what it raises."""
        client = self._alive()
        if self._started:
            return
        mine = object()
        self._starts.append(mine)
        try:
            self._run(client.start())
        finally:
            self._starts.remove(mine)
        if client._instance is not None:  # a shutdown by another thread may have come right behind
            self._started = True
            self._keep_track(self._bridge_now())

    def _stop(self, coro: Callable[[A], Coroutine[Any, Any, object]]) -> None:
        client = self._alive()
        if self._started or self._starts:
            self._started = False
            self._bridge_now().forget(self)
            try:
                self._run(coro(client))
            finally:
                self._started = False

    def _stop_behind(self, coro: Callable[[A], Coroutine[Any, Any, object]]) -> None:
        """Stop without waiting for it: it waits for who asks."""
        if self._started:
            self._started = False
            made = self._bridge_now()
            made.forget(self)
            made.post(made.spawn, coro(self._client), _ended)

    def shutdown(self) -> None:
        """End: leave the group, close the connections."""
        self._stop(lambda client: client.shutdown())

    def _descriptors(self) -> list[int]:
        instance = self._client._instance
        return [] if instance is None else instance.descriptors()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _ended(result: object) -> None:
    if isinstance(result, BaseException):
        log.error("the shutdown asked for by a function that it waits for failed", exc_info=result)
