"""A listener of an application: from a message to the call of its function and to what becomes of the result."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rmq.app.depends import Call, Plan
from rmq.app.payload import Codec, PayloadError, is_class
from rmq.app.topic import Topic
from rmq.client.checks import check_function
from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.message import MessageExt
from rmq.client.results import ConsumeResult
from rmq.protocol.errors import ClientError, ResponseError, WrongType
from rmq.runtime.aside import logger
from rmq.runtime.pool import on_pool

if TYPE_CHECKING:
    from rmq.aio import PushConsumer
    from rmq.app.application import App

__all__ = ["BadPayload", "Handler", "Middleware", "OnBadPayload"]

log = logger(__name__)

#: Seconds between two lines about bad payloads of one listener.
_TOLD_SECONDS = 60.0


class BadPayload(Enum):
    """What becomes of a message whose body is not what the listener's topic says."""

    #: It goes to the group's dead letters at once: trying again would not change it.
    DEAD_LETTER = "dead-letter"
    #: It is tried again like any that its listener failed at: a newer release may know the form.
    RETRY = "retry"
    #: It is passed over.
    SKIP = "skip"


#: One of these, or a function of yours (plain or coroutine) that gets the message and what is wrong with it; what it
#: returns or raises is taken as a listener's.
OnBadPayload = BadPayload | Callable[[MessageExt, PayloadError], Any]


class Middleware(Protocol):
    """Stands around every call: ``result = await following()`` goes on; what it returns or raises counts."""

    def __call__(self, call: Call, following: Callable[[], Awaitable[Any]], /) -> Awaitable[Any]: ...


class Handler:
    """One function that listens.

    :param topic: what it gets.
    :param send_to: where what it returns goes.
    :param reply: how what it returns becomes the reply to a request.
    :param on_bad_payload: None = dead letters, or, where there are none because the group broadcasts, pass over.
    :raises ClientError: the function's parameters and the topic do not fit.
    """

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        topic: Topic[Any],
        group: str,
        *,
        send_to: Topic[Any] | None,
        reply: Codec[Any] | None,
        on_bad_payload: OnBadPayload | None,
        broadcasting: bool,
    ) -> None:
        self.app = app
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.group = group
        self.topic = topic
        self.send_to = send_to
        self.reply = reply
        self.plan = Plan.of(function)
        if send_to is not None and not isinstance(send_to, Topic):
            raise WrongType(f"the listener {self.name}: send_to is {send_to!r:.60}: give a Topic")
        if on_bad_payload is not None and not isinstance(on_bad_payload, BadPayload):
            check_function(on_bad_payload, f"the listener {self.name}: on_bad_payload")
        if on_bad_payload is None:
            on_bad_payload = BadPayload.SKIP if broadcasting else BadPayload.DEAD_LETTER
        if broadcasting and on_bad_payload in (BadPayload.DEAD_LETTER, BadPayload.RETRY):
            raise ClientError(f"the listener {self.name}: a group that broadcasts has neither retries nor dead letters")
        self._on_bad_payload = on_bad_payload
        self._told_at: float | None = None
        self._untold = 0
        self._check()

    def _check(self) -> None:
        """:raises ClientError: it could never be called, or would get what its annotation does not say."""
        plan = self.plan
        if inspect.isgeneratorfunction(plan.function) or inspect.isasyncgenfunction(plan.function):
            raise ClientError(f"the listener {self.name} has a yield: calling it would do nothing; let it return")
        if not plan.is_async and (late := [one for one in plan.makers() if one.is_async]):
            name = getattr(late[0].function, "__qualname__", "a dependency")
            raise ClientError(
                f"the listener {self.name} runs on a thread, where the coroutine {name} cannot be awaited: make the "
                "listener a coroutine function (async def), or the dependency a plain one"
            )
        said, kind = plan.payload, self.topic.kind
        if is_class(said) and is_class(kind) and not issubclass(kind, said):
            raise ClientError(
                f"the listener {self.name} takes {said.__name__}, and the topic {self.topic.name} has {kind.__name__}"
            )
        if plan.takes_payload and self.topic.kind is not None:
            _ = self.topic.codec

    async def __call__(self, consumer: PushConsumer, message: MessageExt, context: ConsumeContext) -> Any:
        """What the consumer calls for a message."""
        call = Call(self.app, self.name, self.group, message, context)
        following: Callable[[], Awaitable[Any]] = partial(self._run, consumer, call)
        for middleware in reversed(self.app.middlewares):
            following = partial(middleware, call, following)
        try:
            return await following()
        except PayloadError as error:
            if call.bad is not error:
                raise  # of what the listener itself made
            return await self._bad(consumer, call, error)

    async def _run(self, consumer: PushConsumer, call: Call) -> Any:
        payload = None
        if self.plan.takes_payload:
            try:
                payload = self.topic.load(call.message.body)
            except PayloadError as error:
                call.bad = error
                raise
        pool = consumer._joined.pool
        if self.plan.is_async:
            result = await self.plan.run_async(call, payload, pool)
        else:
            result = await on_pool(pool, lambda: self.plan.run(call, payload))
        if result is None or isinstance(result, ConsumeResult) or not (self.send_to or self.reply):
            return result
        if self.reply is not None and "REPLY_TO_CLIENT" in call.message.properties:
            await self._reply(consumer, call.message, self.reply.dump(result))
        if self.send_to is not None:  # only then is its message done, and a send that fails has it tried again
            await self.app.send(self.send_to, result)
        return None

    async def _reply(self, consumer: PushConsumer, request: MessageExt, body: bytes) -> None:
        try:
            await consumer.reply(request, body)
        except ResponseError as error:  # who asked is gone: asking the listener again would not bring it back
            log.warning("group %s, listener %s: no reply to %r: %s", self.group, self.name, request, error)

    async def _bad(self, consumer: PushConsumer, call: Call, error: PayloadError) -> Any:
        act = self._on_bad_payload
        self._tell(call.message, error, act)
        if not isinstance(act, BadPayload):
            if inspect.iscoroutinefunction(act):
                return await act(call.message, error)
            return await on_pool(consumer._joined.pool, lambda: act(call.message, error))
        if act is BadPayload.SKIP:
            return ConsumeResult.SUCCESS
        if act is BadPayload.RETRY:
            return ConsumeResult.RECONSUME_LATER
        await consumer.send_message_back(call.message, -1)
        return ConsumeResult.SUCCESS

    def _tell(self, message: MessageExt, error: PayloadError, act: OnBadPayload) -> None:
        """One line a minute: a producer that has another form sends many such."""
        now = self.app.world.clock.monotonic()
        if self._told_at is not None and now - self._told_at < _TOLD_SECONDS:
            self._untold += 1
            return
        fate = f"{act.value}: " if isinstance(act, BadPayload) else ""
        more = f"; {self._untold} others since the last line" if self._untold else ""
        self._told_at, self._untold = now, 0
        log.warning("group %s, listener %s: %s%r: %s%s", self.group, self.name, fate, message, error, more)
