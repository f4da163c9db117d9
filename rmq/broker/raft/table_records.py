"""Changes of tables as messages of the log, in queue 0 of ``rmq_sys_TABLE_CHANGES``.

The body is one JSON object::

    kind       "topic", "group", "forbidden" (what a group must not do with a topic), "mode" (of consumption)
    name       of the topic; of the group, for "group" and "forbidden"
    beside     "forbidden": the topic; "mode": the group
    value      the whole configuration as 21, 201 and 402 tell it; the bits, for "forbidden"; null = it is deleted
    offsets    "group", deleted: whether its offsets go, too
    version    dataVersion of the table with the change; "mode" has none

It is born where it is stored, as everything is that a broker writes itself. What a client has sent to a plain broker
that did not refuse it was not, and is no change.

Whoever does not know the topic, a plain broker, Java's, or a member of a release before, has messages there that nobody
asks for.
"""

from __future__ import annotations

from typing import Any

import orjson

from rmq.broker.groups.faults import group_config_fault, mode_fault
from rmq.broker.reserved import name_fault
from rmq.broker.topics.changes import FORBIDDEN, GROUP, MODE, TOPIC, Change
from rmq.broker.topics.names import topic_config_fault
from rmq.broker.topics.stored import stored_topic_fault
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.errors import BodyError
from rmq.protocol.numbers import INT_MAX, is_whole

__all__ = ["LONGEST", "Config", "config_of", "decode", "encode"]

#: Bytes of a record's body: the attributes of a topic have no other limit.
LONGEST = 64 << 10

Config = TopicConfig | SubscriptionGroupConfig | SetMessageRequestModeRequestBody | int


def encode(change: Change) -> bytes:
    """The body of a record."""
    record: dict[str, Any] = {"kind": change.kind, "name": change.name}
    if change.beside:
        record["beside"] = change.beside
    record["value"] = None if change.value is None else orjson.Fragment(change.value)
    if change.offsets:
        record["offsets"] = True
    if change.version is not None:
        record["version"] = change.version.to_object()
    return orjson.dumps(record)


def decode(body: bytes) -> Change:
    """What a record says.

    :raises BodyError: it is none, or one that a later release has written.
    """
    if len(body) > LONGEST:
        raise BodyError(f"it has {len(body)} bytes, and {LONGEST} at most are written")
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise BodyError(f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BodyError("it is no object")
    kind, name, beside = found.get("kind"), found.get("name"), found.get("beside", "")
    if kind not in (TOPIC, GROUP, FORBIDDEN, MODE) or not isinstance(name, str) or not isinstance(beside, str):
        raise BodyError(f"kind={kind!r:.40}, name={name!r:.40}: it is of another release")
    if fault := name_fault(name) or (name_fault(beside) if beside else None):
        raise BodyError(fault)
    value, version = found.get("value"), found.get("version")
    try:
        text = None if value is None else orjson.dumps(value)
    except TypeError as error:  # it takes less depth than what is read may have
        raise BodyError(f"the settings of {kind} {name} cannot be kept: {error}") from None
    return Change(
        kind, name, text,
        None if version is None else DataVersion.from_object(version), beside, found.get("offsets") is True,
    )  # fmt: skip


def config_of(change: Change) -> Config | None:
    """The configuration that a change brings; None when it is a deletion.

    :raises BodyError: it is none that this broker would have.
    """
    if change.value is None:
        return None
    value = orjson.loads(change.value)
    config: Config
    if change.kind == TOPIC:
        config = TopicConfig.from_object(value)
        fault = stored_topic_fault(config.topic_name) or topic_config_fault(config)
        same = config.topic_name == change.name
    elif change.kind == GROUP:
        config = SubscriptionGroupConfig.from_object(value)
        fault, same = group_config_fault(config), config.group_name == change.name
    elif change.kind == MODE:
        config = SetMessageRequestModeRequestBody.from_object(value)
        fault, same = mode_fault(config), (config.topic, config.consumer_group) == (change.name, change.beside)
    else:
        config, fault, same = value, None if is_whole(value, INT_MAX, 0) else "no bits", True
    if fault is not None or not same:
        raise BodyError(fault or "it has two names")
    return config
