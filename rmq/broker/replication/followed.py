"""Up to where in its log a slave knows its master's topics: whoever makes a master of it reads that.

Tables are asked for again and again, and messages do not wait for them. A slave that is promoted by hand may have what
was acknowledged in a topic, or a queue, that it was not told of. Topics of older messages that its tables have not were
deleted or hidden, and stay so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq.broker.topics.metadata import MetadataFile
from rmq.broker.topics.regained import regain
from rmq.protocol import fastjson
from rmq.protocol.errors import StoreError
from rmq.protocol.numbers import LONG_MAX, is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.broker.parts import Ground
    from rmq.broker.store.state import Queue
    from rmq.broker.topics.table import TopicTable

__all__ = ["Followed", "regain_promoted"]

log = logging.getLogger(__name__)

_NAME = "followed.json"
_MEMBER = "topicsAsOf"
#: No slave has been here since the topics were last gone through.
_NOBODY = -1


class Followed:
    """followed.json: ``{"topicsAsOf":N}``, a commit-log offset. A slave has it, and nobody else."""

    def __init__(self, ground: Ground) -> None:
        self._log = ground.store.log
        #: Everything before it was there when the topics were asked for that the tables have.
        self.topics_as_of = _NOBODY
        self._file = MetadataFile(
            ground.world, ground.settings.config_path(_NAME), lambda: b'{"topicsAsOf":%d}' % self.topics_as_of
        )

    def load(self) -> None:
        """Read it. One that cannot be read says that no topics were taken over: better too many than one less."""
        try:
            self._file.load(self._parse)
        except StoreError as error:
            log.warning("%s: which topics this broker was told of as a slave is not known", error)
            self.topics_as_of = 0

    def _parse(self, data: bytes) -> None:
        found = fastjson.loads(data)
        value = found.get(_MEMBER) if isinstance(found, dict) else None
        if value is None or not is_whole(value, LONG_MAX, _NOBODY):
            raise ValueError(f"{_MEMBER} is no commit-log offset")
        self.topics_as_of = value

    def begin(self) -> None:
        """This broker is a slave: what its log gets from now on, it has to be told of."""
        self.taken(self.topics_as_of if 0 <= self.topics_as_of <= self._log.end else self._log.end)

    def taken(self, as_of: int) -> None:
        """The master's topics are here.

        :param as_of: where the log ended when they were asked for.
        """
        if as_of != self.topics_as_of:
            self.topics_as_of = as_of
            self._file.changed()

    async def close(self) -> None:
        """Bring it to disk."""
        await self._file.close()


async def regain_promoted(ground: Ground, topics: TopicTable, queues: Iterable[Queue]) -> None:
    """A broker begins as a master: of a slave that it was, make the topics that it has messages of and was not told of.

    :param topics: what it knows; changed, and on disk when this ends.
    :param queues: all that the store has.
    """
    followed = Followed(ground)
    followed.load()
    since = followed.topics_as_of
    if since != _NOBODY:
        newer = [queue for queue in queues if queue.max_phys > since]
        regain(topics, newer, since, ground.settings.default_topic_queue_nums)
        await topics.file.flush()
        followed.taken(_NOBODY)
    await followed.close()
