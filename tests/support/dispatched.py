"""Waits for what a broker does after its answer to a send: Java's fills queues and index a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rmq.protocol import fastjson
from rmq.protocol.command import Command

__all__ = ["dispatched"]


async def dispatched(ask: Callable[[Command], Awaitable[Command]], seconds: float = 120.0) -> None:
    """Return when all that a broker has acknowledged is in its queues and its index; of ours and of Java's alike.

    :param ask: sends a request and returns the answer.
    """
    async with asyncio.timeout(seconds):
        while True:
            answer = await ask(Command(28))
            # Java's has no figures, and an error, in the first second of its life.
            told: Any = fastjson.loads(answer.body) if answer.code == 0 else {"table": {"dispatchBehindBytes": "1"}}
            table = told["table"]
            if int(table["dispatchBehindBytes"]) <= 0 and "indexBuild" not in table:
                return
            await asyncio.sleep(0.002)
