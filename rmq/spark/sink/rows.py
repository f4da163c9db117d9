"""From rows to messages: the sink's columns, checked; every mistake names its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from rmq.protocol import properties as names
from rmq.protocol.errors import ClientError, ConfigError
from rmq.protocol.names import BROKER_TOPICS, topic_fault

__all__ = ["IDENTITY", "Outgoing", "RowRefused", "Rows", "check_columns"]

#: The property that says which row of which batch of which query a message is.
IDENTITY = "RMQ_SPARK_ID"
#: Rows of a task that are told apart by what they hold alone: what is known of each stays in memory.
COUNTED = 200_000

_TEXT = ("string",)
_KINDS: dict[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "body": ("binary", "string"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "shardingKey": _TEXT,
    "queueId": ("int", "bigint", "smallint", "tinyint"),
    "brokerName": _TEXT,
    "delayLevel": ("int", "bigint", "smallint", "tinyint"),
    "deliverTimestamp": ("timestamp", "bigint"),
}


class RowRefused(ClientError):
    """A row that cannot be a message, or that a broker refused: says which one and why."""


@dataclass(slots=True)
class Outgoing:
    """One message to be sent.

    :param ordered: its place among those of its queue counts. :param delayed: the broker is to keep it back.
    """

    row: str
    topic: str
    body: bytes
    properties: bytes
    sharding_key: str | None
    queue_id: int | None
    broker_name: str | None
    delayed: bool
    timed: bool

    @property
    def ordered(self) -> bool:
        return self.sharding_key is not None or self.queue_id is not None


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> dict[str, str]:
    """The sink's columns by their proper names, and how the query spells them.

    :param columns: (name, type) as Spark writes types. :param topic: the option.
    :raises ConfigError: names the column.
    """
    proper = {name.lower(): name for name in _KINDS}
    found: dict[str, str] = {}
    for name, kind in columns:
        known = proper.get(name.lower())
        if known is None:
            raise ConfigError(
                f"the sink has no column {name!r}: drop it or rename it; the columns are {', '.join(_KINDS)}"
            )
        plain = kind.split("(")[0] if kind.startswith(("varchar", "char")) else kind
        if plain in ("varchar", "char") or plain.startswith("string "):
            plain = "string"
        if plain not in _KINDS[known]:
            raise ConfigError(f"the column {name} is {kind}: the sink takes {' or '.join(_KINDS[known])}")
        if known in found:
            raise ConfigError(f"the columns {found[known]} and {name} are the same to the sink: drop one")
        found[known] = name
    if "value" in found and "body" in found:
        raise ConfigError("the columns value and body are the same to the sink: drop one")
    if "value" not in found and "body" not in found:
        raise ConfigError("the column value is missing: it is what a message holds")
    if "brokerName" in found and "queueId" not in found:
        raise ConfigError("the column brokerName names a queue together with queueId: give both, or neither")
    if "topic" not in found and topic is None:
        raise ConfigError("no topic to write to: give the option topic or a column topic")
    return found


class Rows:
    """Makes messages of rows.

    A row is identified by its task, by what it holds and by how many equal ones came before it: a task that is tried
    again has its rows in another order when they come out of a shuffle, and other rows when a query was changed. Its
    number would then name another row, which would be dropped for one that was sent before.

    :param found: of :func:`check_columns`. :param identity: of the task; None: rows are not stamped.
    :param place: begins the name of a row in an error. :param most: bytes of the largest body.
    """

    def __init__(
        self,
        found: Mapping[str, str],
        topic: str | None,
        next_id: Callable[[], str],
        place: str,
        identity: str | None,
        most: int,
    ) -> None:
        self._found = dict(found)
        if "body" in self._found:
            self._found["value"] = self._found.pop("body")
        self._topic = topic
        self._next_id = next_id
        self._place = place
        self._identity = identity
        self._most = most
        self._count = 0
        self._equal: dict[bytes, int] = {}
        self._good_topics: set[str] = set()

    def messages(self, columns: Mapping[str, Sequence[Any]]) -> Iterator[Outgoing]:
        """The messages of some rows. :raises RowRefused: says which row and why."""
        ours = {name: columns[spelled] for name, spelled in self._found.items()}
        for values in zip(*ours.values(), strict=True):
            number, row = self._count, self.name()
            self._count += 1
            yield self._message(row, number, dict(zip(ours, values, strict=True)))

    def name(self, further: int = 0) -> str:
        """How the next row is called, or one after it."""
        return f"{self._place}row {self._count + further}"

    def _message(self, row: str, number: int, given: dict[str, Any]) -> Outgoing:
        get = given.get
        topic = get("topic") or self._topic
        if topic is None:
            raise RowRefused(f"{row} has no topic, and there is no option topic")
        if topic not in self._good_topics:
            if (fault := topic_fault(topic)) or topic in BROKER_TOPICS:
                raise RowRefused(f"{row}: {fault or f'{topic} is a topic of the broker itself'}")
            self._good_topics.add(topic)
        body = get("value")
        if isinstance(body, str):
            body = body.encode()
        if not body:
            raise RowRefused(f"{row} has no value: a broker stores no empty message")
        if len(body) > self._most:
            raise RowRefused(
                f"{row} has a value of {len(body)} bytes, above maxMessageSize ({self._most}): raise this option and "
                "the broker's setting of that name, or store the content elsewhere and send where it is"
            )
        queue_id, level, moment = get("queueId"), get("delayLevel"), get("deliverTimestamp")
        if level is not None and not 0 <= level <= 18:
            raise RowRefused(f"{row}: delayLevel is {level}: give 0 (none) or 1 to 18")
        if level and moment is not None:
            raise RowRefused(f"{row} has a delayLevel and a deliverTimestamp: give one of them")
        if queue_id is None and get("brokerName"):
            raise RowRefused(f"{row} has a brokerName and no queueId: give both, or neither")
        return Outgoing(
            row,
            topic,
            bytes(body),
            self._properties(row, number, topic, body, given),
            get("shardingKey") or None,
            queue_id,
            get("brokerName") if queue_id is not None else None,
            bool(level) or moment is not None,
            moment is not None,
        )

    def _properties(self, row: str, number: int, topic: str, body: bytes, given: dict[str, Any]) -> bytes:
        own = given.get("properties")
        if isinstance(own, dict):  # rows of Spark 4.0 hold maps as they are, Arrow as pairs
            own = list(own.items())
        # What others stored is passed on without what is RocketMQ's own: it belongs to the message it came with.
        found = {name: value for name, value in own or () if name not in names.RESERVED} if own else {}
        if self._identity is not None:
            found.pop(IDENTITY, None)
        if tags := given.get("tags"):
            found[names.TAGS] = tags
        keys = given.get("keys")
        if keys:
            found[names.KEYS] = keys if isinstance(keys, str) else " ".join(key for key in keys if key)
        if key := given.get("shardingKey"):
            found[names.SHARDING_KEY] = key
        if level := given.get("delayLevel"):
            found[names.DELAY] = str(level)
        if (moment := given.get("deliverTimestamp")) is not None:
            found[names.TIMER_DELIVER_MS] = str(_milliseconds(moment))
        parts = []
        for name, value in found.items():
            if not name or not value:
                continue
            if "\x01" in value or "\x02" in value or "\x01" in name or "\x02" in name:
                raise RowRefused(f"{row}: the property {name!r} holds a control character that separates properties")
            parts.append(f"{name}\x01{value}")
        if self._identity is not None:
            parts.append(f"{IDENTITY}\x01{self._identity}/{self._name(number, topic, parts, body)}")
        parts.append(f"{names.UNIQ_KEY}\x01{self._next_id()}")
        text = "\x02".join(parts).encode()
        if len(text) > names.MAX_BYTES:
            raise RowRefused(f"{row}: keys, tags and properties have {len(text)} bytes, at most {names.MAX_BYTES}")
        return text

    def _name(self, number: int, topic: str, parts: Sequence[str], body: bytes) -> str:
        """What the row is within its task."""
        made = blake2b("\x02".join((topic, *parts)).encode(), digest_size=12)
        made.update(b"\x00")
        made.update(body)
        digest = made.digest()
        before = self._equal.get(digest)
        if before is not None or len(self._equal) < COUNTED:
            before = before or 0
            self._equal[digest] = before + 1
            return f"{digest.hex()}.{before}"
        return f"{digest.hex()}.{number}"


def _milliseconds(moment: Any) -> int:
    if isinstance(moment, datetime):  # rows of Spark 4.0, which has no Arrow here
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    return int(moment)
