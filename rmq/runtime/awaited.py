"""A coroutine of one object that asyncio takes for a future as well, where very many are waited for at once.

Of a hundred thousand that wait, the interpreter's collector goes through every object, again and again: that is most of
what waiting costs. A coroutine in ``asyncio.gather`` is seven of them: itself and what it waits for, a task with its
context, weak reference and wakeup, and the context of gather's callback. gather, wait and shield make a task of what is
no future (``asyncio.isfuture``), tasks take what is a coroutine (``asyncio.iscoroutine``). This is both: one object.

Nothing is begun until somebody awaits it, or takes it for a future, as nothing of a coroutine is.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast
from weakref import ref

__all__ = ["Awaited", "Begins", "Together", "gives_coroutines"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])

_Callback = Callable[[Any], object]

_PENDING: Any = object()


def _nothing() -> None:
    """What a reference to nothing gives."""


def _end(error: BaseException) -> None:
    """End the program: the loop lets it through."""
    raise error


class _Failed:
    """Why there is no value.

    :ivar heard: by somebody; an error that nobody hears of is told to the loop.
    """

    __slots__ = ("error", "heard", "loop", "traceback")

    def __init__(self, error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
        self.error = error
        #: Each who is told the error gets it with this, and not with what it went through at others.
        self.traceback = error.__traceback__
        self.loop = loop
        self.heard = False

    def __del__(self) -> None:
        if not self.heard and not self.loop.is_closed():
            self.loop.call_exception_handler(
                {"message": "Future exception was never retrieved", "exception": self.error}
            )


class _Cancelled:
    """It was cancelled."""

    __slots__ = ("message",)

    def __init__(self, message: object) -> None:
        self.message = message


class Together:
    """What is begun, and who is woken, in one turn of a loop: one callback each for all of them.

    A callback of the loop for each of very many would be as much as all else that they cost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._called: deque[Awaited[Any]] = deque()
        self._done: deque[Awaited[Any]] = deque()
        self._waking = False
        #: The last function that came as a callback without a context, and the context that it got.
        self._last: Callable[[], object] = _nothing
        self._last_context: Callable[[], Context | None] = _nothing

    def call(self, awaited: Awaited[Any]) -> None:
        """Have it begin in the next turn of the loop, as a task does."""
        running = asyncio._get_running_loop()
        if running is not self.loop:
            if running is not None:
                raise RuntimeError(f"{awaited!r} belongs to another event loop")
            self.loop.call_soon_threadsafe(self._begin_all)  # before it runs, or from a thread without one
        elif not self._called:
            self.loop.call_soon(self._begin_all)
        self._called.append(awaited)

    def _begin_all(self) -> None:
        called = self._called
        try:
            for _ in range(len(called)):
                awaited = called.popleft()
                if awaited._outcome is _PENDING:
                    awaited.wanted()
        finally:
            if called:  # a process that was to end by a signal may go on
                self.loop.call_soon(self._begin_all)

    def context_for(self, callback: _Callback) -> Context:
        """The context that a callback is called in when none is given: as it is now.

        What ``gather`` hangs on each of very many is one function, and nothing of the context changes meanwhile.
        """
        context = copy_context()
        if type(callback) is not FunctionType:
            return context
        if self._last() is callback and (known := self._last_context()) is not None:
            try:
                if known == context:
                    return known
            except Exception:  # what the application's values think of being compared
                return context
        self._last, self._last_context = ref(callback), ref(context)
        return context

    def wake(self, awaited: Awaited[Any]) -> None:
        """It is done: have those called who wait for it."""
        if not self._done:
            if self.loop.is_closed():
                return
            self.loop.call_soon(self._wake_all)
        self._done.append(awaited)

    def wake_now(self) -> None:
        """Have them called in this turn of the loop, where no task is running. Never raises.

        A program that ends itself meanwhile does so in the next turn: what a transport calls may not raise, and uvloop
        would take it for a connection that is broken.
        """
        if self._done and not self._waking and asyncio.current_task() is None:
            try:
                self._wake_all()
            except (SystemExit, KeyboardInterrupt) as error:
                self.loop.call_soon(_end, error)

    def _wake_all(self) -> None:
        done = self._done
        self._waking = True
        try:
            for _ in range(len(done)):
                # One by one, and not kept: what goes while as much is made anew, gives the collector no work.
                awaited = done.popleft()
                callback, context = awaited._callback, awaited._context
                awaited._callback = awaited._context = None
                awaited.let_go()
                if callback is not None:
                    assert isinstance(context, Context)
                    self._wake_one(callback, context, awaited)
                elif isinstance(context, list):
                    for one, its in context:
                        self._wake_one(one, its, awaited)
        finally:
            self._waking = False
            if done:  # others were done meanwhile, or somebody ended the process, which may go on
                self.loop.call_soon(self._wake_all)

    def _wake_one(self, callback: _Callback, context: Context, awaited: Awaited[Any]) -> None:
        try:
            context.run(callback, awaited)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            message = f"Exception in callback {callback!r}"
            self.loop.call_exception_handler({"message": message, "exception": error, "future": awaited})


class Awaited(ABC, Generic[T]):
    """A value that is awaited. On the loop only.

    A class of it says by :meth:`wanted` what is done for the value, and by :meth:`tell` what it is. A class of that and
    of :class:`Begins`, in which :attr:`future` is the former, is what is given out.
    """

    __slots__ = ("__weakref__", "_blocking", "_callback", "_context", "_outcome", "_together")

    #: What a coroutine is called in the texts of tasks.
    __name__ = "awaited"
    #: What it is an object of once it was taken for a future: ``asyncio.wait`` takes nothing that is a coroutine, too.
    future: ClassVar[type[Awaited[Any]] | None] = None

    def __init__(self, together: Together) -> None:
        self._together = together
        #: None: nobody has awaited it, nor taken it for a future.
        self._blocking: bool | None = None
        self._outcome: T | _Failed | _Cancelled = _PENDING
        self._callback: _Callback | None = None
        #: Of the callback; of several, all of them with theirs.
        self._context: Context | list[tuple[_Callback, Context]] | None = None

    @abstractmethod
    def wanted(self) -> None:
        """Somebody waits for the value. Called once; never raises."""

    def let_go(self) -> None:
        """It is done, and who waits for it is about to be told: what it has kept until then may go."""

    def given_up(self) -> None:
        """It has begun, perhaps, and is being cancelled: nobody waits any more."""

    def tell(self, outcome: T | BaseException) -> None:
        """Give it its value, or why there is none; nothing where it is done already."""
        if self._outcome is _PENDING:
            if isinstance(outcome, BaseException):
                self._end(_Failed(outcome, self._together.loop))
            else:
                self._end(outcome)

    def _end(self, outcome: T | _Failed | _Cancelled) -> None:
        self._outcome = outcome
        if self._context is None:
            self.let_go()
        else:
            self._together.wake(self)

    # -- what waits for it --------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, T]:
        return cast("Generator[Any, Any, T]", self)

    def __iter__(self) -> Awaited[T]:
        return self

    def __next__(self) -> Awaited[T]:
        if self._blocking is None:
            self._begin_now()
        if self._outcome is _PENDING:
            self._blocking = True
            return self
        try:
            raise StopIteration(self.result())
        finally:
            del self  # an error's traceback leads here

    def _begin_now(self) -> None:
        if asyncio._get_running_loop() is not self._together.loop:
            raise RuntimeError(f"{self!r} belongs to another event loop, or to one that does not run")
        self._blocking = False
        self.wanted()

    # -- a future -----------------------------------------------------------------------------------------------------

    @property
    def _asyncio_future_blocking(self) -> bool:
        """What ``asyncio.isfuture`` looks at, and so everything that would take a coroutine to a task."""
        blocking = self._blocking
        if blocking is None:
            if self._outcome is _PENDING:
                self._together.call(self)
            blocking = self._blocking = False
            if self.future is not None:
                self.__class__ = self.future  # it has the same attributes
        return blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, blocking: bool) -> None:
        self._blocking = blocking

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._together.loop

    def done(self) -> bool:
        """It has a value, or an error, or was cancelled."""
        return self._outcome is not _PENDING

    def cancelled(self) -> bool:
        return type(self._outcome) is _Cancelled

    def cancel(self, msg: object = None) -> bool:
        """Have who waits told that it was cancelled. :returns: False where it is done already."""
        if self._outcome is not _PENDING:
            return False
        self.given_up()
        self._end(_Cancelled(msg))
        return True

    def result(self) -> T:
        """The value. :raises BaseException: there is none. :raises InvalidStateError: there is none yet."""
        outcome = self._outcome
        if type(outcome) is _Failed:
            outcome.heard = True
            try:
                raise outcome.error.with_traceback(outcome.traceback)
            finally:
                del self, outcome  # nothing of it is to live as long as somebody keeps the error
        if type(outcome) is _Cancelled:
            raise self._make_cancelled_error()
        if outcome is _PENDING:
            raise asyncio.InvalidStateError("Result is not ready.")
        return cast("T", outcome)

    def exception(self) -> BaseException | None:
        """Why there is no value; None: there is one. :raises CancelledError, InvalidStateError: see :meth:`result`."""
        outcome = self._outcome
        if type(outcome) is _Failed:
            outcome.heard = True
            return outcome.error.with_traceback(outcome.traceback)
        if type(outcome) is _Cancelled:
            raise self._make_cancelled_error()
        if outcome is _PENDING:
            raise asyncio.InvalidStateError("Exception is not set.")
        return None

    def add_done_callback(self, fn: _Callback, *, context: Context | None = None) -> None:
        together = self._together
        if self._blocking is None:
            self._asyncio_future_blocking  # noqa: B018 - begins it
        if context is None:
            context = together.context_for(fn)
        if self._outcome is not _PENDING:
            together.loop.call_soon(fn, self, context=context)
        elif self._context is None:
            self._callback, self._context = fn, context
        elif isinstance(self._context, list):
            self._context.append((fn, context))
        else:
            assert self._callback is not None
            self._context = [(self._callback, self._context), (fn, context)]
            self._callback = None

    def remove_done_callback(self, fn: _Callback) -> int:
        """:returns: how often it was there."""
        if isinstance(self._context, list):
            before = len(self._context)
            self._context[:] = [one for one in self._context if one[0] != fn]
            return before - len(self._context)
        if self._callback is None or self._callback != fn:
            return 0
        self._callback = self._context = None
        return 1

    @property
    def _cancel_message(self) -> object:
        return self._outcome.message if isinstance(self._outcome, _Cancelled) else None

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        message = self._cancel_message
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def __repr__(self) -> str:
        state = "pending" if self._outcome is _PENDING else "cancelled" if self.cancelled() else "finished"
        return f"<{self.__name__} {state}>"


class Begins(Coroutine[Any, Any, T]):
    """Makes a coroutine of an :class:`Awaited`."""

    __slots__ = ()

    if TYPE_CHECKING:
        _blocking: bool | None
        _outcome: Any
        __name__: str

        def __next__(self) -> Any: ...
        def cancel(self) -> bool: ...

    def send(self, value: object) -> Any:
        return self.__next__()

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        error: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        """Who awaits it is told an error there: its own, that of a cancelled task, any other."""
        self.cancel()
        if not isinstance(error, BaseException):
            error = kind if isinstance(kind, BaseException) else kind() if error is None else kind(error)
        try:
            raise error if traceback is None else error.with_traceback(traceback)
        finally:
            del self, error

    def close(self) -> None:
        """Nobody waits for it any more. One that has not begun never does."""
        self.cancel()

    def __del__(self) -> None:
        if self._blocking is None and self._outcome is _PENDING:
            name = self.__name__
            warnings.warn(f"coroutine '{name}' was never awaited", RuntimeWarning, stacklevel=2, source=self)


def gives_coroutines(function: F) -> F:
    """Mark a plain function that gives coroutines as the coroutine function that it is for whoever calls it.

    Frameworks ask (``inspect.iscoroutinefunction``) whether they are to await what a function gives.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    # There is no mark yet; since 3.11 the flag is for those who ask, and makes nothing a coroutine.
    code = function.__code__
    function.__code__ = code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)
    return function
