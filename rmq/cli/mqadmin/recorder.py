"""An admin client that keeps what is asked of it, and does changes or only says what they would be."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import click

from rmq.cli.command import QUIET, tell
from rmq.cli.mqadmin.changes import CHANGES
from rmq.cli.mqadmin.text import plain
from rmq.client.admin import AdminClient
from rmq.client.admin.reset import OffsetReset
from rmq.protocol.errors import RMQError

__all__ = ["Call", "Recorder"]

#: Changes of an interrupted command that are named one by one.
_TOLD = 32
#: Asked before and after a change with what was called; gives notes about it.
Look = Callable[[AdminClient, "Call"], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operation that was asked for. :param words: its arguments by name, defaults included."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    words: dict[str, Any] = field(repr=False)

    @property
    def changes(self) -> bool:
        return self.name in CHANGES


@dataclass(slots=True)
class Recorder:
    """:param pretend: changes are told in :attr:`planned`, and not done.

    :param before: looks at what a change will replace; what it gives is in :attr:`notes` once the change was done,
        in part, too, the last change first.
    :ivar done: changes that were made. :ivar under_way: those whose answer did not come, or has not yet.
    """

    admin: AdminClient
    pretend: bool = False
    before: Look | None = None
    calls: list[Call] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    done: list[Call] = field(default_factory=list)
    under_way: list[Call] = field(default_factory=list)

    def client(self) -> AdminClient:
        """What a command takes for the client."""
        return cast(AdminClient, _Recorded(self))

    def tell_interrupted(self) -> None:
        """Say on standard error what Ctrl-C has left done, and what nobody knows."""
        tell("interrupted: " + ("what was done stays" if self.done or self.under_way else "nothing was changed"))
        for what, calls in (("done", self.done), ("done or not", self.under_way)):
            if len(calls) > _TOLD:
                click.echo(f"  {what}: {len(calls) - _TOLD} before these", err=True)
            for call in calls[-_TOLD:]:
                click.echo(plain(f"  {what}: {CHANGES[call.name].says(call.words)}"), err=True)

    async def _asked(self, operation: Callable[..., Awaitable[Any]], name: str, args: Any, kwargs: Any) -> Any:
        bound = inspect.signature(operation).bind(*args, **kwargs)
        bound.apply_defaults()
        call = Call(name, args, kwargs, dict(bound.arguments))
        self.calls.append(call)
        if not call.changes:
            return await operation(*args, **kwargs)
        if not self.pretend:
            notes = await self.before(self.admin, call) if self.before is not None else []
            self.under_way.append(call)
            try:
                answered = await operation(*args, **kwargs)
            except RMQError:
                self.under_way.remove(call)
                raise
            finally:
                # What was changed last is taken back first; the lines of one change stay in their order.
                self.notes[:0] = notes
            self.under_way.remove(call)
            self.done.append(call)
            return answered
        change = CHANGES[name]
        self.planned.append(change.says(call.words))
        answers = await change.answers(self.admin, call.words)
        for one in answers if isinstance(answers, list) else [answers]:
            if isinstance(one, OffsetReset):
                old = "none" if one.old_offset is None else one.old_offset
                where = f"{one.queue.broker_name}/{one.queue.queue_id}"
                self.planned.append(f"  {where}: {old} -> {one.new_offset}")
        # What a command finds behind a change that was not made would be a false alarm.
        if (ctx := click.get_current_context(silent=True)) is not None:
            ctx.meta[QUIET] = True
        return answers


class _Recorded:
    """Has what the admin client has; its operations go through the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._recorder.admin, name)
        if name.startswith("_") or not inspect.iscoroutinefunction(found):
            return found  # no operation of its own

        async def asked(*args: Any, **kwargs: Any) -> Any:
            return await self._recorder._asked(found, name, args, kwargs)

        return asked
