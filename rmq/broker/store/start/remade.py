"""Queue entries that a start made anew although they had been on disk: a kill, or a lost power, cannot have done that.

What a kill takes are entries that were in memory: queues end sooner then, and none is wrong. Up to which store time no
entry is missing on disk, ``checkpoint`` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmq.broker.store.log.records import TagsRule
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.queues.misfits import Former
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq.protocol.record import store_time
from rmq.runtime.world import Offload

__all__ = ["Remade", "remade"]

log = logging.getLogger(__name__)

_pair = PLACE.unpack
#: Entries compared in one go.
_BLOCK = 4096
#: Bytes of an entry without its tags code.
_PLACE = 12
#: Bytes of a record up to its store time.
_STAMPED = 80
#: Queues named in one line of the log.
_SHOWN = 20


class Remade(NamedTuple):
    """What queues should have had.

    :param wrong: queues and how many entries of each pointed elsewhere.
    :param lacking: queues that lacked some which ``checkpoint`` says were there.
    """

    wrong: dict[Queue, int]
    lacking: list[Queue]

    def tell(self) -> int:
        """Say so in the log; how many entries are known to have been wrong."""
        if self.wrong:
            log.critical(
                "%d entries of consume queues did not say where their messages are (%s): they were made anew from the "
                "commit log; have the disk checked",
                sum(self.wrong.values()), _named([*self.wrong]),
            )  # fmt: skip
        if self.lacking:
            log.error(
                "%d consume queues lacked entries that had been on disk, says checkpoint (%s): they were made anew "
                "from the commit log; if nobody removed their files, have the disk checked",
                len(self.lacking), _named(self.lacking),
            )  # fmt: skip
        return sum(self.wrong.values())


async def remade(
    queues: QueueTable,
    offload: Offload,
    read: Callable[[int, int], bytes],
    former: Mapping[Queue, Former],
    ends: Mapping[Queue, int],
    stamp: int,
) -> Remade:
    """Compare queues with what they were.

    :param read: so many bytes of the log from an offset on. Blocks.
    :param former: entries that were cut off.
    :param ends: behind the last good entry that each queue had on disk.
    :param stamp: no entry of a message stored before is missing, ms.
    :raises OSError: a queue cannot be read.
    """
    wrong: dict[Queue, int] = {}
    for queue, was in former.items():
        if was.entries and (count := await _differing(queues, queue, was)):
            wrong[queue] = count
    asked: list[tuple[Queue, int]] = []
    for number, queue in enumerate(list(queues), 1):
        index = max(queue.min, ends.get(queue, 0))
        if index < queue.next and stamp > 0:
            offset, size = _pair(await queues.entries_cold(queue, index, 1))
            if not is_blank(offset, size):
                asked.append((queue, offset))
        if number % _BLOCK == 0:
            await asyncio.sleep(0)
    heads = await offload(lambda: [read(offset, _STAMPED) for _, offset in asked])
    lacking = [
        queue for (queue, _), head in zip(asked, heads, strict=True)
        if len(head) == _STAMPED and 0 < store_time(head) < stamp
    ]  # fmt: skip
    return Remade(wrong, lacking)


async def _differing(queues: QueueTable, queue: Queue, was: Former) -> int:
    """How many entries of a queue are other ones now; what is, or was, blank counts for none."""
    # What a unit or a timer says there is not only the message's own, nor, while levels may change, what a delay does.
    compared = _PLACE if queues.unit_code is not None or queue.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) else ENTRY_SIZE
    delays = queue.topic == SCHEDULE_TOPIC and queues.unit_code is None
    count = 0
    index, end = was.first, min(queue.next, was.first + len(was.entries) // ENTRY_SIZE)
    while index < end:
        now = await queues.entries_cold(queue, index, min(_BLOCK, end - index))
        if not now:
            break
        first = (index - was.first) * ENTRY_SIZE
        if was.entries[first : first + len(now)] != now:
            for at in range(0, len(now), ENTRY_SIZE):
                one, other = now[at : at + ENTRY_SIZE], was.entries[first + at : first + at + ENTRY_SIZE]
                if is_blank(*_pair(one)) or is_blank(*_pair(other)):
                    continue
                if one[:compared] != other[:compared] or (delays and not _may_both_be_due(one, other)):
                    count += 1
        index += len(now) // ENTRY_SIZE
        await asyncio.sleep(0)
    return count


def _may_both_be_due(one: bytes, other: bytes) -> bool:
    codes = (int.from_bytes(entry[_PLACE:], "big", signed=True) for entry in (one, other))
    return TagsRule.may_have_been_due(*codes)


def _named(queues: list[Queue]) -> str:
    more = "" if len(queues) <= _SHOWN else f" and {len(queues) - _SHOWN} more"
    return ", ".join(f"{queue.topic}-{queue.id}" for queue in queues[:_SHOWN]) + more
