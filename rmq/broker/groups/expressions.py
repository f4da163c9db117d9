"""SQL92 that is compiled for whoever asks: so much of it in one turn of the loop, all who ask together."""

from __future__ import annotations

import contextlib

from rmq.broker.share import Share
from rmq.filter.sql import ExpressionError, compile_sql, is_compiled

__all__ = ["Expressions"]

#: Characters of expressions compiled in one turn: some 4 ms. One at its limit takes 10.
_PER_TURN = 4096


class Expressions:
    """What of a turn is left for compiling. One that is remembered takes nothing of it."""

    __slots__ = ("_share",)

    def __init__(self) -> None:
        self._share = Share(_PER_TURN)

    def may_compile(self, text: str) -> bool:
        """Whether an expression may be compiled in this turn, which the caller does then; else :meth:`compile` it."""
        if is_compiled(text):
            return True
        if self._share.used_up:
            return False
        self._share.count(max(1, len(text)))
        return True

    async def turn(self, text: str) -> None:
        """Wait until an expression may be compiled, which the caller does before anything else runs on the loop."""
        while not self.may_compile(text):
            await self._share.turn()

    async def compile(self, text: str) -> None:
        """Have an expression compiled and remembered, in this turn or a later one; whoever uses it says its faults."""
        await self.turn(text)
        with contextlib.suppress(ExpressionError):
            compile_sql(text)
