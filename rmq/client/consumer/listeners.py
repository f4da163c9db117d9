"""An application's listeners, and calling them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.protocol.errors import ClientError

__all__ = ["ConsumeContext", "F", "Listener", "Outcome", "ends_task"]

log = logging.getLogger(__name__)

#: Any listener: it takes a message (or, for a batch, a list of them), and the context when it has a second parameter.
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class ConsumeContext:
    """What a listener may look at and set for the call under way (Java: ConsumeConcurrentlyContext, ...Orderly...).

    ``delay_level_when_next_consume``: -1 to the dead letters at once, 0 the broker decides, over 0 that delay level.
    ``ack_index``: of a batch, the index of the last message that succeeded. Orderly: ``auto_commit``, and
    ``suspend_current_queue_time`` (seconds) for the next pause of this queue.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int | None = None
    auto_commit: bool = True
    suspend_current_queue_time: float | None = None


@dataclass(slots=True)
class Outcome:
    """How one call of a listener (or one for each message) ended."""

    result: ConsumeResult
    failed: Sequence[MessageExt] = ()
    context: ConsumeContext | None = None
    error: BaseException | None = None
    returned_none: bool = False
    messages: Sequence[MessageExt] = field(default_factory=tuple)


def _ok(returned: object) -> bool:
    """It says success. What it is is asked before what it equals: arrays have no truth value when compared."""
    return returned is None or returned is ConsumeResult.SUCCESS or (isinstance(returned, int) and returned == 1)


def ends_task(error: BaseException) -> bool:
    """Whether what an application's coroutine raised ends the task it runs in, and not just the call.

    Awaiting what somebody else cancelled raises CancelledError without this task being cancelled; and a listener's
    ``sys.exit()`` would take the loop of every other client with it.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return not isinstance(error, (Exception, SystemExit))


class Listener:
    """A listener and how it wants to be called.

    :param function: plain (runs on a thread of the pool) or a coroutine function (runs on the loop).
    :param batch: it takes a list of messages instead of one.
    """

    def __init__(self, function: Callable[..., Any], *, batch: bool = False) -> None:
        if not callable(function):
            raise ClientError(f"a listener is a function, not {type(function).__name__}")
        self.function = function
        self.batch = batch
        self.is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with a coroutine __call__
        )
        self._wants_context = _positional(function) >= 2
        _check_parameters(function, 2 if self._wants_context else 1)

    def call(self, messages: list[MessageExt], context: ConsumeContext, *, in_order: bool = False) -> Outcome:
        """Call a plain listener; never raises but for what ends the process.

        :param in_order: what comes after a message that failed is not tried, and counts as failed.
        """
        failed: list[MessageExt] = []
        outcome = Outcome(ConsumeResult.SUCCESS, failed, context, messages=messages)
        for given in [messages] if self.batch else [[message] for message in messages]:
            try:
                returned = self._invoke(given, context)
            except Exception as error:
                self._note(outcome, failed, given, None, error)
            else:
                if not _ok(returned) or context.ack_index is not None:
                    self._note(outcome, failed, given, returned, None)
                elif returned is None:
                    outcome.returned_none = True
            if failed and in_order and not self.batch:
                failed[:] = messages[messages.index(failed[0]) :]
                break
        return outcome

    async def call_async(
        self, messages: list[MessageExt], context: ConsumeContext, *, in_order: bool = False
    ) -> Outcome:
        """The same for a coroutine listener."""
        failed: list[MessageExt] = []
        outcome = Outcome(ConsumeResult.SUCCESS, failed, context, messages=messages)
        for given in [messages] if self.batch else [[message] for message in messages]:
            try:
                returned = self._invoke(given, context)
                if isinstance(returned, Awaitable):
                    returned = await returned
            except BaseException as error:
                if ends_task(error):
                    raise
                self._note(outcome, failed, given, None, error)
            else:
                if not _ok(returned) or context.ack_index is not None:
                    self._note(outcome, failed, given, returned, None)
                elif returned is None:
                    outcome.returned_none = True
            if failed and in_order and not self.batch:
                failed[:] = messages[messages.index(failed[0]) :]
                break
        return outcome

    def _invoke(self, given: list[MessageExt], context: ConsumeContext) -> Any:
        what = given if self.batch else given[0]
        return self.function(what, context) if self._wants_context else self.function(what)

    def _note(
        self,
        outcome: Outcome,
        failed: list[MessageExt],
        given: list[MessageExt],
        returned: object,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            log.warning("a listener raised for %r, at try %d", given[0], given[0].reconsume_times + 1, exc_info=error)
            outcome.error = error
            outcome.result = ConsumeResult.RECONSUME_LATER
            failed += given
            return
        if _ok(returned):
            # ack_index says how much of a batch succeeded; the rest is tried again.
            assert outcome.context is not None
            index = outcome.context.ack_index
            if index is not None and index + 1 < len(given):
                failed += given[max(0, index + 1) :]
                outcome.result = ConsumeResult.RECONSUME_LATER
            return
        if isinstance(returned, ConsumeResult):
            if returned in (ConsumeResult.COMMIT, ConsumeResult.ROLLBACK):
                outcome.result = returned
                return
            outcome.result = returned
            failed += given
            return
        if returned is False:
            outcome.result = ConsumeResult.RECONSUME_LATER
            failed += given
            return
        kind = type(returned).__name__
        log.error("a listener returned %s: it must return nothing, True, False or a ConsumeResult; tried again", kind)
        outcome.error = ClientError(f"the listener returned {kind}")
        outcome.result = ConsumeResult.RECONSUME_LATER
        failed += given


def _check_parameters(function: Callable[..., Any], count: int) -> None:
    """:raises ClientError: calling it with ``count`` arguments would fail for every message."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, and says nothing of itself
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise ClientError(
            f"the listener {name} cannot be called: it takes a message (with batch=True a list of them), "
            "and as a second argument, if it wants that, the context"
        ) from None


def _positional(function: Callable[..., Any]) -> int:
    """How many positional arguments a listener takes; a bound method's self is not counted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    count = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return 2
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and (
            parameter.default is parameter.empty or parameter.name in ("context", "ctx")
        ):
            count += 1
    return count
