"""The JSON files under ``config``: each can be read, and what they say of queues is possible."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping

from rmq.broker.store.stopped.findings import Finding, unreadable
from rmq.protocol import fastjson
from rmq.protocol.bodies.filter import ConsumerFilterTable
from rmq.protocol.bodies.group import SubscriptionGroupTable
from rmq.protocol.bodies.offset import ConsumerOffsetTable, DelayOffsetTable
from rmq.protocol.bodies.pop import MessageRequestModeTable
from rmq.protocol.bodies.topic import TopicConfigTable
from rmq.protocol.errors import ProtocolError
from rmq.runtime.world import Files

__all__ = ["MetadataCheck"]

_TOPICS = "topics.json"


def _any(data: bytes) -> None:
    if not isinstance(fastjson.loads(data), dict):
        raise ValueError("an object is expected")


#: How files are read whose members are known here; any other is JSON at least.
_READERS: Mapping[str, Callable[[bytes], object]] = {
    _TOPICS: TopicConfigTable.of_file,
    "consumerOffset.json": ConsumerOffsetTable.of_file,
    "lmqConsumerOffset.json": ConsumerOffsetTable.of_file,
    "subscriptionGroup.json": SubscriptionGroupTable.of_file,
    "messageRequestMode.json": MessageRequestModeTable.of_file,
    "consumerFilter.json": ConsumerFilterTable.of_file,
    "delayOffset.json": DelayOffsetTable.of_file,
}


class MetadataCheck:
    """One check. Every method may block.

    :param add: gets what is found.
    """

    def __init__(self, files: Files, root: str, add: Callable[[Finding], None]) -> None:
        self._files = files
        self._folder = os.path.join(root, "config")
        self._add = add

    def topics(self) -> Collection[str] | None:
        """The topics of topics.json, or of its backup; None when neither can be read."""
        for name in (_TOPICS, f"{_TOPICS}.bak"):
            try:
                return TopicConfigTable.of_file(self._files.read(os.path.join(self._folder, name))).topic_config_table
            except (OSError, ProtocolError, ValueError):
                continue
        return None

    def check(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Look at every file.

        :param ends: (topic, queue id) -> behind the last entry.
        """
        try:
            names = self._files.list(self._folder)
        except OSError as error:
            self._add(unreadable("config", self._folder, error))
            return
        for name in dict.fromkeys(name.removesuffix(".bak") for name in names):
            if name.endswith(".json"):
                self._look(name, name in names, f"{name}.bak" in names, ends)
            elif name.endswith(".tmp"):
                path = os.path.join(self._folder, name)
                self._add(Finding("config", "leftover", path, "a write that did not end; nobody reads it", False))

    def _look(self, name: str, there: bool, backup: bool, ends: Mapping[tuple[str, int], int]) -> None:
        path = os.path.join(self._folder, name)
        fault = self._fault(name, path) if there else "it is not there"
        if backup and (second := self._fault(name, f"{path}.bak")) is not None:
            self._add(Finding("config", "backup", f"{path}.bak", second, damage=fault is not None))
        elif backup and fault is not None:
            fault += "; the next start takes the .bak"
        if fault is not None:
            self._add(Finding("config", "file", path, fault))
        elif name == "consumerOffset.json":
            self._look_at_offsets(path, ends)

    def _fault(self, name: str, path: str) -> str | None:
        try:
            data = self._files.read(path)
            if not data.strip():
                return f"{len(data)} bytes, nothing in them"
            _READERS.get(name, _any)(data)
        except OSError as error:
            return unreadable("config", path, error).detail
        except (ProtocolError, ValueError) as error:
            return f"it cannot be read: {error}"
        return None

    def _look_at_offsets(self, path: str, ends: Mapping[tuple[str, int], int]) -> None:
        for name, offsets in ConsumerOffsetTable.decode(self._files.read(path)).offset_table.items():
            topic = name.rpartition("@")[0]
            for queue_id, offset in offsets.items():
                end = ends.get((topic, queue_id), 0)
                if offset > end:
                    self._add(
                        Finding("config", "offset", path, f"{name} is at {offset}, the queue ends at {end}", False,
                                topic=topic, queue_id=queue_id)
                    )  # fmt: skip
