"""DataVersion, TopicConfig, the topic table and a broker's registration (protocol.md 4.6).

The compressed registration is one zlib stream of::

    int32 n, n bytes              DataVersion as JSON
    int32 count                   topics
    count x (int32 n, n bytes)    text "topicName readQueueNums writeQueueNums perm topicFilterType" (5.x: more tokens)
    int32 n, n bytes              filter server list as JSON
    5.x only                      static-topic mappings, not read
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from itertools import islice
from typing import Any, Self, TypeVar

from rmq.protocol import fastjson
from rmq.protocol.bodies.body import LENIENT_BYTES, Body, body, member, read_json
from rmq.protocol.bodies.static_topic import TopicQueueMappingDetail, TopicQueueMappingInfo
from rmq.protocol.errors import BodyError, ProtocolError
from rmq.protocol.keywords import keywords
from rmq.protocol.names import LONGEST

__all__ = [
    "MOST_TOPICS",
    "TOPIC_FILTER_TYPES",
    "CreateTopicListRequestBody",
    "DataVersion",
    "RegisterBrokerBody",
    "TopicConfig",
    "TopicConfigTable",
    "at_once",
    "check_size",
]

T = TypeVar("T")

TOPIC_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
#: Bytes a compressed registration may have once unpacked.
MAX_REGISTRATION = 64 * 1024 * 1024
#: Topics of one broker: a registration of so many takes some 45 MiB for the moment it is read.
MOST_TOPICS = 65_536
#: Topics read between two pauses: about 5 ms.
_TOPICS_AT_ONCE = 500


@body
class DataVersion(Body):
    """What tells two states of a table apart: time in ms and a counter; ``state_version`` is 5.x's."""

    counter: int = member("counter", default=0)
    timestamp: int = member("timestamp", default=0)
    state_version: int | None = member("stateVersion", default=None)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DataVersion)
            and self.timestamp == other.timestamp
            and self.counter == other.counter
            and (self.state_version or 0) == (other.state_version or 0)
        )

    def __hash__(self) -> int:
        return hash((self.timestamp, self.counter))


@keywords
@body
class TopicConfig(Body):
    """A topic on one broker; ``attributes`` is 5.x's."""

    topic_name: str = member("topicName", default="")
    read_queue_nums: int = member("readQueueNums", default=16)
    write_queue_nums: int = member("writeQueueNums", default=16)
    perm: int = member("perm", default=6)
    topic_filter_type: str | None = member("topicFilterType", default="SINGLE_TAG", values=TOPIC_FILTER_TYPES)
    topic_sys_flag: int = member("topicSysFlag", default=0)
    order: bool = member("order", default=False)
    attributes: dict[str, str] | None = member("attributes", default=None)


@body
class TopicConfigTable(Body):
    """Every topic of a broker (Java: TopicConfigSerializeWrapper): the answer to 21, and topics.json.

    The last three members are 5.x's, about static topics.
    """

    data_version: DataVersion | None = member("dataVersion", default=None)
    topic_config_table: dict[str, TopicConfig] = member("topicConfigTable", factory=dict)
    mapping_data_version: DataVersion | None = member("mappingDataVersion", default=None)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = member(
        "topicQueueMappingDetailMap", default=None
    )
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = member(
        "topicQueueMappingInfoMap", default=None
    )


@body
class CreateTopicListRequestBody(Body):
    """18 UPDATE_AND_CREATE_TOPIC_LIST (5.x)."""

    topic_config_list: list[TopicConfig] = member("topicConfigList", factory=list)


def check_size(data: bytes) -> None:
    """Refuse a registration of too many topics before it is read; one that is compressed says their number itself.

    :raises BodyError: it has more than :data:`MOST_TOPICS`.
    """
    # Every topic is an object with its name, of 5.x with another object in it; nothing else of a registration is many.
    topics = max(data.count(b'"topicName"'), data.count(b"{") // 2, data.count(b",") // 16)
    _check_count(topics)


def _check_count(topics: int) -> None:
    if topics > MOST_TOPICS:
        raise BodyError(f"RegisterBrokerBody: {topics} topics; a broker may register {MOST_TOPICS}: run more brokers")


def at_once(reading: Generator[None, None, T]) -> T:
    """Let a reading that pauses run to its end."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            read: T = end.value
            return read


def _piece(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class _Pieces:
    """Reads the length-prefixed pieces of a compressed registration."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        end = self.at + 4
        if end > len(self.data):
            raise BodyError(f"RegisterBrokerBody: cut off at byte {self.at}")
        value = int.from_bytes(self.data[self.at : end], "big", signed=True)
        self.at = end
        if value < 0:
            raise BodyError(f"RegisterBrokerBody: the length {value} at byte {self.at - 4}")
        return value

    def piece(self) -> bytes:
        size = self.number()
        end = self.at + size
        if end > len(self.data):
            raise BodyError(f"RegisterBrokerBody: a piece of {size} bytes at byte {self.at}, cut off")
        value = self.data[self.at : end]
        self.at = end
        return value


def _topic_text(config: TopicConfig) -> bytes:
    return (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm} "
        f"{config.topic_filter_type or 'SINGLE_TAG'}"
    ).encode()


def _topic_of(text: str) -> TopicConfig:
    tokens = text.split(" ", 5)
    if len(tokens[0]) > LONGEST["topic"]:
        raise BodyError(f"RegisterBrokerBody: a topic's name of {len(tokens[0])} characters")
    try:
        read, write, perm = int(tokens[1]), int(tokens[2]), int(tokens[3])
    except (IndexError, ValueError):
        raise BodyError(f"RegisterBrokerBody: no topic: {text[:64]!r}") from None
    filter_type = tokens[4] if len(tokens) > 4 and tokens[4] in TOPIC_FILTER_TYPES else "SINGLE_TAG"
    attributes: dict[str, str] | None = None
    if len(tokens) > 5:
        try:
            value: Any = fastjson.loads(tokens[5], limit=LENIENT_BYTES)
        except ProtocolError:
            value = None  # a later release's token; nothing depends on it
        if isinstance(value, dict):
            attributes = {str(name): str(one) for name, one in value.items()}
    return TopicConfig(tokens[0], read, write, perm, filter_type, attributes=attributes)


@body
class RegisterBrokerBody(Body):
    """103 REGISTER_BROKER."""

    filter_server_list: list[str] = member("filterServerList", factory=list)
    topic_config_serialize_wrapper: TopicConfigTable = member("topicConfigSerializeWrapper", factory=TopicConfigTable)

    def encode(self, compressed: bool = False) -> bytes:
        """As JSON, or as the compressed form (which loses topicSysFlag and order)."""
        if not compressed:
            return fastjson.dumps(self.to_object())
        table = self.topic_config_serialize_wrapper
        parts = [_piece((table.data_version or DataVersion()).encode())]
        parts.append(len(table.topic_config_table).to_bytes(4, "big"))
        parts += [_piece(_topic_text(config)) for config in table.topic_config_table.values()]
        parts.append(_piece(fastjson.dumps(self.filter_server_list)))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode(
        cls,
        data: bytes | bytearray | memoryview,
        compressed: bool = False,
        *,
        limit: int | None = LENIENT_BYTES,
    ) -> Self:
        """Read either form; what 5.x appends is ignored.

        :raises BodyError: damaged.
        """
        return at_once(cls.reading(data, compressed, limit=limit))

    @classmethod
    def reading(
        cls,
        data: bytes | bytearray | memoryview,
        compressed: bool = False,
        *,
        limit: int | None = LENIENT_BYTES,
    ) -> Generator[None, None, Self]:
        """:meth:`decode` with pauses: 10,000 topics take 0.1 s, which a server has to share out.

        :raises BodyError: damaged.
        """
        if not data:
            raise BodyError("RegisterBrokerBody: the body is empty")
        if compressed:
            return (yield from cls._unpacking(data, limit))
        value: Any = read_json(bytes(data), "RegisterBrokerBody", limit)
        wrapper: Any = value.get("topicConfigSerializeWrapper") if isinstance(value, dict) else None
        topics = wrapper.get("topicConfigTable") if isinstance(wrapper, dict) else None
        if not isinstance(topics, dict) or len(topics) <= _TOPICS_AT_ONCE:
            return cls.from_object(value)
        _check_count(len(topics))
        yield
        wrapper["topicConfigTable"] = None
        whole = cls.from_object(value)
        configs = whole.topic_config_serialize_wrapper.topic_config_table
        items = iter(topics.items())
        while some := dict(islice(items, _TOPICS_AT_ONCE)):
            configs |= TopicConfigTable.from_object({"topicConfigTable": some}).topic_config_table
            yield
        return whole

    @classmethod
    def _unpacking(cls, data: bytes | bytearray | memoryview, limit: int | None) -> Generator[None, None, Self]:
        engine = zlib.decompressobj()
        try:
            plain = engine.decompress(data, MAX_REGISTRATION + 1)
        except zlib.error as error:
            raise BodyError(f"RegisterBrokerBody: not compressed as zlib: {error}") from None
        if len(plain) > MAX_REGISTRATION or not engine.eof:
            raise BodyError("RegisterBrokerBody: the compressed body is cut off or too long")
        pieces = _Pieces(plain)
        version = DataVersion.decode(pieces.piece())
        count = pieces.number()
        _check_count(count)
        configs: dict[str, TopicConfig] = {}
        for number in range(count):
            if number and not number % _TOPICS_AT_ONCE:
                yield
            config = _topic_of(pieces.piece().decode("utf-8", "replace"))
            configs[config.topic_name] = config
        servers: Any = read_json(pieces.piece(), "RegisterBrokerBody", limit)
        if servers is not None and not isinstance(servers, list):
            raise BodyError("RegisterBrokerBody: the filter server list is no array")
        return cls(
            [str(server) for server in servers or ()],
            TopicConfigTable(version, configs),
        )
