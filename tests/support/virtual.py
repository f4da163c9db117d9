"""Tests whose whole cluster and clients live in virtual time: hours of retries pass in milliseconds."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from rmq.runtime.world import World
from rmq.testing import simloop
from rmq.testing.simworld import Simulation

__all__ = ["eventually", "in_virtual_time", "one_world"]


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test on a loop whose time only jumps."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        simloop.run(test(*arguments, **named))

    return run


def one_world(seed: int = 1) -> World:
    """A machine of its own for cluster and clients."""
    return Simulation(seed).node("one").world


async def eventually(condition: Callable[[], object], within: float = 60.0, step: float = 0.01) -> float:
    """Let time pass, virtual or not, until the condition holds; the seconds that took.

    :raises AssertionError: it does not hold within that time.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() - began < within, f"not within {within} s"
        await asyncio.sleep(step)
    return loop.time() - began
