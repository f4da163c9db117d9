"""Compares consume queues with the records that the scrub reads, and has put right what does not fit.

Each record that goes by has an entry in its queue that says where it is, its size and its tags code; and each entry
between two of them stands for a record that has gone by, or is blank. Entries are read as the records come, some at a
time, so no more of the log is read for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.care.mending import Mending
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.records import TagsRule, derive
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue
from rmq.broker.store.trouble import Trouble
from rmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq.protocol.record import store_time
from rmq.runtime.world import Clock

__all__ = ["QueueScrub"]

log = logging.getLogger(__name__)

_entry = ENTRY
#: Entries without a record of this run that are looked at before one with a record: more are not between neighbours.
_GAP = 1024

#: Index, position in the run, size, position of the property string.
_Seen = tuple[int, int, int, int]


class QueueScrub:
    """Compares the queues of one store.

    :param rule: tags codes.
    """

    def __init__(
        self,
        clock: Clock,
        queues: QueueTable,
        damaged: DamagedParts,
        deletions: Deletions,
        rule: TagsRule,
        mending: Mending,
    ) -> None:
        self._queues = queues
        self._damaged = damaged
        self._deletions = deletions
        self._rule = rule
        self._mending = mending
        #: Topic -> whether the entry with an index may have a code that is not its record's tags code: index, code,
        #: record. One that may not gets the tags code.
        self.codes: dict[str, Callable[[int, int, bytes], bool]] = {}
        #: Queue -> behind the last index that has gone by.
        self._behind: dict[Queue, int] = {}
        self._trouble = Trouble(clock, log, "comparing consume queues with the log", "it is done with the next pass")

    def begin(self) -> None:
        """A pass begins, or goes on somewhere."""
        self._behind.clear()

    async def compare(self, run: Run) -> None:
        """Some good records of the log, in its order."""
        seen: dict[tuple[str, int], list[_Seen]] = {}
        for at, size, sys_flag, queue_id, index, topic, text in run.records:
            if not sys_flag & 0x4 and not self._deletions.is_dead(topic, run.base + at):
                seen.setdefault((topic, queue_id), []).append((index, at, size, text))
        for (topic, queue_id), records in seen.items():
            queue = self._queues.get(topic, queue_id)
            if queue is not None:
                try:
                    await self._compare(queue, run, records)
                except OSError as error:
                    self._trouble.failed(error)
                    return
        self._trouble.over()

    async def _compare(self, queue: Queue, run: Run, records: list[_Seen]) -> None:
        """Records of one queue."""
        wrong: list[int] = []
        codes: dict[int, bytes] = {}
        behind = self._behind.get(queue, -1)
        block, first = b"", 0
        for index, at, size, text in records:
            if not queue.min <= index < queue.next:
                continue
            begin = behind if 0 <= index - behind <= _GAP and behind >= queue.min else index
            for number in range(begin, index + 1):
                place = (number - first) * ENTRY_SIZE
                if not 0 <= place < len(block) - ENTRY_SIZE + 1:
                    first, place = number, 0
                    block = await self._queues.entries_cold(queue, number, records[-1][0] - number + 1)
                    if len(block) < ENTRY_SIZE:
                        return  # the queue is gone
                offset, length, code = _entry.unpack_from(block, place)
                if number < index:
                    if not is_blank(offset, length):
                        wrong.append(number)  # no record of this number has gone by
                elif offset != run.base + at or length != size:
                    if not self._damaged.bytes_in(run.base + at, run.base + at + size):
                        wrong.append(number)
                elif (right := self._code(queue, run, at, text, size)) != code and not self._may_be(
                    queue, index, code, right, run.data[at : at + size]
                ):
                    codes[index] = _entry.pack(offset, length, right)
            behind = max(behind, index + 1)
        self._behind[queue] = behind
        if wrong:
            await self._mending.settle(queue, wrong, blank=True)
        if codes:
            await self._mending.put(queue, codes)
            self._mending.remade += len(codes)
            log.critical(
                "%d entries of %s from index %d on had another tags code than their messages, and were made anew; have "
                "the disk checked",
                len(codes), queue.files.directory, min(codes),
            )  # fmt: skip

    def _code(self, queue: Queue, run: Run, at: int, text: int, size: int) -> int:
        """The tags code that the entry of a record has to have."""
        found = None if queue.topic == SCHEDULE_TOPIC else self._rule.code(run.data, text, at + size)
        return derive(run.data, at, self._rule).tags_code if found is None else found

    def _may_be(self, queue: Queue, index: int, code: int, right: int, record: bytes) -> bool:
        """Whether an entry may have a code that is not the one that its record leads to today."""
        if queue.topic == SCHEDULE_TOPIC:
            return self._rule.may_be_due(code, right, store_time(record))
        if queue.topic == TIMER_TOPIC and queue.topic not in self.codes:
            return True  # a slave's, who does not know what is to be done with them
        return queue.topic in self.codes and self.codes[queue.topic](index, code, record)
