"""Offsets: committed, asked for, searched (requests 14, 15, 29 to 32, 43, 45, 308, 314)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.slices import Turns
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.reserved import check_group, check_private
from rmq.broker.schedule.levels import DelayOffsets
from rmq.broker.store.store import Store
from rmq.broker.topics.table import TopicTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.offset import (
    CloneGroupOffsetRequest,
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    QueryCorrectionOffsetRequest,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.protocol.names import is_private_topic
from rmq.remoting.conn import Conn
from rmq.remoting.long_body import LongBody
from rmq.remoting.router import LARGE, handles

if TYPE_CHECKING:
    from rmq.broker.raft.passing import Moved, PassOn

__all__ = ["OffsetAdmin"]

#: Queues that 308 looks at before the loop gets its turn.
_QUEUES = 2_000
#: The value of 308 that says: the compared group has not come so far.
_BEHIND = (1 << 63) - 1


class OffsetAdmin:
    """Handlers of the offset requests (protocol.md 2.4, store-and-broker.md 8.5).

    :param pass_on: asks a group's leader what it has the word on; None where there is no group.
    """

    def __init__(
        self,
        offsets: OffsetTable,
        topics: TopicTable,
        store: Store,
        lookup: Lookup,
        delays: DelayOffsets,
        pass_on: PassOn | None = None,
    ) -> None:
        self._pass_on = pass_on
        self._offsets = offsets
        self._topics = topics
        self._store = store
        self._lookup = lookup
        self._delays = delays
        topics.on_made.append(self._topic_made)

    def _topic_made(self, topic: str) -> None:
        """A new topic without a queue has no message yet: what is stored on its name is of an older topic."""
        if not self._store.queues.all(topic):
            self._offsets.remove_topic(topic)

    @handles(RequestCode.QUERY_CONSUMER_OFFSET, header=QueryConsumerOffsetRequest)
    async def query(self, conn: Conn, request: Command, header: QueryConsumerOffsetRequest) -> Command:
        """14: the stored offset; without one 0 when the queue's very first message is still at hand, else code 22."""
        if self._pass_on is not None and not self._pass_on.leads(request):
            answer = await self._pass_on.ask(conn, request)
            if answer is not None:
                return answer
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            queue = self._lookup.queue(header.topic, header.queue_id)
            if (
                header.set_zero_if_not_found is False
                or (queue is not None and queue.min > 0)
                or not await self._lookup.head_is_in_memory(queue)
            ):
                answer = request.reply(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
                answer.ext = {}
                return answer
            offset = 0
        return request.reply(ResponseCode.SUCCESS, header=QueryConsumerOffsetResponse(offset=offset))

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET, header=UpdateConsumerOffsetRequest)
    def update(
        self, conn: Conn, request: Command, header: UpdateConsumerOffsetRequest
    ) -> Command | Coroutine[Any, Any, Command]:
        """15: taken whatever the queue, its end and the old offset, of a topic that exists; nothing is below 0.

        Consumers of a deleted topic tell their offsets for a while, and a new topic of its name begins at 0 for
        everybody (field case B024).
        """
        check_group(header.consumer_group)
        check_private(header.topic)
        if header.commit_offset < 0:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"commitOffset is {header.commit_offset}: an offset is 0 or more; {header.consumer_group} stays where "
                f"it is on {header.topic}",
            )
        if self._pass_on is not None and self._pass_on.is_late(request):
            raise ResponseError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "who tells this offset does not lead this member any more"
            )
        if self._pass_on is not None and not self._pass_on.leads(request):
            return self._tell(self._pass_on, request, header)
        answer = self._update(request, header)
        if self._pass_on is None or request.is_oneway:
            return answer
        return self._moved(answer, request, header)

    async def _moved(self, answer: Command, request: Command, header: UpdateConsumerOffsetRequest) -> Command:
        moved = (header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        await self.spread([moved], request)
        return answer

    async def spread(self, moves: list[Moved], request: Command) -> None:
        """Have the members of a group know what was moved here, before whoever did it is answered.

        :raises ResponseError: this one has lost the lead meanwhile, and its successor may have begun without it. Nobody
            passes it on: whoever did it may have told that one more.
        """
        pass_on = self._pass_on
        if pass_on is not None and pass_on.leads(request):
            await pass_on.spread(moves, request)
            if not pass_on.leads(request):
                raise ResponseError(
                    ResponseCode.SERVICE_NOT_AVAILABLE, "this broker leads its group no longer: do it again"
                )

    async def _tell(self, pass_on: PassOn, request: Command, header: UpdateConsumerOffsetRequest) -> Command:
        answer = await pass_on.tell(request)
        return self._update(request, header) if answer is None else answer

    def _update(self, request: Command, header: UpdateConsumerOffsetRequest) -> Command:
        if header.topic in self._topics:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        answer = request.reply(ResponseCode.SUCCESS)
        answer.ext = {}
        return answer

    @handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header=SearchOffsetRequest)
    async def search(self, conn: Conn, request: Command, header: SearchOffsetRequest) -> Command:
        """29: the first message of a time, or the last with ``boundaryType=UPPER`` (store-and-broker.md 3.5)."""
        upper = (header.boundary_type or "").upper() == "UPPER"
        offset = await self.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        return request.reply(ResponseCode.SUCCESS, header=SearchOffsetResponse(offset=offset))

    async def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """The offset of a store time, ms, as :meth:`QueueSearch.offset_by_time` finds it; 0 without a queue.

        The end of the queue for a time after its last message and for a queue without messages: a group that is reset
        to now has nothing left (field cases B015, B017).
        """
        queue = self._lookup.queue(topic, queue_id)
        return 0 if queue is None else await self._store.offset_by_time(queue, timestamp, upper=upper)

    @handles(RequestCode.GET_MAX_OFFSET, header=GetMaxOffsetRequest)
    def maximum(self, conn: Conn, request: Command, header: GetMaxOffsetRequest) -> Command:
        """30: one beyond the last message."""
        offset = self._lookup.max_offset(header.topic, header.queue_id)
        return request.reply(ResponseCode.SUCCESS, header=GetMaxOffsetResponse(offset=offset))

    @handles(RequestCode.GET_MIN_OFFSET, header=GetMinOffsetRequest)
    def minimum(self, conn: Conn, request: Command, header: GetMinOffsetRequest) -> Command:
        """31: the first message still there."""
        offset = self._lookup.min_offset(header.topic, header.queue_id)
        return request.reply(ResponseCode.SUCCESS, header=GetMinOffsetResponse(offset=offset))

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, header=GetEarliestMsgStoretimeRequest)
    async def earliest(self, conn: Conn, request: Command, header: GetEarliestMsgStoretimeRequest) -> Command:
        """32: when that message was stored, -1 without one."""
        stamp = await self._lookup.earliest_time(self._lookup.queue(header.topic, header.queue_id))
        return request.reply(ResponseCode.SUCCESS, header=GetEarliestMsgStoretimeResponse(timestamp=stamp))

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET, answer=LARGE)
    async def all_offsets(self, conn: Conn, request: Command) -> Command:
        """43: every group's offsets, for a slave."""
        body = await self._offsets.encode()
        return request.reply(ResponseCode.SUCCESS, body=body)

    @handles(RequestCode.GET_ALL_DELAY_OFFSET)
    def delay_offsets(self, conn: Conn, request: Command) -> Command:
        """45: how far delayed messages are delivered, for a slave."""
        return request.reply(ResponseCode.SUCCESS, body=self._delays.encode())

    @handles(RequestCode.QUERY_CORRECTION_OFFSET, header=QueryCorrectionOffsetRequest)
    async def correction(self, conn: Conn, request: Command, header: QueryCorrectionOffsetRequest) -> Command:
        """308: the smallest offset of the topic's groups, per queue; a maximum where ``compareGroup`` is behind it.

        ``filterGroups`` are left out of the comparison; Java deletes their offsets, which is a defect.
        """
        topic = header.topic
        without = {group for group in (header.filter_groups or "").split(",") if group}
        minimum = {queue.id: queue.min for queue in self._store.queues.all(topic)}
        compared = self._offsets.of(header.compare_group, topic)
        body = LongBody('{"correctionOffsets":{')
        queues = self._offsets.queues_of(topic)
        for first in range(0, len(queues), _QUEUES):
            lowest = self._offsets.minimums(topic, minimum, without, queues[first : first + _QUEUES])
            for queue_id, offset in sorted(lowest.items()):
                own = compared.get(queue_id)
                await body.item(f"{queue_id}:{_BEHIND if own is not None and own < offset else offset}")
            await asyncio.sleep(0)
        return request.reply(ResponseCode.SUCCESS, body=await body.end("}}"))

    @handles(RequestCode.CLONE_GROUP_OFFSET, header=CloneGroupOffsetRequest)
    async def clone(self, conn: Conn, request: Command, header: CloneGroupOffsetRequest) -> Command:
        """314: give a group the offsets of another one, on one topic or on all of the other's."""
        source, target = header.src_group, header.dest_group
        if not source.strip() or not target.strip():
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "srcGroup and destGroup must be given")
        check_group(target)
        check_private(header.topic or "")
        topics = [header.topic] if header.topic else self._offsets.topics_of(source)
        turns = Turns()
        for topic in topics:
            if topic in self._topics and not is_private_topic(topic):
                self._offsets.clone(source, target, topic)
                cloned = self._offsets.of(target, topic)
                await self.spread([(target, topic, queue_id, at) for queue_id, at in cloned.items()], request)
            await turns.step()
        return request.reply(ResponseCode.SUCCESS)
