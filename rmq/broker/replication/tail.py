"""The end of a slave's log, which its master is asked for again before it is followed.

The stream has no checksums, and no name of the log: two logs that parted may both have a record that ends at the same
offset. What a disk has lost near the end of this log is had from the master in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmq.broker.store.log.reader import Damage
from rmq.broker.store.store import Store

__all__ = ["Tail"]

#: Bytes of the newest record, at most, and where no queue knows that record.
_MOST, _LEAST = 8 << 20, 64 << 10
#: Bytes from the first hole to the end that are compared with the master's and copied again, at most.
_MOST_AGAIN = 64 << 20
#: Damaged parts that a master is asked for, at most, until it is another one: it may have them no better.
_MOST_HOLES = 1000


class Tail:
    """One slave's.

    :param store: loaded.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        #: What the log has at its end, as it was read last.
        self.data = b""
        #: What is known to be damaged in it: a master that has that sends it again.
        self.holes: Sequence[Damage] = ()
        #: Parts that a master was asked for, and which one.
        self._asked: set[Damage] = set()
        self._of = ""

    async def read(self, address: str) -> None:
        """Read it: the newest record, or all from the first hole on.

        :param address: of the master that is to be asked.
        :raises OSError: it cannot be read.
        """
        store, log = self._store, self._store.log
        end = log.end
        if address != self._of:
            self._asked.clear()
            self._of = address
        self.holes = self.new_holes()
        if self.holes:
            try:
                self.data = await self._to_end(max(log.start, self.holes[0].start - _LEAST, 1))
            except OSError:  # what the disk does not give is not written again either
                self.asked()
            else:
                return
        at = max(log.start, end - _LEAST, 1)
        newest = max(store.queues, key=lambda queue: queue.max_phys, default=None)
        if newest is not None and newest.max_phys > max(log.start, end - _MOST):
            entry = await store.queues.entries_cold(newest, newest.next - 1, 1)
            # Without its first byte: a master whose log ends where this record begins sees at once that it has less.
            at = max(log.start, end - _MOST, int.from_bytes(entry[:8], "big") + 1)
        self.data = await self._to_end(at)

    def new_holes(self) -> list[Damage]:
        """What is damaged near the end, in order, and this master was not asked for."""
        if len(self._asked) >= _MOST_HOLES:
            return []
        log = self._store.log
        first = max(log.start, log.end - _MOST_AGAIN)
        return sorted(
            part
            for part in self._store.damaged.parts
            if first <= part.start and part.end <= log.end and part not in self._asked
        )

    def asked(self) -> None:
        """This master is not asked for these holes again."""
        self._asked.update(self.holes)
        self.holes = ()

    async def _to_end(self, at: int) -> bytes:
        """The log from ``at`` on."""
        log = self._store.log
        pieces: list[bytes] = []
        while log.segments and at < log.end:
            data = await log.read_cold(at, min(log.end - at, log.file_size - at % log.file_size))
            if not data:
                raise OSError(f"the end of the commit log cannot be read at {at}")
            pieces.append(data)
            at += len(data)
        return b"".join(pieces)
