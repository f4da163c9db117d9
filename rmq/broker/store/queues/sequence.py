"""What a record's place in its queue is worth when it is not the next one: pure, claims in, verdicts out.

No checksum covers the head of a record. Its topic, queue id and queue offset say where its entry goes; one bit of them
and it claims another place. What is right, the records around it know: a queue goes on by one. So a claim that does not
fit waits until following records of the queue, or the end of the log, tell what it is:

- They go on at the old index: the record is damaged, or another queue's. It costs itself alone.
- They go on behind it, at a higher index: what is between is lost, and stays empty.
- They go on behind it, at a lower index, and none goes on at the old one: the topic was deleted and made again by a
  broker that keeps no note of it (Java). Deletions that are known need no guess: their records come here never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rmq.protocol.record import FIXED_SIZE

__all__ = ["MOST_BLANK", "Claim", "Verdict", "decide", "kin", "one_bit", "room", "weigh"]

#: Entries a queue may lack whatever the log has room for: offsets that were left out behind a lost tail.
MOST_BLANK = 1 << 20
#: Records in a row that agree: enough to believe that others are lost before them, and
_AGREE = 2
#: that a queue was made anew although nobody knows of a deletion.
_SURE = 16
#: Claims that wait in one queue; before the oldest of more nothing is decided any more.
MOST_WAITING = 64


class Claim(NamedTuple):
    """A record that says which entry of a queue it is."""

    #: Its entry; -1: none that a queue can have, or the record is known to be damaged.
    number: int
    offset: int
    size: int
    tags_code: int
    store_timestamp: int
    properties: bytes
    #: It is the record's own queue, not one that multi-dispatch names.
    own: bool = True


class Verdict(NamedTuple):
    """What comes of claims that waited."""

    #: Ascending; what their indexes leave out stays empty.
    good: list[Claim]
    bad: list[Claim]
    #: The queue begins anew with the first good one.
    anew: bool = False


def room(offset: int, behind: int) -> int:
    """The most entries that can be lost between the records of a queue.

    :param offset: where in the commit log the later one is.
    :param behind: and where the earlier one ends.
    """
    return max(0, offset - behind) // FIXED_SIZE + MOST_BLANK


def weigh(
    end: int, behind: int, waiting: Sequence[Claim], claim: Claim, *, confirmed: bool, empty: bool
) -> Verdict | None:
    """What a further record of a queue tells; None = nothing yet: it waits, too.

    :param end: the index that comes next.
    :param behind: commit-log offset behind the last record that is in the queue.
    :param waiting: claims since then that did not fit.
    :param confirmed: the claim is what the queue said before it was made anew.
    :param empty: the queue has no entry yet.
    """
    if claim.number < 0:
        return None
    gap = claim.number - end
    run = _run([*waiting, claim])
    if 0 <= gap <= len(waiting) and not (empty and len(run) > 1):
        # As many are missing as do not fit, or fewer: they are the ones.
        return _put(waiting, end, [claim])
    sure = len(run) >= (_SURE if run[0].number < end and not empty else _AGREE) or confirmed
    if not sure or run[0].number - end > room(run[0].offset, behind):
        return None
    return _put(waiting[: len(waiting) + 1 - len(run)], end, run)


def decide(
    end: int,
    behind: int,
    waiting: Sequence[Claim],
    *,
    explained: Callable[[Claim], bool],
    reach: int,
    begins: bool,
) -> Verdict:
    """No further record of the queue comes: what do those that wait tell?

    :param explained: whether what is missing before a claim is known to be lost.
    :param reach: as many entries as it had before it was made anew; 0 = not known.
    :param begins: it has none yet, and may begin anywhere, for what was before is out of the log.
    """
    run = _run(waiting)
    if run and run[0].number < end:
        if len(run) >= _AGREE:
            return _put(waiting[: -len(run)], end, run)
        run = []
    good = [claim for claim in _rising(waiting, end, 1 << 62) if claim.number - end <= room(claim.offset, behind)]
    if len(good) == 1 and not begins:
        claim = good[0]
        if claim.number >= reach and not explained(claim) and one_bit(claim.number, end):
            good = []
    return Verdict(good, _without(waiting, good))


def _put(before: Sequence[Claim], end: int, run: list[Claim]) -> Verdict:
    """A run of claims is believed; of those before it, what leads up to it is, too."""
    anew = run[0].number < end
    good = [] if anew else _rising(before, end, run[0].number)
    return Verdict([*good, *run], _without(before, good), anew)


def _run(claims: Sequence[Claim]) -> list[Claim]:
    """The claims at the end that follow each other."""
    first = len(claims) - 1
    while first > 0 and claims[first].number == claims[first - 1].number + 1 and claims[first - 1].number >= 0:
        first -= 1
    return [claim for claim in claims[max(first, 0) :] if claim.number >= 0]


def _rising(claims: Sequence[Claim], low: int, high: int) -> list[Claim]:
    """The longest line of claims from ``low`` up to before ``high`` that ascends."""
    best: list[list[Claim]] = []
    for claim in claims:
        if low <= claim.number < high:
            lines = [line for line in best if line[-1].number < claim.number]
            best.append([*max(lines, key=len, default=[]), claim])
    return max(best, key=len, default=[])


def _without(claims: Sequence[Claim], good: Sequence[Claim]) -> list[Claim]:
    kept = {claim.offset for claim in good}
    return [claim for claim in claims if claim.offset not in kept]


def one_bit(one: int, other: int) -> bool:
    """Whether two numbers differ in one bit."""
    differs = one ^ other
    return differs > 0 and differs & (differs - 1) == 0


def kin(topic: str, queue_id: int) -> Iterator[tuple[str, int]]:
    """The queues whose names in a record differ from that of another in one bit."""
    for bit in range(31):
        yield topic, queue_id ^ (1 << bit)
    name = topic.encode()
    for at, byte in enumerate(name):
        for bit in range(8):
            # A name that is no text is known as dispatch reads it.
            yield (name[:at] + bytes((byte ^ (1 << bit),)) + name[at + 1 :]).decode(errors="replace"), queue_id
