"""The pytest plugin, which pytest finds by itself: the fixture ``rmq_cluster`` and the mark of the same name.

A test that asks for ``rmq_cluster`` gets a cluster in virtual time of its own (docs/testing.md). A coroutine runs, with
its coroutine fixtures, on the loop of the cluster, whatever plugin runs other coroutines, and where there is none.
Neither asyncio nor the rest of :mod:`rmq` is imported before a test asks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import asyncio

    from rmq.testing.simcluster import BlockingSimCluster, SimCluster

__all__ = ["rmq_cluster"]

_FIXTURE = "rmq_cluster"
#: What runs the coroutines of a test.
_RUNNER = pytest.StashKey["asyncio.Runner"]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "rmq_cluster(*, brokers=1, slaves=0, namesrvs=1, settings=None, seed=0): what the fixture rmq_cluster is",
    )


@pytest.fixture
def rmq_cluster(request: pytest.FixtureRequest) -> Iterator[SimCluster | BlockingSimCluster]:
    """A name server and a broker in virtual time; clients find them without an address.

    A coroutine gets a :class:`~rmq.testing.simcluster.SimCluster`, a plain function a
    :class:`~rmq.testing.simcluster.BlockingSimCluster`. ``@pytest.mark.rmq_cluster(brokers=2, settings={...})`` gives
    it other arguments.
    """
    from rmq.testing.simcluster import BlockingSimCluster, SimCluster

    mark = request.node.get_closest_marker(_FIXTURE)
    arguments = mark.kwargs if mark is not None else {}
    with pytest.MonkeyPatch.context() as patch:
        if inspect.iscoroutinefunction(request.node.obj):
            runner = request.getfixturevalue(_rmq_runner.__name__)
            cluster = SimCluster(**arguments)
            runner.run(cluster.start())
            patch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
            yield cluster
            runner.run(cluster.stop())
        else:
            with BlockingSimCluster(**arguments) as blocking:
                patch.setenv("NAMESRV_ADDR", blocking.namesrv_addr)
                yield blocking


@pytest.fixture
def _rmq_runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    import asyncio

    from rmq.testing.simloop import SimLoop

    loop = SimLoop(executor=True)
    loop.set_exception_handler(None)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        request.node.stash[_RUNNER] = runner
        yield runner


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a coroutine test on the loop of its cluster."""
    runner = pyfuncitem.stash.get(_RUNNER, None)
    if runner is None:
        return (yield)
    there = pyfuncitem.obj
    # Another plugin may have made a plain function of it that runs it elsewhere.
    function = there if inspect.iscoroutinefunction(there) else there.__wrapped__
    pyfuncitem.obj = _run_by(runner, function)
    try:
        return (yield)
    finally:
        pyfuncitem.obj = there


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Run a coroutine fixture on the loop of its test's cluster."""
    if (
        fixturedef.scope != "function"
        or _FIXTURE not in request.fixturenames
        or not inspect.iscoroutinefunction(request.node.obj)
        or not (inspect.iscoroutinefunction(fixturedef.func) or inspect.isasyncgenfunction(fixturedef.func))
    ):
        return (yield)
    runner = request.getfixturevalue(_rmq_runner.__name__)
    there = function = fixturedef.func
    unbound = getattr(function, "__func__", None)
    if request.instance is not None and unbound is not None:  # the instance it is bound to is not the test's
        function = unbound.__get__(request.instance)
    way = _generator_run_by if inspect.isasyncgenfunction(function) else _run_by
    fixturedef.func = way(runner, function)  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = there  # type: ignore[misc]


def _run_by(runner: asyncio.Runner, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        __tracebackhide__ = True
        return runner.run(_in_time(function(**given)))

    return run


def _generator_run_by(runner: asyncio.Runner, function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def run(**given: Any) -> Iterator[Any]:
        made = function(**given)
        yield runner.run(_in_time(anext(made)))
        if runner.run(_in_time(anext(made, _ENDED))) is not _ENDED:
            raise ValueError(f"the fixture {function.__name__} yields twice")

    return run


_ENDED = object()


async def _in_time(what: Any) -> Any:
    """Await something; what waits in vain is ended where it waits, and says so there."""
    import asyncio
    import math

    from rmq.testing.simloop import SimLoop

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert isinstance(loop, SimLoop)
    assert task is not None
    late = False

    def end() -> None:
        nonlocal late
        late = True
        loop.limit = math.inf
        task.cancel()

    loop.at_limit = end
    try:
        return await what
    except asyncio.CancelledError as cancelled:
        if not late:
            raise
        raise TimeoutError(
            "an hour of virtual time has passed, and what is waited for here has not come (advance() gives more)"
        ).with_traceback(cancelled.__traceback__) from None
