"""Which topics were deleted, and where in the commit log their records end.

A deletion takes queues away, not records: those stay in the log until retention takes their files. Whatever fills
queues from the log asks here, so that what was deleted stays deleted, and a topic that is made anew begins at 0.

``{root}/deletions.json``, which Java does not know::

    {"check":CRC-32 of what follows,"known":{
        "topics":{TOPIC:[dead before this commit-log offset,counter,timestamp]},
        "bytes":{first byte of a segment of the log:bytes of dead records in it}}}

Counter and timestamp are the data version that topics.json has with the deletion: with an older one it still has the
topic. A topic is known as long as the log may hold records of it, so the file is as long as the log is. The bytes only
spare a start the reading of files whose records are not all in queues; where they are wrong, it reads them and puts
them right. A file that is damaged is as if nothing were known: messages come back, none is lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rmq.broker.store.refusal import SPOILT
from rmq.broker.store.trouble import Trouble
from rmq.protocol.crc import crc32
from rmq.runtime.world import World

__all__ = ["Deletion", "Deletions", "TopicDeleted"]

log = logging.getLogger(__name__)

_BETWEEN = b',"known":'


class Deletion(NamedTuple):
    """The last deletion of a topic."""

    #: Records of the topic that begin before this commit-log offset are dead.
    end: int
    #: The data version of topics.json that does not have the topic any more.
    counter: int = 0
    timestamp: int = 0


class TopicDeleted(ValueError):
    """A message has waited for a topic that was deleted meanwhile: it is dropped."""


class Deletions:
    """The deletions that matter to one store.

    :param root: ``storePathRootDir``.
    :param segment: bytes of the log over which dead records are added up.
    """

    def __init__(self, world: World, root: str, segment: int) -> None:
        self._files = world.files
        self._offload = world.offload
        self._segment = segment
        self.path = os.path.join(root, "deletions.json")
        self._known: dict[str, Deletion] = {}
        self._bytes: dict[int, int] = {}
        #: Topics of which it was told that what waits for them is dropped.
        self._told: set[str] = set()
        #: No record behind it is dead.
        self.horizon = 0
        self._changes = self._written = 0
        #: The file says of records that may be stored yet that they are dead.
        self._reaches_too_far = False
        self._lock = asyncio.Lock()
        self._trouble = Trouble(
            world.clock, log, "writing deletions.json", "topics that are deleted meanwhile come back with a restart"
        )

    # -- asked

    def end_of(self, topic: str) -> int:
        """Commit-log offset before which the records of a topic are dead; 0 when no deletion is known."""
        known = self._known.get(topic)
        return 0 if known is None else known.end

    def is_dead(self, topic: str, offset: int) -> bool:
        """Whether the record of a topic at a commit-log offset is of a life that was deleted."""
        return offset < self.horizon and offset < self.end_of(topic)

    def check_alive(self, topic: str, offset: int) -> None:
        """A message that has waited for a topic is due; that it is dropped is told once for each deletion.

        :param offset: the commit-log offset at which it has waited.
        :raises TopicDeleted: the topic was deleted since.
        """
        if not self.is_dead(topic, offset):
            return
        if topic not in self._told:
            self._told.add(topic)
            log.warning("messages that have waited for topic %s are dropped: it was deleted meanwhile", topic)
        raise TopicDeleted(f"topic {topic} was deleted while the message at {offset} has waited for it")

    def bytes_in(self, start: int, stop: int) -> int:
        """Bytes of dead records in the segments from one commit-log offset to another."""
        return sum(self._bytes.get(segment, 0) for segment in range(start, stop, self._segment)) if self._bytes else 0

    def items(self) -> Iterator[tuple[str, Deletion]]:
        """Every topic with its deletion."""
        return iter(list(self._known.items()))

    # -- told

    def note(self, topic: str, deletion: Deletion) -> None:
        """A topic is deleted; :meth:`saved` is due."""
        self._known[topic] = deletion
        self._told.discard(topic)
        self.horizon = max(self.horizon, deletion.end)
        self._changes += 1

    def add(self, sums: Mapping[int, int]) -> None:
        """So many bytes of dead records lie in these segments, by first byte."""
        for segment, size in sums.items():
            self._bytes[segment] = self._bytes.get(segment, 0) + size
        self._changes += bool(sums)

    def measured(self, start: int, sums: Mapping[int, int]) -> None:
        """The log was read from segment ``start`` on: these are all bytes of dead records there."""
        found = {segment: size for segment, size in self._bytes.items() if segment < start}
        found.update((segment, size) for segment, size in sums.items() if size)
        if found != self._bytes:
            self._bytes = found
            self._changes += 1

    def log_begins(self, start: int) -> None:
        """Retention has taken what lay before ``start``: deletions before it are past."""
        gone = [topic for topic, deletion in self._known.items() if deletion.end <= start]
        for topic in gone:
            del self._known[topic]
            self._told.discard(topic)
        past = [segment for segment in self._bytes if segment + self._segment <= start]
        for segment in past:
            del self._bytes[segment]
        self._changes += bool(gone or past)
        self.horizon = max((deletion.end for deletion in self._known.values()), default=0)

    def log_ends(self, end: int) -> None:
        """Records before a deletion were lost with a power cut: those that take their places are not dead."""
        for topic, deletion in self.items():
            if deletion.end > end:
                self._known[topic] = deletion._replace(end=end)
                self._changes += 1
                self._reaches_too_far = True
        self.horizon = min(self.horizon, end)

    # -- the file

    def load(self) -> None:
        """Read the file; one that is damaged is told of. Blocks.

        :raises OSError: it may not be read, or not now.
        """
        self._known, self._bytes, self.horizon = {}, {}, 0
        try:
            known = _unpacked(self._files.read(self.path))
            self._known = {topic: Deletion(*map(int, values)) for topic, values in known["topics"].items()}
            self._bytes = {int(segment): int(size) for segment, size in known["bytes"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno not in SPOILT:
                raise
            self._known, self._bytes = {}, {}
            log.error(
                "%s cannot be used (%s): messages of topics that were deleted come back; delete these topics again",
                self.path, error,
            )  # fmt: skip
        self.horizon = max((deletion.end for deletion in self._known.values()), default=0)

    async def saved(self) -> None:
        """Wait until what is known is on disk, or cannot be written, as the log says.

        :raises OSError: the file stays as it is, and would take messages for dead that are stored from now on.
        """
        async with self._lock:
            if self._changes == self._written:
                return
            changes = self._changes
            try:
                await self._offload(self._files.write_atomic, self.path, self._packed())
            except OSError as error:
                self._trouble.failed(error)
                if self._reaches_too_far:
                    raise
            else:
                self._written = changes
                self._reaches_too_far = False
                self._trouble.over()

    def _packed(self) -> bytes:
        known = json.dumps({"topics": self._known, "bytes": self._bytes}, separators=(",", ":")).encode()
        return b'{"check":%d%b%b}' % (crc32(known), _BETWEEN, known)


def _unpacked(data: bytes) -> dict[str, dict[str, Any]]:
    head, _, rest = data.partition(_BETWEEN)
    known = rest[:-1]
    if head != b'{"check":%d' % crc32(known):
        raise ValueError("its content does not fit its checksum")
    found: dict[str, dict[str, Any]] = json.loads(known)
    return found
