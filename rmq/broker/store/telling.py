"""A leader's side of :mod:`~rmq.broker.store.told`: what an append makes is told to who follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from rmq.broker.store.state import Delta
from rmq.broker.store.told import LONGEST, Told, ToldQueue
from rmq.protocol.crc import crc32

__all__ = ["Telling"]

#: Appends whose keys are waited for, at most; what is not told the others make themselves.
_MOST = 1024
_FEWEST = 8


class Telling:
    """Puts together what queues and index get of an append.

    :param tell: gets it, after the append or during it.
    """

    def __init__(self, tell: Callable[[Told], None]) -> None:
        self._tell = tell
        #: Messages of an append of which it is told, at least: to make it of fewer is less work than to compare them.
        self.fewest = _FEWEST
        #: What waits for its keys.
        self._waiting: deque[Told] = deque(maxlen=_MOST)

    def appended(self, start: int, data: bytes, stamp: int, deltas: Sequence[Delta], *, keys: bool) -> None:
        """Records lie in one file now; their entries are in their queues.

        :param data: the records.
        :param keys: :meth:`indexed` follows; else there is no index.
        """
        if sum([count for _, _, count, _, _ in deltas]) < self.fewest or len(data) > LONGEST:
            return
        queues = [ToldQueue(queue.topic, queue.id, queue.next - count, data) for queue, data, count, _, _ in deltas]
        told = Told(start, start + len(data), stamp, crc32(data), queues, None)
        if keys:
            self._waiting.append(told)
        else:
            self._say(told)

    def indexed(self, start: int, keys: bytes | None) -> None:
        """The keys of an append are in the index.

        :param start: where its first record begins.
        :param keys: their entries; None: not all of them are there.
        """
        waiting = self._waiting
        while waiting and waiting[0].start < start:
            waiting.popleft()
        if waiting and waiting[0].start == start:
            told = waiting.popleft()
            if keys is not None:
                self._say(told._replace(keys=keys))

    def _say(self, told: Told) -> None:
        """Tell, if it fits in one unit, which has no more room: a longer one would end the connection."""
        if told.memory <= LONGEST:
            self._tell(told)
