"""From a message to a send that only lacks its queue, and from its answer to a SendResult. Pure; runs on the
caller's thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from rmq.client.checks import check_delay_level, check_flag, check_topic, milliseconds, seconds
from rmq.client.message import (
    Message,
    MessageExt,
    MessageQueue,
    body_bytes,
    check_bits,
    check_properties,
    check_tags,
    check_waits,
    join_keys,
)
from rmq.client.namespace import Namespace
from rmq.client.results import SendResult, SendStatus
from rmq.client.settings import ProducerSettings
from rmq.client.shown import shown
from rmq.protocol import batch
from rmq.protocol import properties as property_string
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import compress, flags_of
from rmq.protocol.errors import ClientError, HeaderError, ResponseError, RMQError, WrongType
from rmq.protocol.names import BROKER_TOPICS
from rmq.protocol.numbers import INT_MAX
from rmq.protocol.plain import plain_number, plain_text
from rmq.protocol.properties import CORRELATION_ID, MESSAGE_TYPE, REPLY, REPLY_TO_CLIENT, RESERVED, TTL
from rmq.protocol.sysflags import TRANSACTION_PREPARED

__all__ = ["BatchItem", "PreparedSend", "SendEncoder", "Sendable", "next_opaque", "send_result", "weight"]

#: What a send without a selector may be given: one message, or several of one topic for a batch.
Sendable = Message | MessageExt | Sequence[Message | MessageExt]

#: Properties over this many bytes are refused by every broker (code 13).
_MOST_PROPERTIES = 32_767

#: The request code of a reply (SEND_REPLY_MESSAGE_V2); its header is that of any send.
_REPLY = 325

_REGION = "DefaultRegion"

#: Opaques of sends are negative, those that a connection hands out are not: both may be in flight on one connection,
#: and a counter gives each thread its own number without a lock.
_opaques = itertools.count()

_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


def _named(message: Message | MessageExt) -> str | None:
    """The topic of a message, for an error that is about it."""
    return plain_text(message.topic) if isinstance(message.topic, str) else None


def weight(message: object) -> int:
    """KiB of a message's body, or of those of a batch, rounded up: what of it can be told before it is checked.

    In KiB, because most are small numbers, of which Python has one object each: very many sends may wait.
    """
    if isinstance(message, (Message, MessageExt)):
        body = message.body
        return len(body) + 1023 >> 10 if isinstance(body, (bytes, str)) else 0
    if isinstance(message, PreparedSend):
        return len(message.body) + 1023 >> 10
    return sum(map(weight, message)) if isinstance(message, (list, tuple)) else 0


def next_opaque() -> int:
    """A number for one send, unique among those in flight."""
    return -1 - (next(_opaques) & 0x7FFFFFFF)


class PreparedSend:
    """A send that only lacks its queue: the same one for every attempt, with the same unique id."""

    __slots__ = ("batch", "body", "born", "code", "flag", "message", "msg_id", "properties", "sys_flag", "topic")

    def __init__(
        self,
        message: Message | MessageExt,
        topic: str,
        body: bytes,
        properties: bytes,
        msg_id: str,
        *,
        code: int,
        sys_flag: int,
        flag: int,
        born: int,
        batch: Sequence[Message | MessageExt] | None = None,
    ) -> None:
        self.message = message
        #: All of them, when they are several.
        self.batch = batch
        self.topic = topic
        self.body = body
        #: The property string as a JSON text.
        self.properties = properties
        self.msg_id = msg_id
        self.code = code
        self.sys_flag = sys_flag
        self.flag = flag
        self.born = born


class BatchItem(NamedTuple):
    """One message of a batch, encoded; the topic is the brokers'."""

    message: Message | MessageExt
    topic: str
    msg_id: str
    data: bytes


class SendEncoder:
    """Encodes the sends of one producer; any thread may use it.

    :param ids: makes the unique id of a message of these milliseconds. :param now_ms: the wall clock.
    :param stamp: makes of a message the one that is sent: with what hooks let go along.
    """

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        ids: Callable[[int], str],
        now_ms: Callable[[], int],
        stamp: Callable[[Message | MessageExt], Message | MessageExt] | None = None,
    ) -> None:
        self._group = group
        self._settings = settings
        self._next_id = ids
        self._now_ms = now_ms
        self._stamp = stamp
        self._compress_over = settings.compress_msg_body_over
        #: Topics that were looked at, and how brokers know them.
        self._wire_topics: dict[str, str] = {}
        names = self._names = Namespace(settings.namespace)
        #: What the property string of each message begins with, and how many properties that are besides the id.
        self._begin = (f"INSTANCE_ID\x01{names.name}\x02" if names else "") + "UNIQ_KEY\x01"
        self._begun = int(bool(names))

    # -- one message --------------------------------------------------------------------------------------------------

    def prepare(self, message: Message | MessageExt) -> PreparedSend:
        """Check and encode a message.

        :raises ClientError: says what is wrong with it and what to do.
        """
        try:
            if self._stamp is not None:
                message = self._stamp(message)
            topic = message.topic
            wire_topic = self._wire_topics.get(topic) if type(topic) is str else None
            if wire_topic is None:
                wire_topic = self._check_topic(topic)
            body = message.body
            if type(body) is not bytes:  # set after it was made
                body = body_bytes(body)
            if not body or len(body) > self._settings.max_message_size:
                self._refuse_body(body, topic)
            born = self._now_ms()
            msg_id = self._next_id(born)
            properties = self._property_text(message, msg_id)
            sys_flag = 0
            if len(body) >= self._compress_over:
                body, sys_flag = self._compress(body)
            return PreparedSend(
                message,
                wire_topic,
                body,
                _json_text(properties, message),
                msg_id,
                code=310,
                sys_flag=sys_flag,
                flag=plain_number(message.flag),
                born=born,
            )
        except RMQError as error:
            error.about(topic=_named(message))
            raise

    def prepare_half(self, message: Message) -> PreparedSend:
        """Check and encode a message that is delivered when its transaction commits.

        :raises ClientError: says what is wrong with it and what to do.
        """
        send = self._marked(self.prepare(message), {"TRAN_MSG": "true", "PGROUP": self._group})
        send.sys_flag |= TRANSACTION_PREPARED
        return send

    def prepare_request(
        self, message: Message | MessageExt, correlation: str, client_id: str, ttl: int
    ) -> PreparedSend:
        """Check and encode a message that is to be answered by a message.

        :param correlation: names the request; its reply has the same. :param client_id: who is to get the reply.
        :param ttl: milliseconds that it is waited for.
        :raises ClientError: says what is wrong with it and what to do.
        """
        marks = {CORRELATION_ID: correlation, REPLY_TO_CLIENT: client_id, TTL: str(ttl)}
        return self._marked(self.prepare(message), marks)

    def prepare_reply(self, request: MessageExt, reply: Message) -> PreparedSend:
        """Check and encode the answer to a request.

        :raises ClientError: says what is wrong with it and what to do, or that ``request`` is none.
        """
        send = self.prepare(reply)
        send.code = _REPLY
        given = request.properties
        copied = {name: given[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in given}
        return self._marked(send, {MESSAGE_TYPE: REPLY, **copied})

    @staticmethod
    def _marked(send: PreparedSend, marks: Mapping[str, str]) -> PreparedSend:
        """With more properties, of RocketMQ's own."""
        text = _json_text(f"\x02{property_string.encode(marks)}", send.message)
        send.properties = send.properties[:-1] + text[1:]
        return send

    def _check_topic(self, topic: str) -> str:
        check_topic(topic)
        topic = plain_text(topic)
        if topic in BROKER_TOPICS:
            raise ClientError(f"the topic {topic} is the broker's own: applications cannot send to it")
        wire_topic = self._names.wrap(topic)
        check_topic(wire_topic)
        self._wire_topics[topic] = wire_topic
        return wire_topic

    def _refuse_body(self, body: bytes, topic: str) -> None:
        if not body:
            raise ClientError(f"the message for {topic} has an empty body: the broker would refuse it")
        raise ClientError(
            f"the message for {topic} has {len(body)} bytes, over max_message_size {self._settings.max_message_size}: "
            "store the content elsewhere and send where it is, or raise the limit here and at the broker"
        )

    def _compress(self, body: bytes) -> tuple[bytes, int]:
        kind = self._settings.compress_type
        return compress(body, kind, self._settings.compress_level), flags_of(kind)

    def _property_text(self, message: Message | MessageExt, msg_id: str) -> str:
        """The property string (protocol.md 5.4): what the application set, and the unique id."""
        text = self._begin + msg_id
        count = self._begun
        if tags := message.tags:
            if type(tags) is not str:
                tags = check_tags(tags)
            if "||" in tags and isinstance(message, Message):  # another client's message is passed on as it is
                raise ClientError(f"tags is {shown(tags)}: a message has one tag, only subscriptions have several")
            text = f"TAGS\x01{tags}\x02{text}"
            count += 1
        elif tags is not None:
            check_tags(tags)
        keys = message.keys
        if keys is not None and type(keys) is not str:  # set after it was made
            keys = join_keys(keys)
        if keys:
            text = f"KEYS\x01{keys}\x02{text}"
            count += 1
        own = message._properties if isinstance(message, Message) else message.properties
        if own:
            if type(own) is not dict:
                own = check_properties(own)
            if isinstance(message, MessageExt):
                # A received message that is passed on keeps what its application set, not what brokers added.
                own = {name: value for name, value in own.items() if name not in RESERVED}
            elif not RESERVED.isdisjoint(own):
                raise _reserved(min(RESERVED & own.keys()))
            for name, value in own.items():
                if type(name) is not str or type(value) is not str or not name or not value:
                    name, value = _plain_property(name, value)
                text = f"{name}\x01{value}\x02{text}"
                count += 1
        if isinstance(message, Message):
            level = message.delay_level
            if type(level) is not int or level:
                check_delay_level(level, INT_MAX)
                text += f"\x02DELAY\x01{level:d}"
                count += 1
            if message.delay is not None or message.deliver_at is not None:
                text += _timer_text(message)
                count += 1
            if message.wait_store_ok is not True:
                check_flag(message.wait_store_ok, "wait_store_ok")
                text += "\x02WAIT\x01false"
                count += 1
        if count and (text.count("\x01") != count + 1 or text.count("\x02") != count):
            raise ClientError(
                "a tag, key or property holds the control character 1 or 2, which separates properties: take it out"
            )
        if len(text) > 10_922 and len(text.encode("utf-8", "replace")) > _MOST_PROPERTIES:
            raise ClientError(
                f"tags, keys and properties take {len(text.encode('utf-8', 'replace'))} bytes; "
                f"a message holds {_MOST_PROPERTIES}: move the content to the body"
            )
        flag = message.flag
        if type(flag) is not int or not -(1 << 31) <= flag < 1 << 31:
            check_bits(flag)
        return text

    # -- a batch ------------------------------------------------------------------------------------------------------

    def prepare_batch(self, messages: Sequence[Message | MessageExt]) -> PreparedSend:
        """Check and encode a batch (protocol.md 5.3): one topic, no delay, one answer for all.

        :raises ClientError: says which rule it breaks.
        """
        if not messages:
            raise ClientError("the batch is empty: give a message at least")
        first = messages[0]
        if (fault := self._misfit(messages, first)) is not None:
            raise ClientError(fault).about(topic=_named(first))
        return self.join([self.prepare_item(message) for message in messages])

    @staticmethod
    def _misfit(messages: Sequence[Message | MessageExt], first: Message | MessageExt) -> str | None:
        """Why messages are no batch, if they are none."""
        topic = first.topic
        if isinstance(topic, str) and topic.startswith("%RETRY%"):
            return "messages for a retry topic cannot be sent as a batch"
        for message in messages:
            if message.topic != topic:
                return f"a batch goes to one topic: this one holds {topic} and {message.topic}"
            if isinstance(message, Message) and message.waits:
                return "a message that waits cannot be part of a batch: send it alone"
            if message.wait_store_ok != first.wait_store_ok:
                return "all messages of a batch have the same wait_store_ok"
        return None

    def prepare_item(self, message: Message | MessageExt) -> BatchItem:
        """Check and encode one message of a batch, whatever the others are.

        :raises ClientError: says what is wrong with it and what to do.
        """
        try:
            if self._stamp is not None:
                message = self._stamp(message)
            topic = message.topic
            wire_topic = (self._wire_topics.get(topic) if type(topic) is str else None) or self._check_topic(topic)
            body = message.body
            if type(body) is not bytes:
                body = body_bytes(body)
            if not body or len(body) > self._settings.max_message_size:
                self._refuse_body(body, topic)
            msg_id = self._next_id(self._now_ms())
            parts: list[bytes] = []
            batch.add(parts, message.flag, body, _utf8(self._property_text(message, msg_id), message))
            return BatchItem(message, wire_topic, msg_id, b"".join(parts))
        except RMQError as error:
            error.about(topic=_named(message))
            raise

    def join(self, items: Sequence[BatchItem]) -> PreparedSend:
        """The batch of messages that go together.

        :raises ClientError: it is too large.
        """
        first = items[0].message
        body = b"".join([item.data for item in items])
        if len(body) > self._settings.max_message_size:
            raise ClientError(
                f"the batch takes {len(body)} bytes, over max_message_size {self._settings.max_message_size}: "
                "send it in the parts that producer.split(messages) gives"
            )
        return PreparedSend(
            first,
            items[0].topic,
            body,
            orjson.dumps(f"WAIT\x01{'true' if first.wait_store_ok else 'false'}"),
            ",".join([item.msg_id for item in items]),
            code=320,
            sys_flag=0,
            flag=0,
            born=self._now_ms(),
            batch=[item.message for item in items],
        )

    def split(
        self,
        messages: Iterable[Message | MessageExt],
        limit: int | None = None,
        oversize: list[Message | MessageExt] | None = None,
    ) -> Iterator[list[Message | MessageExt]]:
        """Cut a collection, in order, into batches whose encoded size is at most ``limit`` bytes.

        A batch also ends where the topic or ``wait_store_ok`` changes, and a message that waits is one alone.

        :param oversize: takes the messages that are over the limit by themselves; they are left out.
        :raises ClientError: a message is over the limit and ``oversize`` is not given; what came before was given out.
        """
        most = self._settings.max_message_size if limit is None else limit
        part: list[Message | MessageExt] = []
        size = 0
        for message in messages:
            if not isinstance(message, (Message, MessageExt)):
                raise WrongType(f"split takes messages, not {shown(message)}")
            length = self.item_size(message)
            if length > most:
                if oversize is not None:
                    oversize.append(message)
                    continue
                if part:
                    yield part
                raise ClientError(f"one message for {message.topic} alone takes {length} bytes; the limit is {most}")
            lone = isinstance(message, Message) and message.waits
            if part and (
                lone
                or size + length > most
                or message.topic != part[0].topic
                or message.wait_store_ok != part[0].wait_store_ok
            ):
                yield part
                part, size = [], 0
            part.append(message)
            size += length
            if lone:
                yield part
                part, size = [], 0
        if part:
            yield part

    def item_size(self, message: Message | MessageExt) -> int:
        """Bytes a message takes in a batch."""
        properties = _utf8(self._property_text(message, "0" * 32), message)
        body = message.body
        return batch.ITEM_SIZE + len(body if type(body) is bytes else body_bytes(body)) + len(properties)


def _plain_property(name: str, value: str) -> tuple[str, str]:
    """A property whose name or value is of a class of its own. :raises ClientError: it cannot be sent."""
    ((name, value),) = check_properties({name: value}).items()
    if not name or not value:
        raise ClientError(
            f"the property {shown(name)}={shown(value)} cannot be sent: names and values are texts that are not empty"
        )
    if name in RESERVED:
        raise _reserved(name)
    return name, value


def _reserved(name: str) -> ClientError:
    return ClientError(f"the property name {name} is RocketMQ's own: use tags=, keys=, or another name")


def _timer_text(message: Message) -> str:
    """The property that asks for a delivery time of the message's own (protocol.md 5.4)."""
    delay, at = message.delay, message.deliver_at
    if (delay is not None) + (at is not None) + (message.delay_level > 0) > 1:
        raise ClientError("a message waits in one way: give delay, deliver_at or delay_level, not two of them")
    if at is not None:
        check_waits(None, at)
        return f"\x02TIMER_DELIVER_MS\x01{max(0, milliseconds(at, 'deliver_at'))}"
    return f"\x02TIMER_DELAY_MS\x01{math.ceil(seconds(delay or 0, 'delay') * 1000)}"


def _json_text(text: str, message: Message | MessageExt) -> bytes:
    try:
        # Copied: what orjson gives keeps the kilobytes that it was written in, and thousands of these may be under way.
        return b"%b" % orjson.dumps(text)
    except (TypeError, ValueError):
        raise _no_unicode(message) from None


def _utf8(text: str, message: Message | MessageExt) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _no_unicode(message) from None


def _no_unicode(message: Message | MessageExt) -> ClientError:
    return ClientError(f"a tag, key or property of the message for {message.topic} is not valid Unicode")


def send_result(reply: Command, send: PreparedSend, queue: MessageQueue, address: str | None = None) -> SendResult:
    """What the broker said of a send.

    :raises ResponseError: it was not stored. :raises HeaderError: the answer says a place that is none.
    """
    status = _STATUS.get(reply.code)
    ext = reply.ext
    if status is None or ext is None:
        raise ResponseError(reply.code, reply.remark, address)
    get = ext.get
    try:
        queue_id = int(get("queueId") or 0)
        queue_offset = int(get("queueOffset") or 0)
    except ValueError:
        place = f"queueId {get('queueId')!r:.40}, queueOffset {get('queueOffset')!r:.40}"
        raise HeaderError(f"{address or queue.broker_name}: the answer to a send names no place: {place}") from None
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    region = get("MSG_REGION")
    if region is None or region == _REGION:
        region = _REGION  # one text for all results that are kept
    return SendResult(
        status,
        send.msg_id,
        get("msgId") or "",
        queue,
        queue_offset,
        get("transactionId"),
        region,
        get("TRACE_ON") != "false",
        get("recallHandle"),
    )
