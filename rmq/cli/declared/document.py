"""The file: what a cluster is to have. What it does not name stays as it is.

::

    brokers: [broker-a, broker-b]          # whom rmq export asked: where one of them is gone, nothing is done
    topics:
      orders: {queues: 8}                  # readQueueNums and writeQueueNums
      bills:
        readQueueNums: 8
        writeQueueNums: 4
        perm: 6                            # 2 W, 4 R, 6 RW
        brokers: [broker-a]                # by default every master of the cluster
      clicks:
        queues: 4
        brokers:                           # or by name, with what differs there
          broker-a: {queues: 8}
          broker-b:
    groups:
      billing: {retryMaxTimes: 5}
    kv:
      MY_NAMESPACE: {key: value}
      ORDER_TOPIC_CONFIG: {clicks: broker-a:8;broker-b:4}

That a topic is ordered is the last entry, and nothing that a broker is told: it learns it from its name servers.
A value that is not given stays as it is, or is the default where the topic or group is new.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq.auth import document
from rmq.auth.document import Node, Scalar, parse_document
from rmq.protocol.errors import ConfigError
from rmq.protocol.names import group_fault, topic_fault

__all__ = ["GROUP_KEYS", "MOST_BYTES", "TOPIC_KEYS", "Declared", "Entry", "parse_declared"]

Value = int | bool
_NUMBER = re.compile(r"[+-]?[0-9]+")
#: Key of the file -> lowest and highest number; None: true or false.
TOPIC_KEYS: dict[str, tuple[int, int] | None] = {
    "readQueueNums": (1, 65_536), "writeQueueNums": (1, 65_536), "perm": (2, 6),
}  # fmt: skip
GROUP_KEYS: dict[str, tuple[int, int] | None] = {
    "consumeEnable": None, "consumeFromMinEnable": None, "consumeBroadcastEnable": None,
    "retryQueueNums": (0, 65_536), "retryMaxTimes": (-1, 1_000_000), "brokerId": (0, 1_000),
    "whichBrokerWhenConsumeSlowly": (0, 1_000), "notifyConsumerIdsChangedEnable": None,
}  # fmt: skip
_BOTH = "queues"
#: Of a file: 10,000 topics and as many groups, as rmq export writes them, are four million.
MOST_BYTES = 8 << 20


@dataclass(slots=True)
class Entry:
    """A topic or a group. :param values: by key of the file. :param brokers: by name, what differs there; None: all."""

    values: dict[str, Value] = field(default_factory=dict)
    brokers: dict[str, dict[str, Value]] | None = None

    def at(self, broker: str) -> dict[str, Value] | None:
        """What it is to be at a broker; None: the file does not say that it is there."""
        if self.brokers is None:
            return self.values
        return {**self.values, **self.brokers[broker]} if broker in self.brokers else None


@dataclass(slots=True)
class Declared:
    """What stands in a file; a section that is not there is None, and nothing of it is ever deleted.

    :param asked: brokers of which it tells.
    """

    topics: dict[str, Entry] | None = None
    groups: dict[str, Entry] | None = None
    kv: dict[str, dict[str, str]] | None = None
    asked: list[str] = field(default_factory=list)

    def brokers(self) -> set[str]:
        """Every broker that is named."""
        entries = [*(self.topics or {}).values(), *(self.groups or {}).values()]
        return {name for one in entries for name in one.brokers or ()}


def parse_declared(path: str, data: bytes) -> Declared:
    """:param path: for errors. :raises ConfigError: names the file, the line and what is wrong there."""
    reader = _Reader(path)
    root = parse_document(path, data, MOST_BYTES)
    made = Declared()
    if root is None:
        return made
    for key, node in root.values.items():
        if key == "topics":
            made.topics = reader.entries(node, "topic", TOPIC_KEYS)
        elif key == "groups":
            made.groups = reader.entries(node, "group", GROUP_KEYS)
        elif key == "brokers":
            if not isinstance(node, document.Sequence):
                raise reader.fault(node, "brokers: a list of names is expected, such as [broker-a, broker-b]")
            made.asked = [reader.text(one, "brokers") for one in node.items]
        elif key == "kv":
            made.kv = {
                namespace: {name: reader.text(value, name) for name, value in reader.mapping(entries).items()}
                for namespace, entries in reader.mapping(node).items()
            }
        else:
            raise reader.unknown(root.keys[key], key, ("brokers", "topics", "groups", "kv"))
    return made


class _Reader:
    def __init__(self, path: str) -> None:
        self._path = path

    def fault(self, node: Node, what: str) -> ConfigError:
        return ConfigError(f"{self._path}:{node.line}: {what}")

    def unknown(self, node: Node, key: str, known: tuple[str, ...]) -> ConfigError:
        near = difflib.get_close_matches(key, known, 1)
        return self.fault(node, f"there is no key {key}: " + (f"did you mean {near[0]}?" if near else ", ".join(known)))

    def mapping(self, node: Node) -> Mapping[str, Node]:
        if isinstance(node, Scalar) and node.text is None:
            return {}
        if not isinstance(node, document.Mapping):
            raise self.fault(node, "keys with values are expected")
        return node.values

    def text(self, node: Node, key: str) -> str:
        if not isinstance(node, Scalar) or node.text is None:
            raise self.fault(node, f"{key}: a text is expected")
        return node.text

    def entries(self, node: Node, kind: str, keys: Mapping[str, tuple[int, int] | None]) -> dict[str, Entry]:
        made = {}
        for name, body in self.mapping(node).items():
            if why := (topic_fault if kind == "topic" else group_fault)(name):
                raise self.fault(body, f"{name!r} is no name of a {kind}: {why}")
            given = dict(self.mapping(body))
            brokers = given.pop("brokers", None)
            own = body.keys if isinstance(body, document.Mapping) else {}
            made[name] = Entry(self._values(given, own, kind, keys))
            if isinstance(brokers, document.Sequence):
                made[name].brokers = {self.text(one, "brokers"): {} for one in brokers.items}
            elif brokers is not None:
                made[name].brokers = {
                    broker: self._values(
                        self.mapping(one), one.keys if isinstance(one, document.Mapping) else {}, kind, keys
                    )
                    for broker, one in self.mapping(brokers).items()
                }
        return made

    def _values(
        self,
        given: Mapping[str, Node],
        places: Mapping[str, Scalar],
        kind: str,
        keys: Mapping[str, tuple[int, int] | None],
    ) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key, node in given.items():
            if key == _BOTH and kind == "topic":
                number = self._value(node, key, TOPIC_KEYS["readQueueNums"])
                values.update({"readQueueNums": number, "writeQueueNums": number})
            elif key in keys:
                values[key] = self._value(node, key, keys[key])
            else:
                known = (*keys, "brokers", *((_BOTH,) if kind == "topic" else ()))
                raise self.unknown(places.get(key, node), key, known)
        if values.get("perm", 6) not in (2, 4, 6):
            raise self.fault(given["perm"], f"perm is {values['perm']}: 2 (write), 4 (read) or 6 (both) is expected")
        return values

    def _value(self, node: Node, key: str, bounds: tuple[int, int] | None) -> Value:
        text = self.text(node, key)
        if bounds is None:
            if text.lower() not in ("true", "false"):
                raise self.fault(node, f"{key} is {text!r}: true or false is expected")
            return text.lower() == "true"
        if _NUMBER.fullmatch(text) is None:  # int() takes 1_0 and digits of other scripts
            raise self.fault(node, f"{key} is {text!r}: a whole number is expected")
        number = int(text) if len(text) < 12 else bounds[1] + 1
        if not bounds[0] <= number <= bounds[1]:
            raise self.fault(node, f"{key} is {text}: {bounds[0]} to {bounds[1]} is expected")
        return number
