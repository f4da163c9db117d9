"""How the keys of what is stored get into the index: straight from the appends, or read from the log behind them.

The build reads what an earlier life, a kill or an index that stopped has left out. Once it meets the appends they put
their keys themselves; an index that takes none is left to the build again, and costs no message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.index.fresh import FreshKeys
from rmq.broker.store.index.keyhash import KeyHasher, KeyHashers
from rmq.broker.store.index.putting import IndexStopped
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.trouble import Trouble

__all__ = ["Indexing"]

log = logging.getLogger(__name__)

#: What is dispatched from the log puts no keys: the build has them to put.
_NOWHERE = 1 << 62


class Indexing:
    """Who puts keys now."""

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        dispatcher: Dispatcher,
    ) -> None:
        world, index = ground.world, disk.index
        self._queues = disk.queues
        self._index = index
        self._dispatcher = dispatcher
        #: Hash the keys of messages; shared with queries.
        self.hashers = KeyHashers()
        #: What is appended gets into the index through it.
        self.fresh = FreshKeys(world.clock, self.hashers, index, self._stopped)
        self.build = (
            None
            if index is None
            else IndexBuild(world, disk.log, index, self._complete, crc=ground.settings.check_crc_on_recover)
        )
        #: Called when there is something to build.
        self.on_behind: Callable[[], None] = lambda: None
        self._trouble = Trouble(
            world.clock, log, "putting keys into the index",
            "messages behind are not found by key until they are put into it from the commit log",
        )  # fmt: skip
        dispatcher.index_from = _NOWHERE
        dispatcher.index_stopped = self._stopped

    @property
    def complete(self) -> bool:
        """Whether no key is missing in the index, or there is none."""
        return self.build is None or self.build.complete

    def loaded(self) -> None:
        """The store is recovered, and the build knows what is missing."""
        if not self.complete:
            self.fresh.index = None

    def _complete(self, end: int) -> None:
        """No await is between the last key of the build and this: the next append puts its keys itself."""
        self._dispatcher.index_from = end
        self.fresh.index = self._index
        self._trouble.over()

    def _stopped(self, stopped: IndexStopped) -> None:
        """It is stored: an index that takes no keys costs no message, and gets them when it takes some again."""
        self._trouble.failed(stopped)
        self.fresh.index = None
        self._dispatcher.index_from = _NOWHERE
        if self.build is not None:
            self.build.resume(stopped.offset)
            self.on_behind()

    def retry(self) -> None:
        """Put what waits, and what an index that had stopped lacks, if that is little and it takes it."""
        self.fresh.put()
        if self.build is not None:
            self.build.retry()

    def hasher(self, topic: str) -> KeyHasher:
        """Hashes keys of a topic as the index holds them; who asks for a topic that is not there leaves nothing."""
        return self.hashers.of(topic) if self._queues.all(topic) else KeyHasher(topic)
