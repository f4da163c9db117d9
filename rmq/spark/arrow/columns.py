"""The columns of the source: names, Spark types, and which of them a read asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq.protocol.errors import ConfigError
from rmq.spark.options.checked import SourceOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["LEGACY", "TYPES", "arrow_type", "check", "chosen", "ddl"]

_BASE = ("topic", "brokerName", "queueId", "offset", "value", "keys", "tags", "msgId", "bornTimestamp", "timestamp")
_SYSTEM = ("flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes", "physicalOffset", "offsetMsgId")
#: The columns of the Scala connector, in its order.
LEGACY = (
    "topic",
    "flag",
    "body",
    "properties",
    "brokerName",
    "queueId",
    "queueOffset",
    "bornTimestamp",
    "storeTimestamp",
)

_PROPERTIES = "map<string,string>"
#: Every column and its type; those of the Scala connector beside ours.
TYPES: dict[str, str] = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "offset": "bigint",
    "value": "binary",
    "keys": "string",
    "tags": "string",
    "msgId": "string",
    "bornTimestamp": "timestamp",
    "timestamp": "timestamp",
    "properties": _PROPERTIES,
    "flag": "int",
    "sysFlag": "int",
    "bornHost": "string",
    "storeHost": "string",
    "reconsumeTimes": "int",
    "physicalOffset": "bigint",
    "offsetMsgId": "string",
    "body": "binary",
    "queueOffset": "bigint",
    "storeTimestamp": "timestamp",
}
#: What a message need not have.
_MAY_BE_NULL = frozenset({"keys", "tags"})


def chosen(options: SourceOptions) -> list[tuple[str, str]]:
    """(column, type) as the options ask for them. :raises ConfigError: ``columns`` names one that does not exist."""
    if [name.lower() for name in options.columns] == ["legacy"]:
        return [(name, "string" if name == "properties" else TYPES[name]) for name in LEGACY]
    if options.columns:
        proper = {name.lower(): name for name in TYPES}
        for name in options.columns:
            if name.lower() not in proper:
                raise ConfigError(f"the option columns names {name!r}: {_known()}, or legacy alone")
        return [(proper[name.lower()], TYPES[proper[name.lower()]]) for name in options.columns]
    names = [*_BASE]
    if options.include_properties:
        names.append("properties")
    if options.include_system:
        names += _SYSTEM
    return [(name, TYPES[name]) for name in names]


def ddl(columns: Iterable[tuple[str, str]]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns)


def arrow_type(kind: str) -> pyarrow.DataType:
    """The Arrow type that Spark expects of a column of a type of its own."""
    import pyarrow  # who asks for names alone does without it

    return {
        "string": pyarrow.string(),
        "int": pyarrow.int32(),
        "bigint": pyarrow.int64(),
        "binary": pyarrow.binary(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        _PROPERTIES: pyarrow.map_(pyarrow.string(), pyarrow.string()),
    }[kind]


def check(columns: Iterable[tuple[str, str, bool]]) -> None:
    """Refuse a schema that a user gave and that is not ours.

    :param columns: (name, type, may be null) as Spark writes types.
    :raises ConfigError: names the column.
    """
    for name, kind, nullable in columns:
        ours = TYPES.get(name)
        if ours is None:
            raise ConfigError(f"the schema names a column {name!r}: {_known()}")
        if kind != ours and not (name == "properties" and kind == "string"):
            raise ConfigError(f"the column {name} is {ours}, not {kind}: cast it in a select")
        if not nullable and name in _MAY_BE_NULL:
            raise ConfigError(f"the column {name} is null where a message has none: declare it without NOT NULL")


def _known() -> str:
    return f"the columns are {', '.join(TYPES)}"
