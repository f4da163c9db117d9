"""What may be acknowledged and seen where a group of brokers elects its master: what the group has committed.

Nobody is waived here. A message that a majority does not have yet is seen by nobody, however long that takes, and its
sender is answered with FLUSH_SLAVE_TIMEOUT (12) when his time is over: whether it stays is not known then. One that is
cut away is refused with SERVICE_NOT_AVAILABLE (14): it is gone, and may be sent again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from rmq.broker.store.log.durability import Answers, Durability
from rmq.broker.store.state import Queue

__all__ = ["GroupDurability"]

_SERVICE_NOT_AVAILABLE: Final = 14


class GroupDurability(Durability):
    """As :class:`Durability`, with the group's word in place of replicas'.

    :param sync_flush: what is committed is seen here once it is on this disk, too.
    """

    cut_code = _SERVICE_NOT_AVAILABLE

    def __init__(self, *, sync_flush: bool = False) -> None:
        super().__init__(sync_flush=sync_flush, sync_master=True)

    def begin(self, end: int) -> None:
        """Start from a recovered log that is on disk up to ``end``; none of it is visible before :meth:`show`."""
        self.appended = self.flushed = end

    def show(self, end: int, hidden: list[tuple[Queue, int, int]]) -> None:
        """The log is known to be committed up to ``end``.

        :param hidden: queues with entries behind that, where those begin, and up to where they are seen when all of the
            log is.
        """
        self.replicated = self.visible = min(end, self.appended)
        for queue, index, _ in hidden:
            queue.visible = min(queue.visible, index)
        if hidden:
            self._ledger.append((self.appended, [(queue, seen) for queue, _, seen in hidden]))

    def on_committed(self, to: int) -> Answers:
        """The group has everything before ``to``, for ever."""
        if to <= self.replicated:
            return []
        self.replicated = to
        return self._release()

    def set_sync_master(self, on: bool) -> None:
        """The group decides, whatever this broker is in it."""

    def waive(self, end: int) -> None:
        """Nothing is."""

    def on_replica(self, replica: Hashable, to: int) -> Answers:
        """Replicas outside the group are not counted."""
        return []

    def on_no_replica(self) -> Answers:
        """Who waits, waits for the group."""
        return []
