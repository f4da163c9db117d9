"""The event loop of a daemon: uvloop where it exists, clean stop on SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from rmq.runtime.aside import logger
from rmq.runtime.clib import c_function
from rmq.runtime.signals import insists, stop_signals

__all__ = ["keep_memory", "loop_factory", "return_memory", "run", "settle_memory"]

resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

log = logger(__name__)

#: glibc has it, others give memory back by themselves.
_malloc_trim = c_function("malloc_trim")
#: New objects after which the youngest are looked through for circles.
_YOUNG = 20_000
#: Looks at the youngest after which the next older ones are looked through: at most 60,000 of them, about 30 ms.
_MIDDLE = 2
_OLD = 500


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes loops here: uvloop's factory, or asyncio's where uvloop is not installed (or RMQ_LOOP=asyncio)."""
    if os.environ.get("RMQ_LOOP") != "asyncio":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.new_event_loop  # type: ignore[no-any-return, unused-ignore]
    return asyncio.new_event_loop


def run(main: Coroutine[Any, Any, int | None], *, stop_seconds: float = 28.0) -> int:
    """Run a daemon until it ends or is told to: the exit code of the process.

    SIGTERM, SIGINT or SIGHUP cancels ``main``, whose ``async with`` blocks and ``finally`` clauses are the clean stop;
    then the exit code is 0. A second SIGTERM or SIGINT, or a stop that lasts longer than ``stop_seconds``, gives up:
    exit code 1.

    :param main: serves until cancelled; what it returns is the exit code (None = 0).
    """
    _raise_descriptor_limit()
    made = loop_factory()
    if made is asyncio.new_event_loop and os.environ.get("RMQ_LOOP") != "asyncio":
        log.info("the loop is asyncio's; with uvloop (pip install 'rmq[server]') it takes less CPU")
    with asyncio.Runner(loop_factory=made) as runner:
        return runner.run(_supervise(main, stop_seconds))


def settle_memory() -> None:
    """Take what start-up made out of the garbage collector's sight, once a daemon is ready.

    Classes, code and tables live as long as the process; without this a full collection walks over all of them in the
    middle of serving, tens of milliseconds at a time. Hardly anything here hangs together in circles, so the young are
    looked through seldom: a tick makes thousands of objects, all of which are gone at its end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def keep_memory() -> None:
    """Take what there is now out of the collector's sight: thousands of objects were made that will stay.

    What is garbage in circles at this moment stays, too; this is for rare events.
    """
    gc.freeze()


def return_memory() -> None:
    """Give the system what was freed: glibc keeps freed pieces of some 100 KiB for itself, hundreds of MiB if need be.

    Takes some 0.1 ms a MiB; this is for rare events.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)


def _raise_descriptor_limit() -> None:
    """A connection is a descriptor: take what the system allows (the soft limit is often 1,024)."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:  # macOS refuses "unlimited"
            log.info("the limit of open files stays at %d: %s", soft, error)


async def _supervise(main: Coroutine[Any, Any, int | None], stop_seconds: float) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main, name="main")
    given_up = loop.create_future()
    stopping = asked = False

    def give_up(why: str) -> None:
        if not given_up.done():
            given_up.set_result(why)

    def on_signal(number: signal.Signals) -> None:
        nonlocal stopping, asked
        if asked and insists(number):
            give_up(f"a second {number.name}")
        asked = asked or insists(number)
        if stopping:
            return
        stopping = True
        log.info("%s: stopping", number.name)
        loop.call_later(stop_seconds, give_up, f"not stopped after {stop_seconds:g} s")
        task.cancel()

    handled = stop_signals()
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await asyncio.wait({task, given_up}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            waiting = sorted(t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task())
            log.error("%s: leaving without a clean stop; still running: %s", given_up.result(), ", ".join(waiting))
            for handler in logging.getLogger().handlers:
                handler.flush()
            os._exit(1)
        if task.cancelled():
            if stopping:
                return 0
            raise asyncio.CancelledError
        return task.result() or 0
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
