"""Hears who the others say they are, and keeps it on the disk before anything else that they say is heard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.met import Meetings, Met, Replaced
from rmq.broker.raft.sidecar import Sidecar
from rmq.broker.raft.wire import Hello
from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import ReplicationError
from rmq.runtime.tasks import TaskOwner

__all__ = ["Introductions"]

log = logging.getLogger(__name__)

#: Seconds until what could not be kept is tried again.
_AGAIN = 0.5


class Introductions:
    """One member's.

    :param meetings: whom it has met.
    :param tasks: owns what keeps it.
    :param trouble: is told of a disk that does not take it.
    """

    def __init__(
        self, meetings: Meetings, sidecar: Sidecar, driver: RaftDriver, tasks: TaskOwner, trouble: Trouble
    ) -> None:
        self._meetings = meetings
        self._sidecar = sidecar
        self._driver = driver
        self._tasks = tasks
        self._trouble = trouble
        #: One at a time: each writes all of them.
        self._keeping = asyncio.Lock()
        #: Called when there is more for this member to say of itself.
        self.on_met: Callable[[], None] = lambda: None

    def hear(self, hello: Hello) -> None:
        """Somebody says who he is.

        :raises ReplicationError: he is not heard.
        """
        if self._tasks.closed:
            return
        try:
            new = self._meetings.hear(hello) is not None
        except Replaced as error:
            self._driver.part(str(error))
            raise
        if new:
            self._tasks.spawn(self._keep(hello.source), f"meet {hello.source}")

    async def _keep(self, one: str) -> None:
        async with self._keeping:
            while True:
                try:
                    hello, met = self._meetings.hear_again(one)
                    if met is None:
                        return
                    before = self._meetings.met
                    await self._save(met)
                except OSError as error:
                    self._trouble.failed(error)
                    await asyncio.sleep(_AGAIN)
                except ReplicationError as error:
                    log.warning("%s of the group is not heard: %s", one, error)
                    return
                else:
                    if hello.returned:
                        log.warning(
                            "%s of the group has lost its disk, and comes with a new one: it is sent the log", one
                        )
                    if before.others.get(one) != met.others.get(one):
                        log.info("%s of the group was met", one)
                    if self._meetings.met.begun and not before.begun:
                        log.info("every other member of the group was met, and knows this one: it takes part")
                    return

    async def _save(self, met: Met) -> None:
        if met.returned and not self._meetings.met.returned:
            await self._driver.returns()  # first: who has begun would vote after a start
            if self._driver.parted is not None:
                return
        await self._sidecar.save_members(met)
        self._meetings.met = met
        self.on_met()
