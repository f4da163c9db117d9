"""What a member of a group that follows is asked and told, and its leader has the word on: how far groups are.

Clients come to it that have not heard yet who leads: it was the leader a moment ago. What it would answer may be old,
or nothing where it has just started, and a group would begin anew; what it would take down is the leader's to
overwrite. So it asks the leader, and tells it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.runtime import patience

if TYPE_CHECKING:
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.conn import Conn

__all__ = ["Following", "PassOn"]

#: Field of a request that a member has passed on: nobody passes it on once more.
_PASSED = "passedOn"
#: Seconds in which the leader is to be found and to answer; for one answer; and between two tries.
_PATIENCE, _TIMEOUT, _AGAIN = 3.0, 1.0, 0.1


class Following(NamedTuple):
    """What is to be known of a member.

    leads: it is the master. leader: the leader's address, as far as it is known. knows: it has heard of the progress of
    groups since it follows.
    """

    leads: Callable[[], bool]
    leader: Callable[[], str | None]
    knows: Callable[[], bool]


class PassOn:
    """Asks and tells the leader.

    :param client: calls it.
    """

    def __init__(self, client: RemotingClient, following: Following) -> None:
        self._client = client
        self._following = following

    def leads(self, request: Command) -> bool:
        """Whether a request is this broker's own to answer."""
        return self._following.leads() or _PASSED in (request.ext or {})

    async def tell(self, request: Command) -> Command | None:
        """The leader's answer; None where it is not found."""
        with suppress(TimeoutError):  # whoever comes next may have it
            async with patience.timeout(_PATIENCE):
                while not self._following.leads():
                    if (answer := await self._once(request)) is not None:
                        return answer
                    await asyncio.sleep(_AGAIN)
        return None

    async def ask(self, conn: Conn, request: Command) -> Command | None:
        """The same of a question. Where nobody here can know the answer the connection ends: any answer would have the
        client go on somewhere, and an error has Java's begin at the end of the queue.
        """
        answer = await self.tell(request)
        if answer is None and not (self._following.leads() or self._following.knows()):
            conn.close("it is not known here how far groups are, and nobody leads who knows")
        return answer

    async def _once(self, request: Command) -> Command | None:
        address = self._following.leader()
        if address is None:
            return None
        fields = {name: value for name, value in (request.ext or {}).items() if name not in ("AccessKey", "Signature")}
        try:
            answer = await self._client.request(
                address, Command(request.code, ext={**fields, _PASSED: "true"}), _TIMEOUT
            )
        except RMQError:
            return None
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return None
        reply = request.reply(answer.code, answer.remark)
        reply.ext = answer.ext
        return reply
