"""OpenMessaging 0.3: an access point that makes producers, push and pull consumers (Java: rocketmq-openmessaging).

::

    from rmq.integrations.openmessaging import messaging_access_point

    place = messaging_access_point("oms:rocketmq://127.0.0.1:9876/default")
    with place.create_producer() as producer:
        producer.send(producer.create_bytes_message("TopicTest", b"hello"))

    with place.create_pull_consumer({"rmq.consumer.group": "readers"}) as consumer:
        consumer.attach_queue("TopicTest")
        message = consumer.receive()
        if message is not None:
            consumer.ack(message.sys_headers["MESSAGE_ID"])

It is the interface of ``io.openmessaging`` in Python's names. What Java's implementation for RocketMQ leaves out is
left out here: streaming consumers, resource manager, transactional and batch senders, interceptors. Errors are those of
the SDK.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Self, TypeVar

import rmq
from rmq.client.checks import check_text, check_word
from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.message import Message, MessageExt, body_bytes
from rmq.client.results import ConsumeResult, SendResult, SendStatus
from rmq.client.settings import ConsumeFromWhere
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ClientError, ResponseError, WrongType
from rmq.protocol.numbers import whole
from rmq.runtime import patience
from rmq.runtime.pool import on_pool
from rmq.runtime.world import World

__all__ = [
    "BUILTIN_KEYS",
    "BytesMessage",
    "Header",
    "MessageContext",
    "MessagingAccessPoint",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SentMessage",
    "messaging_access_point",
]

#: What a header may be.
Header = str | int | float
Attributes = Mapping[str, Header]
T = TypeVar("T")

_URL = re.compile(r"oms:(?P<driver>[^:/]+)://(?:(?P<account>[^@/]+)@)?(?P<hosts>[^@/]+)/(?P<region>.+)")
#: The names of headers that are the system's; every other one is a user's.
BUILTIN_KEYS = frozenset({
    "MESSAGE_ID", "DESTINATION", "RECEIPT_HANDLE", "BORN_TIMESTAMP", "BORN_HOST", "STORE_TIMESTAMP", "STORE_HOST",
    "START_TIME", "STOP_TIME", "TIMEOUT", "PRIORITY", "RELIABILITY", "SEARCH_KEYS", "SCHEDULE_EXPRESSION", "TRACE_ID",
    "STREAM_KEY", "REDELIVERED_NUMBER", "REDELIVERED_REASON",
})  # fmt: skip
#: Attributes with their defaults: milliseconds, minutes for the consume timeout.
_DEFAULTS: dict[str, Header] = {
    "DRIVER_IMPL": "rmq.integrations.openmessaging",
    "ACCESS_POINTS": "",
    "ACCOUNT_ID": "",
    "REGION": "",
    "NAMESPACE": "",
    "CONSUMER_ID": "",
    "OPERATION_TIMEOUT": 5000,
    "rmq.producer.group": "__OMS_PRODUCER_DEFAULT_GROUP",
    "rmq.consumer.group": "",
    "rmq.max.redelivery.times": 16,
    "rmq.message.consume.timeout": 15,
    "rmq.max.consume.thread.nums": 64,
    "rmq.min.consume.thread.nums": 20,
    "rmq.pull.message.batch.nums": 32,
    "rmq.pull.message.cache.capacity": 1000,
}
#: Java sends what was not acknowledged in time back with this level.
_EXPIRED_LEVEL = 3


def messaging_access_point(
    url: str, attributes: Attributes | None = None, *, world: World | None = None
) -> MessagingAccessPoint:
    """Where messages are sent to and come from (Java: OMS.getMessagingAccessPoint).

    :param url: ``oms:rocketmq://account@host:port,host:port/region``: the name servers. Account and region are kept as
        attributes, and have no effect.
    :param attributes: of all that it makes; a ``NAMESPACE`` is RocketMQ's.
    :raises ClientError: the URL or an attribute cannot be used.
    """
    check_word(url, "the URL of the access point")
    found = _URL.fullmatch(url)
    if found is None or found["driver"] != "rocketmq":
        raise ClientError(f"the access point is {url!r:.80}: give oms:rocketmq://host:port,host:port/region")
    own = {"ACCESS_POINTS": found["hosts"], "ACCOUNT_ID": found["account"] or "", "REGION": found["region"]}
    return MessagingAccessPoint({**_checked(attributes), **own}, world)


def _checked(attributes: Attributes | None) -> dict[str, Header]:
    """:raises ClientError: an attribute that does not exist, or whose value is of another type."""
    given = dict(attributes or {})
    for name, value in given.items():
        if name not in _DEFAULTS:
            near = get_close_matches(str(name), _DEFAULTS, 1)
            raise ClientError(f"no attribute {name!r:.60}" + (f": did you mean {near[0]}?" if near else ""))
        if isinstance(_DEFAULTS[name], str):
            check_word(value, name)
        elif (number := whole(str(value), least=0)) is None or isinstance(value, bool):
            raise WrongType(f"{name} is {value!r:.60}: give a whole number")
        else:
            given[name] = number
    return given


class MessagingAccessPoint:
    """Makes producers and consumers; see :func:`messaging_access_point`."""

    impl_version = "0.3.0"

    def __init__(self, attributes: Mapping[str, Header], world: World | None = None) -> None:
        self.attributes: dict[str, Header] = dict(attributes)
        self._world = world

    def create_producer(self, attributes: Attributes | None = None) -> Producer:
        """:raises ClientError: an attribute cannot be used."""
        return Producer({**self.attributes, **_checked(attributes)}, self._world)

    def create_push_consumer(self, attributes: Attributes | None = None) -> PushConsumer:
        """:param attributes: with the group as ``rmq.consumer.group`` or ``CONSUMER_ID``.

        :raises ClientError: an attribute cannot be used, or there is no group.
        """
        return PushConsumer({**self.attributes, **_checked(attributes)}, self._world)

    def create_pull_consumer(self, attributes: Attributes | None = None) -> PullConsumer:
        """:param attributes: with the group as ``rmq.consumer.group`` or ``CONSUMER_ID``.

        :raises ClientError: an attribute cannot be used, or there is no group.
        """
        return PullConsumer({**self.attributes, **_checked(attributes)}, self._world)


@dataclass(slots=True)
class BytesMessage:
    """A message: a body and headers, the system's (:data:`BUILTIN_KEYS`) and the user's.

    ``DESTINATION`` is the topic. ``SEARCH_KEYS`` are what queries find it by, ``START_TIME`` (ms) is when it is to be
    delivered. A message that came has besides: MESSAGE_ID, BORN_HOST, BORN_TIMESTAMP, STORE_HOST, STORE_TIMESTAMP,
    REDELIVERED_NUMBER.
    """

    body: bytes
    sys_headers: dict[str, Header] = field(default_factory=dict)
    user_headers: dict[str, Header] = field(default_factory=dict)

    def put_sys_headers(self, name: str, value: Header) -> BytesMessage:
        """:raises ClientError: the system has no such header."""
        if name not in BUILTIN_KEYS:
            near = get_close_matches(name, BUILTIN_KEYS, 1)
            raise ClientError(f"no header {name!r:.60} of the system" + (f": did you mean {near[0]}?" if near else ""))
        self.sys_headers[name] = value
        return self

    def put_user_headers(self, name: str, value: Header) -> BytesMessage:
        """A header of the application's own."""
        self.user_headers[name] = value
        return self


@dataclass(frozen=True, slots=True)
class SentMessage:
    """What came of a send (OpenMessaging: SendResult)."""

    message_id: str


def _to_rocketmq(message: BytesMessage) -> Message:
    """:raises ClientError: it is no message that can be sent."""
    if not isinstance(message, BytesMessage):
        raise WrongType(f"a message is what create_bytes_message() makes, not {type(message).__name__}")
    headers = message.sys_headers
    start = whole(str(headers.get("START_TIME", 0)))
    if start is None:
        raise ClientError(f"START_TIME is {headers['START_TIME']!r:.40}: give milliseconds since 1970")
    keys = headers.get("SEARCH_KEYS")
    return Message(
        check_text(headers.get("DESTINATION")),
        message.body,
        keys=None if keys is None else str(keys),
        deliver_at=datetime.fromtimestamp(start / 1000, UTC) if start else None,
        # As Java stores them: the system's over the user's.
        properties={name: str(value) for name, value in {**message.user_headers, **headers}.items()},
    )


def _from_rocketmq(message: MessageExt) -> BytesMessage:
    made = BytesMessage(message.body)
    for name, value in message.properties.items():
        (made.sys_headers if name in BUILTIN_KEYS else made.user_headers)[name] = value
    made.sys_headers.setdefault("DESTINATION", message.topic)
    made.sys_headers.update(
        MESSAGE_ID=message.msg_id,
        BORN_HOST="{}:{}".format(*message.born_host),
        BORN_TIMESTAMP=message.born_timestamp,
        STORE_HOST="{}:{}".format(*message.store_host),
        STORE_TIMESTAMP=message.store_timestamp,
        REDELIVERED_NUMBER=message.reconsume_times,
    )
    if message.keys:
        made.sys_headers["SEARCH_KEYS"] = message.keys
    return made


class _Lifecycle:
    """What all of them are: started, used, ended."""

    def __init__(self, attributes: Mapping[str, Header], client: rmq.Producer | rmq.PushConsumer) -> None:
        self.attributes: dict[str, Header] = dict(attributes)
        self._life = client

    def startup(self) -> None:
        """Begin; see the SDK's client for what it raises."""
        self._life.start()

    def shutdown(self) -> None:
        """End."""
        self._life.shutdown()

    def __enter__(self) -> Self:
        self.startup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _number(attributes: Mapping[str, Header], name: str) -> int:
    return int(attributes.get(name, _DEFAULTS[name]))


def _where(attributes: Mapping[str, Header]) -> dict[str, Any]:
    """The SDK's options that every client has."""
    found: dict[str, Any] = {"namesrv": str(attributes["ACCESS_POINTS"]).replace(",", ";")}
    if namespace := attributes.get("NAMESPACE"):
        found["namespace"] = namespace
    return found


class Producer(_Lifecycle):
    """Sends messages (Java: io.openmessaging.producer.Producer); any thread may use it."""

    def __init__(self, attributes: Mapping[str, Header], world: World | None = None) -> None:
        self._producer = rmq.Producer(
            str(attributes.get("rmq.producer.group", _DEFAULTS["rmq.producer.group"])),
            world=world,
            send_msg_timeout=_number(attributes, "OPERATION_TIMEOUT") / 1000,
            **_where(attributes),
        )
        super().__init__(attributes, self._producer)

    def create_bytes_message(self, queue: str, body: bytes | bytearray | memoryview | str) -> BytesMessage:
        """:param queue: where it goes: a topic. :raises ClientError: no topic may have that name."""
        Message(queue, body)
        return BytesMessage(body_bytes(body), {"DESTINATION": queue})

    def send(self, message: BytesMessage, attributes: Attributes | None = None) -> SentMessage:
        """Send and wait until it is stored.

        :param attributes: an ``OPERATION_TIMEOUT`` (ms) of this send alone.
        :raises ResponseError: a broker refused it, or stored it less safely than it is set to. :raises TransportError:
            no answer.
        """
        return _sent(message, self._producer.send(_to_rocketmq(message), timeout=self._timeout(attributes)))

    def send_async(self, message: BytesMessage, attributes: Attributes | None = None) -> Future[SentMessage]:
        """The same behind the caller: the future has the result, or what :meth:`send` would have raised."""
        future: Future[SentMessage] = Future()
        future.set_running_or_notify_cancel()

        def done(sent: Future[SendResult]) -> None:
            try:
                future.set_result(_sent(message, sent.result()))
            except BaseException as error:
                future.set_exception(error)

        self._producer.send_async(_to_rocketmq(message), timeout=self._timeout(attributes)).add_done_callback(done)
        return future

    def send_oneway(self, message: BytesMessage, attributes: Attributes | None = None) -> None:
        """Send without an answer: it may be lost."""
        _checked(attributes)
        self._producer.send_oneway(_to_rocketmq(message))

    def _timeout(self, attributes: Attributes | None) -> float | None:
        given = _checked(attributes).get("OPERATION_TIMEOUT")
        return None if given is None else int(given) / 1000


def _sent(message: BytesMessage, result: SendResult) -> SentMessage:
    if result.send_status is not SendStatus.SEND_OK:
        raise ResponseError(ResponseCode[result.send_status.name], "stored, but not as safely as the broker is set to")
    message.sys_headers["MESSAGE_ID"] = result.msg_id
    return SentMessage(result.msg_id)


class MessageContext:
    """Of one call of a listener (OpenMessaging: MessageListener.Context)."""

    def __init__(self) -> None:
        self.attributes: dict[str, Header] = {"rmq.message.consume.status": ConsumeResult.RECONSUME_LATER.name}
        self._acknowledged: Future[None] = Future()

    def ack(self) -> None:
        """The message is done; may be said later, by any thread, within ``rmq.message.consume.timeout``."""
        if not self._acknowledged.done():
            self.attributes["rmq.message.consume.status"] = "CONSUME_SUCCESS"
            self._acknowledged.set_result(None)


Listener = Callable[[BytesMessage, MessageContext], object]


class _Consumer(_Lifecycle):
    """What consumers of both kinds have in common.

    :param threads: messages at a time that are handed out and not acknowledged.
    """

    def __init__(self, attributes: Mapping[str, Header], world: World | None, threads: int, **options: Any) -> None:
        # Java documents the first, and takes the second.
        group = str(attributes.get("rmq.consumer.group") or attributes.get("CONSUMER_ID") or "")
        if not group:
            raise ClientError("a consumer needs its group: give the attribute rmq.consumer.group or CONSUMER_ID")
        #: Seconds for an acknowledgement.
        self._timeout = 60.0 * _number(attributes, "rmq.message.consume.timeout")
        self._consumer = rmq.PushConsumer(
            group,
            world=world,
            consume_thread_max=threads,
            consume_timeout=2 * self._timeout,  # ours comes first
            max_reconsume_times=_number(attributes, "rmq.max.redelivery.times"),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **_where(attributes),
            **options,
        )
        super().__init__(attributes, self._consumer)
        #: It is started when it has a queue: a consumer of RocketMQ subscribes something.
        self._due = self._attached = False

    def startup(self) -> None:
        """Begin to get messages, or with the first queue that is attached; see the SDK for what it raises."""
        self._due = True
        if self._attached:
            super().startup()

    def shutdown(self) -> None:
        """End. What is not acknowledged comes again, to whoever reads its queues then."""
        self._due = False
        super().shutdown()

    def _attach(self, queue: str, handle: Callable[..., Awaitable[ConsumeResult]]) -> Self:
        self._consumer.on(queue)(handle)
        self._attached = True
        if self._due:
            super().startup()
        return self

    def detach_queue(self, queue: str) -> Self:
        """Get nothing more of a topic."""
        self._consumer.unsubscribe(queue)
        return self


class PushConsumer(_Consumer):
    """Hands messages to listeners, on threads (Java: io.openmessaging.consumer.PushConsumer)."""

    def __init__(self, attributes: Mapping[str, Header], world: World | None = None) -> None:
        most = _number(attributes, "rmq.max.consume.thread.nums")
        least = min(most, _number(attributes, "rmq.min.consume.thread.nums"))
        super().__init__(attributes, world, most, consume_thread_min=least)
        self._suspended = False

    def attach_queue(self, queue: str, listener: Listener) -> Self:
        """Have a topic's messages go to a function.

        :param listener: is told the message and its context, and says ``context.ack()``. One that raises, or does not
            say it within ``rmq.message.consume.timeout`` (15 min), gets the message again, as one that failed. A plain
            function runs on a thread, a coroutine function on the loop.
        :raises ClientError: the topic has a listener already, or cannot be used.
        """
        if not callable(listener):
            raise WrongType(f"the listener is {listener!r:.60}: give a function of a message and its context")

        async def handle(message: MessageExt) -> ConsumeResult:
            context, shown = MessageContext(), _from_rocketmq(message)
            if inspect.iscoroutinefunction(listener):
                await listener(shown, context)
            else:
                await on_pool(self._consumer._client._joined.pool, lambda: listener(shown, context))
            try:
                async with patience.timeout(self._timeout):
                    await asyncio.wrap_future(context._acknowledged)
            except TimeoutError:
                return ConsumeResult.RECONSUME_LATER
            return ConsumeResult.SUCCESS

        return self._attach(queue, handle)

    def suspend(self) -> None:
        """Get nothing more until :meth:`resume`; what is here already goes to listeners."""
        self._suspended = True
        self._consumer.suspend()

    def resume(self) -> None:
        """Go on."""
        self._suspended = False
        self._consumer.resume()

    def is_suspended(self) -> bool:
        """Whether it was told to :meth:`suspend`."""
        return self._suspended


class PullConsumer(_Consumer):
    """Gives messages to whoever asks, each to be acknowledged by its id (Java: io.openmessaging.consumer.PullConsumer).

    Up to ``rmq.pull.message.cache.capacity`` messages (1,000 at most) are here and not acknowledged. One that is not
    acknowledged within ``rmq.message.consume.timeout`` (15 min) comes again, as one that failed.
    """

    def __init__(self, attributes: Mapping[str, Header], world: World | None = None) -> None:
        capacity = max(1, min(1000, _number(attributes, "rmq.pull.message.cache.capacity")))
        batch = max(1, min(1024, _number(attributes, "rmq.pull.message.batch.nums")))
        super().__init__(
            attributes, world, capacity, pull_batch_size=batch, pull_threshold_for_queue=capacity,
            await_termination_when_shutdown=0.0,
        )  # fmt: skip
        #: On the loop: what nobody has received yet, and what waits for its acknowledgement, by message id.
        self._here: dict[str, MessageExt] = {}
        self._open: dict[str, asyncio.Future[None]] = {}
        self._arrived = asyncio.Event()

    def attach_queue(self, queue: str) -> Self:
        """Get a topic's messages, too. :raises ClientError: it is attached already, or cannot be used."""
        return self._attach(queue, self._hold)

    async def _hold(self, message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        """A message is consumed when it is acknowledged."""
        name = message.msg_id
        self._here[name] = message
        mine = self._open[name] = asyncio.get_running_loop().create_future()
        self._arrived.set()
        try:
            async with patience.timeout(self._timeout):
                await mine
            return ConsumeResult.SUCCESS
        except TimeoutError:
            context.delay_level_when_next_consume = _EXPIRED_LEVEL
            return ConsumeResult.RECONSUME_LATER
        finally:
            if self._open.get(name) is mine:
                del self._open[name]
                self._here.pop(name, None)

    def receive(self, attributes: Attributes | None = None) -> BytesMessage | None:
        """The next message; None: there is none within the ``OPERATION_TIMEOUT`` (ms; 5 s).

        :raises ClientError: the consumer is not started.
        """
        given = _checked(attributes).get("OPERATION_TIMEOUT", _number(self.attributes, "OPERATION_TIMEOUT"))
        return self._there(self._receive(int(given) / 1000))

    async def _receive(self, seconds: float) -> BytesMessage | None:
        try:
            async with patience.timeout(seconds):
                while not self._here:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None
        return _from_rocketmq(self._here.pop(next(iter(self._here))))

    def ack(self, message_id: str) -> None:
        """A message that was received is done.

        One that waits for no acknowledgement is let be: its time may be over, and it comes again.

        :param message_id: its ``MESSAGE_ID``.
        :raises ClientError: the consumer is not started.
        """
        check_word(message_id, "the id of a message")

        async def there() -> None:
            future = self._open.get(message_id)
            if future is not None and message_id not in self._here and not future.done():
                future.set_result(None)

        self._there(there())

    def _there(self, coro: Awaitable[T]) -> T:
        """Run on the consumer's loop."""
        if not self._consumer._started:
            coro.close()  # type: ignore[attr-defined]
            raise ClientError(
                f"the consumer {self._consumer.group} is not started: use it with 'with', and attach a queue"
            )
        return self._consumer._run(coro)  # type: ignore[arg-type]
