"""Whether the store that is written to is still the one that the settings name, and this broker's alone.

Who removes ``lock`` opens the way for a second broker, Java's at least, which looks at nothing else. Who renames the
store, or puts another in its place, has messages appended to files that no start will ever find.
"""

from __future__ import annotations

import logging

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.start.markers import Markers
from rmq.runtime.world import World

__all__ = ["Ownership"]

log = logging.getLogger(__name__)


class Ownership:
    """Looks every second, and before anything is written by its name. A store once lost is so until a restart."""

    def __init__(self, world: World, root: str, markers: Markers, commit_log: CommitLog) -> None:
        self._offload = world.offload
        self._root = root
        self._markers = markers
        self._log = commit_log
        #: What is known by its name may be another's.
        self.lost = False

    async def look(self) -> bool:
        """Compare the files that are open with those that have their names; whether they are the same.

        :raises OSError: the directory cannot be looked at now.
        """
        missing = None if self.lost else await self._missing()
        if missing is None or self.lost:
            return not self.lost
        self.lost = True
        log.critical(
            "%s is not the file any more that this broker has open, but removed, renamed or replaced: what it stores "
            "may never be found again, or another broker may write to %s: no message is taken from now on. Stop this "
            "broker and any other on that folder, put back what was moved, and start one",
            missing, self._root,
        )  # fmt: skip
        self._log.close_gate(Gate.NOT_OWNED)
        return False

    async def _missing(self) -> str | None:
        """The path of what is gone."""
        if not await self._offload(self._markers.holds_lock):
            return self._markers.lock
        for newest in self._log.segments[-1:]:
            file = newest.shared.pin()
            try:
                there = await self._offload(file.named)
            finally:
                newest.shared.unpin()
            # It may have been cut off meanwhile.
            if not there and newest in self._log.segments:
                return newest.path
        return None
