"""The groups of a broker with light message queues (``enableLmq``): their configs, and where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.offsets import OffsetTable, escaped, slices
from rmq.broker.topics.metadata import MetadataFile
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.names import is_lmq
from rmq.remoting.long_body import LongBody
from rmq.runtime.world import World

__all__ = ["LmqGroupTable", "LmqOffsetTable", "load_offsets"]


class LmqGroupTable(GroupTable):
    """A ``%LMQ%`` group has the default config, which is nowhere kept (Java: LmqSubscriptionGroupManager)."""

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return SubscriptionGroupConfig(group_name=group) if is_lmq(group) else super().get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        return SubscriptionGroupConfig(group_name=group) if is_lmq(group) else super().find(group)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group; for one of light queues there is nothing to do."""
        if not is_lmq(config.group_name):
            super().put(config)


class LmqOffsetTable(OffsetTable):
    """Offsets with lmqConsumerOffset.json (Java: LmqConsumerOffsetManager).

    A ``%LMQ%`` group has one offset a topic, whatever queue id it names. The file is
    ``{"lmqOffsetTable":{"topic@group":3},"offsetTable":{...}}``, with every other group in the second table.
    """

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        super().commit(group, topic, 0 if is_lmq(group) else queue_id, offset)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        return super().query(group, topic, 0 if is_lmq(group) else queue_id)

    async def render(self) -> bytes:
        pairs = self.pairs()
        light = await self._light(pairs, '\t\t"%s":%d')
        others = await self._rendered([pair for pair in pairs if not is_lmq(pair[1])])
        return f'{{\n\t"lmqOffsetTable":{_braced(light)},\n\t"offsetTable":{_braced(others)}\n}}'.encode()

    async def encode(self) -> bytes:
        pairs = self.pairs()
        light = await self._light(pairs, '"%s":%d')
        others = await self._encoded([pair for pair in pairs if not is_lmq(pair[1])])
        body = LongBody('{"lmqOffsetTable":{')
        for part in light:
            await body.item(part)
        body.text('},"offsetTable":{')
        for part in others:
            await body.item(part)
        return await body.end("}}")

    async def _light(self, pairs: list[tuple[str, str]], template: str) -> list[str]:
        parts: list[str] = []
        for some in slices([pair for pair in pairs if is_lmq(pair[1])]):
            parts += [template % (escaped(topic, group), self.of(group, topic).get(0, -1)) for topic, group in some]
            await asyncio.sleep(0)
        return parts


def _braced(lines: list[str]) -> str:
    return "\n".join(("{", ",\n".join(lines), "\t}")) if lines else "{}"


def load_offsets(world: World, offsets: OffsetTable, own: MetadataFile, other: str) -> None:
    """Read the offsets, whichever file the broker kept them in last.

    Java reads one file or the other as ``enableLmq`` says, so that groups begin anew when it is switched.

    :param own: the file of this configuration.
    :param other: path of the other configuration's; read when it is newer.
    """
    stamps: Mapping[str, int] = {path: _changed(world, path) for path in (own.path, other)}
    if stamps[other] > stamps[own.path] and MetadataFile(world, other, offsets.render).load(offsets.parse):
        return
    own.load(offsets.parse)


def _changed(world: World, path: str) -> int:
    """When a file was written, ms; 0 when it is not there."""
    try:
        return world.files.mtime_ms(path)
    except OSError:
        return 0
