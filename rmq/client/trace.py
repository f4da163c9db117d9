"""Message trace: what a client tells of the messages it sends and consumes (Java: AsyncTraceDispatcher and its hooks).

Records are gathered where messages go by, on whatever thread, and sent in batches from the client's loop by a producer
of their own. Whoever sends or consumes never waits for that: what does not fit is dropped, counted and told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from rmq.client.hooks import ConsumeHookContext, EndTransactionHookContext, Hook, Hooks, RequestsAlone, SendHookContext
from rmq.client.identity import message_ids
from rmq.client.message import Message, MessageExt, body_bytes
from rmq.client.namespace import Namespace
from rmq.client.results import ConsumeResult, SendResult, TransactionState
from rmq.client.settings import AccessChannel, ClientOptions, ClientSettings, TracedSettings
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError, TransportError
from rmq.protocol.names import TRACE_DATA_PREFIX, TRACE_TOPIC
from rmq.protocol.properties import MSG_REGION, TRACE_SWITCH
from rmq.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    Recalled,
    Sent,
    TraceRecord,
    TransactionEnded,
    encode,
)
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.pool import Post
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["TraceHook", "TraceProducer", "Tracer", "hooks_of", "inner_group", "inner_options"]

log = logger(__name__)

_REGION = "DefaultRegion"
_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
#: What the hooks keep between the beginning of something and its end.
_KEPT = "rmq.trace"
#: Records that wait at most, and how many let a batch leave before its time. Longer ones, bytes, wait in
#: smaller numbers: 130 MB at most, whatever their messages' keys are.
_WAITING, _MANY = 8_192, 256
_LONG, _LONG_WAITING = 4_096, 1_024
#: Bytes of the records in one trace message, and of the keys it is found by: Java's brokers and tools take so much.
_BODY, _KEYS = 118_000, 30_000
#: Answers that will be another one in a while.
_BUSY = frozenset({int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)})
#: Letters of a client's group in that of its trace's producer.
_GROUP = 200
#: Options of a client that its trace's producer has as well: all but its names, and what is hung into it.
_INNER = ClientOptions.__annotations__.keys() - {"namespace", "instance_name", "hooks"}
#: Seconds that records wait for others; for one trace message; before brokers that are away are tried again.
_WAIT, _TIMEOUT, _PAUSE = 0.5, 5.0, 1.0
#: Seconds that the end of a client waits for what is not sent yet, and between two warnings of what is lost.
_END, _TOLD = 5.0, 60.0


class TraceProducer(Protocol):
    """What sends trace messages."""

    async def start(self) -> None: ...

    async def send(self, message: Message, *, timeout: float | None = None) -> SendResult: ...

    async def shutdown(self) -> None: ...


class _Item(NamedTuple):
    """One record that waits."""

    topic: str
    data: bytes
    #: What it is found by: message id and business keys.
    msg_id: str
    keys: str | None


class Tracer:
    """The records of one client, on their way to the trace topic.

    :param who: the client's group, for the log.
    :param topic: of the records; None: that of their region, as a provider's brokers have it.
    """

    def __init__(self, who: str, topic: str | None, world: World) -> None:
        self._who = who
        self._topic = topic
        self._clock = world.clock
        self._waiting: deque[_Item] = deque()
        self._post: Post | None = None
        self._told_at: float | None = None
        self._untold = 0
        #: Records that a broker has stored, and those dropped: too many waited, or no broker takes them.
        self.sent = 0
        self.lost = 0

    def is_trace(self, topic: str) -> bool:
        """Whether a topic holds traces itself: nobody is told of those."""
        return topic == self._topic if self._topic is not None else topic.startswith(TRACE_DATA_PREFIX)

    def put(self, region: str | None, record: TraceRecord, keys: str | None = None) -> None:
        """Take a record; any thread, never waits.

        :param region: of the broker. :param keys: what its message is found by, besides its id.
        """
        post, waiting = self._post, self._waiting
        if post is None:
            return
        full = len(waiting) >= _WAITING
        data = b"" if full else encode(record).encode("utf-8", "replace")
        if full or (len(data) > _LONG and len(waiting) >= _LONG_WAITING):
            post(self._lose, 1, "more are written than can be sent")
            return
        topic = self._topic or f"{TRACE_DATA_PREFIX}{region or _REGION}"
        waiting.append(_Item(topic, data, record.msg_id, keys))
        if len(waiting) in (1, _MANY):
            post(self._wake)

    # -- life, on the loop --------------------------------------------------------------------------------------------

    def start(self, producer: TraceProducer) -> None:
        """Begin to send."""
        self._producer = producer
        self._some, self._many = asyncio.Event(), asyncio.Event()
        self._tasks = TaskOwner(f"trace of {self._who}")
        self._tasks.serve(self._run(), "sender")
        self._post = Post(asyncio.get_running_loop())

    async def stop(self) -> None:
        """Send what waits, for some seconds at most, and end."""
        if self._post is None:
            return
        self._post = None
        try:
            await self._tasks.close()
            async with patience.timeout(_END):
                await self._empty()
        except TimeoutError:
            log.debug("group %s: no broker took the last trace records within %g s", self._who, _END)
        finally:
            if self._waiting:
                self._lose(len(self._waiting), "the client ended before they could be sent")
                self._waiting.clear()
            await self._producer.shutdown()

    async def forget(self) -> None:
        """The loop is closed: what waits is lost."""
        if self._post is not None:
            self._post = None
            self._waiting.clear()
            await self._producer.shutdown()

    def _wake(self) -> None:
        self._some.set()
        if len(self._waiting) >= _MANY:
            self._many.set()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            try:
                async with patience.timeout(_WAIT):
                    await self._many.wait()
            except TimeoutError:
                log.debug("group %s: %d trace records leave", self._who, len(self._waiting))
            self._some.clear()
            self._many.clear()
            await self._empty()

    async def _empty(self) -> None:
        while self._waiting:
            batch = self._batch()
            try:
                await self._producer.start()
                await self._producer.send(_message(batch), timeout=_TIMEOUT)
            except BaseException as error:
                if isinstance(error, RMQError) and not _passes(error):
                    self._lose(len(batch), str(error))
                    continue
                # They go once more: a broker that is away comes back, and what has not been sent when this client ends
                # is sent by its stop.
                self._waiting.extendleft(reversed(batch))
                if not isinstance(error, RMQError):
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                self.sent += len(batch)

    def _batch(self) -> list[_Item]:
        """The next records of one topic, as many as a message holds."""
        waiting = self._waiting
        batch = [waiting.popleft()]
        size = len(batch[0].data)
        named = _named(batch[0])
        while waiting and waiting[0].topic == batch[0].topic:
            size += len(waiting[0].data)
            named += _named(waiting[0])
            if size > _BODY or named > _KEYS // 4:  # a letter has up to four bytes
                break
            batch.append(waiting.popleft())
        return batch

    def _lose(self, count: int, why: str) -> None:
        """Count what is lost; the log is told once a minute."""
        self.lost += count
        self._untold += count
        now = self._clock.monotonic()
        if count and (self._told_at is None or now - self._told_at >= _TOLD):
            self._told_at = now
            log.warning(
                "group %s: %d records of its message trace are lost, the messages themselves are not: %s; the trace "
                "topic %s has to be there (traceTopicEnable of the brokers) and open to this account",
                self._who, self._untold, why, self._topic or f"{TRACE_DATA_PREFIX}<region>",
            )  # fmt: skip
            self._untold = 0


def _passes(error: RMQError) -> bool:
    """Whether it is a matter of time."""
    return isinstance(error, TransportError) or (isinstance(error, ResponseError) and error.code in _BUSY)


def _named(item: _Item) -> int:
    """Letters of what a record is found by."""
    return len(item.msg_id) + len(item.keys or "") + 2


def _message(batch: Sequence[_Item]) -> Message:
    """The message of a batch. Keys that are too many or too long for it are left out: they find nothing."""
    keys: dict[str, None] = {}
    room = _KEYS
    for item in batch:
        for key in (item.msg_id, *(item.keys or "").split()):
            if key and key not in keys and (room := room - len(key.encode("utf-8", "replace")) - 1) >= 0:
                keys[key] = None
    return Message(batch[0].topic, b"".join([item.data for item in batch]), keys=list(keys))


class TraceHook(Hook):
    """Writes the records of one client's messages.

    :param group: of the client. :param names: its namespace, which records do without.
    :param ids: makes unique ids, which name calls of a listener.
    """

    quick = True

    def __init__(self, tracer: Tracer, group: str, names: Namespace, ids: Callable[[], str], world: World) -> None:
        self.tracer = tracer
        self._group = names.plain(group)
        self._names = names
        self._ids = ids
        self._clock = world.clock

    # -- producers ----------------------------------------------------------------------------------------------------

    def before_send(self, context: SendHookContext) -> None:
        context.data[_KEPT] = (self._clock.now_ms(), self._clock.monotonic())

    def after_send(self, context: SendHookContext) -> None:
        result = context.result
        topic = self._names.plain(context.queue.topic)
        begun = context.data.pop(_KEPT, None)
        if result is None or begun is None or not result.trace_on or self.tracer.is_trace(topic):
            return
        at, start = begun
        messages = context.messages
        cost = self._spent(start, len(messages))
        ids, places = result.msg_id.split(","), result.offset_msg_id.split(",")
        for index, message in enumerate(messages):
            msg_id = ids[index] if index < len(ids) else result.msg_id
            keys = message.keys if type(message.keys) is str else None
            record = Sent(
                at=at,
                region=result.region_id,
                group=self._group,
                topic=topic,
                msg_id=msg_id,
                tags=message.tags,
                keys=keys,
                store_host=context.address,
                body_length=len(message.body if type(message.body) is bytes else body_bytes(message.body)),
                cost=cost,
                kind=MessageKind.HALF if context.half else _kind(message),
                offset_msg_id=places[index] if index < len(places) else result.offset_msg_id,
                ok=result.ok,
            )
            self.tracer.put(result.region_id, record, keys)

    def end_transaction(self, context: EndTransactionHookContext) -> None:
        topic, message = self._names.plain(context.queue.topic), context.message
        if self.tracer.is_trace(topic):
            return
        keys = message.keys if type(message.keys) is str else None
        region = message.properties.get(MSG_REGION, _REGION)
        record = TransactionEnded(
            at=self._clock.now_ms(),
            region=region,
            group=self._group,
            topic=topic,
            msg_id=context.msg_id,
            tags=message.tags,
            keys=keys,
            store_host=context.address,
            kind=MessageKind.COMMIT,
            transaction_id=context.transaction_id,
            state=_STATES[context.state],
            from_check=context.from_check,
        )
        self.tracer.put(region, record, keys)

    def recalled(self, topic: str, msg_id: str) -> None:
        """A message that waited was taken back."""
        topic = self._names.plain(topic)
        if not self.tracer.is_trace(topic):
            record = Recalled(
                at=self._clock.now_ms(), region=_REGION, group=self._group, topic=topic, msg_id=msg_id, ok=True
            )
            self.tracer.put(_REGION, record)

    # -- consumers ----------------------------------------------------------------------------------------------------

    def before_consume(self, context: ConsumeHookContext) -> None:
        traced = [message for message in context.messages if self._is_traced(message)]
        if not traced:
            return
        at, request = self._clock.now_ms(), self._ids()
        context.data[_KEPT] = (request, traced, self._clock.monotonic())
        for message in traced:
            region, keys = message.properties.get(MSG_REGION, _REGION), message.keys
            record = ConsumeBegun(
                at=at,
                region=region,
                group=self._group,
                request=request,
                msg_id=message.msg_id,
                tries=message.reconsume_times,
                keys=keys,
            )
            self.tracer.put(region, record, keys)

    def after_consume(self, context: ConsumeHookContext) -> None:
        request, traced, start = context.data.pop(_KEPT, ("", (), 0.0))
        cost = self._spent(start, len(traced))
        for message in traced:
            failed = any(message is one for one in context.failed)
            ok = context.result is ConsumeResult.SUCCESS and not failed
            outcome = ConsumeOutcome.SUCCESS
            if not ok:
                outcome = ConsumeOutcome.EXCEPTION if context.error is not None else ConsumeOutcome.FAILED
            record = ConsumeEnded(
                request=request,
                msg_id=message.msg_id,
                cost=cost,
                ok=ok,
                keys=message.keys,
                outcome=outcome,
                at=self._clock.now_ms(),
                group=self._group,
            )
            self.tracer.put(message.properties.get(MSG_REGION), record, message.keys)

    def _is_traced(self, message: MessageExt) -> bool:
        return message.properties.get(TRACE_SWITCH) != "false" and not self.tracer.is_trace(message.topic)

    def _spent(self, start: float, count: int) -> int:
        """Milliseconds since, for each of so many."""
        return int((self._clock.monotonic() - start) * 1000 / max(1, count))


def _kind(message: Message | MessageExt) -> MessageKind:
    return MessageKind.DELAY if isinstance(message, Message) and message.waits else MessageKind.NORMAL


def hooks_of(
    group: str, settings: TracedSettings, world: World, *, quick: bool = False
) -> tuple[TraceHook | None, Hooks]:
    """What hangs in a client: what writes its trace, if its settings want one, behind the application's hooks.

    :param group: the client's, with its namespace. :param quick: of the application's those alone that never wait.
    """
    given = tuple(hook for hook in settings.hooks if hook.quick or not quick)
    if not settings.enable_msg_trace:
        return None, Hooks(given, group)
    topic = settings.customized_trace_topic or TRACE_TOPIC
    tracer = Tracer(group, topic if settings.access_channel is AccessChannel.LOCAL else None, world)
    trace = TraceHook(tracer, group, Namespace(settings.namespace), message_ids(world, settings), world)
    return trace, Hooks((*given, trace), group)


def inner_group(group: str, role: str) -> str:
    """The group of the producer that sends a client's trace; ``role``: PRODUCE or CONSUME."""
    return f"_INNER_TRACE_PRODUCER-{group[:_GROUP]}-{role}-0"


def inner_options(settings: ClientSettings) -> ClientOptions:
    """What the producer of a client's trace has of it: how brokers are reached, and what signs requests."""
    inner = {name: getattr(settings, name) for name in _INNER}
    hooks = tuple(RequestsAlone(hook) for hook in settings.hooks)
    return cast("ClientOptions", {**inner, "hooks": hooks, "namespace": ""})
