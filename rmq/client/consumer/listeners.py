"""An application's listeners, and calling them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from rmq.client.application import call_on
from rmq.client.checks import check_flag, check_number, seconds
from rmq.client.hooks import ConsumeHookContext, Hooks
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.protocol.errors import ClientError, WrongType
from rmq.runtime.aside import logger
from rmq.runtime.world import Pool

__all__ = [
    "Batch",
    "BatchListener",
    "ConsumeContext",
    "Listener",
    "ListenerResult",
    "One",
    "OneListener",
    "Outcome",
    "ends_task",
]

log = logger(__name__)

#: What a listener may return: nothing, True and SUCCESS are success, False and the other results are not.
ListenerResult = ConsumeResult | bool | None


@dataclass(slots=True)
class ConsumeContext:
    """What a listener may look at and set for the call under way (Java: ConsumeConcurrentlyContext, ...Orderly...).

    ``delay_level_when_next_consume``: -1 to the dead letters at once, 0 the broker decides, over 0 that delay level.
    ``ack_index``: of a batch, the index of the last message that succeeded. Orderly: ``auto_commit``, and
    ``suspend_current_queue_time`` (seconds, or a timedelta) for the next pause of this queue.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int | None = None
    auto_commit: bool = True
    suspend_current_queue_time: float | None = None

    def check(self) -> None:
        """Look at what a listener has set. :raises ClientError: it is of a wrong type; it is as before then."""
        level, index, pause = self.delay_level_when_next_consume, self.ack_index, self.suspend_current_queue_time
        commit: object = self.auto_commit
        if commit is not True and commit is not False:
            self.auto_commit = True
            check_flag(commit, "context.auto_commit")
        if type(level) is not int:
            self.delay_level_when_next_consume = 0
            check_number(level, "context.delay_level_when_next_consume")
        if index is not None:
            self.ack_index = None
            check_number(index, "context.ack_index")
            self.ack_index = index
        if pause is not None:
            self.suspend_current_queue_time = None
            self.suspend_current_queue_time = seconds(pause, "context.suspend_current_queue_time")


_Returned: TypeAlias = ListenerResult | Awaitable[ListenerResult]
#: Takes a message, and the context when it has a second parameter; on a thread, or as a coroutine on the loop.
OneListener: TypeAlias = Callable[[MessageExt], _Returned] | Callable[[MessageExt, ConsumeContext], _Returned]
#: Takes a batch: a list of messages.
BatchListener: TypeAlias = (
    Callable[[list[MessageExt]], _Returned] | Callable[[list[MessageExt], ConsumeContext], _Returned]
)
One = TypeVar("One", bound=OneListener)
Batch = TypeVar("Batch", bound=BatchListener)


@dataclass(slots=True)
class Outcome:
    """How one call of a listener (or one for each message) ended."""

    result: ConsumeResult
    failed: Sequence[MessageExt] = ()
    context: ConsumeContext | None = None
    error: BaseException | None = None
    #: The task that called it was cancelled, and not by us: it goes to its end, and another one takes its place.
    cancelled: bool = False


def _ok(returned: object) -> bool:
    """It says success. What it is is asked and not what it equals: arrays have no truth value when compared."""
    return returned is None or returned is True or returned is ConsumeResult.SUCCESS


def ends_task(error: BaseException) -> bool:
    """Whether what an application's coroutine raised ends the task it runs in, and not just the call.

    Awaiting what somebody else cancelled raises CancelledError without this task being cancelled; and its
    ``sys.exit()``, or whatever else it raises, would take along what the task does for others.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit)


class Listener:
    """A listener and how it wants to be called.

    However it ends but by returning, by raising whatever there is, it has failed; unless its consumer is stopping.

    :param function: plain (runs on a thread of the pool) or a coroutine function (runs on the loop).
    :param batch: it takes a list of messages instead of one.
    :param group: whose messages it gets, for the log.
    :param hooks: told of every call.
    :raises ClientError: it is no function, or cannot be called with a message.
    """

    def __init__(
        self, function: Callable[..., Any], *, batch: bool = False, group: str = "", hooks: Hooks | None = None
    ) -> None:
        if not callable(function):
            raise WrongType(f"a listener is a function, not {type(function).__name__}")
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
            raise ClientError(f"the listener {self.name} has a yield: calling it would do nothing; let it return")
        self.batch = batch
        self.is_coroutine = _is(inspect.iscoroutinefunction, function)
        self._group = group
        self._hooks = hooks if hooks is not None and hooks.consumes else None
        self._warned = False
        self._wants_context = _positional(function) >= 2
        _check_parameters(function, 2 if self._wants_context else 1)

    def call(self, messages: list[MessageExt], context: ConsumeContext, *, in_order: bool = False) -> Outcome:
        """Call a plain listener; never raises.

        :param in_order: what comes after a message that failed is not tried, and counts as failed.
        """
        failed: list[MessageExt] = []
        outcome = Outcome(ConsumeResult.SUCCESS, failed, context)
        hooked = self._begin(messages, context)
        for given in self._portions(messages):
            try:
                returned = self._invoke(given, context)
                context.check()
            except BaseException as error:  # a thread of ours is nobody's to end
                self._note_error(outcome, failed, given, error)
            else:
                self._note(outcome, failed, given, returned)
            if self._is_over(messages, failed, in_order):
                break
        self._end(hooked, outcome)
        return outcome

    async def call_on(
        self, pool: Pool, messages: list[MessageExt], context: ConsumeContext, *, in_order: bool = False
    ) -> Outcome:
        """:meth:`call` on a thread of a pool.

        :raises RuntimeError: the pool is closed.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome | None, error: BaseException | None) -> None:
            if not future.done():  # cancelled: nobody waits for its result any more
                future.set_result(outcome or Outcome(ConsumeResult.RECONSUME_LATER, messages, context, error))

        pool.submit(lambda: self.call(messages, context, in_order=in_order), done)
        return await future

    async def call_async(
        self,
        pool: Pool,
        messages: list[MessageExt],
        context: ConsumeContext,
        *,
        in_order: bool = False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """The same for a coroutine listener.

        :param pool: where hooks around it may take their time.
        :param stopping: whether who cancels its task now is us.
        :raises CancelledError: we did.
        """
        failed: list[MessageExt] = []
        outcome = Outcome(ConsumeResult.SUCCESS, failed, context)
        task = asyncio.current_task()
        assert task is not None
        aside = self._hooks is not None and not self._hooks.quick
        begin = partial(self._begin, messages, context)
        hooked = await call_on(pool, begin) if aside else begin()
        for given in self._portions(messages):
            try:
                returned = self._invoke(given, context)
                if isinstance(returned, Awaitable):
                    returned = await returned
                context.check()
            except BaseException as error:
                if _closed(task) or (task.cancelling() and stopping()):
                    raise
                self._note_error(outcome, failed, given, error)
            else:
                self._note(outcome, failed, given, returned)
            if task.cancelling() and not stopping():
                await _live_on(task)
                outcome.cancelled = True
            if self._is_over(messages, failed, in_order):
                break
        if aside:
            await call_on(pool, partial(self._end, hooked, outcome))
        else:
            self._end(hooked, outcome)
        return outcome

    def _begin(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeHookContext | None:
        return None if self._hooks is None else self._hooks.begin_consume(messages, context.message_queue)

    def _end(self, hooked: ConsumeHookContext | None, outcome: Outcome) -> None:
        if self._hooks is not None and hooked is not None:
            self._hooks.end_consume(hooked, outcome.result, outcome.failed, outcome.error)

    def _portions(self, messages: list[MessageExt]) -> list[list[MessageExt]]:
        return [messages] if self.batch else [[message] for message in messages]

    def _is_over(self, messages: list[MessageExt], failed: list[MessageExt], in_order: bool) -> bool:
        if not failed or not in_order or self.batch:
            return False
        failed[:] = messages[messages.index(failed[0]) :]
        return True

    def _invoke(self, given: list[MessageExt], context: ConsumeContext) -> Any:
        what = given if self.batch else given[0]
        return self.function(what, context) if self._wants_context else self.function(what)

    def _note_error(
        self, outcome: Outcome, failed: list[MessageExt], given: list[MessageExt], error: BaseException
    ) -> None:
        first = given[0]
        assert outcome.context is not None
        with contextlib.suppress(ClientError):
            outcome.context.check()
        log.warning(
            "group %s, topic %s: a listener raised, %s, for %r, at try %d",
            self._group,
            first.topic,
            self.name,
            first,
            first.reconsume_times + 1,
            exc_info=error,
        )
        outcome.error = error
        outcome.result = ConsumeResult.RECONSUME_LATER
        failed += given

    def _note(self, outcome: Outcome, failed: list[MessageExt], given: list[MessageExt], returned: object) -> None:
        if isinstance(returned, Awaitable) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            self._note_error(outcome, failed, given, _unbegun(self.name, returned))
            return
        elif isinstance(returned, ConsumeResult) and returned is not ConsumeResult.SUCCESS:
            outcome.result = returned
            if returned not in (ConsumeResult.COMMIT, ConsumeResult.ROLLBACK):
                failed += given
            return
        elif returned is False:
            outcome.result = ConsumeResult.RECONSUME_LATER
            failed += given
            return
        elif not _ok(returned) and not self._warned:
            self._warned = True
            log.warning(
                "group %s, topic %s: the listener %s returns %s, which is no result: taken as success, as whatever it "
                "returns but False and the other results of ConsumeResult; raise to have a message tried again",
                self._group,
                given[0].topic,
                self.name,
                type(returned).__name__,
            )
        # ack_index says how much of a batch succeeded; the rest is tried again.
        assert outcome.context is not None
        index = outcome.context.ack_index
        if index is not None and index + 1 < len(given):
            failed += given[max(0, index + 1) :]
            outcome.result = ConsumeResult.RECONSUME_LATER


def _is(kind: Callable[[object], bool], function: object) -> bool:
    """Whether a function, or an object that can be called, is of a kind."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - an object of a kind


def _unbegun(name: str, returned: object) -> ClientError:
    """What is wrong with work that was returned instead of done."""
    if inspect.iscoroutine(returned):
        returned.close()  # or the interpreter complains that nobody awaited it
    kind = type(returned).__name__
    return ClientError(
        f"the listener {name} returned a {kind}, whose work nobody does: make the listener a coroutine function (async "
        "def) that awaits it, or do the work before returning"
    )


def _closed(task: asyncio.Task[Any]) -> bool:
    """The coroutine that runs here is thrown away, by whoever: its task is not what runs."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True


async def _live_on(task: asyncio.Task[Any]) -> None:
    """Take back that an application cancelled a task of ours, so that it can do what is left to do."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # one that was asked for without a pause since comes now
    while task.cancelling():
        task.uncancel()


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
