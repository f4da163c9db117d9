"""Receipt handles and the other strings of POP (protocol.md 2.13).

A handle names the pop that gave a message out, and the message: eight tokens, separated by blanks::

    start of the checkpoint, pop time, invisible time, revive queue, retry mark, broker name, queue id, queue offset
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import RETRY_PREFIX

__all__ = [
    "FIRST_POP_TIME",
    "ORDERED",
    "POP_CK",
    "Handle",
    "mark_of",
    "offset_info",
    "order_count_info",
    "pop_retry_topic",
    "real_topic",
    "start_info",
]

POP_CK = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
#: The revive queue of a handle from an orderly pop.
ORDERED = 999

_NORMAL, _RETRY, _RETRY_V2 = "0", "1", "2"


def pop_retry_topic(group: str, topic: str) -> str:
    """Where messages go that were not acknowledged in time: version 1 of the name, as 5.3.3 has it by default."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def real_topic(topic: str, group: str, mark: str) -> str:
    """The topic a message lies in: clients name the original one, and mark that it was a retry."""
    if mark == _RETRY:
        return pop_retry_topic(group, topic)
    if mark == _RETRY_V2:
        return f"{RETRY_PREFIX}{group}+{topic}"
    return topic


def mark_of(topic: str) -> str:
    """The retry mark of messages that lie in a topic."""
    return _RETRY if topic.startswith(RETRY_PREFIX) else _NORMAL


@dataclass(frozen=True, slots=True)
class Handle:
    """What a client shows when it acknowledges a message or changes its invisible time.

    Times are wall clock and milliseconds; ``offset`` is the message's index in its queue.
    """

    start: int
    pop_time: int
    invisible: int
    revive_queue: int
    mark: str
    broker_name: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return (
            f"{self.start} {self.pop_time} {self.invisible} {self.revive_queue} {self.mark} "
            f"{self.broker_name} {self.queue_id} {self.offset}"
        )

    @property
    def deadline(self) -> int:
        return self.pop_time + self.invisible

    @classmethod
    def parse(cls, text: str, offset: int) -> Handle:
        """Read a handle.

        :param offset: what the request says beside it; it counts where the handle has no offset of its own.
        :raises ResponseError: MESSAGE_ILLEGAL.
        """
        tokens = text.split(" ")
        if len(tokens) == 7:
            tokens.append(str(offset))
        try:
            start, pop_time, invisible, revive_queue = map(int, tokens[:4])
            return cls(
                start, pop_time, invisible, revive_queue, tokens[4], " ".join(tokens[5:-2]),
                int(tokens[-2]), int(tokens[-1]),
            )  # fmt: skip
        except (ValueError, IndexError):
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL, f"extraInfo is no receipt handle: {text[:128]!r}"
            ) from None


def start_info(parts: Iterable[tuple[str, int, int]]) -> str:
    """``startOffsetInfo`` from (topic, queue id, start) of each queue of an answer."""
    return ";".join(f"{mark_of(topic)} {queue_id} {start}" for topic, queue_id, start in parts)


def offset_info(parts: Iterable[tuple[str, int, Iterable[int]]]) -> str:
    """``msgOffsetInfo`` from (topic, queue id, offsets) of each queue of an answer."""
    return ";".join(f"{mark_of(topic)} {queue_id} {','.join(map(str, offsets))}" for topic, queue_id, offsets in parts)


def order_count_info(parts: Iterable[tuple[str, int, dict[int, int]]]) -> str:
    """``orderCountInfo`` from (topic, queue id, how often each offset was given out before) of each queue.

    Offsets that are given out for the first time are not named, as in 5.3.3; a queue's own count is its least.
    """
    words = []
    for topic, queue_id, counts in parts:
        mark = mark_of(topic)
        words += [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in counts.items() if count]
        words.append(f"{mark} {queue_id} {min(counts.values(), default=0)}")
    return ";".join(words)
