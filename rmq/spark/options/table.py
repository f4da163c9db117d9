"""The tables of options, and reading what was given by them; docs/spark/options.md says the same to users."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from rmq.protocol.errors import ConfigError
from rmq.protocol.frame import MAX_FRAME, MAX_HEADER
from rmq.spark.options import values
from rmq.spark.options.positions import parse_offsets, parse_timestamps

__all__ = [
    "BATCHES",
    "CONNECTION",
    "READING",
    "SINK",
    "SOURCE",
    "STREAMS",
    "WRITING",
    "Given",
    "Option",
    "Use",
    "check_kind",
]

#: The two kinds of queries.
BATCHES, STREAMS = "batches", "streams"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    :param read: the value of a text; ``ValueError`` says what to give instead. :param also: other names.
    :param default: as a user would write it; None: there is none, or others decide.
    :param only: the kind of queries in which it counts; None: both. :param why: not in the other kind.
    :param since: the first release of Spark with which it works, where that is not each.
    """

    name: str
    read: Callable[[str], Any]
    also: tuple[str, ...] = ()
    default: str | None = None
    only: str | None = None
    why: str = ""
    since: str | None = None


_COUNT = values.whole(1, 10**18)
_TASKS = values.whole(1, 1_000_000)
#: A message has to fit into a frame together with what is said about it.
_BODY = values.whole(1, MAX_FRAME - MAX_HEADER)
_NO_END = "a stream has no end"
_NO_PORTIONS = "a batch reads everything up to endingOffsets"
_NO_CHECKPOINT = "a batch has neither a name nor a checkpoint"

CONNECTION = (
    Option("nameServer", values.servers, ("namesrv", "namesrvAddr", "nameserver.addr")),
    Option("accessKey", values.text),
    Option("secretKey", values.text),
    Option("securityToken", values.text),
    Option("credentialsFile", values.text),
    Option("namespace", values.namespace),
    Option("useTLS", values.truth, ("tls",), "false"),
    Option("tlsCaFile", values.text),
    Option("tlsCertFile", values.text),
    Option("tlsKeyFile", values.text),
    Option("tlsKeyPassword", values.password),
    Option("tlsServerName", values.text),
    Option("tlsVerify", values.truth, (), "true"),
    Option("tlsCheckHostname", values.truth, (), "true"),
)
SOURCE = (
    Option("topic", values.topics, ("topics", "consumer.topic")),
    Option("topicPattern", values.pattern),
    Option("groupId", values.group, ("group", "consumerGroup", "consumer.group"), "rmq_spark"),
    Option("startingOffsets", parse_offsets),
    Option("endingOffsets", parse_offsets, (), "latest", BATCHES, _NO_END),
    Option("startingTimestamp", parse_timestamps),
    Option("endingTimestamp", parse_timestamps, (), None, BATCHES, _NO_END),
    Option("maxOffsetsPerTrigger", _COUNT, (), None, STREAMS, _NO_PORTIONS, "4.2"),
    Option("minOffsetsPerTrigger", _COUNT, (), None, STREAMS, _NO_PORTIONS, "4.2"),
    Option("maxTriggerDelay", values.duration, (), "15m", STREAMS, _NO_PORTIONS, "4.2"),
    Option("minPartitions", _TASKS),
    Option("maxPartitions", _TASKS),
    Option("maxRecordsPerPartition", _COUNT),
    Option("failOnDataLoss", values.truth, (), "true"),
    Option("columns", values.columns),
    Option("includeProperties", values.truth, (), "true"),
    Option("includeSystem", values.truth, (), "false"),
    Option("subExpression", values.text, ("consumer.tag",), "*"),
    Option("sql92", values.text),
    Option("pullBatchSize", values.whole(1, 65_535), ("pull.max.batch.size",), "1024"),
    Option("pullTimeoutMs", values.whole(100, 86_400_000), ("pullTimeout", "pull.timeout.ms"), "60000"),
    Option("commitOffsetsToBroker", values.truth, (), None, STREAMS, "a batch reports no offsets"),
)
SINK = (
    Option("topic", values.topics, ("producer.topic",)),
    Option("producerGroup", values.group, ("group", "groupId", "producer.group"), "rmq_spark_sink"),
    Option("sendTimeoutMs", values.whole(100, 3_600_000), (), "3000"),
    Option("retries", values.whole(0, 100), (), "2"),
    Option("batchSize", values.whole(1, 10_000), (), "64"),
    Option("maxMessageSize", _BODY, (), "4194304"),
    Option("dedupProperties", values.truth, (), "true"),
    Option("writeName", values.group),
    # Spark's own, which it hands over to the sinks of streams.
    Option("checkpointLocation", str, (), None, STREAMS, _NO_CHECKPOINT),
    Option("queryName", str, (), None, STREAMS, _NO_CHECKPOINT),
)


@dataclass(frozen=True, slots=True)
class Use:
    """What is done with options: reading or writing.

    :param misplaced: names that Spark's own ways of saying things lead to here, and what to give instead.
    """

    name: str
    table: tuple[Option, ...]
    misplaced: Mapping[str, str]


#: What Spark gives beside the options of a table that is made. A query of that table has no options at all.
_OF_TABLES = "provider"
_NO_TABLES = (
    "no options, neither nameServer nor topic: Spark hands those of a table in its catalog to no source in Python; "
    "make a view instead: CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...)"
)
_NO_PATH = "no path to {calls}: a topic is named by the option topic"
READING = Use(
    "reading",
    (*CONNECTION, *SOURCE),
    {
        "path": _NO_PATH.format(calls="load()"),
        "paths": _NO_PATH.format(calls="load()"),
        "checkpointlocation": "it to the writer of the stream (writeStream): a source does not look at it",
        "queryname": "it to the writer of the stream (writeStream): a source does not look at it",
    },
)
WRITING = Use("writing", (*CONNECTION, *SINK), {"path": _NO_PATH.format(calls="save() and start()")})


class Given:
    """The options as given, by their proper names, and the defaults of others.

    :raises ConfigError: one is unknown, malformed, given twice, or belongs elsewhere; says which.
    """

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        if not given or any(name.lower() == _OF_TABLES for name in given):
            raise ConfigError(_NO_TABLES)
        self._table = {option.name: option for option in use.table}
        proper = {name.lower(): option for option in use.table for name in (option.name, *option.also)}
        self._values: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, value in given.items():
            secret = any(word in name.lower() for word in ("key", "password", "token"))
            shown = "" if secret else f" is {str(value)[:80]!r}:"
            if instead := use.misplaced.get(name.lower()):
                raise ConfigError(f"the option {name}{shown} give {instead}")
            option = proper.get(name.lower())
            if option is None:
                raise _unknown(name, proper, use)
            if option.name in spelled:
                raise ConfigError(f"the options {spelled[option.name]} and {name} mean the same: give one of them")
            spelled[option.name] = name
            try:
                self._values[option.name] = option.read(str(value))
            except ValueError as error:
                raise ConfigError(f"the option {name}{shown} give {error}") from None

    def __getitem__(self, name: str) -> Any:
        """The value; where it is not given, the default."""
        if name in self._values:
            return self._values[name]
        option = self._table[name]
        return None if option.default is None else option.read(option.default)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> tuple[str, ...]:
        """Which options are given, by their proper names; one that is switched off asks for nothing."""
        return tuple(name for name in self._table if self._values.get(name, False) is not False)

    def clash(self, one: str, other: str, why: str) -> None:
        if one in self and other in self:
            raise ConfigError(f"the options {one} and {other} exclude each other: {why}")

    def needs(self, one: str, other: str) -> None:
        if one in self and other not in self:
            raise ConfigError(f"the option {one} needs the option {other} beside it")

    def ascend(self, low: str, high: str) -> None:
        if low in self and high in self and self[low] > self[high]:
            raise ConfigError(f"the option {low} ({self[low]}) is above {high} ({self[high]})")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name in self:
                raise ConfigError(f"the option {name} {why}")


def check_kind(use: Use, given: Container[str], kind: str, *, old: bool = False, version: str = "") -> None:
    """Refuse options that do nothing in a kind of queries.

    :param given: proper names. :param old: this Spark, of ``version``, is without what came later.
    :raises ConfigError: names the option.
    """
    for option in use.table:
        if option.name not in given:
            continue
        if option.only not in (None, kind):
            raise ConfigError(f"the option {option.name} is for {option.only}: {option.why}")
        if option.since is not None and old:
            raise ConfigError(f"the option {option.name} needs Spark {option.since} or newer; this is {version}")


def _unknown(name: str, proper: Mapping[str, Option], use: Use) -> ConfigError:
    other = WRITING if use is READING else READING
    if name.lower() in {known.lower() for option in other.table for known in (option.name, *option.also)}:
        return ConfigError(f"the option {name} is for {other.name}: leave it out of what is for {use.name}")
    near = difflib.get_close_matches(name.lower(), proper, 1, 0.6)
    hint = f": did you mean {proper[near[0]].name}?" if near else f": {use.name} is done without it"
    return ConfigError(f"the option {name} is unknown{hint}")
