"""What differs between two answers, place by place: both sides' values, in a form that can be listed.

What varies from run to run (addresses, ids, times) stands as its type or as ``*``; everything else is compared as it
is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rmq.protocol import fastjson, properties
from rmq.protocol.command import Command
from rmq.protocol.message import MessageRecord, decode_records
from tests.support.answers.replay import EXCEPTION, TIMES, UNSET, plain

__all__ = ["EXCEPTION_TEXT", "Differences", "differences"]

#: A place in the answer to Java's value and ours; None for what is not there.
Differences = dict[str, list[Any]]

#: What stands for a remark of Java that is an exception and a stack frame.
EXCEPTION_TEXT = "<exception>"
#: What a run decides anew: addresses, ids, times in ms and in text, commit-log offsets in a remark.
_VARYING = re.compile(
    r"/?\d+\.\d+\.\d+\.\d+:\d+|\b[0-9A-F]{32}\b|\b\d{12,}\b|https?://\S+|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*|(?<=offset, )\d+|(?<=commitLogDiskRatio_)\S+"
)
#: Fields that are a number of the run.
_RUN_NUMBERS = frozenset({"msgId", "transactionId", "popTime"})
#: Fields with a part for each queue, in the order in which the broker happened to look at them.
_BY_QUEUE = frozenset({"startOffsetInfo", "msgOffsetInfo", "orderCountInfo"})
#: Properties that 5.x stores with a message, and no consumer reads.
_ADDED = frozenset({"MSG_REGION", "TRACE_ON"})
#: The topic to which most spoilt sends go: what is in it, and how often, depends on the sends that we refuse.
_GROWING = "PB_T"


def differences(java: Command | None, ours: Command | None, masked: frozenset[str]) -> Differences:
    """Everything that differs; empty when the answers are alike.

    :param java: None = there was no answer.
    :param masked: what varies here besides: ``ext.NAME``, ``json.NAME`` or ``body``; ``values`` for all of a body but
        its names, and ``only.NAME`` for all settings of a text but this one.
    """
    found: Differences = {}
    died = java is not None and _remark(java) == EXCEPTION_TEXT
    for place, (theirs, mine) in _sides(java, ours, masked).items():
        if died and ((place == "remark" and mine) or (place.startswith("ext.") and theirs is None)):
            continue  # the text of a handler that died tells a client no more than ours, and comes without fields
        found.update(_unlike(place, theirs, mine))
    return found


def _sides(java: Command | None, ours: Command | None, masked: frozenset[str]) -> dict[str, tuple[Any, Any]]:
    both = [_places(answer, masked) for answer in (java, ours)]
    return {place: (both[0].get(place), both[1].get(place)) for place in sorted({*both[0], *both[1]})}


def _places(answer: Command | None, masked: frozenset[str]) -> dict[str, Any]:
    if answer is None:
        return {}
    ext = _ext(answer, masked)
    return {"code": answer.code, "remark": _remark(answer), **ext, "body": _body(answer, masked)}


def _unlike(place: str, java: Any, ours: Any) -> Iterator[tuple[str, list[Any]]]:
    """What differs in two JSON values."""
    if java == ours:
        return
    if isinstance(java, dict) and isinstance(ours, dict):
        for name in sorted({*java, *ours}):
            yield from _unlike(f"{place}/{name}", java.get(name), ours.get(name))
    elif isinstance(java, list) and isinstance(ours, list) and len(java) == len(ours) == 1:
        yield from _unlike(place, java[0], ours[0])
    elif isinstance(java, list) and isinstance(ours, list):
        yield place, [[item for item in java if item not in ours], [item for item in ours if item not in java]]
    else:
        yield place, [java, ours]


def _text(text: str) -> str:
    return _VARYING.sub("*", text)


def _remark(answer: Command) -> str | None:
    text = answer.remark
    if not text or text == UNSET:
        return None
    return EXCEPTION_TEXT if EXCEPTION.fullmatch(text) else _text(text)


def _ext(answer: Command, masked: frozenset[str]) -> dict[str, Any]:
    ext = answer.ext or {}
    found: dict[str, Any] = {}
    for name, value in ext.items():
        # Queue offsets of sends: Java keeps some that we refuse. Revive queues: Java has eight, in turn.
        varies = (
            f"ext.{name}" in masked
            or name in _RUN_NUMBERS
            or (name == "queueOffset" and "msgId" in ext)
            or (name == "reviveQid" and value != "999")
        )
        if varies:
            found[f"ext.{name}"] = "<digits>" if (value or "").isdigit() else f"<{type(value).__name__}>"
        elif name == "properties":
            found[f"ext.{name}"] = {key: _text(text) for key, text in properties.decode(value or "").items()}
        elif name in _BY_QUEUE:
            found[f"ext.{name}"] = ";".join(sorted((value or "").split(";")))
        else:
            found[f"ext.{name}"] = None if value is None else _text(value)
    return found


def _body(answer: Command, masked: frozenset[str]) -> Any:
    data = answer.body
    if not data:
        return None
    if "body" in masked:
        return "<bytes>"
    only = frozenset(name.removeprefix("only.") for name in masked if name.startswith("only."))
    if only or ("values" in masked and data[:1] not in b"{["):
        lines = dict(line.partition("=")[::2] for line in data.decode(errors="replace").splitlines())
        return {name: text if only else "<str>" for name, text in lines.items() if not only or name in only}
    if data[:1] in b"{[":
        names = frozenset(name.removeprefix("json.") for name in masked if name.startswith("json.")) | TIMES
        try:
            shape = _shape(fastjson.loads(data), names)
            return plain(_types(shape) if "values" in masked else shape, set())
        except ValueError:
            return data.decode(errors="replace")
    try:
        records = list(map(_record, decode_records(data)))
    except Exception:
        return sorted(_text(data.decode(errors="replace")).split("\n"))
    if "startOffsetInfo" in (answer.ext or {}):
        records.sort(key=lambda one: (one["topic"], one["queueId"], one["queueOffset"]))
    if len(records) > 1:
        for one in records:
            if one["topic"] == _GROWING:
                one.update(dict.fromkeys(("queueId", "flag", "sysFlag", "reconsumeTimes"), "*"))
    return [one for n, one in enumerate(records) if one["topic"] != _GROWING or one not in records[:n]]


def _shape(value: Any, masked: frozenset[str]) -> Any:
    """A JSON value with the type in place of what varies."""
    if isinstance(value, Mapping):
        names = {key: _text(key) if isinstance(key, str) else f"#{key}" for key in value}
        return {
            names[key]: f"<{type(item).__name__}>" if key in masked else _shape(item, masked)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_shape(item, masked) for item in value]
    return _text(value) if isinstance(value, str) else value


def _types(value: Any) -> Any:
    """A JSON value with the type in place of each that is no object."""
    if isinstance(value, Mapping):
        return {key: _types(item) for key, item in value.items()}
    return f"<{type(value).__name__}>"


def _record(one: MessageRecord) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "queueId": one.queue_id,
        "queueOffset": "*" if one.topic == _GROWING else one.queue_offset,
        "flag": one.flag,
        "sysFlag": one.sys_flag,
        "reconsumeTimes": one.reconsume_times,
        "bodyCRC": one.body_crc,
        "body": one.body.decode("latin-1"),
        "properties": {key: _text(value) for key, value in one.properties.items() if key not in _ADDED},
    }
