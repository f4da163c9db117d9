"""Requests, which are answered by a message (protocol.md 7.8): sent and waited for, and the sending of replies.

A request is a message like any other with a correlation id, the client id of who asks, and how long that waits. A
reply has the same ones and goes to a topic of the request's cluster; the broker that takes it hands it to the client
that asked, which it must know by a heartbeat, besides storing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rmq.client.line import Place
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.results import SendResult
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sending import weight
from rmq.protocol.errors import ClientError, ReplyTimeout, ResponseError, RMQError, TransportError, WrongType
from rmq.protocol.names import reply_topic
from rmq.protocol.properties import CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT
from rmq.runtime import patience

if TYPE_CHECKING:
    from rmq.client.producer import Producer
    from rmq.runtime.world import Random

__all__ = ["Requests"]

#: Seconds that a request waits at most until every master knows who asks.
_KNOWN_WAIT = 1.0


class Requests:
    """The requests and replies of one producer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        #: Those that are waited for now.
        self._waiting: set[asyncio.Future[MessageExt | None]] = set()

    async def ask(
        self,
        message: Message | MessageExt,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        limit: float,
    ) -> MessageExt:
        """Send a request, and wait for its reply.

        :param limit: seconds for all of it, but for the wait for its turn.
        :raises RMQError: see :meth:`~rmq.client.producer.Producer.request`.
        """
        if not isinstance(message, (Message, MessageExt)):
            raise WrongType(f"request takes a Message, not {type(message).__name__}")
        place = self._producer._sender.place(queue, selector, arg)
        if place is None:
            return await self._ask(message, queue, selector, arg, limit, None)
        with place:
            return await self._ask(message, queue, selector, arg, limit, place)

    async def _ask(
        self,
        message: Message | MessageExt,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        limit: float,
        place: Place | None,
    ) -> MessageExt:
        producer = self._producer
        instance, clock, sender = producer._client, producer._world.clock, producer._sender
        began = clock.monotonic()
        correlation = _uuid(producer._world.random)
        ttl = int(limit * 1000)
        send = await sender.encoded(
            lambda one: sender.encoder.prepare_request(one, correlation, instance.client_id, ttl), message, limit
        )
        await instance.be_known(producer.group, min(_KNOWN_WAIT, limit / 2))
        rest = max(0.001, began + limit - clock.monotonic())
        size = weight(send)
        await sender.its_turn(size, rest)
        deadline = clock.monotonic() + rest
        reply: asyncio.Future[MessageExt | None] = asyncio.get_running_loop().create_future()
        instance.requests[correlation] = reply
        self._waiting.add(reply)
        try:
            result: SendResult | None = None
            try:
                result = await sender.send_now(send, queue, selector, arg, rest, size, None, place)
            except RMQError:
                if not reply.done():  # answered it was stored, whatever became of the broker's word of it
                    raise
            try:
                async with patience.timeout(max(0.0, deadline - clock.monotonic())):
                    answer = await reply
            except TimeoutError:
                assert result is not None
                raise self._too_late(send.topic, result, limit) from None
        finally:
            self._waiting.discard(reply)
            instance.requests.pop(correlation, None)
        if answer is None:
            raise ClientError(f"the producer {producer.group} was shut down before the request was answered")
        return producer._names.message(answer)

    def _too_late(self, topic: str, result: SendResult, limit: float) -> ReplyTimeout:
        queue = MessageQueue(topic, result.message_queue.broker_name, result.message_queue.queue_id)
        error = ReplyTimeout(f"no reply in {limit:g} s to the request {result.msg_id}, which is stored in {queue}")
        error.msg_id = result.msg_id
        return error.about(queue=queue, address=self._producer._client.routes.master_addr(queue.broker_name))

    def end(self) -> None:
        """The producer is shut down: no reply comes any more."""
        for reply in self._waiting:
            if not reply.done():
                reply.set_result(None)

    async def reply(
        self,
        request: MessageExt,
        body: bytes | str,
        tags: str | None,
        keys: str | Iterable[str] | None,
        properties: Mapping[str, str] | None,
        limit: float,
    ) -> SendResult:
        """Answer a request; see :meth:`~rmq.client.producer.Producer.reply`.

        The broker that stored the request is tried first: who asked is known there.
        """
        producer, sender = self._producer, self._producer._sender
        instance, clock = producer._client, producer._world.clock
        given = request.properties
        if lacking := [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if name not in given]:
            raise ClientError(
                f"{request!r} is no request: it lacks the property {lacking[0]}; what request() sends can be replied to"
            )
        message = Message(reply_topic(given[CLUSTER]), body, tags=tags, keys=keys, properties=properties)
        send = await sender.encoded(partial(sender.encoder.prepare_reply, request), message, limit)
        deadline = clock.monotonic() + limit
        info = instance.routes.publish.get(send.topic)
        if info is not None and len(info.brokers) < 2:
            # Like any send, which is tried again: a queue of one's choice is not, and its master may just change.
            return await sender.send(send, None, None, None, limit)
        try:
            return await sender.send(send, None, _beside, request.broker_name, limit / 2)
        except (ResponseError, TransportError) as error:
            info = instance.routes.publish.get(send.topic)
            rest = deadline - clock.monotonic()
            if not error.retriable or info is None or len(info.brokers) < 2 or rest <= 0:
                raise
        return await sender.send(send, None, None, None, rest)


def _beside(queues: Sequence[MessageQueue], message: object, broker_name: object) -> MessageQueue:
    """A queue at the broker of that name, or else any."""
    return next((queue for queue in queues if queue.broker_name == broker_name), queues[0])


def _uuid(random: Random) -> str:
    """A random UUID as text (version 4)."""
    bits = random.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    text = f"{bits:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
