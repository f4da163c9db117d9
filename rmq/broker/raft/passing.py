"""How far groups are: what a member that follows is asked and told, and what a leader tells those that follow.

Clients come to it that have not heard yet who leads: it was the leader a moment ago. What it would answer may be old,
or nothing where it has just started, and a group would begin anew; what it would take down is the leader's to
overwrite. So it asks the leader, and tells it.

Members take all of it from the leader every second. Where somebody waits for the answer, one that resets a group, say,
the leader tells them at once: none of them may lead next and not know it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.protocol.headers.offset import UpdateConsumerOffsetRequest
from rmq.runtime import patience

if TYPE_CHECKING:
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.conn import Conn

__all__ = ["Following", "Moved", "PassOn"]

#: Field of a request that a member has passed on: nobody passes it on once more.
_PASSED = "passedOn"
#: Field of what a leader tells who follows it: its term. What was cut off for a while comes when another one leads.
_LED = "ledIn"
#: Seconds in which the leader is to be found and to answer; for one answer; and between two tries.
_PATIENCE, _TIMEOUT, _AGAIN = 3.0, 1.0, 0.1
#: Offsets that a member is told of at a time.
_AT_ONCE = 64

#: A group is at an offset now: its name, the topic, the queue and the offset.
Moved = tuple[str, str, int, int]


class Following(NamedTuple):
    """What is to be known of a member.

    leads: it is the master. leader: the leader's address, as far as it is known. knows: it has heard of the progress of
    groups since it follows. others: addresses of the members that are there. term: that it is in.
    """

    leads: Callable[[], bool]
    leader: Callable[[], str | None]
    knows: Callable[[], bool]
    others: Callable[[], list[str]]
    term: Callable[[], int]


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

    def is_late(self, request: Command) -> bool:
        """Whether a leader has told this that leads no more: its successor may have taken later offsets."""
        led = (request.ext or {}).get(_LED)
        return led is not None and (self._following.leads() or led != str(self._following.term()))

    async def tell(self, request: Command) -> Command | None:
        """The leader's answer; None where it is not found."""
        with suppress(TimeoutError):  # whoever comes next may have it
            async with patience.timeout(_PATIENCE):
                while not self._following.leads():
                    if (answer := await self._once(request)) is not None:
                        return answer
                    await asyncio.sleep(_AGAIN)
        return None

    async def spread(self, moves: Sequence[Moved], request: Command | None = None) -> None:
        """Have the others know where groups are that were moved here, as far as they answer within a second.

        :param request: what has moved them; nothing is told where another member has passed it on.
        """
        if not self._following.leads() or (request is not None and _PASSED in (request.ext or {})):
            return
        term = self._following.term()
        with suppress(TimeoutError):  # they take it with the next second
            async with patience.timeout(_TIMEOUT):
                await asyncio.gather(*(self._spread(address, moves, term) for address in self._following.others()))

    async def _spread(self, address: str, moves: Sequence[Moved], term: int) -> None:
        for first in range(0, len(moves), _AT_ONCE):
            await asyncio.gather(*(self._move(address, one, term) for one in moves[first : first + _AT_ONCE]))

    async def _move(self, address: str, move: Moved, term: int) -> None:
        group, topic, queue_id, offset = move
        header = UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
        command = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        command.ext = {**(command.ext or {}), _PASSED: "true", _LED: str(term)}
        with suppress(RMQError):
            await self._client.request(address, command, _TIMEOUT)

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
