"""Messages as an application sees them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Unpack

from rmq.client.checks import check_delay_level, check_flag, check_number, check_topic, check_word, seconds
from rmq.client.shown import shown
from rmq.protocol import ids
from rmq.protocol.errors import ClientError, WrongType
from rmq.protocol.keywords import NoOthers, keywords, no_such
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.plain import plain, plain_number, plain_text
from rmq.protocol.queue import MessageQueue

__all__ = [
    "Message",
    "MessageExt",
    "MessageQueue",
    "body_bytes",
    "check_bits",
    "check_properties",
    "check_tags",
    "check_waits",
    "join_keys",
]

#: Names of topics that were looked at and found good, and most of them.
_good_topics: set[str] = set()
_MOST_TOPICS = 4096
#: Where a message is from that was made by hand.
_NOWHERE = ("0.0.0.0", 0)
#: Levels of a broker by default (``messageDelayLevel``).
_DELAY_LEVELS = 18


def join_keys(keys: str | Iterable[str] | None) -> str | None:
    """Several keys as the one text of the KEYS property. :raises ClientError: they are no texts."""
    if keys is None or isinstance(keys, str):
        return plain_text(keys) if keys else None
    try:
        if not isinstance(keys, (bytes, Mapping)):
            return " ".join(map(plain_text, keys)) or None
    except TypeError:
        pass
    raise WrongType(f"keys is {shown(keys)}: give a text, or several texts")


def body_bytes(body: object) -> bytes:
    """A body as it is sent. :raises ClientError: it is neither bytes nor a text that is valid Unicode."""
    body = plain(body, "the body of a message")
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError:
            raise ClientError("the body of a message is not valid Unicode: send bytes") from None
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise WrongType(f"the body of a message is bytes or text, not {type(body).__name__}: encode it first")


def check_tags(tags: object) -> str:
    """The tag, plain. :raises ClientError: it is not one tag."""
    tags = plain(tags, "tags")
    if not isinstance(tags, str):
        raise WrongType(f"tags is {shown(tags)}: give one tag, a text")
    check_word(tags, "tags")
    return tags


def check_bits(flag: object) -> int:
    """The flag of a message, plain. :raises ClientError: it is none."""
    check_number(flag, "flag")
    number = plain_number(flag)  # type: ignore[arg-type]
    if not -(1 << 31) <= number < 1 << 31:
        raise ClientError(f"flag is {shown(flag)}: give a whole number of 32 bits")
    return number


def check_properties(properties: object) -> dict[str, str]:
    """The properties of a message, plain. :raises ClientError: they are no texts by names that are texts."""
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise WrongType(f"properties is {shown(properties)}: give a mapping of texts to texts")
    found = {}
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise WrongType(
                f"the property {shown(name, 40)}={shown(value, 40)} cannot be sent: names and values are texts"
            )
        found[plain(name, "the name of a property")] = plain(value, "the value of a property")
    return found


def check_waits(delay: object, deliver_at: object) -> None:
    """:raises ClientError: one of them is given, and is none."""
    if delay is not None:
        seconds(delay, "delay")
    if deliver_at is not None and not isinstance(deliver_at, datetime.datetime):
        raise WrongType(f"deliver_at is {shown(deliver_at)}: give a datetime")


def _check_topic(topic: str) -> str:
    check_topic(topic)
    topic = plain_text(topic)
    if len(_good_topics) >= _MOST_TOPICS:
        _good_topics.clear()
    _good_topics.add(topic)
    return topic


def _values(message: object) -> dict[str, Any]:
    """The attributes of a message that are set, by name."""
    names = [name.lstrip("_") for name in type(message).__slots__]  # type: ignore[attr-defined]
    values = {name: getattr(message, name) for name in names if hasattr(message, name)}
    return {**values, "properties": dict(values["properties"])}


@keywords
class Message:
    """A message to send (Java: Message).

    :param topic: where it goes.
    :param body: bytes; a text is sent as UTF-8.
    :param tags: one tag, for consumers to filter by.
    :param keys: one key or several: what ``query_message`` finds it by. Make them unique (an order id).
    :param flag: a 32-bit number of the application's own; the broker stores it and looks at nothing in it.
    :param delay_level: 1 to 18 = 1s 5s 10s 30s 1m ... 10m 20m 30m 1h 2h by default; 0 = at once. Cannot be recalled.
        For brokers that have more levels set the attribute.
    :param delay: seconds or a ``timedelta`` to wait, by the broker's clock (brokers of ours and of 5.x).
    :param deliver_at: when to deliver it, a ``datetime`` (one without a zone is local time); a past one means at once.
    :param wait_store_ok: False = the broker answers before the flush or the slave that its configuration asks for.
    :param properties: texts of the application's own; RocketMQ's own names are refused when it is sent.
    :raises ClientError: no topic may have this name, there is no such delay level, or an argument is of another type
        (which is a TypeError, too). The rest is looked at when it is sent.

    Its attributes may be set until it is sent, and are looked at then. The SDK never changes a message it is given: the
    same object may be sent again.
    """

    __slots__ = (
        "_properties",
        "body",
        "delay",
        "delay_level",
        "deliver_at",
        "flag",
        "keys",
        "tags",
        "topic",
        "wait_store_ok",
    )

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        delay: float | datetime.timedelta | None = None,
        deliver_at: datetime.datetime | None = None,
        wait_store_ok: bool = True,
        properties: Mapping[str, str] | None = None,
        **unknown: Unpack[NoOthers],
    ) -> None:
        if unknown:
            raise no_such(Message, unknown)
        if type(topic) is not str or topic not in _good_topics:
            topic = _check_topic(topic)
        if type(delay_level) is not int or delay_level != 0:
            check_delay_level(delay_level, _DELAY_LEVELS)
            delay_level = plain_number(delay_level)
        if tags is not None and (type(tags) is not str or not tags.isascii()):
            tags = check_tags(tags)
        if type(flag) is not int or flag != 0:
            flag = check_bits(flag)
        if delay is not None or deliver_at is not None:
            check_waits(delay, deliver_at)
        if wait_store_ok is not True:
            check_flag(wait_store_ok, "wait_store_ok")
        if properties is not None:
            if type(properties) is not dict:
                properties = check_properties(properties)
            for name, value in properties.items():
                if type(name) is not str or type(value) is not str:
                    properties = check_properties(properties)
                    break
        self.topic: str = topic
        self.body: bytes = body if type(body) is bytes else body_bytes(body)
        self.tags: str | None = tags
        self.keys: str | None = keys if keys is None or type(keys) is str else join_keys(keys)
        self.flag: int = flag
        self.delay_level: int = delay_level
        self.delay: float | datetime.timedelta | None = delay
        self.deliver_at: datetime.datetime | None = deliver_at
        self.wait_store_ok: bool = wait_store_ok
        #: None: it has none, and there may be very many such messages.
        self._properties: dict[str, str] | None = dict(properties) if properties else None

    @property
    def properties(self) -> dict[str, str]:
        """Texts of the application's own, by name."""
        found = self._properties
        if found is None:
            found = self._properties = {}
        return found

    @properties.setter
    def properties(self, properties: dict[str, str]) -> None:
        self._properties = properties

    @property
    def waits(self) -> bool:
        """Whether it is to be delivered later."""
        return self.delay_level != 0 or self.delay is not None or self.deliver_at is not None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # what it says may change until it is sent

    def as_dict(self) -> dict[str, Any]:
        """What the constructor takes, by name."""
        return _values(self)

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} B, tags={self.tags!r}, keys={self.keys!r})"


@keywords
class MessageExt:
    """A message as a consumer or a query gets it (Java: MessageExt).

    ``body`` is decompressed; ``properties`` holds every property, the reserved ones too; ``msg_id`` is the id its
    producer gave it (or the offset id where it has none). Times are milliseconds since the epoch.
    """

    __slots__ = (
        "body",
        "body_crc",
        "born_host",
        "born_timestamp",
        "broker_name",
        "commit_log_offset",
        "flag",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_host",
        "store_size",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    store_size: int
    body_crc: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int

    def __init__(
        self,
        topic: str = "",
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        flag: int = 0,
        properties: Mapping[str, str] | None = None,
        broker_name: str = "",
        queue_id: int = 0,
        queue_offset: int = 0,
        commit_log_offset: int = 0,
        born_timestamp: int = 0,
        born_host: tuple[str, int] = _NOWHERE,
        store_timestamp: int = 0,
        store_host: tuple[str, int] = _NOWHERE,
        store_size: int = 0,
        body_crc: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None:
        """One made by hand, as tests of listeners need it."""
        check_bits(flag)
        self.topic = plain_text(topic)
        self.body = body_bytes(body)
        self.flag = flag
        self.properties = check_properties({} if properties is None else properties)
        if tags is not None:
            self.properties["TAGS"] = check_tags(tags)
        if (joined := join_keys(keys)) is not None:
            self.properties["KEYS"] = joined
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.commit_log_offset = commit_log_offset
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.store_size = store_size
        self.body_crc = body_crc
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset

    @property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        """Its keys, joined by spaces."""
        return self.properties.get("KEYS")

    @property
    def msg_id(self) -> str:
        return self.properties.get("UNIQ_KEY") or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that says where it is stored: what ``view_message`` takes."""
        return ids.offset_msg_id(self.store_host[0], self.store_host[1], self.commit_log_offset)

    @property
    def message_queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def delay_level(self) -> int:
        return whole(self.properties.get("DELAY"), INT_MAX) or 0

    @property
    def wait_store_ok(self) -> bool:
        return self.properties.get("WAIT") != "false"

    @property
    def transaction_id(self) -> str | None:
        return self.properties.get("UNIQ_KEY") if self.properties.get("TRAN_MSG") == "true" else None

    @property
    def born_time(self) -> datetime.datetime:
        """When its producer made it, in UTC."""
        return datetime.datetime.fromtimestamp(self.born_timestamp / 1000, datetime.UTC)

    @property
    def store_time(self) -> datetime.datetime:
        """When the broker stored it, in UTC."""
        return datetime.datetime.fromtimestamp(self.store_timestamp / 1000, datetime.UTC)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __hash__(self) -> int:
        place = ("topic", "broker_name", "queue_id", "queue_offset", "commit_log_offset")
        return hash(tuple(getattr(self, name, None) for name in place))

    def as_dict(self) -> dict[str, Any]:
        """Its attributes by name, with ``msg_id``, ``offset_msg_id``, ``tags`` and ``keys``."""
        told = ("msg_id", "offset_msg_id", "tags", "keys")
        return {**_values(self), **{name: getattr(self, name) for name in told}}

    def __repr__(self) -> str:
        return (
            f"MessageExt({self.topic!r}, id={self.msg_id}, {len(self.body)} B, tags={self.tags!r}, keys={self.keys!r}, "
            f"queue={self.broker_name}:{self.queue_id}, offset={self.queue_offset}, reconsume={self.reconsume_times})"
        )
