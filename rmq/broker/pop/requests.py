"""POP_MESSAGE and the requests beside it: peek, notification, polling info (200050, 200052, 200054, 200055)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.delivery.filtering import EVERYTHING
from rmq.broker.delivery.holds import weight
from rmq.broker.pop.checks import POP, refusing_with
from rmq.broker.pop.polls import PollingFull, Polls, Waiter
from rmq.broker.pop.take import Taken, Wish
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from rmq.protocol.pop import ORDERED, offset_info, order_count_info, start_info
from rmq.remoting.router import BUSY, LARGE, handles

if TYPE_CHECKING:
    from rmq.broker.pop.checks import Checks
    from rmq.broker.pop.take import Taker
    from rmq.protocol.bodies.topic import TopicConfig
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["PopRequests"]

#: Java's remark of an answer without messages.
_NOTHING = "NO_MESSAGE_IN_QUEUE"
#: A poll longer than this is cut, seconds: the client asks again.
_LONGEST_POLL = 120.0


class PopRequests:
    """Hands out messages, and lets requests wait for them."""

    def __init__(self, clock: Clock, checks: Checks, taker: Taker, polls: Polls) -> None:
        self._clock = clock
        self._checks = checks
        self._taker = taker
        self._polls = polls

    @handles(RequestCode.POP_MESSAGE, header=PopMessageRequest)
    @refusing_with(PopMessageResponse)
    async def pop(self, conn: Conn, request: Command, header: PopMessageRequest) -> Command | None:
        """200050: messages that nobody else of the group gets while they are invisible."""
        group, topic = header.consumer_group, header.topic
        config = self._checks.readable(conn, POP, group, topic, header.queue_id, header.max_msg_nums)
        wish = Wish(
            group,
            topic,
            header.queue_id,
            header.max_msg_nums,
            header.invisible_time,
            header.init_mode,
            await self._checks.wanted(topic, header.exp_type, header.exp),
            bool(header.order),
            header.attempt_id or "",
        )
        if header.poll_time <= 0 or header.max_msg_nums == 0:
            taken = await self._take(conn, wish, config)
            return self._answer(request, ResponseCode.POLLING_TIMEOUT, wish, taken)
        try:
            waiter = self._polls.enter(conn, group, topic, header.queue_id, weight(header.exp))
        except PollingFull:
            taken = await self._take(conn, wish, config)
            return self._answer(request, ResponseCode.POLLING_FULL, wish, taken)
        try:
            return await self._poll(conn, request, wish, config, waiter, header.poll_time / 1000)
        finally:
            self._polls.leave(waiter)
            if waiter.woken:
                # It cannot use what it was woken for: somebody else may.
                self._polls.wake(group, topic, header.queue_id)

    async def _poll(
        self, conn: Conn, request: Command, wish: Wish, config: TopicConfig, waiter: Waiter, seconds: float
    ) -> Command | None:
        clock = self._clock
        deadline = clock.monotonic() + min(seconds, _LONGEST_POLL)
        while True:
            if conn.closed:
                return None
            waiter.woken = False
            if not conn.has_room():
                # It cannot use what it was woken for now: somebody else may.
                self._polls.wake(wish.group, wish.topic)
            taken = await self._take(conn, wish, config)
            if taken.parts or not await self._polls.wait(waiter, deadline - clock.monotonic()):
                return self._answer(request, ResponseCode.POLLING_TIMEOUT, wish, taken)

    async def _take(self, conn: Conn, wish: Wish, config: TopicConfig) -> Taken:
        """Take messages, once the peer has taken its answers; while they are read they count as owed."""
        if not await conn.room(LARGE):
            raise ResponseError(ResponseCode.SYSTEM_BUSY, BUSY)
        try:
            return await self._taker.take(wish, config)
        finally:
            conn.promise(-LARGE)

    def _answer(self, request: Command, nothing: int, wish: Wish, taken: Taken) -> Command:
        """The messages that were taken, or the code for none."""
        parts = taken.parts
        if parts and taken.rest:
            # One arrival wakes one request; what this one leaves is for the next.
            self._polls.wake(wish.group, wish.topic)
        header = PopMessageResponse(
            pop_time=taken.pop_time if parts else self._clock.now_ms(),
            invisible_time=wish.invisible,
            revive_qid=ORDERED if wish.order else 0,
            rest_num=taken.rest,
            start_offset_info=start_info((part.queue.topic, part.queue.id, part.start) for part in parts),
            msg_offset_info=offset_info((part.queue.topic, part.queue.id, part.offsets) for part in parts),
            order_count_info=order_count_info((part.queue.topic, part.queue.id, part.counts) for part in parts)
            if wish.order
            else None,
        )
        if not parts:
            return request.reply(nothing, _NOTHING, header=header)
        return request.reply(ResponseCode.SUCCESS, "FOUND", header=header, body=taken.body)

    @handles(RequestCode.PEEK_MESSAGE, header=PeekMessageRequest, answer=LARGE)
    @refusing_with(PopMessageResponse)
    async def peek(self, conn: Conn, request: Command, header: PeekMessageRequest) -> Command:
        """200052: the next messages; they stay where they are."""
        group, topic = header.consumer_group, header.topic
        config = self._checks.readable(conn, "peek message", group, topic, header.queue_id, header.max_msg_nums)
        wish = Wish(group, topic, header.queue_id, header.max_msg_nums, 0, 0, EVERYTHING)
        records = await self._taker.peek(wish, config)
        answer = PopMessageResponse(rest_num=self._taker.rest(wish, config))
        if not records:
            return request.reply(ResponseCode.PULL_NOT_FOUND, _NOTHING, header=answer)
        return request.reply(ResponseCode.SUCCESS, "FOUND", header=answer, body=b"".join(records))

    @handles(RequestCode.NOTIFICATION, header=NotificationRequest)
    @refusing_with(NotificationResponse)
    async def notification(self, conn: Conn, request: Command, header: NotificationRequest) -> Command | None:
        """200054: tell when there is something to pop."""
        group, topic = header.consumer_group, header.topic
        config = self._checks.readable(conn, "notification", group, topic, header.queue_id)
        wish = Wish(
            group, topic, header.queue_id, 1, 0, 0, EVERYTHING, bool(header.order),
            header.attempt_id or "",
        )  # fmt: skip
        has = self._taker.rest(wish, config) > 0
        full = False
        if not has and header.poll_time > 0:
            try:
                waiter = self._polls.enter(conn, group, topic, header.queue_id)
            except PollingFull:
                full = True
            else:
                try:
                    has = await self._polls.wait(waiter, min(header.poll_time / 1000, _LONGEST_POLL))
                    waiter.woken = has
                    has = self._taker.rest(wish, config) > 0
                finally:
                    self._polls.leave(waiter)
                    if waiter.woken:
                        # The message is still there: whoever wants to pop it may.
                        self._polls.wake(group, topic, header.queue_id)
                if conn.closed:
                    return None
        return request.reply(ResponseCode.SUCCESS, header=NotificationResponse(has_msg=has, polling_full=full))

    @handles(RequestCode.POLLING_INFO, header=PollingInfoRequest)
    @refusing_with(PollingInfoResponse)
    async def polling_info(self, conn: Conn, request: Command, header: PollingInfoRequest) -> Command:
        """200055: how many requests wait."""
        group, topic = header.consumer_group, header.topic
        self._checks.readable(conn, "polling info", group, topic, header.queue_id)
        count = self._polls.count(group, topic, header.queue_id)
        return request.reply(ResponseCode.SUCCESS, header=PollingInfoResponse(polling_num=count))
