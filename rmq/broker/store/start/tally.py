"""What the good records of the log add up to, segment by segment: a start compares it with what queues say."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.multi_dispatch import MultiDispatch
from rmq.protocol.names import is_lmq

__all__ = ["Tally"]


class Tally:
    """Sums of bytes by segment.

    :param segment: bytes of a segment.
    :param damaged: records in these parts are in no queue, however good they look.
    :param light: light message queues are there: what they hold is added up apart.
    """

    def __init__(
        self,
        segment: int,
        deletions: Deletions,
        damaged: DamagedParts,
        multi_dispatch: MultiDispatch | None,
        *,
        light: bool,
    ) -> None:
        self._segment = segment
        self._deletions = deletions
        self._damaged = damaged
        self._multi_dispatch = multi_dispatch
        self._light = light
        #: Of records that are in queues, and of those that are in light queues.
        self.there: dict[int, int] = {}
        self.light: dict[int, int] = {}
        #: Of deleted topics' records.
        self.dead: dict[int, int] = {}
        #: Offset of the first good record that begins in a segment.
        self.first_records: dict[int, int] = {}

    def add(self, run: Run) -> None:
        """Add a run: the records of one lie side by side."""
        segment, base, records = self._segment, run.base, run.records
        first = 0
        while first < len(records):
            offset = base + records[first][0]
            current = offset - offset % segment
            behind = bisect_left(records, current + segment - base, first, key=itemgetter(0))
            self.first_records.setdefault(current, offset)
            end = records[behind][0] if behind < len(records) else run.end
            lost = sum(record[1] for record in records[first:behind] if record[2] & 0x4)
            self.there[current] = self.there.get(current, 0) + end - records[first][0] - lost
            first = behind
        if base < self._deletions.horizon or (self._damaged.parts and self._damaged.bytes_in(base, base + run.end)):
            self._set_apart(run)
        if self._light:
            self._add_light(run)

    def _set_apart(self, run: Run) -> None:
        """Take out what deleted topics have, and what is known to be damaged."""
        for at, size, sys_flag, _, _, topic, _ in run.records:
            if sys_flag & 0x4:
                continue
            offset = run.base + at
            segment = offset - offset % self._segment
            if self._deletions.is_dead(topic, offset):
                self.there[segment] -= size
                self.dead[segment] = self.dead.get(segment, 0) + size
            elif self._is_damaged(offset, size):
                self.there[segment] -= size

    def _is_damaged(self, offset: int, size: int) -> bool:
        return bool(self._damaged.parts) and self._damaged.bytes_in(offset, offset + size) > 0

    def _add_light(self, run: Run) -> None:
        """Move what a run has in light queues to their sums, and add what it has in further queues."""
        is_dead = self._deletions.is_dead
        for at, size, sys_flag, queue_id, _, topic, text in run.records:
            offset = run.base + at
            if sys_flag & 0x4 or self._is_damaged(offset, size):
                continue
            segment = offset - offset % self._segment
            if is_lmq(topic) and not is_dead(topic, offset):
                self.there[segment] -= size
                self.light[segment] = self.light.get(segment, 0) + size
            if self._multi_dispatch is not None:
                for copy in self._multi_dispatch.copies(run.data[text : at + size], topic, queue_id):
                    if is_dead(copy.topic, offset):
                        continue
                    sums = self.light if is_lmq(copy.topic) else self.there
                    sums[segment] = sums.get(segment, 0) + size
