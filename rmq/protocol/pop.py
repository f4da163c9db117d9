"""Receipt handles and the other strings of POP (protocol.md 2.13).

A handle names the pop that gave a message out, and the message: eight tokens, separated by blanks::

    start of the checkpoint, pop time, invisible time, revive queue, retry mark, broker name, queue id, queue offset
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import HeaderError, ResponseError
from rmq.protocol.names import RETRY_PREFIX
from rmq.protocol.numbers import INT_MAX, whole

__all__ = [
    "FIRST_POP_TIME",
    "ORDERED",
    "POP_CK",
    "Handle",
    "counts_of",
    "mark_of",
    "offset_info",
    "order_count_info",
    "pop_retry_topic",
    "pop_retry_topic_v2",
    "real_topic",
    "start_info",
    "starts_of",
    "topic_of_pop_retry",
]

POP_CK = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
#: The revive queue of a handle from an orderly pop.
ORDERED = 999

_NORMAL, _RETRY, _RETRY_V2 = "0", "1", "2"


def pop_retry_topic(group: str, topic: str) -> str:
    """Where messages go that were not acknowledged in time: version 1 of the name, as 5.3.3 has it by default."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(group: str, topic: str) -> str:
    """The same as brokers name it with ``enableRetryTopicV2``."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def topic_of_pop_retry(group: str, name: str) -> str | None:
    """The topic whose messages go there, from either version of the name; None for another topic."""
    own = f"{RETRY_PREFIX}{group}"
    return name[len(own) + 1 :] or None if name.startswith((f"{own}_", f"{own}+")) else None


def real_topic(topic: str, group: str, mark: str) -> str:
    """The topic a message lies in: clients name the original one, and mark that it was a retry."""
    if mark == _RETRY:
        return pop_retry_topic(group, topic)
    if mark == _RETRY_V2:
        return pop_retry_topic_v2(group, topic)
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


def starts_of(text: str | None) -> dict[tuple[str, int], int]:
    """Reads ``startOffsetInfo``: by retry mark and queue id, where the pop began. Nothing for no text.

    :raises HeaderError: it says something else.
    """
    return {(mark, int(queue)): offset for (mark, queue), offset in _numbers(text, queues_only=True).items()}


def counts_of(text: str | None) -> dict[tuple[str, str], int]:
    """Reads ``orderCountInfo``: by retry mark, and queue id or ``qo<queue id>%<offset>``, how often it was given out.

    :raises HeaderError: it says something else.
    """
    return _numbers(text, queues_only=False)


def _numbers(text: str | None, *, queues_only: bool) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for item in text.split(";") if text else ():
        words = item.split(" ")
        number = whole(words[2]) if len(words) == 3 else None
        if number is None or (queues_only and whole(words[1], INT_MAX) is None):
            raise HeaderError(f"no mark, queue and number, as an answer to a pop has them: {item[:64]!r}")
        found[words[0], words[1]] = number
    return found
