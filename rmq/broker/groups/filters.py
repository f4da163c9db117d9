"""What groups filter by with SQL92, for as long as it matters (Java: ConsumerFilterManager; store-and-broker.md 7.9).

A filter lives from the heartbeat that brings it. It is dead when its group is gone, and forgotten a day later
(``filterDataCleanTimeSpan``): until then messages' bit maps say whether it wants them, so a group that comes back finds
its backlog marked. A bit map counts for messages stored after the filter was born, not for older ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmq.broker.groups.expressions import Expressions
from rmq.broker.share import Share
from rmq.broker.topics.metadata import MetadataFile
from rmq.filter.bloom import Bloom
from rmq.filter.sql import ExpressionError, SqlFilter, compile_sql
from rmq.protocol import fastjson, properties
from rmq.protocol.bodies.filter import BloomFilterData, ConsumerFilterData, ConsumerFilterTable, TopicFilterData
from rmq.protocol.errors import StoreError

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.protocol.bodies.heartbeat import SubscriptionData
    from rmq.runtime.world import World

__all__ = ["PERSIST_SECONDS", "Bits", "ConsumerFilter", "ConsumerFilters"]

log = logging.getLogger(__name__)

#: How often consumerFilter.json is brought up to date.
PERSIST_SECONDS = 10.0
_SQL = "SQL92"
#: What a filter read from the file is taken to have been dead for, ms: its clients are not here yet.
_DEAD_BEFORE_MS = 30_000
#: What filters are asked about messages that are stored in one turn of the loop, in characters of their expressions.
_MARKS_PER_TURN = 50_000
#: Topics rendered before the loop gets its turn.
_SLICE = 100


@dataclass(frozen=True, slots=True)
class Bits:
    """A filter's place in bit maps, for one life of its expression."""

    mask: int
    #: Bytes of a map that counts.
    size: int
    #: Messages stored up to then, ms, were not marked for it.
    born_time: int

    def refuses(self, bit_map: bytes, store_timestamp: int) -> bool:
        """Whether a message's bit map says that the filter does not want it."""
        return (
            store_timestamp > self.born_time
            and len(bit_map) == self.size
            and int.from_bytes(bit_map, "little") & self.mask != self.mask
        )


@dataclass(slots=True)
class ConsumerFilter:
    """One group's filter of one topic (Java: ConsumerFilterData)."""

    topic: str
    group: str
    compiled: SqlFilter
    #: Version of the subscription, ms: the client's clock.
    client_version: int
    #: Wall clock, ms.
    born_time: int
    positions: tuple[int, ...]
    bits: Bits = field(init=False)
    dead_time: int = 0

    @property
    def dead(self) -> bool:
        return self.dead_time >= self.born_time

    def to_body(self, bit_num: int) -> ConsumerFilterData:
        return ConsumerFilterData(
            BloomFilterData(bit_num, list(self.positions)),
            self.born_time,
            self.client_version,
            self.group,
            self.dead,
            self.dead_time,
            self.compiled.text,
            _SQL,
            self.topic,
        )


class ConsumerFilters:
    """All SQL92 filters of a broker, and consumerFilter.json.

    :param world: clock and files.
    :param settings: bloom sizes and how long the dead are kept.
    :param path: consumerFilter.json.
    """

    def __init__(self, world: World, settings: BrokerSettings, path: str) -> None:
        self._clock = world.clock
        self._settings = settings
        self.bloom = Bloom(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter)
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._groups: dict[str, dict[str, ConsumerFilter]] = {}
        self._marks = Share(_MARKS_PER_TURN)
        #: Whoever compiles one of a request asks here first.
        self.expressions = Expressions()
        self.file = MetadataFile(world, path, self._render)
        self._changed = False

    # -- the life of a filter

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """The filter of a group on a topic, dead or alive."""
        filters = self._topics.get(topic)
        return None if filters is None else filters.get(group)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take in what a heartbeat says of a group: all of its subscriptions."""
        held = self._groups.get(group)
        wanted = set()
        for data in subscriptions:
            wanted.add(data.topic)
            if not data.is_tag_type and data.sub_string and data.expression_type == _SQL:
                self._register(group, data)
        if held:
            for one in list(held.values()):
                if one.topic not in wanted:
                    self._die(one)

    def _register(self, group: str, data: SubscriptionData) -> None:
        old = self.get(data.topic, group)
        if old is not None and data.sub_version < old.client_version:
            return
        if old is not None and (data.sub_version == old.client_version or data.sub_string == old.compiled.text):
            if old.dead:
                log.info("the filter of %s on %s lives again", group, data.topic)
                old.dead_time = 0
                self._changed = True
            if data.sub_version > old.client_version:
                old.client_version = data.sub_version
                self._changed = True
            return
        try:
            compiled = compile_sql(data.sub_string)
        except ExpressionError as error:
            log.warning("the filter of %s on %s cannot be used: %s", group, data.topic, error)
            if old is not None:
                # Its pulls are refused from now on, and say why.
                self._forget(old)
            return
        log.info("%s filters %s by %s", group, data.topic, data.sub_string)
        positions = self.bloom.positions(f"{group}#{data.topic}")
        self._keep(ConsumerFilter(data.topic, group, compiled, data.sub_version, self._clock.now_ms(), positions))

    def unregister(self, group: str) -> None:
        """The last client of a group is gone."""
        for one in self._groups.get(group, {}).values():
            self._die(one)

    def _keep(self, one: ConsumerFilter) -> None:
        mask = int.from_bytes(self.bloom.bit_map(one.positions), "little")
        one.bits = Bits(mask, self.bloom.m // 8, one.born_time)
        self._topics.setdefault(one.topic, {})[one.group] = one
        self._groups.setdefault(one.group, {})[one.topic] = one
        self._changed = True

    def _die(self, one: ConsumerFilter) -> None:
        if not one.dead:
            one.dead_time = max(self._clock.now_ms(), one.born_time)
            self._changed = True

    def _forget(self, one: ConsumerFilter) -> None:
        for table, outer, inner in ((self._topics, one.topic, one.group), (self._groups, one.group, one.topic)):
            filters = table[outer]
            del filters[inner]
            if not filters:
                del table[outer]
        self._changed = True

    def of_group(self, group: str) -> Iterable[ConsumerFilter]:
        """The filters of a group, dead or alive."""
        return self._groups.get(group, {}).values()

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: a message with a bit map of it is never asked for again."""
        for one in list(self._topics.get(topic, {}).values()):
            self._forget(one)

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        for one in list(self._groups.get(group, {}).values()):
            self._forget(one)

    def clean(self) -> None:
        """Forget what has been dead for ``filterDataCleanTimeSpan``."""
        oldest = self._clock.now_ms() - self._settings.filter_data_clean_time_span
        for filters in list(self._topics.values()):
            for one in list(filters.values()):
                if one.dead and one.dead_time <= oldest:
                    log.info("the filter of %s on %s is forgotten", one.group, one.topic)
                    self._forget(one)

    # -- bit maps

    def bit_map(self, topic: str, text: bytes) -> bytes:
        """Which filters want a message: the map that is kept of it; empty when its topic has none.

        And when nothing is left for it of this turn of the loop, or there is more to ask than a turn has: such a
        message is handed to every filter when it is pulled, where it is asked in slices.

        :param text: its property string.
        """
        filters = self._topics.get(topic)
        if not filters or not self._settings.enable_calc_filter_bit_map:
            return b""
        weight = len(text) + sum([one.compiled.weight for one in filters.values()])
        if weight > _MARKS_PER_TURN or self._marks.used_up:
            return b""
        self._marks.count(weight)
        table = properties.decode(text.decode(errors="replace"))
        bits = 0
        for one in filters.values():
            if one.compiled.matches(table):
                bits |= one.bits.mask
        return bits.to_bytes(self.bloom.m // 8, "little")

    # -- the file

    async def persist(self) -> None:
        """Clean up, and write the file if anything has changed."""
        self.clean()
        if self._changed:
            self._changed = False
            self.file.changed()
        await self.file.flush()

    async def _render(self) -> bytes:
        parts: list[str] = []
        for number, (topic, filters) in enumerate(list(self._topics.items()), 1):
            bodies = {group: one.to_body(self.bloom.m) for group, one in filters.items()}
            text = fastjson.pretty(TopicFilterData(bodies, topic).to_object()).decode()
            parts.append(f"\t\t{fastjson.quote(topic)}:" + text.replace("\n", "\n\t\t"))
            if not number % _SLICE:
                await asyncio.sleep(0)
        inner = "\n".join(("{", ",\n".join(parts), "\t}")) if parts else "{}"
        return f'{{\n\t"filterDataByTopic":{inner}\n}}'.encode()

    def load(self) -> None:
        """Have what the file holds.

        Filters made for other bit maps, and what cannot be read, are let go: clients bring theirs.
        """
        try:
            self.file.load(self._parse)
        except StoreError as error:
            log.error("the filters of the last run are lost: %s", error)
        self._changed = False

    def _parse(self, data: bytes) -> None:
        found: list[ConsumerFilter] = []
        now = self._clock.now_ms()
        for topic, held in ConsumerFilterTable.of_file(data).filter_data_by_topic.items():
            for group, one in held.group_filter_data.items():
                bloom = one.bloom_filter_data
                if bloom is None or bloom.bit_num != self.bloom.m or len(bloom.bit_pos) != self.bloom.k:
                    log.warning("%s was written for other bit maps: all filters in it are let go", self.file.path)
                    return
                if not all(0 <= position < self.bloom.m for position in bloom.bit_pos):
                    raise ValueError(f"bit positions {bloom.bit_pos} of {group} on {topic}")
                try:
                    compiled = compile_sql(one.expression)
                except ExpressionError as error:
                    log.error("the filter of %s on %s cannot be used any more: %s", group, topic, error)
                    continue
                loaded = ConsumerFilter(topic, group, compiled, one.client_version, one.born_time, tuple(bloom.bit_pos))
                loaded.dead_time = one.dead_time or max(now - _DEAD_BEFORE_MS, one.born_time)
                found.append(loaded)
        self._topics.clear()
        self._groups.clear()
        for loaded in found:
            self._keep(loaded)
