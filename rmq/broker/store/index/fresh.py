"""The keys of what was just appended, on their way into the index: those of a tick together, behind its answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rmq.broker.store.index.index import Index
from rmq.broker.store.index.keyhash import KeyHashers
from rmq.broker.store.index.putting import IndexStopped, put_each
from rmq.broker.store.state import Put
from rmq.broker.store.trouble import Trouble
from rmq.runtime.world import Clock

__all__ = ["FreshKeys"]

log = logging.getLogger(__name__)

#: Messages of an append that are looked at together: with fewer, that costs more than it saves.
_MANY = 32


class FreshKeys:
    """Keys of stored messages. An index that takes none costs no message.

    :param index: gets them; None while it is built from the log, and where there is none.
    :param stopped: told when the index takes none any more: what is missing is to be read from the log.
    """

    def __init__(
        self, clock: Clock, hashers: KeyHashers, index: Index | None, stopped: Callable[[IndexStopped], None]
    ) -> None:
        self.index = index
        self._hashers = hashers
        self._stopped = stopped
        #: Told where each append begins, and the entries of its keys; None: some are not in the index.
        self.told: Callable[[int, bytes | None], None] | None = None
        #: Messages whose keys are not in the index yet: they, where they lie, and their store time.
        self._waiting: list[tuple[Sequence[Put], list[tuple[int, int]], int]] = []
        self._trouble = Trouble(clock, log, "putting keys into the index", "such a message is not found by its keys")

    def __len__(self) -> int:
        """How many appends wait."""
        return len(self._waiting)

    def add(self, puts: Sequence[Put], offsets: list[tuple[int, int]], stamp: int) -> None:
        """Messages were appended at ``offsets`` (queue index, commit-log offset)."""
        if self.index is not None:
            self._waiting.append((puts, offsets, stamp))

    def put(self) -> None:
        """Put what waits. Never raises."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        index = self.index
        if index is None:
            return
        try:
            for puts, offsets, stamp in waiting:
                entries: bytes | None = None
                try:
                    count = self._put(index, puts, offsets, stamp)
                    if self.told is not None:
                        entries = index.newest(count)
                except Exception:
                    put_each(index, self._hashed(puts, offsets), stamp, self._refused)
                if self.told is not None:
                    self.told(offsets[0][1], entries)
        except IndexStopped as stopped:
            self._stopped(stopped)

    def _put(self, index: Index, puts: Sequence[Put], offsets: list[tuple[int, int]], stamp: int) -> int:
        """Put the keys of an append; how many they are."""
        columns = self._hashers.columns(puts, offsets) if len(puts) >= _MANY else None
        if columns is None:
            hashes = self._hashers.of_puts(puts, offsets)
            index.put_many(hashes, stamp)
            return len(hashes)
        index.put_columns(*columns, stamp)
        return len(columns[0])

    def _hashed(self, puts: Sequence[Put], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """What goes into the index, message by message: one of them may be what failed."""
        hashes: list[tuple[int, int]] = []
        for put, offset in zip(puts, offsets, strict=True):
            try:
                hashes += self._hashers.of_puts([put], [offset])
            except Exception as error:
                self._refused(offset[1], error)
        return hashes

    def _refused(self, offset: int, error: Exception) -> None:
        self._trouble.failed(ValueError(f"those of the message at {offset}: {error}"))
