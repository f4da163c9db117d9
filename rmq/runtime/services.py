"""The background services of a daemon: none of them ends in silence."""

from __future__ import annotations

import asyncio
from typing import Any

from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner

__all__ = ["Services"]

log = logger(__name__)


class Services:
    """Which services of a daemon run, and which have ended before their time.

    A service that has ended stays ended until a restart, or until others are made in its place (:meth:`unwatch`): what
    it was in the middle of is not known.

    :param daemon: what is to be restarted, for the log and for who asks.
    """

    def __init__(self, daemon: str) -> None:
        self._daemon = daemon
        self._owners: list[TaskOwner] = []
        #: What ended -> why.
        self.ended: dict[str, str] = {}

    def watch(self, *owners: TaskOwner) -> None:
        """Notice the services of these owners, from now on."""
        for owner in owners:
            owner.on_ended = self._on_ended
            self._owners.append(owner)

    def unwatch(self, *owners: TaskOwner) -> None:
        """These owners are done: their services may end, and those that had ended are made anew by others."""
        for owner in owners:
            owner.on_ended = None
            self._owners.remove(owner)
            for name in [name for name in self.ended if name.startswith(f"{owner.name}.")]:
                del self.ended[name]

    @property
    def running(self) -> list[str]:
        """The names of those that run."""
        return [task.get_name() for owner in self._owners for task in owner.services()]

    @property
    def missing(self) -> str | None:
        """Which service has ended and what to do, as one sentence; None while all run."""
        if not self.ended:
            return None
        names = ", ".join(f"{name} ({why})" for name, why in self.ended.items())
        return f"a background service has ended: {names}: restart the {self._daemon}"

    def _on_ended(self, task: asyncio.Task[Any], error: BaseException | None) -> None:
        why = "it was not to end" if error is None else f"{type(error).__name__}: {error}"[:200]
        self.ended[task.get_name()] = why
        log.critical(
            "the background service %s has ended (%s): the %s goes on without it, and is to be restarted",
            task.get_name(), why, self._daemon, exc_info=error,
        )  # fmt: skip
