"""Oneway sends that have come to a member which takes none: the leader gets them.

Who sends so hears nothing of a change of the leader. Until it looks at the route again, ours and Java's after 30 s, all
that it sends would be lost. The message's born host is then this member's, and not the sender's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectFailed, RMQError
from rmq.remoting.limits import Rationed

if TYPE_CHECKING:
    from rmq.remoting.client import RemotingClient
    from rmq.runtime.tasks import TaskOwner
    from rmq.runtime.world import Clock

__all__ = ["Strays"]

log = logging.getLogger(__name__)

#: Bytes that wait here at most, and those that a send takes beside its body; what comes beyond is lost, as any that
#: nobody waits for may be.
_MOST_BYTES, _BESIDE = 16 << 20, 1 << 10
#: Those that are under way at a time.
_AT_ONCE = 512
#: Answers of a leader that has it, wherever else it is.
_STORED = {
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
}  # fmt: skip
#: Seconds in which the leader is to be found and to take one; for one answer; and between two tries.
_PATIENCE, _TIMEOUT, _AGAIN = 3.0, 5.0, 0.1


class Strays:
    """Passes them on.

    :param client: calls the leader.
    :param leader: its address, as far as it is known; this member's own where it leads.
    :param tasks: run what is under way.
    """

    def __init__(
        self, clock: Clock, client: RemotingClient, leader: Callable[[], str | None], tasks: TaskOwner
    ) -> None:
        self._clock = clock
        self._client = client
        self._leader = leader
        self._tasks = tasks
        #: With the time until which each is tried.
        self._waiting: deque[tuple[Command, float]] = deque()
        self._bytes = 0
        self._busy = False
        self._told = Rationed(clock, 1, 60.0)
        self._missed = Rationed(clock, 1, 60.0)

    def take(self, request: Command) -> None:
        """A oneway send has come that is not taken here; its sender may send to its topic."""
        size = len(request.body) + _BESIDE
        if self._tasks.closed or self._bytes + size > _MOST_BYTES:
            self._lose("too many have come at once")
            return
        self._told.say(log.info, "oneway sends come to this member, which does not lead, and are passed on")
        fields = {name: value for name, value in (request.ext or {}).items() if name not in ("AccessKey", "Signature")}
        # It waits: what it was received into is overwritten by what comes next.
        passed = Command(request.code, ext=fields, body=bytes(request.body))
        self._waiting.append((passed, self._clock.monotonic() + _PATIENCE))
        self._bytes += size
        if not self._busy:
            self._busy = True
            self._tasks.spawn(self._pass(), "oneway sends for the leader")

    async def _pass(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                self._bytes -= sum(len(request.body) + _BESIDE for request, _ in some)
                await asyncio.gather(*(self._one(request, until) for request, until in some))
        finally:
            self._busy = False

    async def _one(self, request: Command, until: float) -> None:
        """At most once, as it was sent: what may have come to the leader is not sent again."""
        why = "nobody is known to lead"
        while True:
            address = self._leader()
            try:
                if address is not None:
                    answer = await self._client.request(address, request, _TIMEOUT)
                    if answer.code in _STORED:
                        return
                    why = f"{address}: {answer.remark}"
                    if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                        until = 0.0
            except ConnectFailed as error:
                why = str(error)
            except RMQError as error:
                self._lose(str(error))
                return
            if self._clock.monotonic() > until:
                self._lose(why)
                return
            await asyncio.sleep(_AGAIN)

    def _lose(self, why: str) -> None:
        self._missed.say(log.warning, "oneway sends that have come here for the leader are lost: %s", why)
