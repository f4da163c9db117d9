"""Consumer offsets: where each group is in each queue (consumerOffset.json).

The file is Java's: ``{"offsetTable":{"topic@group":{0:250,1:251}}}`` with unquoted queue ids (store-and-broker.md 1.5).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from rmq.protocol.bodies.body import LENIENT_BYTES, read_json
from rmq.protocol.bodies.offset import ConsumerOffsetTable
from rmq.protocol.errors import BodyError
from rmq.protocol.names import LMQ_PREFIX
from rmq.remoting.long_body import LongBody

__all__ = ["UNKNOWN", "OffsetTable", "escaped", "offsets_in", "pair_of", "read_offsets", "slices"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: What :meth:`OffsetTable.query` answers when nothing is stored.
UNKNOWN = -1

#: Strange commits are told of so many times between two writes of the file: a client that rewinds commits often.
_WARNINGS = 10
#: Queues named in a line about one group and topic.
_SHOWN = 8
#: (topic, group) pairs rendered before the loop gets its turn.
_SLICE = 500
#: Queues whose offsets are looked at before the loop gets its turn.
_QUEUES = 2_000

#: The table of an answer to 43, a pair of it with its queues as brokers write them, and a queue of these.
_TABLE = re.compile(rb'"offsetTable"\s*:\s*\{')
_PAIR = re.compile(rb'\s*"([^"\\]*)":\{((?:\d{1,9}|"\d{1,9}"):\d{1,18}(?:,(?:\d{1,9}|"\d{1,9}"):\d{1,18})*+)\},?')
_QUEUE = re.compile(rb'"?(\d+)"?:(\d+)')


class OffsetTable:
    """Offsets per (topic, group) and queue (Java: ConsumerOffsetManager; store-and-broker.md 8.5).

    Topics, queues and the end of a queue are the client's business, and an offset may move back. None is below 0: it
    would read as no offset, and the group would begin anew.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        #: Counts changes, so that a writer sees whether there is anything to write.
        self.changes = 0
        self._told = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset, the index of the next message the group wants; one below 0 changes nothing."""
        if offset < 0:
            self._warn(
                "%s commits %d on %s-%d, which is no offset: what is stored stays", group, offset, topic, queue_id
            )
            return
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        queues = topics.get(topic)
        if queues is None:
            queues = topics[topic] = {}
        old = queues.get(queue_id)
        if old == offset:
            return
        queues[queue_id] = offset
        self.changes += 1
        if old is not None and offset < old:
            self._warn("%s moves back on %s-%d: %d to %d", group, topic, queue_id, old, offset)

    def _warn(self, text: str, *what: object) -> None:
        self._told += 1
        if self._told <= _WARNINGS:
            log.warning(text, *what)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The stored offset, or UNKNOWN (-1)."""
        topics = self._groups.get(group)
        queues = topics.get(topic) if topics is not None else None
        return UNKNOWN if queues is None else queues.get(queue_id, UNKNOWN)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Every stored offset of a group on a topic, by queue id."""
        return self._groups.get(group, {}).get(topic, {})

    def topics_of(self, group: str) -> list[str]:
        """Topics on which the group has stored offsets."""
        return list(self._groups.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Groups with stored offsets on the topic."""
        return [group for group, topics in self._groups.items() if topic in topics]

    def pairs(self) -> list[tuple[str, str]]:
        """Every (topic, group) with stored offsets."""
        return [(topic, group) for group, topics in self._groups.items() for topic in topics]

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Give ``target`` the offsets of ``source`` on a topic, in place of its own.

        :returns: whether ``source`` had any.
        """
        queues = self._groups.get(source, {}).get(topic)
        if queues is None:
            return False
        self._groups.setdefault(target, {})[topic] = dict(queues)
        self.changes += 1
        return True

    def remove_group(self, group: str) -> None:
        """Forget a group's offsets on every topic."""
        if self._groups.pop(group, None) is not None:
            self.changes += 1

    def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets on a topic."""
        for group in self.groups_of(topic):
            self.remove_pair(topic, group)

    def remove_pair(self, topic: str, group: str) -> None:
        topics = self._groups.get(group)
        if topics is not None and topics.pop(topic, None) is not None:
            self.changes += 1
            if not topics:
                del self._groups[group]

    def queues_of(self, topic: str) -> list[int]:
        """The queues of a topic on which any group has an offset."""
        return sorted({queue_id for topics in self._groups.values() for queue_id in topics.get(topic, ())})

    def minimums(
        self,
        topic: str,
        minimum: Mapping[int, int],
        without: Collection[str] = (),
        queues: Collection[int] | None = None,
    ) -> dict[int, int]:
        """The smallest offset of any group, per queue (what 308 starts from).

        :param minimum: first readable index by queue id; offsets below it are stale and do not count.
        :param without: groups left out of the comparison.
        :param queues: only these: of a topic with very many, who asks does it in slices.
        """
        lowest: dict[int, int] = {}
        for group, topics in self._groups.items():
            offsets = topics.get(topic)
            if offsets is None or group in without:
                continue
            for queue_id in offsets if queues is None else queues:
                offset = offsets.get(queue_id, -1)
                if offset >= minimum.get(queue_id, 0) and offset < lowest.get(queue_id, offset + 1):
                    lowest[queue_id] = offset
        return lowest

    def reached(self) -> dict[tuple[str, int], int]:
        """The highest offset that any group has, by topic and queue id."""
        highest: dict[tuple[str, int], int] = {}
        for topics in self._groups.values():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    if offset > highest.get((topic, queue_id), 0):
                        highest[topic, queue_id] = offset
        return highest

    def bring_back(self, end: Callable[[str, int], int | None]) -> None:
        """Let no offset lie behind the end of its queue; each group and topic that it concerns is told.

        A power cut may take messages along whose consumption is in the file already. The next ones get their places in
        the queue, and the group would never see them.

        :param end: the end of a queue by topic and queue id; None where that is not known.
        """
        found = 0
        for group, topics in self._groups.items():
            for topic, queues in topics.items():
                moved = []
                for queue_id, offset in queues.items():
                    last = end(topic, queue_id)
                    if last is not None and offset > last:
                        queues[queue_id] = last
                        moved.append(f"queue {queue_id} from {offset} to {last}")
                if moved:
                    found += 1
                    if found <= _WARNINGS:
                        log.warning("%s comes back to the end of %s: %s", group, topic, ", ".join(moved[:_SHOWN]))
        if found:
            self.changes += 1
            log.warning(
                "messages that were consumed are lost: offsets of %d groups on topics were behind the end of their "
                "queues; what is stored next is delivered",
                found,
            )

    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Have what a file or a master holds, and nothing else: ``topic@group`` to queue id to offset.

        What is no offset counts as not stored, and the log names it: Java and earlier releases store any number.
        """
        self._groups = self._read(table)
        self.changes += 1

    def merge(self, table: Mapping[str, Mapping[int, int]]) -> int:
        """Take over what another broker of the set holds where it is further on: of two offsets the larger one stays.

        Groups went on at a slave while their master was away: where they are now is the maximum of both, queue by
        queue. The ends of the queues are another matter (:meth:`bring_back`).

        :param table: as for :meth:`load`.
        :returns: how many offsets moved, or came.
        """
        moved = 0
        for group, topics in self._read(table).items():
            for topic, queues in topics.items():
                own = self._groups.setdefault(group, {}).setdefault(topic, {})
                for queue_id, offset in queues.items():
                    if offset > own.get(queue_id, UNKNOWN):
                        own[queue_id] = offset
                        moved += 1
        if moved:
            self.changes += 1
        return moved

    async def follow(
        self, table: Mapping[str, Mapping[int, int]], last: Mapping[str, Mapping[int, int]], *, whole: bool = False
    ) -> int:
        """Take over what a slave's master holds: no offset moves back but where the master's own has.

        A slave may be further on than its master: groups went on here while that was away. What tells a reset from a
        master that has forgotten is the master itself: where it answers less than before, within one life, it was told
        to go back (a reset, or a client that seeks); and a pair that it no longer has was deleted.

        :param table: as for :meth:`load`.
        :param last: what it answered before in the same life; empty where that is not known.
        :param whole: every offset in it is taken as it is: nobody can have gone on here.
        :returns: how many offsets moved, came or went.
        """
        moved = 0
        for names in _portions(list(table)):
            for name in names:
                topic, group = pair_of(name)
                if topic and group and table[name]:
                    own = self._groups.setdefault(group, {}).setdefault(topic, {})
                    before = last.get(name, {})
                    for queue_id, offset in table[name].items():
                        held = own.get(queue_id, UNKNOWN)
                        back = whole or offset < before.get(queue_id, UNKNOWN)
                        if offset > held or (0 <= offset < held and back):
                            own[queue_id] = offset
                            moved += 1
            await asyncio.sleep(0)
        for name in [name for name in last if name not in table]:
            topic, group = pair_of(name)
            moved += len(self.of(group, topic))
            self.remove_pair(topic, group)
        if moved:
            self.changes += 1
        return moved

    def _read(self, table: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, dict[int, int]]]:
        """What is an offset of a group on a topic, by group; the rest is told."""
        groups: dict[str, dict[str, dict[int, int]]] = {}
        for name, queues in table.items():
            topic, group = pair_of(name)
            if topic and group:
                kept = groups.setdefault(group, {})[topic] = {}
                for queue_id, offset in queues.items():
                    if offset >= 0:
                        kept[queue_id] = offset
                    else:
                        self._warn(
                            "%s has %d stored on %s-%d, which is no offset: it begins there like a group without one",
                            group, offset, topic, queue_id,
                        )  # fmt: skip
        if self._told > _WARNINGS:
            log.warning("%d more stored offsets are none", self._told - _WARNINGS)
        self._told = 0
        return groups

    def parse(self, data: bytes) -> None:
        """Have what the file holds.

        :raises ProtocolError: it is no such file.
        """
        self.load(offsets_in(ConsumerOffsetTable.of_file(data)))

    async def render(self) -> bytes:
        """The file's text, built in slices so that a large table never holds the loop."""
        parts = await self._rendered(self.pairs())
        if not parts:
            return b'{\n\t"offsetTable":{}\n}'
        return b'{\n\t"offsetTable":{\n%s\n\t}\n}' % ",\n".join(parts).encode()

    async def _rendered(self, pairs: list[tuple[str, str]]) -> list[str]:
        self._told = 0
        parts: list[str] = []
        for slice_ in slices(pairs):
            for topic, group in slice_:
                queues = self.of(group, topic)
                end = "\n\t\t}" if queues else "}"
                parts.append(f'\t\t"{escaped(topic, group)}":{{{await _pairs(queues)}{end}')
            await asyncio.sleep(0)
        return parts

    async def encode(self) -> bytes:
        """The body of an answer to 43, built in slices.

        :raises ResponseError: no frame has room for it.
        """
        body = LongBody('{"offsetTable":{')
        for part in await self._encoded(self.pairs()):
            await body.item(part)
        return await body.end("}}")

    async def _encoded(self, pairs: list[tuple[str, str]]) -> list[str]:
        parts: list[str] = []
        for slice_ in slices(pairs):
            parts += [f'"{escaped(topic, group)}":{{{await _pairs(self.of(group, topic))}}}' for topic, group in slice_]
            await asyncio.sleep(0)
        return parts


def offsets_in(body: ConsumerOffsetTable) -> dict[str, dict[int, int]]:
    """Both tables of a file, or of an answer to 43, as one: a light group has one offset a topic."""
    return {**body.offset_table, **{name: {0: offset} for name, offset in body.lmq_offset_table.items()}}


async def read_offsets(data: bytes, refused: Callable[[str, str], None]) -> dict[str, dict[int, int]]:
    """:func:`offsets_in` of an answer to 43, read in turns: 10,000 pairs take a third of a second at once.

    :param refused: told the name of each pair whose offsets are none, and why; the others are read.
    :raises BodyError: it is no such answer.
    """
    found: dict[str, dict[int, int]] = {}
    head = _TABLE.search(data)
    at = end = 0 if head is None else head.end()
    while head is not None and (pair := _PAIR.match(data, at)) is not None:
        queues = _QUEUE.findall(pair[2])
        found[pair[1].decode("utf-8", "replace")] = {int(queue_id): int(offset) for queue_id, offset in queues}
        at = pair.end()
        if not len(found) % _SLICE:
            await asyncio.sleep(0)
    # What is written in another way, and whatever else is in it.
    rest = data[:end] + data[at:]
    try:
        return found | offsets_in(ConsumerOffsetTable.decode(rest))
    except BodyError:
        whole = read_json(rest, "ConsumerOffsetTable", LENIENT_BYTES)
    tables = {} if not isinstance(whole, dict) else whole
    for member in ("offsetTable", "lmqOffsetTable"):
        table = tables.get(member) or {}
        if not isinstance(whole, dict) or not isinstance(table, dict):
            raise BodyError(f"there is no {member} in it")
        for count, (name, offsets) in enumerate(table.items(), 1):
            try:
                found |= offsets_in(ConsumerOffsetTable.from_object({member: {name: offsets}}))
            except BodyError as error:
                refused(name, str(error))
            if not count % _SLICE:
                await asyncio.sleep(0)
    return found


def pair_of(name: str) -> tuple[str, str]:
    """Topic and group of ``topic@group``; the name of a light group may have an @ in it (MQTT gateways)."""
    topic, at, group = name.partition(f"@{LMQ_PREFIX}")
    if at:
        return topic, LMQ_PREFIX + group
    topic, _, group = name.rpartition("@")
    return topic, group


def slices(keys: list[tuple[str, str]]) -> Iterable[list[tuple[str, str]]]:
    """Pairs in portions after which the loop gets its turn."""
    return _portions(keys)


def _portions(items: list[T]) -> Iterable[list[T]]:
    return (items[start : start + _SLICE] for start in range(0, len(items), _SLICE))


async def _pairs(queues: Mapping[int, int]) -> str:
    """A table of offsets as JSON members; of very many queues, some thousands a turn of the loop."""
    ids = sorted(queues)
    if len(ids) <= _QUEUES:
        return ",".join(f"{queue_id}:{queues[queue_id]}" for queue_id in ids)
    parts: list[str] = []
    for first in range(0, len(ids), _QUEUES):
        some = [(queue_id, queues.get(queue_id)) for queue_id in ids[first : first + _QUEUES]]
        parts += [f"{queue_id}:{offset}" for queue_id, offset in some if offset is not None]
        await asyncio.sleep(0)
    return ",".join(parts)


def escaped(topic: str, group: str) -> str:
    """``topic@group`` as it stands between the quotes of a JSON string."""
    name = f"{topic}@{group}"
    if name.isprintable() and '"' not in name and "\\" not in name:
        return name
    return "".join(
        "\\" + char if char in '"\\' else char if char.isprintable() else f"\\u{ord(char):04x}" for char in name
    )
