"""What has to be done so that a cluster has what a file declares, and a file of what a cluster has. Nothing here asks.

The broker's own topics and groups, and the retry and dead-letter topics of groups, are in neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmq.cli.declared.document import GROUP_KEYS, TOPIC_KEYS, Declared, Entry, Value
from rmq.cli.mqadmin.text import plain
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.names import (
    BUILT_IN_GROUPS,
    is_broker_group,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    reply_topic,
)

__all__ = ["State", "Step", "exported", "steps_of"]

_TOPIC_DEFAULTS: dict[str, Value] = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6}


@dataclass(slots=True)
class State:
    """What a cluster has.

    :param masters: addresses, by broker name. :param topics: by broker name and topic. :param kv: by namespace and key;
        of the namespaces that are asked about.
    """

    cluster: str
    masters: Mapping[str, str]
    topics: Mapping[str, Mapping[str, TopicConfig]]
    groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]]
    kv: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def keeps(self, kind: str, name: str) -> bool:
        """Whether a topic or group is the brokers' own, or one that they make for a group's retries."""
        if kind == "group":
            return name in BUILT_IN_GROUPS or is_system_group(name) or is_broker_group(name)
        own = {self.cluster, *self.masters, reply_topic(self.cluster)}
        return name in own or is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name)

    def own_topics(self) -> dict[str, dict[str, dict[str, Value]]]:
        """The topics of users: topic, broker, value by key of the file."""
        found: dict[str, dict[str, dict[str, Value]]] = {}
        for broker, table in sorted(self.topics.items()):
            for name, config in sorted(table.items()):
                if not self.keeps("topic", name):
                    found.setdefault(name, {})[broker] = _values(config, TOPIC_KEYS)
        return dict(sorted(found.items()))

    def own_groups(self) -> dict[str, dict[str, dict[str, Value]]]:
        """The groups of users, likewise."""
        found: dict[str, dict[str, dict[str, Value]]] = {}
        for broker, table in sorted(self.groups.items()):
            for name, config in sorted(table.items()):
                if not self.keeps("group", name):
                    found.setdefault(name, {})[broker] = _values(config, GROUP_KEYS)
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Step:
    """One change.

    :param sign: ``+`` new, ``~`` changed, ``-`` deleted. :param kind: topic, group or kv. :param where: the broker's
        name; a namespace of kv. :param was: values by key, before. :param becomes: after; empty where it is deleted.
    """

    sign: str
    kind: str
    name: str
    where: str
    was: Mapping[str, Any]
    becomes: Mapping[str, Any]

    def line(self) -> str:
        """For people, on one line whatever stands in an entry."""
        return plain(self._line())

    def _line(self) -> str:
        at = f"{self.where}/{self.name}" if self.kind == "kv" else f"{self.name} at {self.where}"
        head = f"{self.sign} {self.kind} {at}"
        if self.sign == "~":
            changes = [f"{key} {_shown(self.was.get(key))} -> {_shown(value)}" for key, value in self.becomes.items()
                       if self.was.get(key) != value]  # fmt: skip
            return f"{head}: {', '.join(changes)}"
        if self.sign == "+":
            return f"{head}: {', '.join(f'{key} {_shown(value)}' for key, value in self.becomes.items())}"
        return f"{head}{', with its messages' if self.kind == 'topic' else ''}"

    def table(self) -> dict[str, Any]:
        """For programs."""
        return {"sign": self.sign, "kind": self.kind, "name": self.name, "where": self.where,
                "was": dict(self.was), "becomes": dict(self.becomes)}  # fmt: skip


def steps_of(declared: Declared, state: State, *, prune: bool = False) -> list[Step]:
    """Everything that differs, in the order in which it is to be done.

    :param prune: what the file's sections do not name is deleted.
    """
    steps = [
        *_entries("topic", declared.topics, state.own_topics(), state, _TOPIC_DEFAULTS),
        *_entries("group", declared.groups, state.own_groups(), state, _values(SubscriptionGroupConfig(), GROUP_KEYS)),
    ]
    for namespace, entries in sorted((declared.kv or {}).items()):
        known = state.kv.get(namespace, {})
        for key, value in entries.items():
            if known.get(key) != value:
                was = {"value": known[key]} if key in known else {}
                steps.append(Step("~" if was else "+", "kv", key, namespace, was, {"value": value}))
        if prune:
            steps += [Step("-", "kv", key, namespace, {"value": value}, {}) for key, value in sorted(known.items())
                      if key not in entries]  # fmt: skip
    if prune:
        for kind, entries_, found in (("topic", declared.topics, state.own_topics()),
                                      ("group", declared.groups, state.own_groups())):  # fmt: skip
            for name, brokers in found.items():
                if entries_ is not None and name not in entries_:
                    steps += [Step("-", kind, name, broker, was, {}) for broker, was in brokers.items()]
    return steps


def _entries(
    kind: str,
    entries: Mapping[str, Entry] | None,
    found: Mapping[str, Mapping[str, Mapping[str, Value]]],
    state: State,
    defaults: Mapping[str, Value],
) -> Iterator[Step]:
    for name, entry in (entries or {}).items():
        for broker in sorted(state.masters):
            wanted = entry.at(broker)
            if wanted is None:
                continue
            was = found.get(name, {}).get(broker)
            becomes = {**(defaults if was is None else was), **wanted}
            if was is None:
                yield Step("+", kind, name, broker, {}, becomes)
            elif becomes != was:
                yield Step("~", kind, name, broker, was, becomes)


def exported(state: State) -> dict[str, Any]:
    """A document of what there is: values that every broker has, and what differs at some."""
    made: dict[str, Any] = {
        "brokers": sorted(state.masters),
        "topics": {name: _entry(brokers, state) for name, brokers in state.own_topics().items()},
        "groups": {name: _entry(brokers, state) for name, brokers in state.own_groups().items()},
    }
    if state.kv:
        made["kv"] = {namespace: dict(sorted(entries.items())) for namespace, entries in sorted(state.kv.items())}
    return made


def _entry(brokers: Mapping[str, Mapping[str, Value]], state: State) -> dict[str, Any]:
    common = dict(Counter(tuple(values.items()) for values in brokers.values()).most_common(1)[0][0])
    entry = _short(common)
    differing = {
        broker: _short({key: value for key, value in values.items() if common[key] != value}) or None
        for broker, values in brokers.items()
    }
    if any(differing.values()):
        entry["brokers"] = differing
    elif set(brokers) != set(state.masters):
        entry["brokers"] = sorted(brokers)
    return entry


def _short(values: Mapping[str, Value]) -> dict[str, Any]:
    """With one key for both numbers of queues, where they are the same."""
    if "readQueueNums" in values and values.get("writeQueueNums") == values["readQueueNums"]:
        rest = {key: value for key, value in values.items() if not key.endswith("QueueNums") or key.startswith("retry")}
        return {"queues": values["readQueueNums"], **rest}
    return dict(values)


def _values(config: TopicConfig | SubscriptionGroupConfig, keys: Mapping[str, object]) -> dict[str, Value]:
    told = config.to_object()
    return {key: told[key] for key in keys if key in told}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
