"""How much of a backlog one batch takes (maxOffsetsPerTrigger, minOffsetsPerTrigger with maxTriggerDelay). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.protocol.queue import MessageQueue

__all__ = ["Admission", "portion"]

Offsets = Mapping[MessageQueue, int]


def portion(start: Offsets, end: Offsets, most: int, turn: int = 0) -> dict[MessageQueue, int]:
    """Ends that are ``most`` messages away from the starts: each queue gets its share of its backlog.

    What does not divide goes to one queue after the other, beginning with number ``turn``: a portion smaller than the
    number of queues must starve none of them, and never is nothing.
    """
    sizes = {queue: end[queue] - start.get(queue, 0) for queue in sorted(end) if end[queue] > start.get(queue, 0)}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    shares = {queue: most * size // total for queue, size in sizes.items()}
    left = most - sum(shares.values())
    queues = list(sizes)
    for step in range(len(queues)):
        queue = queues[(turn + step) % len(queues)]
        if left and shares[queue] < sizes[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: start.get(queue, 0) + shares[queue] if queue in shares else place for queue, place in end.items()}


class Admission:
    """The portions of one query.

    :param most: messages a batch at most. :param least: messages for which a batch is worth its while.
    :param delay: seconds after which one is made of fewer.
    """

    def __init__(self, most: int | None, least: int | None, delay: float) -> None:
        self._most = most
        self._least = least
        self._delay = delay
        self._turn = 0
        self._last: float | None = None

    def admit(self, start: Offsets, end: Offsets, now: float, *, patient: bool = True) -> dict[MessageQueue, int]:
        """Where the next batch ends; ``start`` itself while too little has come.

        :param now: seconds of a clock that only goes forward.
        :param patient: False: do not wait for more (Trigger.AvailableNow would wait for ever).
        """
        backlog = sum(max(0, place - start.get(queue, 0)) for queue, place in end.items())
        if (
            patient
            and self._least is not None
            and 0 < backlog < self._least
            and self._last is not None
            and now - self._last < self._delay
        ):
            return dict(start)
        if backlog:
            self._last = now
        if self._most is None:
            return dict(end)
        self._turn += 1
        return portion(start, end, self._most, self._turn)
