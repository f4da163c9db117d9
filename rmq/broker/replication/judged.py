"""Looks at each entry of a master's tables by itself: one that its own request would refuse costs itself alone.

What a slave has under the name of such an entry stays: it is better than nothing, and than nonsense.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from rmq.broker.groups.faults import group_config_fault, mode_fault
from rmq.broker.reserved import name_fault
from rmq.broker.topics.names import topic_config_fault
from rmq.protocol.bodies.body import LENIENT_BYTES, read_json
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.bodies.topic import DataVersion, TopicConfig
from rmq.protocol.errors import BodyError
from rmq.protocol.numbers import INT_MAX, is_whole

__all__ = ["Answer", "forbidden", "groups", "modes", "read_answer", "topics"]

T = TypeVar("T")

#: Entries looked at before the loop gets its turn.
_SLICE = 200


class Answer(NamedTuple):
    """A table of the master's, entry by entry as it came."""

    table: dict[str, object]
    #: The answer that it is a member of.
    whole: dict[str, object]

    def version(self) -> DataVersion:
        """Which version of the table it is.

        :raises BodyError: it does not say.
        """
        if "dataVersion" not in self.whole:
            raise BodyError("there is no dataVersion in it")
        return DataVersion.from_object(self.whole["dataVersion"])


def read_answer(body: bytes, member: str) -> Answer:
    """An answer that is a table.

    :param member: the table's name. An answer without it reads as an empty table, and what the slave has is not to be
        taken for deleted.
    :raises BodyError: it is no such answer.
    """
    whole = read_json(body, member, LENIENT_BYTES)
    table = whole.get(member) if isinstance(whole, dict) else None
    if not isinstance(whole, dict) or not isinstance(table, dict):
        raise BodyError(f"there is no {member} in it")
    return Answer(table, whole)


async def topics(table: Mapping[str, object]) -> tuple[dict[str, TopicConfig], dict[str, str]]:
    """Topics that this broker would make."""

    def fault(name: str, config: TopicConfig) -> str | None:
        return topic_config_fault(config) or _two_names(name, config.topic_name)

    return await _judged(table, TopicConfig.from_object, fault)


async def groups(table: Mapping[str, object]) -> tuple[dict[str, SubscriptionGroupConfig], dict[str, str]]:
    """Groups that this broker would make."""

    def fault(name: str, config: SubscriptionGroupConfig) -> str | None:
        return name_fault(name) or group_config_fault(config) or _two_names(name, config.group_name)

    return await _judged(table, SubscriptionGroupConfig.from_object, fault)


async def forbidden(table: object) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """What groups may not do with topics, as bits; of a group of which one is refused, nothing is taken.

    :param table: None where the master has none: 4.9 has no such member.
    :raises BodyError: it is no table.
    """
    if table is None:
        return {}, {}
    if not isinstance(table, dict):
        raise BodyError("forbiddenTable is no object")

    def read(value: object) -> dict[str, int]:
        found = SubscriptionGroupTable.from_object({"forbiddenTable": {"": value}}).forbidden_table or {}
        return found[""]

    def fault(group: str, bits_of: dict[str, int]) -> str | None:
        wide = next((topic for topic, bits in bits_of.items() if not is_whole(bits, INT_MAX, -INT_MAX - 1)), None)
        return (
            name_fault(group)
            or next(filter(None, map(name_fault, bits_of)), None)
            or (None if wide is None else f"{wide:.40}={bits_of[wide]}: no 32-bit number")
        )

    return await _judged(table, read, fault)


async def modes(
    table: Mapping[str, object],
) -> tuple[dict[str, dict[str, SetMessageRequestModeRequestBody]], dict[str, str]]:
    """Modes of consumption that this broker would set, by topic and group; what is refused is named by both."""
    taken: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
    refused: dict[str, str] = {}
    for topic, of_groups in table.items():
        if not isinstance(of_groups, dict):
            refused[topic] = "no object"
            continue

        def fault(group: str, mode: SetMessageRequestModeRequestBody, topic: str = topic) -> str | None:
            return (
                name_fault(topic)
                or name_fault(group)
                or mode_fault(mode)
                or _two_names(topic, mode.topic)
                or _two_names(group, mode.consumer_group)
            )

        good, bad = await _judged(of_groups, SetMessageRequestModeRequestBody.from_object, fault)
        if good:
            taken[topic] = good
        refused |= {f"{topic}@{group}": why for group, why in bad.items()}
    return taken, refused


async def _judged(
    table: Mapping[str, object], read: Callable[[object], T], fault: Callable[[str, T], str | None]
) -> tuple[dict[str, T], dict[str, str]]:
    taken: dict[str, T] = {}
    refused: dict[str, str] = {}
    for count, (name, value) in enumerate(table.items(), 1):
        try:
            entry = read(value)
        except BodyError as error:
            refused[name] = str(error)
        else:
            if (why := fault(name, entry)) is None:
                taken[name] = entry
            else:
                refused[name] = why
        if not count % _SLICE:
            await asyncio.sleep(0)
    return taken, refused


def _two_names(key: str, name: str) -> str | None:
    return None if key == name else "it has two names"
