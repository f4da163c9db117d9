"""Long answers built piece by piece, so that no request holds the loop (design.md section 2)."""

from __future__ import annotations

import asyncio

__all__ = ["Turns"]


class Turns:
    """Gives the loop a turn after so many steps.

    :param every: steps between turns; choose it so that they take a few milliseconds at most.
    """

    __slots__ = ("_every", "_left")

    def __init__(self, every: int = 250) -> None:
        self._every = every
        self._left = every

    async def step(self) -> None:
        """One more step is done."""
        self._left -= 1
        if self._left <= 0:
            self._left = self._every
            await asyncio.sleep(0)
