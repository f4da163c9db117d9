"""Acknowledging popped messages, and changing how long they stay invisible (200051, 200151, 200053)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rmq.broker.pop.checkpoints import Key, Outcome
from rmq.broker.pop.checks import refusing_with
from rmq.broker.pop.journal import Event, batch_event
from rmq.broker.pop.ordered import Place
from rmq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import BodyError, ResponseError, StoreError
from rmq.protocol.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from rmq.protocol.permissions import use_group, use_topic
from rmq.protocol.pop import ORDERED, Handle, real_topic
from rmq.remoting.router import handles

if TYPE_CHECKING:
    from rmq.broker.pop.checks import Checks
    from rmq.broker.pop.polls import Polls
    from rmq.broker.pop.state import PopState
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["Acks"]

_EXPIRED = "the receipt handle is expired: the message is given out again"
#: An invisible time longer than this is a mistake of units.
_LONGEST = 1 << 53
#: Messages that one batch may name: more than a queue gives out to a group at all.
_MOST_NAMED = 16_384
#: Messages of a batch that are settled before the loop gets its turn.
_AT_ONCE = 50


class Acks:
    """Settles messages.

    :param changed: called when an earlier deadline may be waiting.
    """

    def __init__(
        self, clock: Clock, state: PopState, checks: Checks, polls: Polls, changed: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._state = state
        self._checks = checks
        self._polls = polls
        self._changed = changed

    @handles(RequestCode.ACK_MESSAGE, header=AckMessageRequest)
    async def ack(self, conn: Conn, request: Command, header: AckMessageRequest) -> Command:
        """200051: one message is done."""
        handle = Handle.parse(header.extra_info, header.offset)
        self._checks.queue_of(conn, header.topic, header.queue_id, header.offset)
        place = Place(header.consumer_group, header.topic, header.queue_id)
        if handle.revive_queue == ORDERED:
            if not self._ack_ordered(place, header.offset, handle.pop_time):
                raise ResponseError(ResponseCode.NO_MESSAGE, _EXPIRED)
            return request.reply(ResponseCode.SUCCESS)
        outcome, event = self._settle(place, handle.start, handle.pop_time, header.offset, handle.deadline)
        if outcome is Outcome.EXPIRED:
            raise ResponseError(ResponseCode.NO_MESSAGE, _EXPIRED)
        await self._write([] if event is None else [event])
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.BATCH_ACK_MESSAGE, body=524_288)
    async def batch_ack(self, conn: Conn, request: Command) -> Command:
        """200151: many messages are done; an error only when none of them could be acknowledged."""
        acks = BatchAckMessageRequestBody.decode(request.body).acks if request.body else []
        if not acks:
            return request.reply(ResponseCode.NO_MESSAGE)
        request.demand(*{use_topic(item.topic) for item in acks}, *{use_group(item.consumer_group) for item in acks})
        named = self._named(acks)
        good = 0
        for first in range(0, len(named), _AT_ONCE):
            if first:
                await asyncio.sleep(0)  # others have their turn
            good += await self._settle_some(conn, named[first : first + _AT_ONCE])
        if named and not good:
            raise ResponseError(ResponseCode.NO_MESSAGE, _EXPIRED)
        return request.reply(ResponseCode.SUCCESS)

    @staticmethod
    def _named(acks: list[BatchAck]) -> list[tuple[BatchAck, int]]:
        """Each message that a batch names, by its offset, in the order of the batch."""
        named: list[tuple[BatchAck, int]] = []
        for item in acks:
            try:
                named += [(item, item.start_offset + number) for number in bits_of(item.bit_set)]
            except BodyError as error:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if len(named) > _MOST_NAMED:
                raise ResponseError(
                    ResponseCode.SYSTEM_ERROR, f"a batch acknowledges at most {_MOST_NAMED} messages; send several"
                )
        return named

    async def _settle_some(self, conn: Conn, named: Sequence[tuple[BatchAck, int]]) -> int:
        """Settle messages of a batch without a turn of the loop between them, and journal it; how many were good.

        Whatever else changes a message meets it before a slice or behind it, in its state as in the journal.
        """
        events: list[Event] = []
        good = 0
        for item, offset in named:
            place = Place(item.consumer_group, real_topic(item.topic, item.consumer_group, item.retry), item.queue_id)
            try:
                self._checks.queue_of(conn, place.topic, place.queue_id, offset)
            except ResponseError:
                continue
            if item.revive_queue_id == ORDERED:
                good += self._ack_ordered(place, offset, item.pop_time)
                continue
            deadline = item.pop_time + item.invisible_time
            outcome, event = self._settle(place, item.start_offset, item.pop_time, offset, deadline)
            if event is not None:
                events.append(event)
            good += outcome is not Outcome.EXPIRED
        await self._write(events)
        return good

    def _settle(
        self, place: Place, start: int, pop_time: int, offset: int, deadline: int
    ) -> tuple[Outcome, Event | None]:
        checkpoints = self._state.checkpoints
        outcome, settled = checkpoints.ack(Key(*place, start, pop_time), offset, deadline, self._clock.now_ms())
        if settled is None:
            return outcome, None
        self._state.written["ACK", place.group, place.topic] += 1
        self._polls_may_go_on(place)
        return outcome, ("a", *settled.key, (offset,))

    def _polls_may_go_on(self, place: Place) -> None:
        """A queue that was full of open messages has room again."""
        if self._state.has_room_again(place):
            self._polls.wake(place.group, place.topic)

    def _ack_ordered(self, place: Place, offset: int, pop_time: int) -> bool:
        """Settle a message of an orderly pop; False when it is out under another handle by now."""
        state = self._state
        found = state.ordered.find(place, offset, pop_time)
        if found is None:
            return state.ordered.get(place) is None and offset < state.positions.get(place)
        batch, i = found
        done = state.ordered.ack(batch, i)
        try:
            index = state.write([batch_event(batch)], {place: batch.position})
        except (StoreError, OSError) as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the acknowledgement was not stored: {error}") from None
        if not done:
            state.ordered.rewritten(batch, index)
        if not state.ordered.blocked(place, "", self._clock.now_ms()):
            self._polls.wake(place.group, place.topic)
        return True

    @handles(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header=ChangeInvisibleTimeRequest)
    @refusing_with(ChangeInvisibleTimeResponse)
    async def change(self, conn: Conn, request: Command, header: ChangeInvisibleTimeRequest) -> Command:
        """200053: a message stays invisible for another time, from now on; 0 gives it back at once."""
        handle = Handle.parse(header.extra_info, header.offset)
        self._checks.queue_of(conn, header.topic, header.queue_id, header.offset)
        if not 0 <= header.invisible_time < _LONGEST:
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER, f"invisibleTime is {header.invisible_time}: milliseconds are expected"
            )
        place = Place(header.consumer_group, header.topic, header.queue_id)
        now = self._clock.now_ms()
        if handle.revive_queue == ORDERED:
            answer = await self._change_ordered(place, header, handle.pop_time, now)
            return request.reply(ResponseCode.SUCCESS, header=answer)
        checkpoints = self._state.checkpoints
        held = checkpoints.find(Key(*place, handle.start, handle.pop_time), header.offset)
        if held is None:
            raise ResponseError(
                ResponseCode.NO_MESSAGE,
                _EXPIRED if now >= handle.deadline else "the message is acknowledged already",
            )
        pop_time = checkpoints.free_pop_time([(*place, header.offset)], now)
        own = checkpoints.change(held, header.offset, pop_time, header.invisible_time, now)
        own.index = self._state.journal.queue.next
        self._changed()
        await self._write([("c", *held.key, header.offset, pop_time, header.invisible_time)])
        return request.reply(
            ResponseCode.SUCCESS,
            header=ChangeInvisibleTimeResponse(
                pop_time=pop_time, invisible_time=header.invisible_time, revive_qid=handle.revive_queue
            ),
        )

    async def _change_ordered(
        self, place: Place, header: ChangeInvisibleTimeRequest, pop_time: int, now: int
    ) -> ChangeInvisibleTimeResponse:
        state = self._state
        found = state.ordered.find(place, header.offset, pop_time)
        if found is None:
            raise ResponseError(ResponseCode.NO_MESSAGE, _EXPIRED)
        batch, i = found
        visible_at = now + header.invisible_time
        state.ordered.change(batch, i, visible_at)
        state.ordered.rewritten(batch, state.journal.queue.next)
        self._changed()
        await self._write([batch_event(batch)])
        return ChangeInvisibleTimeResponse(pop_time=pop_time, invisible_time=visible_at - pop_time, revive_qid=ORDERED)

    async def _write(self, events: list[Event]) -> None:
        """Journal events; without any, wait for what others have settled: nobody is told of it before it stands there.

        :raises ResponseError: the store takes no messages.
        """
        try:
            await self._state.journal.soon(events)
        except StoreError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the change was not stored: {error}") from None
