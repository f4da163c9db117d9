"""What tells how the log was, and what was made of it, beside the log itself: all of it judged in one place, and pure.

Queues say where their messages are: over a segment of the log the sizes of what they point to add up to what is there,
or some queue is not as it was. The index says how far it went, ``checkpoint`` where a clean stop left the log and how
far it was forced to disk. Each may be damaged itself: one alone is not believed against what the others, or the log,
say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmq.broker.store.queues.fitting import is_size
from rmq.broker.store.start.lost_tail import LostTail

__all__ = ["Claim", "Evidence", "first_difference"]

#: Commit-log offset and size of the record that an entry points to.
Claim = tuple[int, int]


@dataclass(slots=True)
class Evidence:
    """What the parts of a store say of a log's end.

    :param segment: bytes of the log over which entries are added up.
    :param clean_end: where a clean stop has noted the end, -1 when none has.
    :param forced: how far the log once was on disk, -1 when that is not known.
    """

    segment: int
    clean_end: int
    forced: int
    #: Segment -> bytes of records that queues, and light message queues, point to.
    covered: Mapping[int, int] = field(default_factory=dict)
    light: Mapping[int, int] = field(default_factory=dict)
    #: Where the last entries of queues point to.
    claims: Sequence[Claim] = ()
    #: Behind the newest record that the index knows.
    index: int = 0

    def lost_tail(self, end: int, lacking: int) -> LostTail:
        """How far the log reached.

        :param end: where it ends now.
        :param lacking: entries that queues had and the log accounts for no more.
        """
        return LostTail(end, self.queues_reach(end) if lacking else 0, self.index, max(self.clean_end, self.forced))

    def queues_reach(self, end: int) -> int:
        """How far the log was, say the last entries of its queues: those that others bear out.

        What was behind the end was full of messages, and queues had entries of all of them. So an entry that points
        where no other one leads to is damaged, and no evidence: one flipped bit would claim exabytes.
        """
        most = end - end % self.segment
        while most in self.covered or most in self.light:
            most += self.segment
        if self.clean_end >= 0:
            most = min(most, self.clean_end)
        return max((offset + size for offset, size in self.claims if offset < most and is_size(size)), default=0)


def first_difference(there: Mapping[int, int], covered: Mapping[int, int], checked_from: int) -> int | None:
    """The first segment of which queues do not have what is there; None where there is none.

    :param there: bytes of good records that are in queues, by segment, and
    :param covered: what queues say; before ``checked_from`` nobody has looked.
    """
    wrong = [
        segment
        for segment in there.keys() | {segment for segment in covered if segment >= checked_from}
        if there.get(segment, 0) != covered.get(segment, 0)
    ]
    return min(wrong, default=None)
