"""The options of the data source: names, aliases, values; every mistake is one line that names the option."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmq.protocol import addresses
from rmq.protocol.errors import ConfigError, RMQError
from rmq.protocol.names import LMQ_PREFIX, group_fault, topic_fault
from rmq.protocol.namespaces import wrap
from rmq.protocol.subscription import SQL92, SUB_ALL, TAG, build
from rmq.spark.positions import Position, parse_offsets, parse_timestamps

__all__ = ["COLUMN_OPTIONS", "READ_GROUP", "Endpoint", "SinkOptions", "SourceOptions", "Tls", "duration"]

READ_GROUP = "rmq_spark"
WRITE_GROUP = "rmq_spark_sink"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def duration(text: str) -> float:
    """Seconds of ``500ms``, ``10s``, ``5m``, ``1h`` or ``1d``. :raises ValueError: none of these."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError("a number with ms, s, m, h or d, such as 15m")
    return float(found[1]) * _UNITS[found[2]]


def _truth(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text.strip()


def _names(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not found:
        raise ValueError("one name, or several separated by commas")
    for name in found:
        if fault := topic_fault(name):
            raise ValueError(f"a topic's name: {fault}")
        if name.startswith(LMQ_PREFIX):
            raise ValueError(f"a topic that has queues of its own: {name} is a light queue within another topic")
    return found


def _group(text: str) -> str:
    if fault := group_fault(text.strip()):
        raise ValueError(f"a group's name: {fault}")
    return text.strip()


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text


def _servers(text: str) -> tuple[str, ...]:
    try:
        found = addresses.parse_list(text)
    except RMQError as error:
        raise ValueError(f"a list of host:port ({error})") from None
    if not found:
        raise ValueError("a list of host:port, such as 127.0.0.1:9876")
    return tuple(addresses.join(*each) for each in found)


def _columns(text: str) -> tuple[str, ...]:
    found = tuple(name for part in text.split(",") if (name := part.strip()))
    if not found:
        raise ValueError("names of columns separated by commas, or legacy")
    again = [name for name, times in Counter(name.lower() for name in found).items() if times > 1]
    if again:
        raise ValueError(f"each column once: {again[0]} is there several times")
    return found


def _namespace(text: str) -> str:
    if not text.strip() or "%" in text or topic_fault(text.strip()):
        raise ValueError("a name of letters, digits, _ and -")
    return text.strip()


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    read: Callable[[str], Any]
    also: tuple[str, ...] = ()


_COUNT = _whole(1, 10**18)
_CONNECTION = (
    _Option("nameServer", _servers, ("namesrv", "namesrvAddr", "nameserver.addr")),
    _Option("accessKey", _text),
    _Option("secretKey", _text),
    _Option("securityToken", _text),
    _Option("namespace", _namespace),
    _Option("useTLS", _truth, ("tls",)),
    _Option("tlsCaFile", _text),
    _Option("tlsCertFile", _text),
    _Option("tlsKeyFile", _text),
    _Option("tlsKeyPassword", _text),
    _Option("tlsVerify", _truth),
)
_SOURCE = (
    *_CONNECTION,
    _Option("topic", _names, ("topics", "consumer.topic")),
    _Option("topicPattern", _pattern),
    _Option("groupId", _group, ("group", "consumerGroup", "consumer.group")),
    _Option("startingOffsets", parse_offsets),
    _Option("endingOffsets", parse_offsets),
    _Option("startingTimestamp", parse_timestamps),
    _Option("endingTimestamp", parse_timestamps),
    _Option("maxOffsetsPerTrigger", _COUNT),
    _Option("minOffsetsPerTrigger", _COUNT),
    _Option("maxTriggerDelay", duration),
    _Option("minPartitions", _whole(1, 1_000_000)),
    _Option("maxPartitions", _whole(1, 1_000_000)),
    _Option("maxRecordsPerPartition", _COUNT),
    _Option("failOnDataLoss", _truth),
    _Option("includeProperties", _truth),
    _Option("includeSystem", _truth),
    _Option("columns", _columns),
    _Option("subExpression", _text, ("consumer.tag",)),
    _Option("sql92", _text),
    _Option("pullBatchSize", _whole(1, 65_535), ("pull.max.batch.size",)),
    _Option("pullTimeoutMs", _whole(100, 86_400_000), ("pullTimeout", "pull.timeout.ms")),
    _Option("commitOffsetsToBroker", _truth),
    _Option("pushFilters", _truth),
)
_SINK = (
    *_CONNECTION,
    _Option("topic", _names, ("producer.topic",)),
    _Option("producerGroup", _group, ("group", "groupId", "producer.group")),
    _Option("sendTimeoutMs", _whole(100, 3_600_000)),
    _Option("retries", _whole(0, 100)),
    _Option("batchSize", _whole(1, 10_000)),
    _Option("dedupProperties", _truth),
)
#: Which columns there are; a schema says the same.
COLUMN_OPTIONS = ("columns", "includeProperties", "includeSystem")
#: What Spark itself adds to the options it was given.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname"})


class _Given:
    """The options as given, by their proper names."""

    def __init__(self, given: Mapping[str, str], table: tuple[_Option, ...], use: str) -> None:
        proper = {name.lower(): option for option in table for name in (option.name, *option.also)}
        self._values: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, text in given.items():
            option = proper.get(name.lower())
            if option is None:
                if name.lower() in _OF_SPARK:
                    continue
                raise _unknown(name, proper, use)
            if option.name in spelled:
                raise ConfigError(f"the options {spelled[option.name]} and {name} mean the same: give one of them")
            spelled[option.name] = name
            try:
                self._values[option.name] = option.read(str(text))
            except ValueError as error:
                shown = "" if "key" in name.lower() or "password" in name.lower() else f" is {str(text)[:80]!r}:"
                raise ConfigError(f"the option {name}{shown} give {error}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name)

    def get(self, name: str, default: Any) -> Any:
        return self._values.get(name, default)

    def clash(self, one: str, other: str, why: str) -> None:
        if one in self._values and other in self._values:
            raise ConfigError(f"the options {one} and {other} exclude each other: {why}")

    def needs(self, one: str, other: str) -> None:
        if one in self._values and other not in self._values:
            raise ConfigError(f"the option {one} needs the option {other} beside it")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name in self._values:
                raise ConfigError(f"the option {name} {why}")


def _unknown(name: str, proper: Mapping[str, _Option], use: str) -> ConfigError:
    near = difflib.get_close_matches(name.lower(), proper, 1, 0.6)
    hint = f": did you mean {proper[near[0]].name}?" if near else f": {use} is done without it"
    return ConfigError(f"the option {name} is unknown{hint}")


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS; paths are on the machine that connects."""

    verify: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Which cluster, as whom, how."""

    name_servers: tuple[str, ...]
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str | None = None
    tls: Tls | None = None

    @classmethod
    def of(cls, given: _Given) -> Endpoint:
        if given["nameServer"] is None:
            raise ConfigError("the option nameServer is missing: give the name servers, such as 127.0.0.1:9876")
        given.needs("accessKey", "secretKey")
        given.needs("secretKey", "accessKey")
        given.needs("securityToken", "accessKey")
        given.needs("tlsCertFile", "tlsKeyFile")
        given.needs("tlsKeyFile", "tlsCertFile")
        tls = None
        if given["useTLS"]:
            tls = Tls(
                given.get("tlsVerify", given["tlsCaFile"] is not None),
                given["tlsCaFile"],
                given["tlsCertFile"],
                given["tlsKeyFile"],
                given["tlsKeyPassword"],
            )
        else:
            given.refuse(
                ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPassword", "tlsVerify"), "needs useTLS=true beside it"
            )
        keys = (given["accessKey"], given["secretKey"], given["securityToken"])
        return cls(given["nameServer"], *keys, given["namespace"], tls)

    def wrap(self, resource: str) -> str:
        """A topic's or group's name as the cluster knows it."""
        return wrap(self.namespace, resource)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, from where, in which portions."""

    endpoint: Endpoint
    topics: tuple[str, ...]
    topic_pattern: str | None
    group: str
    start: Position | None
    end: Position | None
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    min_partitions: int | None
    max_partitions: int | None
    max_records: int | None
    fail_on_data_loss: bool
    include_properties: bool
    include_system: bool
    columns: tuple[str, ...]
    expression: str
    expression_type: str
    pull_batch_size: int
    pull_timeout: float
    commit: bool
    push_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options as Spark hands them over.

        :raises ConfigError: names the option that is unknown, missing, malformed or in conflict with another.
        """
        given = _Given(options, _SOURCE, "reading")
        endpoint = Endpoint.of(given)
        given.clash("topic", "topicPattern", "name topics or a pattern for them")
        if given["topic"] is None and given["topicPattern"] is None:
            raise ConfigError("the option topic is missing: name one or several topics, or give topicPattern")
        given.clash("startingOffsets", "startingTimestamp", "a queue starts at one of them")
        given.clash("endingOffsets", "endingTimestamp", "a queue ends at one of them")
        given.clash("subExpression", "sql92", "a broker filters by tags or by a condition")
        given.clash("columns", "includeProperties", "columns names all there are")
        given.clash("columns", "includeSystem", "columns names all there are")
        given.needs("maxTriggerDelay", "minOffsetsPerTrigger")
        since, until = given["startingTimestamp"], given["endingTimestamp"]
        if since and until and since.time is not None and until.time is not None and since.time > until.time:
            raise ConfigError("the option startingTimestamp is later than endingTimestamp: nothing lies between")
        _not_above(given, "minOffsetsPerTrigger", "maxOffsetsPerTrigger")
        _not_above(given, "minPartitions", "maxPartitions")
        start, end = given["startingOffsets"] or given["startingTimestamp"], given["endingOffsets"]
        if start is not None and start.group and given["groupId"] is None:
            raise ConfigError("startingOffsets=group needs the option groupId: whose offsets are to be taken?")
        if end is not None and end.group:
            raise ConfigError("the option endingOffsets cannot be group: give latest or offsets as JSON")
        if given["commitOffsetsToBroker"] and given["groupId"] is None:
            raise ConfigError("commitOffsetsToBroker=true needs the option groupId: the group to report for")
        expression, kind = given["subExpression"] or SUB_ALL, TAG
        if given["sql92"] is not None:
            expression, kind = given["sql92"], SQL92
        try:
            build("topic", expression, kind)
        except RMQError as error:
            raise ConfigError(f"the option subExpression: {error}") from None
        return cls(
            endpoint=endpoint,
            topics=given["topic"] or (),
            topic_pattern=given["topicPattern"],
            group=given.get("groupId", READ_GROUP),
            start=start,
            end=end or given["endingTimestamp"],
            max_offsets=given["maxOffsetsPerTrigger"],
            min_offsets=given["minOffsetsPerTrigger"],
            max_delay=given.get("maxTriggerDelay", 900.0),
            min_partitions=given["minPartitions"],
            max_partitions=given["maxPartitions"],
            max_records=given["maxRecordsPerPartition"],
            fail_on_data_loss=given.get("failOnDataLoss", True),
            include_properties=given.get("includeProperties", True),
            include_system=given.get("includeSystem", False),
            columns=given.get("columns", ()),
            expression=expression,
            expression_type=kind,
            pull_batch_size=given.get("pullBatchSize", 1024),
            pull_timeout=given.get("pullTimeoutMs", 60_000) / 1000,
            commit=given.get("commitOffsetsToBroker", given["groupId"] is not None),
            push_filters=given.get("pushFilters", False),
        )

    def check_batch(self, *, pushing: bool, version: str) -> None:
        """Refuse what a batch cannot do.

        :param pushing: this Spark hands conditions to sources (4.1 and later).
        :raises ConfigError: names the option.
        """
        for name, value in (
            ("maxOffsetsPerTrigger", self.max_offsets),
            ("minOffsetsPerTrigger", self.min_offsets),
        ):
            if value is not None:
                raise ConfigError(f"the option {name} is for streams: a batch reads everything up to endingOffsets")
        if self.push_filters and not pushing:
            raise ConfigError(f"the option pushFilters needs Spark 4.1 or newer; this is {version}")

    def check_stream(self, *, limits: bool, version: str) -> None:
        """Refuse what a stream cannot do.

        :param limits: this Spark asks sources for portions (4.2 and later).
        :raises ConfigError: names the option.
        """
        if self.end is not None:
            raise ConfigError("the options endingOffsets and endingTimestamp are for batches: a stream has no end")
        if self.push_filters:
            raise ConfigError("the option pushFilters is for batches: Spark hands no source the conditions of a stream")
        for name, value in (
            ("maxOffsetsPerTrigger", self.max_offsets),
            ("minOffsetsPerTrigger", self.min_offsets),
        ):
            if value is not None and not limits:
                raise ConfigError(f"the option {name} needs Spark 4.2 or newer; this is {version}")


def _not_above(given: _Given, low: str, high: str) -> None:
    if given[low] is not None and given[high] is not None and given[low] > given[high]:
        raise ConfigError(f"the option {low} ({given[low]}) is above {high} ({given[high]})")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and how."""

    endpoint: Endpoint
    topic: str | None
    group: str
    timeout: float
    retries: int
    batch_size: int
    stamp: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """:raises ConfigError: names the option that is unknown, missing or malformed."""
        given = _Given(options, _SINK, "writing")
        topics = given["topic"]
        if topics is not None and len(topics) > 1:
            raise ConfigError("the option topic names several topics: rows choose theirs in a column topic")
        return cls(
            endpoint=Endpoint.of(given),
            topic=topics[0] if topics else None,
            group=given.get("producerGroup", WRITE_GROUP),
            timeout=given.get("sendTimeoutMs", 3000) / 1000,
            retries=given.get("retries", 2),
            batch_size=given.get("batchSize", 64),
            stamp=given.get("dedupProperties", True),
        )
