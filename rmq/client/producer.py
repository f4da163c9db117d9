"""The producer (Java: DefaultMQProducer)."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, Unpack

from rmq.client.accumulator import Accumulator
from rmq.client.attempts import AskRoute, AskWhy, Attempts, Call, Done, Outcome, Pause, Send, Step
from rmq.client.checks import check_queue, check_text, check_topic, check_word, seconds, typed
from rmq.client.fault import LatencyFault
from rmq.client.identity import message_ids
from rmq.client.instance import ClientInstance, connect_instance
from rmq.client.lookup import Lookups
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.requests import Requests
from rmq.client.results import SendResult
from rmq.client.selectors import MessageQueueSelector
from rmq.client.sending import PreparedSend, SendEncoder, next_opaque, weight
from rmq.client.settings import Duration, ProducerOptions, ProducerSettings, lists_options
from rmq.client.topics import create_topic
from rmq.client.trace import hooks_of, inner_group, inner_options
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ClientError,
    ConnectFailed,
    RequestTimeout,
    ResponseError,
    RMQError,
    TooManyRequests,
    TransportError,
    WrongType,
)
from rmq.protocol.headers.message import RecallMessageRequest, RecallMessageResponse
from rmq.remoting.calls import Done as Answered
from rmq.runtime.aside import logger
from rmq.runtime.window import Window
from rmq.runtime.world import World

__all__ = ["Producer"]

log = logger(__name__)

T = TypeVar("T")

#: Bytes that a connection may gather before oneway sends let it write them.
_WRITE_FIRST = 1 << 20

#: What a send without a selector may be given: one message, or several of one topic for a batch.
Sendable = Message | MessageExt | Sequence[Message | MessageExt]


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
        self.settings: ProducerSettings = self._kind.of(options)
        for topic in self.settings.topics:
            check_topic(topic)
        self._names = Namespace(self.settings.namespace)
        group = self._names.group(group, "DEFAULT_PRODUCER")
        self.group: str = group
        self.world: World = world or World.around()
        self._faults: LatencyFault = LatencyFault(self.settings.send_latency_fault_enable)
        ids = message_ids(self.world, self.settings)
        self._trace, self._hooks = hooks_of(group, self.settings, self.world)
        stamp = self._hooks.stamped if self._hooks.stamps else None
        self._encoder = SendEncoder(group, self.settings, ids, self.world.clock.now_ms, stamp)
        #: Encoding calls functions of the application's that may take their time.
        self._waits = self._hooks.stamps and not self._hooks.quick
        self._window = send_window(f"the producer {group}", self.settings, self.world)
        self._instance: ClientInstance | None = None
        self._stopped = False
        self._under_way: set[asyncio.Task[Any]] = set()
        self._requests = Requests(self)
        self._accumulator: Accumulator | None = None
        if self.settings.auto_batch:
            self._accumulator = Accumulator(
                self._encoder, self.settings, self._send_joined, lambda task: self._keep(task, None)
            )
        self._options = options

    def _renew(self) -> Producer:
        """The same producer, not started: for a forked child."""
        return Producer(self.group, **self._options)

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> ClientInstance:
        """:raises ClientError: the producer is not started."""
        if self._instance is None:
            raise ClientError(
                f"the producer {self.group} is shut down"
                if self._stopped
                else f"the producer {self.group} is not started: use it with 'with', or call start()"
            )
        return self._instance

    async def start(self) -> None:
        """Join the client instance; asks no broker yet, and name servers for ``topics``. Again it does nothing.

        :raises ClientError: no name server is known, or the group has a producer in this client already.
        """
        if self._instance is not None:
            return
        instance = connect_instance(self.world, self.settings)
        instance.add_producer(self.group)
        try:
            await instance.acquire()
        except BaseException:
            instance.producers.discard(self.group)
            raise
        self._stopped = False
        self._instance = instance
        if self._trace is not None:
            inner = inner_options(self.settings)
            self._trace.tracer.start(Producer(inner_group(self.group, "PRODUCE"), world=self.world, **inner))
        for topic in self.settings.topics:
            try:
                await instance.refresh_route(self._names.wrap(topic), self.settings.mq_client_api_timeout)
            except RMQError as error:
                log.warning("the route of %s is asked for again: %s", topic, error)

    async def shutdown(self) -> None:
        """Wait for the asynchronous sends and requests under way (each has its own timeout), leave, close the
        connections."""
        try:
            if self._accumulator is not None:
                self._accumulator.end()
            if self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            self._requests.end()
            instance, self._instance = self._instance, None
            if instance is not None:
                self._stopped = True
                if self._trace is not None:
                    await self._trace.tracer.stop()
                await instance.leave(producer=self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # -- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Sendable,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send one message, or several of one topic as a batch, and wait until it is stored.

        Without ``queue`` and ``selector`` the queues take turns, and a broker that fails is left for another one. Of
        many calls at once so many are under way as ``back_pressure_for_async_send_num`` and ``..._size`` say; the rest
        wait for their turn.

        :param queue: send to this queue only. :param selector: picks the queue: ``selector(queues, message, arg)``, in
            your own coroutine: it must not wait.
        :param timeout: for the whole send, retries included, from when its turn has come; ``send_msg_timeout`` by
            default.
        :raises ClientError: the message cannot be sent as it is; nothing was sent.
        :raises TooManyRequests: its turn did not come, because nothing before it was answered for ``timeout``; nothing
            was sent.
        :raises ResponseError: the broker refused it (the last one tried, when several were).
        :raises TransportError: no broker answered; with RequestTimeout and ConnectionLost it may have been stored.
        """
        timeout = self._limit(timeout)
        self._client  # noqa: B018 - raises when not started
        size = weight(message)
        if not self._window.take(size):  # of those who wait here there may be very many: this frame is kept small
            place = self._window.turn(size, timeout)
            try:
                await place
            except asyncio.CancelledError:
                self._window.give_up(place)
                raise
        return await self._send_now(message, queue, selector, arg, timeout, size)

    def send_async(
        self,
        message: Sendable,
        callback: Callable[[asyncio.Future[SendResult]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send without waiting: a future of the result.

        :param callback: called with the future when it is done.
        :raises ClientError: the message cannot be sent as it is.
        """
        self._client  # noqa: B018 - raises when not started
        check_callback(callback)
        if queue is not None:
            check_queue(queue)
        if self._joins(message, selector):
            sending = self.send(message, queue=queue, timeout=timeout)
        else:
            retries = self.settings.retry_times_when_send_async_failed
            send = message if self._waits else self._prepare(message)
            sending = self._send_prepared(send, queue, selector, arg, self._limit(timeout), retries)
        task = asyncio.get_running_loop().create_task(sending, name="send")
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
    ) -> None:
        """Send one message and wait for nothing: it may be lost without a word. For logs and the like.

        :raises TooManyRequests: its turn did not come, or the broker takes nothing; nothing was sent.
        """
        if not isinstance(message, (Message, MessageExt)):
            raise WrongType(f"send_oneway takes a Message, not {type(message).__name__}")
        self._client  # noqa: B018 - raises when not started
        size, limit = weight(message), self.settings.send_msg_timeout
        await self._its_turn(size, limit)
        try:
            await self._send_away(message, queue, selector, arg, limit)
        finally:
            # Whoever comes next waits for the connection, too: that something left is as good as an answer.
            self._window.leave(size, answered=True)

    async def _send_away(
        self,
        message: Message | MessageExt,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        limit: float,
    ) -> None:
        send = await self._encoded(lambda: self._encoder.prepare(message), limit)
        attempts = self._attempts(send, queue, selector, arg, limit)
        step = await self._until_it_leaves(attempts, await self._begin(attempts))
        if isinstance(step, Done):
            step.result()  # raises: nothing was sent that could have one
            return
        instance = self._client
        address = step.address
        try:
            conn = await instance.remoting.connection(address)
            if conn.out_bytes > _WRITE_FIRST:
                conn.flush()
            if conn.writing_paused and not await conn.takes_again(limit):
                raise TooManyRequests(f"{address}: has taken nothing for {limit:g} s: the message was not sent")
            data = self._encoder.frame(send, step.queue, next_opaque(), oneway=True)
            if instance.remoting.hooks or instance.remoting.signer is not None:
                await instance.remoting.oneway(address, frame.decode(memoryview(data)[4:]), limit)
            else:
                conn.oneway_frame(data)
        except Exception as error:
            await self._left(attempts, error)
            raise
        await self._left(attempts)

    async def _left(self, attempts: Attempts, error: Exception | None = None) -> None:
        """A oneway send has left, or has not."""
        if (call := attempts.left(error, self.world.clock.monotonic())) is not None:
            await self._called(call)

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
            raise WrongType(f"split takes several messages, not {messages!r:.60}")
        if oversize is not None and not isinstance(oversize, list):
            raise WrongType(f"oversize is {oversize!r:.60}: give a list, to which messages that are too big are added")
        return self._encoder.split(messages, limit, oversize)

    # -- the engine; the blocking producer uses these, too -----------------------------------------------------------

    def _prepare(self, message: Sendable) -> PreparedSend:
        """Check and encode; runs on any thread."""
        if isinstance(message, (Message, MessageExt)):
            return self._encoder.prepare(message)
        batch = list(message) if isinstance(message, Iterable) else []
        if not all(isinstance(one, (Message, MessageExt)) for one in batch) or not isinstance(message, Iterable):
            raise WrongType(f"send takes a Message or a list of them, not {message!r:.60}")
        return self._encoder.prepare_batch(batch)

    async def _encoded(self, encode: Callable[[], T], limit: float) -> T:
        """What ``encode`` makes of a message, with what hooks let go along."""
        if self._waits:
            what = f"a hook of the producer {self.group}"
            return await self._client.application.call(encode, max(0.001, limit / 2), what)
        return encode()

    def _limit(self, timeout: Duration | None) -> float:
        return self.settings.send_msg_timeout if timeout is None else seconds(timeout)

    def _attempts(
        self,
        send: PreparedSend,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        timeout: float,
        retries: int | None = None,
    ) -> Attempts:
        """All attempts of one send, to be made. Any thread."""
        if selector is not None and not callable(selector):
            raise WrongType(f"the selector is {selector!r:.60}: give a function of the queues, the message and arg")
        if self.settings.namespace:
            if queue is not None:
                check_queue(queue)
            queue, selector = self._names.wrap_queue(queue), self._names.selector(selector)
        return Attempts(
            send,
            self._client.routes,
            self._faults,
            self.settings,
            timeout,
            queue=queue,
            selector=selector,
            arg=arg,
            retries=retries,
            hooks=self._hooks if self._hooks.sends else None,
        )

    async def _send_prepared(
        self,
        send: Sendable | PreparedSend,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        timeout: float,
        retries: int | None = None,
    ) -> SendResult:
        """Send it in its turn."""
        size = weight(send)
        await self._its_turn(size, timeout)
        return await self._send_now(send, queue, selector, arg, timeout, size, retries)

    async def _send_now(
        self,
        message: Sendable | PreparedSend,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
        timeout: float,
        size: int,
        retries: int | None = None,
    ) -> SendResult:
        """Its turn has come; at the end its place of ``size`` KiB is given back."""
        answered = False
        try:
            if self._accumulator is not None and self._accumulator.takes(message, selector):
                one = message
                assert isinstance(one, (Message, MessageExt))
                item = await self._encoded(lambda: self._encoder.prepare_item(one), timeout)
                try:
                    result = await self._accumulator.send(item, queue, timeout)
                except ResponseError:
                    answered = True
                    raise
                answered = True
                return result
            if isinstance(message, PreparedSend):
                send = message
            elif self._waits:
                given = message
                send = await self._encoded(lambda: self._prepare(given), timeout)
            else:
                send = self._prepare(message)
            attempts = self._attempts(send, queue, selector, arg, timeout, retries)
            done = await self._go_on(attempts, await self._begin(attempts))
            answered = done.answered
            return done.result()
        finally:
            self._window.leave(size, answered=answered)

    def _joins(self, message: object, selector: MessageQueueSelector | None) -> bool:
        """Whether a send goes into a batch with others. :raises ClientError: it can never be sent."""
        if self._accumulator is None or not self._accumulator.takes(message, selector):
            return False
        assert isinstance(message, (Message, MessageExt))
        self._encoder.item_size(message)
        return True

    async def _send_joined(self, send: PreparedSend, queue: MessageQueue | None, timeout: float) -> SendResult:
        """A batch of sends that each have had their turn."""
        attempts = self._attempts(send, queue, None, None, timeout)
        return (await self._go_on(attempts, await self._begin(attempts))).result()

    async def _its_turn(self, size: int, timeout: float) -> None:
        """Take a place in the window, and wait for it where there is none."""
        window = self._window
        if window.take(size):
            return
        place = window.turn(size, timeout)
        try:
            await place
        except asyncio.CancelledError:
            window.give_up(place)
            raise

    async def _begin(self, attempts: Attempts) -> Step:
        """The first step."""
        clock = self.world.clock
        step = attempts.first(clock.monotonic())
        if isinstance(step, AskRoute):
            # Many that come together may take the loop longer than a name server: their time begins behind that.
            await asyncio.sleep(0)
            attempts.begin(clock.monotonic())
        return step

    async def _go_on(self, attempts: Attempts, step: Step) -> Done:
        """Make the attempts from this step on."""
        send, clock = attempts.send, self.world.clock
        while not isinstance(step, Done):
            if not isinstance(step, Send):
                step = await self._until_it_leaves(attempts, step)
                continue
            instance = self._client
            opaque = next_opaque()
            data = self._encoder.frame(send, step.queue, opaque)
            outcome: Command | Exception
            try:
                outcome = await instance.exchange(step.address, data, opaque, step.seconds)
            except Exception as error:
                outcome = error
            step = attempts.on(outcome, clock.monotonic())
        return step

    async def _until_it_leaves(self, attempts: Attempts, step: Step) -> Send | Done:
        """Ask and wait for what the attempts need to know before the next one."""
        topic, clock = attempts.send.topic, self.world.clock
        while not isinstance(step, (Send, Done)):
            outcome: Outcome = None
            if isinstance(step, Call):
                outcome = await self._called(step)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, AskWhy):
                outcome = await self._why_no_queue(topic, step.seconds)
            else:
                try:
                    await self._client.refresh_route(topic, step.seconds, step.template)
                except RMQError as error:
                    log.debug("route of %s: %s", topic, error)
                    outcome = error
            step = attempts.on(outcome, clock.monotonic())
        return step

    async def _called(self, call: Call) -> Outcome:
        """What a function of the application's gives, or why it gave nothing."""
        if call.own and not self._shares_loop:
            return call.in_place()
        try:
            return await self._client.application.call(call.in_place, call.seconds, call.what)
        except RequestTimeout as error:
            log.warning("group %s: %s", self.group, error)
            return error
        except RMQError as error:
            return error

    def _submission(
        self, attempts: Attempts, sent: Send, then: Callable[[Step], object]
    ) -> tuple[str, bytes, int, float, Answered]:
        """What :meth:`ClientInstance.submit` is given for an attempt without a task. Any thread.

        :param then: told the step after it, on the loop.
        """
        opaque = next_opaque()
        clock = self.world.clock

        def ended(outcome: Command | Exception) -> None:
            then(attempts.on(outcome, clock.monotonic()))

        return sent.address, self._encoder.frame(attempts.send, sent.queue, opaque), opaque, sent.seconds, ended

    async def _why_no_queue(self, topic: str, seconds: float) -> RMQError:
        """What is the matter with a topic that has no queue to send to: it may be there in a moment, or never."""
        instance = self._client
        servers = ";".join(instance.name_servers.addresses)
        if away := instance.routes.masters_away(topic):
            return ConnectFailed(
                f"the topic {topic} takes no message now: {', '.join(away)} {'has' if len(away) == 1 else 'have'} no "
                "master, and slaves take none"
            )
        try:
            info = await instance.name_servers.cluster_info(seconds)
            knows_none = not info.broker_addr_table
        except TransportError as error:
            return error
        except ResponseError:  # it does not say
            knows_none = False
        if knows_none:
            return ConnectFailed(
                f"the topic {topic} is not known to {servers}, and no broker is: a name server that has just been "
                "started knows them within 30 s"
            )
        return ClientError(
            f"the topic {topic} has no queue to send to: no broker known to {servers} has it for writing, "
            "and none creates topics by itself (autoCreateTopicEnable): create it with mqadmin updateTopic"
        )

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
        limit = self.settings.send_msg_timeout
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


def send_window(what: str, settings: ProducerSettings, world: World) -> Window:
    """The bound on the sends that a producer has under way."""
    if not settings.enable_backpressure_for_async_mode:
        return Window(sys.maxsize, sys.maxsize, world.clock, what)
    most, most_bytes = settings.back_pressure_for_async_send_num, settings.back_pressure_for_async_send_size
    return Window(most, most_bytes >> 10, world.clock, what)


def check_callback(callback: object) -> None:
    """:raises ClientError: it cannot be called."""
    if callback is not None and not callable(callback):
        raise WrongType(f"the callback is {callback!r}: give a function, which is called with the future")


def _broker_of(recall_handle: str) -> str:
    """The broker's name in a handle, which is base64 of ``v1 topic brokerName deliverTimestampMs uniqueKey``."""
    check_word(recall_handle, "recall_handle")
    try:
        _, _, name, _, _ = base64.urlsafe_b64decode(recall_handle).decode().split(" ")
    except (ValueError, TypeError):
        raise ClientError(f"{recall_handle!r} is no recall handle: take recall_handle of a send's result") from None
    return name
