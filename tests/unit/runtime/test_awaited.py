"""A coroutine of one object that asyncio takes for a future, too: every way to wait for one does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sys
import traceback
import warnings
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any
from weakref import WeakSet

import pytest

from rmq.runtime.awaited import Awaited, Begins, Together, gives_coroutines
from tests.support.daemons import PATIENCE
from tests.support.loops import factories, run_on
from tests.support.virtual import in_virtual_time

both_kinds = pytest.mark.parametrize("kind", [asyncio.Task, asyncio.tasks._PyTask])  # type: ignore[attr-defined]
both_loops = pytest.mark.parametrize("loop", factories())


class Told(Awaited[object]):
    """Done in the next turn after it has begun, or when it is told.

    :ivar begun: how often it has.
    """

    __slots__ = ("begun", "value")
    __name__ = "later"

    def __init__(self, together: Together | None = None, value: object = None) -> None:
        super().__init__(together or Together(asyncio.get_running_loop()))
        self.value = value
        self.begun = 0

    def wanted(self) -> None:
        self.begun += 1
        if self.value is not None:
            self.get_loop().call_soon(self.tell, self.value)


class Later(Told, Begins[object]):
    """The same, as it is given out."""

    __slots__ = ()
    future = Told


async def got(awaited: Coroutine[Any, Any, object]) -> object:
    return await awaited


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- tasks -------------------------------------------------------------------------------------------------------------


@both_kinds
@both_loops
def test_tasks_wait_for_it_and_take_it_for_their_coroutine(kind: type[asyncio.Task[object]], loop: str) -> None:
    async def main() -> None:
        for value in (7, (1, 2), None):
            for wrap in (got, lambda awaited: awaited):
                awaited = Later()
                task = kind(wrap(awaited), loop=asyncio.get_running_loop())  # type: ignore[call-arg]
                assert awaited.begun == 0
                await turns()
                assert awaited.begun == 1
                assert not task.done()
                assert not awaited.done()
                awaited.tell(value)
                awaited.tell("too late")
                assert await task is value
                assert await got(awaited) is value  # what has its value already waits for nothing

    run_on(loop, main())


@both_kinds
@both_loops
def test_a_task_that_is_cancelled_waits_no_longer(kind: type[asyncio.Task[object]], loop: str) -> None:
    async def main() -> None:
        for wrap in (got, lambda awaited: awaited):
            awaited = Later()
            task = kind(wrap(awaited), loop=asyncio.get_running_loop())  # type: ignore[call-arg]
            await turns()
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await task
            assert awaited.cancelled()
            awaited.tell("nobody hears it")
            with pytest.raises(asyncio.CancelledError):
                awaited.result()

    run_on(loop, main())


@both_kinds
def test_a_task_that_is_cancelled_before_it_begins_begins_nothing(kind: type[asyncio.Task[object]]) -> None:
    async def main() -> None:
        awaited = Later()
        task = kind(awaited, loop=asyncio.get_running_loop())  # type: ignore[call-arg]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert awaited.begun == 0
        assert awaited.cancelled()

    asyncio.run(main())


def test_a_loop_that_ends_cancels_who_waits() -> None:
    """``asyncio.run`` cancels tasks while the loop stands."""
    waits: list[asyncio.Task[object]] = []

    async def main() -> None:
        waits.append(asyncio.create_task(got(Later())))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert waits[0].cancelled()


@in_virtual_time
async def test_a_task_that_was_told_and_has_not_gone_on_can_be_cancelled() -> None:
    awaited = Later()
    task = asyncio.create_task(got(awaited))
    await asyncio.sleep(0)
    awaited.tell("told")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert awaited.result() == "told"


@in_virtual_time
async def test_who_waits_goes_on_in_its_own_context() -> None:
    request: ContextVar[str] = ContextVar("request")

    async def one(name: str, awaited: Awaited[object]) -> str:
        request.set(name)
        await awaited
        return request.get()

    together = Together(asyncio.get_running_loop())
    waits = [Later(together), Later(together)]
    tasks = [asyncio.create_task(one(str(number), each)) for number, each in enumerate(waits)]
    await asyncio.sleep(0)
    request.set("of who tells")
    for each in reversed(waits):
        each.tell(None)
    assert await asyncio.gather(*tasks) == ["0", "1"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@in_virtual_time
async def test_an_eager_task_begins_it_at_once() -> None:
    awaited, at_once = Later(), Later(value=3)
    task = asyncio.Task(awaited, loop=asyncio.get_running_loop(), eager_start=True)  # type: ignore[call-arg]
    assert awaited.begun == 1
    awaited.tell(5)
    assert await task == 5
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    assert await asyncio.create_task(at_once) == 3


# -- the functions of asyncio ------------------------------------------------------------------------------------------


@both_loops
def test_every_function_of_asyncio_takes_it(loop: str) -> None:
    async def main() -> None:
        here = asyncio.get_running_loop()
        together = Together(here)

        def later(value: object) -> Later:
            return Later(together, value)

        assert await asyncio.gather(*(later(number) for number in range(1, 50))) == list(range(1, 50))
        error = ValueError("x")
        assert await asyncio.gather(later(error), later(2), return_exceptions=True) == [error, 2]
        with pytest.raises(ValueError, match="x"):
            await asyncio.gather(later(2), later(error), later(ValueError("told to nobody, and no fault")))
        assert await asyncio.wait_for(later(1), 5.0) == 1
        assert await asyncio.shield(later(2)) == 2
        assert [await one for one in asyncio.as_completed([later(3)])] == [3]
        done, _ = await asyncio.wait([asyncio.ensure_future(later(4)), asyncio.create_task(later(5))])
        assert {one.result() for one in done} == {4, 5}
        async with asyncio.TaskGroup() as group:
            task = group.create_task(later(6), name="six")
        assert task.result() == 6
        assert "later" in repr(here.create_task(later(7)))
        await turns()

        def on_a_thread() -> object:
            return asyncio.run_coroutine_threadsafe(later(8), here).result(PATIENCE)

        assert await asyncio.to_thread(on_a_thread) == 8
        held = Later(together)

        async def in_a_group() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(later(error))
                group.create_task(held)

        with pytest.raises(ExceptionGroup) as raised:
            await in_a_group()
        assert raised.value.exceptions == (error,)
        assert held.cancelled()

    run_on(loop, main())
    # Before the loop runs, and until it has stopped.
    with contextlib.closing(factories()[loop]()) as own:
        assert own.run_until_complete(Later(Together(own), 9)) == 9


@in_virtual_time
async def test_time_limits_hold_around_it() -> None:
    for bounded in (asyncio.wait_for(awaited := Later(), 3.0), asyncio.wait_for(got(Later()), 3.0)):
        with pytest.raises(TimeoutError):
            await bounded
    assert awaited.cancelled()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(awaited := Later(), 0)
    assert awaited.begun == 0


@in_virtual_time
async def test_gather_makes_no_task_of_it() -> None:
    together = Together(asyncio.get_running_loop())
    before = asyncio.all_tasks()
    waits = [Later(together) for _ in range(100)]
    gathered = asyncio.gather(*waits)
    assert [each.begun for each in waits] == [0] * 100
    await asyncio.sleep(0)
    assert [each.begun for each in waits] == [1] * 100
    assert asyncio.all_tasks() == before
    # One context for all: it is the same, and each more is work for the collector.
    assert len({id(each._context) for each in waits}) == 1
    gathered.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathered
    assert all(each.cancelled() for each in waits)


@both_loops
def test_anyio_takes_it(loop: str) -> None:
    anyio = pytest.importorskip("anyio")

    async def main() -> None:
        together = Together(asyncio.get_running_loop())
        got_by = Later(together, 1)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: got_by)
        assert got_by.result() == 1
        with anyio.move_on_after(0.01) as scope:
            await (held := Later(together))
        assert scope.cancelled_caught
        assert held.cancelled()

    run_on(loop, main())


# -- when it begins ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_it_begins_when_it_is_awaited_or_taken_for_a_future() -> None:
    awaited = Later(value=1)
    assert inspect.isawaitable(awaited)
    assert asyncio.iscoroutine(awaited)
    await turns()
    assert awaited.begun == 0
    future = asyncio.ensure_future(awaited)
    assert future is awaited  # type: ignore[comparison-overlap]
    assert asyncio.isfuture(future)
    assert not asyncio.iscoroutine(future)
    assert awaited.begun == 0
    await asyncio.sleep(0)
    assert awaited.begun == 1
    assert [await awaited, await awaited] == [1, 1]
    assert awaited.begun == 1
    called: list[object] = []
    heard = Later(value=2)
    heard.add_done_callback(called.append)
    await turns()
    assert called == [heard]
    heard.add_done_callback(called.append)
    await turns()
    assert called == [heard, heard]


@in_virtual_time
async def test_what_is_cancelled_before_the_loop_turns_never_begins() -> None:
    first = asyncio.ensure_future(awaited := Later())
    first.cancel()
    await turns()
    assert awaited.begun == 0
    with pytest.raises(asyncio.CancelledError):
        await first


@in_virtual_time
async def test_one_that_nobody_awaits_is_told_of_as_a_coroutine_is() -> None:
    with pytest.warns(RuntimeWarning, match="coroutine 'later' was never awaited"):
        Later()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        awaited = Later()
        awaited.close()
        assert awaited.cancelled()
        del awaited
        asyncio.ensure_future(Later())  # noqa: RUF006 - begun, if for nobody
        await turns()


@in_virtual_time
async def test_a_coroutine_that_is_closed_or_thrown_into_gives_it_up() -> None:
    for end in (lambda outer: outer.close(), lambda outer: outer.throw(KeyError("k"))):
        awaited = Later()
        outer = got(awaited)
        assert outer.send(None) is awaited
        with contextlib.suppress(KeyError):
            end(outer)
        assert awaited.cancelled()
    for given in ((KeyError,), (KeyError, "k"), (KeyError("k"),), (KeyError, KeyError("k"), None)):
        with pytest.raises(KeyError):
            Later().throw(*given)


def test_another_loop_is_told_so() -> None:
    async def elsewhere(awaited: Later) -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await awaited
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.gather(awaited)
        awaited.close()

    async def main() -> None:
        await asyncio.to_thread(asyncio.run, elsewhere(awaited := Later()))
        assert awaited.begun == 0

    asyncio.run(main())


# -- errors ------------------------------------------------------------------------------------------------------------


def failing() -> ValueError:
    try:
        raise ValueError("what it failed with")
    except ValueError as error:
        return error


@in_virtual_time
async def test_each_who_awaits_gets_an_error_with_its_own_traceback() -> None:
    awaited = Later(value=failing())

    async def one() -> list[str]:
        with pytest.raises(ValueError, match="what it failed with") as raised:
            await awaited
        return [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]

    first, second = await one(), await one()
    assert len(first) == len(second)  # a task that had to wait is told by another way
    for names in (first, second):
        assert (names[0], names[-1]) == ("one", "failing")
    error = awaited.exception()
    assert error is not None
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["failing"]


@in_virtual_time
async def test_an_error_that_nobody_hears_of_is_told_to_the_loop() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    error = ValueError("x")
    for heard in (
        lambda: asyncio.gather(Later(value=error), return_exceptions=True),
        lambda: asyncio.wait([asyncio.create_task(got(Later(value=error)))]),
        lambda: asyncio.wait_for(asyncio.shield(Later(value=error)), 1.0),
    ):
        with contextlib.suppress(ValueError, TypeError):
            for done in (await heard())[0]:
                done.exception()
    await turns()
    gc.collect()
    assert told == []
    asyncio.ensure_future(Later(value=error))  # noqa: RUF006
    await turns()
    gc.collect()
    (context,) = told
    assert context["exception"] is error
    assert context["message"] == "Future exception was never retrieved"


@in_virtual_time
async def test_what_is_not_done_has_neither_value_nor_error() -> None:
    awaited = asyncio.ensure_future(Later())
    for ask in (awaited.result, awaited.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()
    assert repr(awaited) == "<later pending>"
    awaited.cancel("enough")
    for ask in (awaited.result, awaited.exception):
        with pytest.raises(asyncio.CancelledError, match="enough"):
            ask()
    assert repr(awaited) == "<later cancelled>"
    assert not awaited.cancel()


# -- callbacks ---------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_callbacks_are_called_in_their_order_and_can_be_taken_back() -> None:
    called: list[str] = []
    functions = [lambda _, name=name: called.append(name) for name in "abc"]
    awaited = asyncio.ensure_future(Later())
    assert awaited.remove_done_callback(functions[0]) == 0
    awaited.add_done_callback(functions[0])
    assert awaited.remove_done_callback(functions[0]) == 1
    for function in (*functions, functions[1]):
        awaited.add_done_callback(function)
    assert awaited.remove_done_callback(functions[1]) == 2
    awaited.tell(1)  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    assert called == ["a", "c"]


@in_virtual_time
async def test_callbacks_are_called_in_the_context_in_which_they_came() -> None:
    request: ContextVar[object] = ContextVar("request")
    seen: list[object] = []

    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise TypeError("compares with nothing")

        __hash__ = None  # type: ignore[assignment]

    def look(_: object) -> None:
        seen.append(request.get())

    together = Together(asyncio.get_running_loop())
    waits = [asyncio.ensure_future(Later(together)) for _ in range(6)]
    values = ["a", "a", "b", Incomparable(), Incomparable(), "c"]
    for awaited, value in zip(waits, values, strict=True):
        request.set(value)
        awaited.add_done_callback(look)
    own = copy_context()
    own.run(request.set, "own")
    waits[0].add_done_callback(look, context=own)
    for awaited in waits:
        awaited.tell(1)  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    assert seen[1] == "own"
    assert all(one is other for one, other in zip([seen[0], *seen[2:]], values, strict=True))


@in_virtual_time
async def test_a_callback_that_fails_costs_itself() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    together = Together(asyncio.get_running_loop())
    waits = [Later(together, number) for number in (1, 2, 3)]
    asyncio.ensure_future(waits[0]).add_done_callback(lambda _: 1 / 0)
    assert await asyncio.gather(*waits[1:]) == [2, 3]
    assert isinstance(told[0]["exception"], ZeroDivisionError)


def test_who_is_to_be_woken_behind_the_end_of_a_process_is_woken_when_the_loop_goes_on() -> None:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        together = Together(loop)
        waits = [Later(together, number) for number in (1, 2)]

        def end(_: object) -> None:
            raise SystemExit(3)

        asyncio.ensure_future(waits[0], loop=loop).add_done_callback(end)
        other = asyncio.gather(*waits[1:])
        with pytest.raises(SystemExit):
            loop.run_until_complete(other)
        assert loop.run_until_complete(other) == [2]


def test_what_is_to_begin_behind_the_end_of_a_process_begins_when_the_loop_goes_on() -> None:
    class Interrupted(Told):
        __slots__ = ()

        def wanted(self) -> None:
            raise KeyboardInterrupt

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        together = Together(loop)
        first = asyncio.ensure_future(Interrupted(together), loop=loop)
        other = asyncio.gather(Later(together, 2))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(other)
        assert loop.run_until_complete(other) == [2]
        first.cancel()


@in_virtual_time
async def test_sets_of_weak_references_hold_it_while_it_is_under_way() -> None:
    under_way: WeakSet[object] = WeakSet()
    under_way.add(kept := asyncio.ensure_future(Later(value=1)))
    assert len(under_way) == 1
    await kept
    await turns(1)  # what wakes this task holds it yet
    del kept
    assert not under_way


# -- functions that give one -------------------------------------------------------------------------------------------


def test_a_function_that_gives_coroutines_is_a_coroutine_function_to_who_asks() -> None:
    class Gives:
        @gives_coroutines
        def one(self, value: object) -> Coroutine[Any, Any, object]:
            return Later(value=value)

    for function in (Gives.one, Gives().one):
        assert inspect.iscoroutinefunction(function)

    async def main() -> None:
        assert await Gives().one(4) == 4
        assert await Gives().one(value=5) == 5

    asyncio.run(main())


@both_loops
@both_kinds
def test_who_waits_is_woken_in_the_turn_that_tells_it_where_no_task_runs(
    kind: type[asyncio.Task[object]], loop: Any
) -> None:
    async def main() -> None:
        running = asyncio.get_running_loop()
        together = Together(running)
        seen: list[str] = []

        async def wait(one: Told, what: str) -> None:
            await one
            together.wake_now()  # a task runs: that is the next turn's
            seen.append(what)

        first, second = Told(together), Told(together)
        tasks = [kind(wait(one, what), loop=running) for one, what in ((first, "first"), (second, "second"))]
        await turns()
        looked: list[list[str]] = []

        def tell() -> None:
            first.tell(1)
            second.tell(2)
            together.wake_now()
            looked.append(list(seen))

        running.call_soon(tell)
        await turns()
        assert looked == [["first", "second"]]
        third = Told(together)
        tasks.append(kind(wait(third, "third"), loop=running))
        await turns()
        third.tell(3)
        together.wake_now()
        assert seen == ["first", "second"], "not while another task runs"
        await turns()
        assert seen == ["first", "second", "third"]
        await asyncio.gather(*tasks)

    run_on(loop, main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@both_loops
@both_kinds
def test_a_program_that_ends_itself_when_it_is_woken_ends(
    kind: type[asyncio.Task[object]], loop: Any, error: type[BaseException]
) -> None:
    """Who wakes it goes on: uvloop takes what leaves a protocol for a broken connection, and the program would hang."""
    went_on: list[bool] = []

    async def main() -> None:
        running = asyncio.get_running_loop()
        one = Told(Together(running))

        async def ends() -> None:
            await one
            raise error

        def tell() -> None:
            one.tell(1)
            one._together.wake_now()
            went_on.append(True)

        task = kind(ends(), loop=running)
        await turns()
        running.call_soon(tell)
        await asyncio.wait([task])
        await asyncio.sleep(5)

    with pytest.raises(error):
        run_on(loop, main())
    assert went_on
    gc.collect()  # the task that nobody has awaited ends here, not in another test
