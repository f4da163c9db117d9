"""How much of a piece of work is done in one turn of the loop: others are served between two turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["Turns"]


class Turns:
    """Counts what a method does, by turns of the loop.

    :param weight: what a call counts, from its arguments; 1 when not given.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, owner: type, name: str, weight: Callable[..., int] = lambda *_, **__: 1
    ) -> None:
        self._done: list[int] = [0]
        self.also(patch, owner, name, weight)

    def also(
        self, patch: pytest.MonkeyPatch, owner: type, name: str, weight: Callable[..., int] = lambda *_, **__: 1
    ) -> None:
        """Count another method, too."""
        method = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            if not self._done[-1]:
                asyncio.get_running_loop().call_soon(self._done.append, 0)
            self._done[-1] += weight(*given, **named)
            return method(*given, **named)

        patch.setattr(owner, name, counted)

    @property
    def longest(self) -> int:
        """The most of one turn."""
        return max(self._done)

    @property
    def whole(self) -> int:
        return sum(self._done)

    def again(self) -> None:
        """Count from here on."""
        self._done = [0]
