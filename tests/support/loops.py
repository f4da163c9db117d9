"""Run a test's coroutine on a real loop: asyncio's and uvloop's in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops this machine has, by name."""
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        pass
    else:
        found["uvloop"] = uvloop.new_event_loop
    return found


def run_on(name: str, main: Coroutine[Any, Any, T], seconds: float = 240.0) -> T:
    """Run on the named loop; a run that hangs ends after ``seconds``."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await main

    with asyncio.Runner(loop_factory=factories()[name]) as runner:
        return runner.run(limited())
