"""What a commit log has lost behind its end: nothing in it tells, but what was made of it reaches further."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.files import BLANK_ENTRY, QueueDisk
from rmq.broker.store.queues.misfits import Former
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.queues.sequence import MOST_BLANK, room
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.record import FIXED_SIZE

__all__ = [
    "LostTail",
    "ends_on_disk",
    "expect_ends",
    "leave_room",
    "newly_left_out",
    "reserve",
    "used_entries",
]

log = logging.getLogger(__name__)


_pair = PLACE.unpack_from
#: Queues named in one line of the log.
_SHOWN = 20


def expect_ends(former: dict[Queue, Former], damaged: DamagedParts, deletions: Deletions, queues: QueueTable) -> None:
    """Add what earlier starts have noted because the entries of queues do not tell it."""
    for topic, number, first, end in damaged.left_out:
        if first < end and not deletions.end_of(topic):
            with contextlib.suppress(StoreError):  # no queue can have that name
                queue = queues.get_or_create(topic, number)
                was = former.get(queue, Former())
                former[queue] = was._replace(reach=max(was.reach, end))
                queues.left_out.setdefault(queue, []).append((first, end))


def ends_on_disk(disk: QueueDisk, log_end: int) -> dict[tuple[str, int], int]:
    """The end of every queue that its newest file tells, by topic and queue id; none is changed. Blocks.

    :param log_end: an entry that points behind it is none.
    """
    ends: dict[tuple[str, int], int] = {}
    with contextlib.suppress(OSError):
        for topic in disk.topics():
            for _, number, starts, _ in disk.list_queues([topic]):
                with contextlib.suppress(OSError, StoreError):  # it is about to be made anew
                    if starts:
                        (data,) = disk.read_files([(disk.directory(topic, number), starts[-1])])
                        if used := used_entries(data, log_end):
                            ends[topic, number] = starts[-1] // ENTRY_SIZE + used
    return ends


def newly_left_out(left_out: Mapping[Queue, int], damaged: DamagedParts) -> int:
    """How many entries were left out that no earlier start has told of."""
    known = {(topic, number) for topic, number, *_ in damaged.left_out}
    return sum(count for queue, count in left_out.items() if (queue.topic, queue.id) not in known)


def used_entries(data: bytes, log_end: int, behind: int = 0) -> int:
    """Entries up to the last one; 0 where that is none, or not one that follows those before it.

    :param behind: where the records of earlier entries end in the log.
    """
    data = data[: len(data) - len(data) % ENTRY_SIZE]
    used = -(-len(data.rstrip(b"\0")) // ENTRY_SIZE)
    at = used
    while at and data.startswith(BLANK_ENTRY, (at - 1) * ENTRY_SIZE):
        at -= 1
    if not at:
        return 0
    offset, size = _pair(data, (at - 1) * ENTRY_SIZE)
    if at > 1 and not data.startswith(BLANK_ENTRY, (at - 2) * ENTRY_SIZE):
        behind = max(behind, sum(_pair(data, (at - 2) * ENTRY_SIZE)))
    return used if size >= FIXED_SIZE and behind <= offset and offset + size <= log_end else 0


def reserve(queues: QueueTable, reached: Mapping[tuple[str, int], int], log_end: int) -> None:
    """Have no index be used twice that a group has consumed: what was stored there is lost, and told.

    A queue that has entries stays as it is where that would make too many of them blank, and so does every one where
    the log has no room for so many: a client may commit any number.

    :param reached: behind the last index, by topic and queue id.
    :param log_end: commit-log offset.
    """
    left_out: dict[Queue, int] = {}
    blank = 0
    for (topic, queue_id), end in reached.items():
        queue = queues.get(topic, queue_id)
        count = end - (0 if queue is None else queue.next)
        if count <= 0 or end > room(log_end, 0):
            continue
        try:
            queue = queues.get_or_create(topic, queue_id)
        except StoreError:  # no queue can have that name
            continue
        if queue.next > queue.min:
            if blank + count > MOST_BLANK:
                continue
            blank += count
        left_out[queue] = queues.leave_out(queue, end)
        queue.visible = queue.next
    if left_out:
        log.critical(
            "groups have consumed behind the end of %d queues (%s): %d messages or more that were there are lost; "
            "their offsets are given to no others",
            len(left_out), ", ".join(f"{queue.topic}-{queue.id}" for queue in list(left_out)[:_SHOWN]),
            sum(left_out.values()),
        )  # fmt: skip


def leave_room(
    queues: QueueTable, lost: Collection[Queue], parts: Iterable[Damage], former: Mapping[Queue, Former]
) -> None:
    """Have none of what lies in some parts of the log lend its index to others, where no entry tells whose it was.

    :param lost: queues whose entries are gone, at their end at least.
    :param parts: of the log that are damaged, or that are gone behind its end.
    :param former: what is known of the other queues: what they had there is not the lost ones'.
    """
    for part in parts:
        ended = [queue for queue in lost if 0 < queue.max_phys <= part.start]
        if not ended:
            continue
        space = part.end - part.start - sum(was.bytes_in(*part) for was in former.values())
        count = 0
        for queue in ended:
            fit = min(space // queue.overhead, MOST_BLANK // len(ended))
            count = max(count, queues.leave_out(queue, queue.next + fit))
            queue.visible = queue.next
        if count:
            log.warning(
                "queues were lost together with messages between %d and %d: those without any behind go on with higher "
                "offsets, %d at most, so that none is given twice",
                part.start, part.end, count,
            )  # fmt: skip


class LostTail(NamedTuple):
    """Where the log ends, and how far it is known to have reached: commit-log offsets, 0 or less for not known."""

    end: int
    queues: int
    keys: int
    noted: int

    def told(self, commit_log: CommitLog, count: int) -> Damage | None:
        """What is lost, if anything is; the log says so.

        :param count: messages that queues had and the log has not.
        """
        known = max(self.queues, self.keys, self.noted)
        if known <= self.end:
            return None
        who = {"consume queues": self.queues, "the index": self.keys, "checkpoint": self.noted}
        file = commit_log.segment_of(self.end)
        log.critical(
            "the commit log ends at offset %d (%s) and reached to %d, says what was made of it (%s): what was stored "
            "in between is lost, %d messages or more; their offsets are given to no others",
            self.end, "no file begins there" if file is None else f"{file.path}, byte {self.end - file.start}",
            known, ", ".join(name for name, reach in who.items() if reach > self.end), count,
        )  # fmt: skip
        return Damage(self.end, known)
