"""What all who do one kind of work may do of it together before others have their turn of the loop."""

from __future__ import annotations

import asyncio

__all__ = ["Share"]


class Share:
    """So much of a kind of work in one turn of the loop, whoever does it.

    :param most: what may be done, in units that whoever does it counts.
    """

    __slots__ = ("_done", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0

    @property
    def used_up(self) -> bool:
        """Whether the rest is for another turn: await :meth:`turn`."""
        return self._done >= self._most

    def count(self, units: int) -> None:
        """So much was done."""
        if not self._done:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._done += units

    def _next_turn(self) -> None:
        self._done = 0

    async def turn(self) -> None:
        """Wait for a turn in which something is left."""
        while True:
            await asyncio.sleep(0)
            if not self.used_up:
                return
