"""What several servers said, each for itself: an answer that is not whole says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rmq.protocol.dicts import dict_of
from rmq.protocol.errors import RMQError

__all__ = ["Answers", "side_by_side"]

T = TypeVar("T")


@dataclass(slots=True)
class Answers(Generic[T]):
    """The answers of servers that were asked side by side, by address (or by name, where a call says so).

    ::

        answers = await admin.broker_runtime_stats_of(["10.0.0.1:10911", "10.0.0.2:10911"])
        for address, figures in answers.found.items():
            ...
        for address, error in answers.failed.items():  # none of those is in what was found
            ...
    """

    found: dict[str, T] = field(default_factory=dict)
    #: Why there is nothing of the others.
    failed: dict[str, RMQError] = field(default_factory=dict)

    @property
    def missing(self) -> dict[str, str]:
        """What went wrong, as texts."""
        return {name: str(error) for name, error in self.failed.items()}

    def as_dict(self) -> dict[str, Any]:
        """What was found by name, and why there is nothing of the others, as texts."""
        return dict_of(self)

    def whole(self) -> dict[str, T]:
        """The answers, where everybody has given one. :raises RMQError: what the first of the others said."""
        for error in self.failed.values():
            raise error
        return self.found


async def side_by_side(names: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """Ask each of them at the same time: one that stands still or refuses costs itself alone.

    :param names: addresses, or whatever ``ask`` takes; the answers come in their order.
    """

    async def one(name: str) -> None:
        try:
            found[name] = await ask(name)
        except RMQError as error:
            failed[name] = error

    found: dict[str, T] = {}
    failed: dict[str, RMQError] = {}
    ordered = list(dict.fromkeys(names))
    await asyncio.gather(*map(one, ordered))
    return Answers(
        {name: found[name] for name in ordered if name in found},
        {name: failed[name] for name in ordered if name in failed},
    )
