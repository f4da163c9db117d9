"""The producer (Java: DefaultMQProducer)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, Unpack

from rmq.client.checks import check_queue, check_text, check_topic, check_word, seconds, typed
from rmq.client.instance import ClientInstance, connect_instance
from rmq.client.life import ends, starts
from rmq.client.lookup import Lookups
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.plain import Sending, plain_where_it_can
from rmq.client.requests import Requests
from rmq.client.results import SendResult
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sender import Sender
from rmq.client.sending import Sendable
from rmq.client.settings import Duration, ProducerOptions, ProducerSettings, lists_options
from rmq.client.shown import shown
from rmq.client.topics import create_topic
from rmq.client.trace import hooks_of, inner_group, inner_options
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import (
    ClientError,
    RMQError,
    WrongType,
)
from rmq.protocol.headers.message import RecallMessageRequest, RecallMessageResponse
from rmq.protocol.keywords import NoOthers, no_such
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["Producer"]

log = logger(__name__)

T = TypeVar("T")


@lists_options(ProducerSettings)
@typed(but=("recall_handle", "queue", "callback"))
class Producer(Lookups):
    """Sends messages; coroutines of one loop may share it.

    :param group: the producer group: one an application.
    :param world: the ports it touches the world through; the real ones by default.
    :param options: see :class:`~rmq.client.settings.ProducerOptions`.
    :raises ClientError: a name or a setting cannot be used.

    ::

        async with Producer("order_group", namesrv="127.0.0.1:9876") as producer:
            result = await producer.send(Message("TopicTest", b"hello", tags="TagA", keys="order-1"))
    """

    _kind: ClassVar[type[ProducerSettings]] = ProducerSettings

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._settings: ProducerSettings = self._kind.of(options)
        for topic in self._settings.topics:
            check_topic(topic)
        self._names = Namespace(self._settings.namespace)
        group = self._names.group(group, "DEFAULT_PRODUCER")
        self.group: str = group
        self._world: World = world or World.around()
        self._trace, self._hooks = hooks_of(group, self._settings, self._world)
        self._instance: ClientInstance | None = None
        self._stopped = False
        self._under_way: set[asyncio.Task[Any]] = set()
        self._sender = Sender(self, self._hooks)
        self._requests = Requests(self)
        self._options = options

    def _renew(self) -> Producer:
        """The same producer, not started: for a forked child."""
        return Producer(self.group, **self._options)

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def _joined(self) -> ClientInstance:
        """:raises ClientError: the producer is not started."""
        if self._instance is None:
            raise ClientError(
                f"the producer {self.group} is shut down"
                if self._stopped
                else f"the producer {self.group} is not started: use it with 'with', or call start()"
            )
        return self._instance

    @property
    def _client(self) -> ClientInstance:
        """The same where a call of the application's begins.

        :raises ClientError: the producer is not started, or it was on another loop.
        """
        return self._here(self._joined)

    @starts
    async def start(self) -> None:
        """Join the client instance; asks no broker yet, and name servers for ``topics``. Again it does nothing.

        :raises ClientError: no name server is known, or the group has a producer in this client already.
        """
        if self._instance is not None:
            return
        instance = connect_instance(self._world, self._settings)
        instance.add_producer(self.group)
        try:
            await instance.acquire()
        except BaseException:
            instance.producers.discard(self.group)
            raise
        self._stopped = False
        self._instance = instance
        self._sender.begin(asyncio.get_running_loop())
        try:
            await self._begin(instance)
        except BaseException:  # cancelled: nobody shuts down what has not started
            await self.shutdown()
            raise

    async def _begin(self, instance: ClientInstance) -> None:
        """The rest of a start, in a client instance that is joined."""
        if self._trace is not None:
            inner = inner_options(self._settings)
            self._trace.tracer.start(Producer(inner_group(self.group, "PRODUCE"), world=self._world, **inner))
        for topic in self._settings.topics:
            try:
                await instance.refresh_route(self._names.wrap(topic), self._settings.mq_client_api_timeout)
            except RMQError as error:
                log.warning("the route of %s is asked for again: %s", topic, error)

    @ends
    async def shutdown(self) -> None:
        """Wait for the asynchronous sends and requests under way (each has its own timeout), leave, close the
        connections."""
        try:
            self._sender.end()
            if self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            self._requests.end()
            instance, self._instance = self._instance, None
            sends, self._sender.plain_sends = self._sender.plain_sends, None
            if instance is not None and sends is not None:
                instance.remoting.on_served.remove(sends.wake_now)
            if instance is not None:
                self._stopped = True
                try:
                    if self._trace is not None:
                        await self._trace.tracer.stop()
                finally:
                    await instance.leave(producer=self.group)

    async def _forget(self) -> None:
        self._instance, self._stopped = None, True
        self._sender.plain_sends = None
        self._under_way.clear()
        if self._trace is not None:
            await self._trace.tracer.forget()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # -- sending ------------------------------------------------------------------------------------------------------

    @plain_where_it_can
    async def send(
        self,
        message: Sendable,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
        **unknown: Unpack[NoOthers],
    ) -> SendResult:
        """Send one message, or several of one topic as a batch, and wait until it is stored.

        Without ``queue`` and ``selector`` the queues take turns, and a broker that fails is left for another one. Of
        many calls at once so many are under way as ``back_pressure_for_async_send_num`` and ``..._size`` say; the rest
        wait for their turn.

        :param queue: send to this queue only. :param selector: picks the queue: ``selector(queues, message, arg)``, in
            your own coroutine: it must not wait.
        :param timeout: for the whole send, retries included, from when its turn has come; ``send_msg_timeout`` by
            default. Time in which the loop stood still while a route was asked for or a connection opened, is not
            counted.
        :raises ClientError: the message cannot be sent as it is; nothing was sent.
        :raises TooManyRequests: its turn did not come, because nothing before it was answered for ``timeout``; nothing
            was sent.
        :raises ResponseError: the broker refused it (the last one tried, when several were).
        :raises TransportError: no broker answered; with RequestTimeout and ConnectionLost it may have been stored.
        """
        del unknown  # refused before
        limit = self._limit(timeout)
        self._client  # noqa: B018 - raises when not started, or when it was on another loop
        if queue is None and selector is None and (sends := self._sender.plain_sends) is not None:
            return await Sending(sends, message, limit)
        return await self._sender.send(message, queue, selector, arg, limit)

    def send_async(
        self,
        message: Sendable,
        callback: Callable[[asyncio.Future[SendResult]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
        **unknown: Unpack[NoOthers],
    ) -> asyncio.Future[SendResult]:
        """Send without waiting: a future of the result.

        :param callback: called with the future when it is done.
        :raises ClientError: the message cannot be sent as it is.
        """
        if unknown:
            raise no_such(Producer.send_async, unknown)
        self._client  # noqa: B018 - raises when not started
        check_callback(callback)
        if queue is not None:
            check_queue(queue)
        sender = self._sender
        joins = sender.joins(message, selector)
        send = message if joins or sender.waits else sender.prepare(message)
        retries = None if joins else self._settings.retry_times_when_send_async_failed
        limit, place = self._limit(timeout), sender.place(queue, selector, arg)
        task = asyncio.get_running_loop().create_task(
            sender.send(send, queue, selector, arg, limit, retries, place), name="send"
        )
        if place is not None:  # the task may be cancelled before it begins
            task.add_done_callback(lambda _: place.leave())
        self._keep(task, callback)
        return task

    def _keep(self, task: asyncio.Task[T], callback: Callable[[asyncio.Future[T]], object] | None) -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        if callback is not None:
            task.add_done_callback(callback)

    async def send_oneway(
        self,
        message: Message | MessageExt,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        **unknown: Unpack[NoOthers],
    ) -> None:
        """Send one message and wait for nothing: it may be lost without a word. For logs and the like.

        :raises TooManyRequests: its turn did not come, or the broker takes nothing; nothing was sent.
        """
        if unknown:
            raise no_such(Producer.send_oneway, unknown)
        if not isinstance(message, (Message, MessageExt)):
            raise WrongType(f"send_oneway takes a Message, not {type(message).__name__}")
        self._client  # noqa: B018 - raises when not started
        await self._sender.oneway(message, queue, selector, arg)

    async def request(
        self,
        message: Message | MessageExt,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> MessageExt:
        """Send a message, and wait for the message that a consumer of it answers with: see :meth:`reply`.

        :param queue: see :meth:`send`, and so for ``selector`` and ``arg``.
        :param timeout: for the whole of it, from when its turn has come; ``send_msg_timeout`` by default.
        :raises ReplyTimeout: the message was stored, and no reply came in that time. It may be answered yet, to nobody.
        :raises ClientError: the message cannot be sent as it is, or the producer was shut down meanwhile.
        :raises RMQError: it was not stored, as with :meth:`send`.
        """
        return await self._requests.ask(message, queue, selector, arg, self._limit(timeout))

    def request_async(
        self,
        message: Message | MessageExt,
        callback: Callable[[asyncio.Future[MessageExt]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> asyncio.Future[MessageExt]:
        """:meth:`request` without waiting: a future of the reply.

        :param callback: called with the future when it is done.
        """
        self._client  # noqa: B018 - raises when not started
        check_callback(callback)
        asked = self._requests.ask(message, queue, selector, arg, self._limit(timeout))
        task = asyncio.get_running_loop().create_task(asked, name="request")
        self._keep(task, callback)
        return task

    async def reply(
        self,
        request: MessageExt,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Answer a message that was sent by :meth:`request`; consumers have this, too.

        :param request: as a consumer got it.
        :param body: of the answer, and ``tags``, ``keys`` and ``properties`` as of any message.
        :param timeout: ``send_msg_timeout`` by default.
        :raises ClientError: the message is no request, or the answer cannot be sent as it is.
        :raises ResponseError: who asked is not there any more. :raises TransportError: no broker answered.
        """
        return await self._requests.reply(request, body, tags, keys, properties, self._limit(timeout))

    def split(
        self,
        messages: Iterable[Message | MessageExt],
        limit: int | None = None,
        oversize: list[Message | MessageExt] | None = None,
    ) -> Iterator[list[Message | MessageExt]]:
        """Cut a large collection into batches that can be sent: ``for part in producer.split(all): send(part)``.

        :param limit: bytes a batch may take; ``max_message_size`` by default.
        :param oversize: takes the messages that are over the limit by themselves; without it such a message raises.
        :raises ClientError: see ``oversize``.
        """
        if not isinstance(messages, Iterable):
            raise WrongType(f"split takes several messages, not {shown(messages)}")
        if oversize is not None and not isinstance(oversize, list):
            raise WrongType(f"oversize is {shown(oversize)}: give a list, to which messages that are too big are added")
        return self._sender.encoder.split(messages, limit, oversize)

    def _limit(self, timeout: Duration | None) -> float:
        return self._settings.send_msg_timeout if timeout is None else seconds(timeout)

    async def recall_message(self, topic: str, recall_handle: str) -> str:
        """Take back a message that waits for its delivery time (``delay`` or ``deliver_at``).

        :param recall_handle: of the result of its send.
        :returns: its ``msg_id``.
        :raises ClientError: that is no handle. :raises ResponseError: it is not waiting any more, or never was.
        """
        check_text(topic)
        topic = self._names.wrap(topic)
        header = RecallMessageRequest(producer_group=self.group, topic=topic, recall_handle=recall_handle)
        address = await self._client.find_master(MessageQueue(topic, _broker_of(recall_handle), 0))
        limit = self._settings.send_msg_timeout
        reply = await self._client.call(address, RequestCode.RECALL_MESSAGE, header, timeout=limit)
        recalled = reply.header(RecallMessageResponse).msg_id
        if self._trace is not None:
            self._trace.recalled(topic, recalled)
        return recalled

    # -- topics -----------------------------------------------------------------------------------------------------

    async def create_topic(self, key: str, new_topic: str, queue_num: int, topic_sys_flag: int = 0) -> None:
        """Create a topic on every master that serves the topic ``key`` (TBW102, or the cluster's name).

        :raises ClientError: nobody serves ``key``. :raises ResponseError: a broker refused.
        """
        await create_topic(self._client, key, self._names.wrap(new_topic), queue_num, topic_sys_flag)


def check_callback(callback: object) -> None:
    """:raises ClientError: it cannot be called."""
    if callback is not None and not callable(callback):
        raise WrongType(f"the callback is {shown(callback)}: give a function, which is called with the future")


def _broker_of(recall_handle: str) -> str:
    """The broker's name in a handle, which is base64 of ``v1 topic brokerName deliverTimestampMs uniqueKey``."""
    check_word(recall_handle, "recall_handle")
    try:
        _, _, name, _, _ = base64.urlsafe_b64decode(recall_handle).decode().split(" ")
    except (ValueError, TypeError):
        raise ClientError(
            f"{shown(recall_handle)} is no recall handle: take recall_handle of a send's result"
        ) from None
    return name
