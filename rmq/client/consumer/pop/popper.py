"""One pop: request, answer, tag filter, receipt handles (protocol.md 2.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmq.client.decode import decode_messages
from rmq.client.hooks import Hook, Hooks
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.pop import PopMessageRequest, PopMessageResponse
from rmq.protocol.pop import (
    FIRST_POP_TIME,
    POP_CK,
    Handle,
    counts_of,
    mark_of,
    pop_retry_topic,
    pop_retry_topic_v2,
    starts_of,
)
from rmq.runtime.aside import logger

__all__ = ["Popped", "Popper"]

log = logger(__name__)

_ANSWERS = (
    int(ResponseCode.SUCCESS),
    int(ResponseCode.POLLING_FULL),
    int(ResponseCode.POLLING_TIMEOUT),
    int(ResponseCode.PULL_NOT_FOUND),
)


@dataclass(slots=True)
class Popped:
    """What a pop brought."""

    #: In the order of the answer, each with its handle.
    messages: list[tuple[MessageExt, Handle]] = field(default_factory=list)
    #: The handles of those that the subscription or a hook does not want.
    unwanted: list[tuple[MessageExt, Handle]] = field(default_factory=list)
    #: The broker lets no more requests wait: not to be asked again at once.
    full: bool = False


class Popper:
    """Pops for one group.

    :param order: the broker gives out no more of a queue before these messages are settled.
    :param hooks: those that filter see what comes.
    """

    def __init__(self, instance: ClientInstance, group: str, hooks: Sequence[Hook] = (), *, order: bool) -> None:
        self._instance = instance
        self._group = group
        self._order = order
        self._hooks = Hooks(hooks, group)
        #: Of the queues whose answer is waited for: the master that was asked.
        self._asked: dict[MessageQueue, str] = {}

    def waits_in_vain(self, queue: MessageQueue) -> bool:
        """Whether the answer is waited for of one whose place another has by now: nothing may come of it."""
        asked, master = self._asked.get(queue), self._instance.routes.master_addr(queue.broker_name)
        return None not in (asked, master) and asked != master

    async def pop(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_nums: int,
        invisible: float,
        poll: float,
        timeout: float,
        from_max: bool,
        attempt: str | None = None,
    ) -> Popped:
        """Ask for messages that nobody else of the group gets for ``invisible`` seconds.

        :param poll: seconds that the broker may hold the request when there is nothing.
        :param from_max: a group that has no offset yet begins at the end.
        :param attempt: an orderly pop repeated with the same one gets the same messages.
        :raises ResponseError: an answer that is none of the outcomes. :raises TransportError: no answer.
        """
        address = await self._instance.find_master(queue)
        header = PopMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=max_nums,
            invisible_time=int(invisible * 1000),
            poll_time=int(poll * 1000),
            born_time=self._instance.world.clock.now_ms(),
            init_mode=1 if from_max else 0,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=self._order,
            attempt_id=attempt,
            bname=queue.broker_name,
        )
        self._asked[queue] = address
        try:
            reply = await self._instance.call(
                address, RequestCode.POP_MESSAGE, header, timeout=timeout, accept=_ANSWERS
            )
        finally:
            self._asked.pop(queue, None)
        if reply.code != ResponseCode.SUCCESS:
            return Popped(full=reply.code == ResponseCode.POLLING_FULL)
        if reply.ext is None:
            raise ResponseError(reply.code, "the answer to a pop has no header", address)
        return await self._read(queue, subscription, reply.header(PopMessageResponse), reply.body)

    async def _read(
        self, queue: MessageQueue, subscription: SubscriptionData, answer: PopMessageResponse, body: bytes
    ) -> Popped:
        starts = starts_of(answer.start_offset_info)
        counts = counts_of(answer.order_count_info) if self._order else {}
        given: list[tuple[MessageExt, Handle]] = []
        for message in decode_messages(body, queue.broker_name):
            handle = self._handle(queue, message, answer, starts)
            if handle is None:
                log.error("%s gave out a message that is not of it, which is left alone: %r", queue, message)
                continue
            message.properties[POP_CK] = str(handle)
            message.properties.setdefault(FIRST_POP_TIME, str(answer.pop_time))
            at = (handle.mark, str(handle.queue_id))
            if times := counts.get((handle.mark, f"qo{handle.queue_id}%{handle.offset}"), counts.get(at, 0)):
                message.reconsume_times = times
            message.topic = queue.topic
            given.append((message, handle))
        tags = subscription.tags_set
        names = self._instance.namespace
        wanted = [
            # The broker compares hashes; the exact tag is compared here (protocol.md 5.7).
            message
            for message, _ in given
            if not tags or subscription.class_filter_mode or message.tags in tags
        ]
        for message, _ in given:
            names.message(message)
        if self._hooks.filters:
            wanted = await self._hooks.filtered(self._instance.application, names.queue(queue), wanted)
        kept = {id(message) for message in wanted}
        return Popped([one for one in given if id(one[0]) in kept], [one for one in given if id(one[0]) not in kept])

    def _handle(
        self,
        queue: MessageQueue,
        message: MessageExt,
        answer: PopMessageResponse,
        starts: dict[tuple[str, int], int],
    ) -> Handle | None:
        """What a message is acknowledged by; None for one that was not asked for."""
        retries = (pop_retry_topic(self._group, queue.topic), pop_retry_topic_v2(self._group, queue.topic))
        given = message.properties.get(POP_CK)
        if message.topic != queue.topic and message.topic not in retries:
            return None
        if given is not None:  # what comes again has its handle with it, and the topic that it was sent to
            try:
                handle = Handle.parse(given, message.queue_offset)
            except ResponseError:
                return None
            here = (queue.broker_name, message.queue_id, message.queue_offset)
            return handle if (handle.broker_name, handle.queue_id, handle.offset) == here else None
        mark = "2" if message.topic == retries[1] else mark_of(message.topic)
        place = (mark, message.queue_id)
        if mark == "0" and queue.queue_id >= 0 and message.queue_id != queue.queue_id:
            return None
        start = starts.setdefault(place, message.queue_offset)
        if message.queue_offset < start:
            return None
        return Handle(
            start, answer.pop_time, answer.invisible_time, answer.revive_qid, mark, queue.broker_name,
            message.queue_id, message.queue_offset,
        )  # fmt: skip
