"""Messages with a delay or a delivery time of their own choice (5.x's TIMER_* properties; store-and-broker.md 7.3).

Such a message waits in topic ``rmq_sys_wheel_timer``, queue 0, as Java 5 stores it; its queue entry carries the
delivery time instead of a tag hash. What was delivered or recalled is said by marks in ``rmq_sys_wheel_timer_done``.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rmq.protocol import properties
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ProtocolError, ResponseError
from rmq.protocol.message import decode_record
from rmq.protocol.names import RETRY_PREFIX, TIMER_DONE_TOPIC, TIMER_TOPIC
from rmq.protocol.numbers import whole

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.state import Queue
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.runtime.world import Clock

__all__ = [
    "DELETE_KEY",
    "LATEST",
    "OUT_MS",
    "RecallHandle",
    "TimerSends",
    "Wait",
    "decode_code",
    "encode_code",
    "may_have",
    "wait_in",
    "wait_of",
]

OUT_MS = "TIMER_OUT_MS"
DELETE_KEY = "TIMER_DEL_UNIQKEY"
_ASKED = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
#: Set by the broker: a client's own ones are not taken over.
_OURS = (OUT_MS, "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES")
#: Properties get so many bytes longer until they are delivered.
_ROOM = 256
_READ_ONLY = 4
#: Bits of an entry's code above the time.
_RELATIVE = 1 << 62
_DELETES = 1 << 61
#: No message can wait longer, ms.
LATEST = _DELETES - 1
#: No tag hash is as large.
_LEAST_TIME = 1 << 32


class Wait(NamedTuple):
    """What a message waits for."""

    #: Its time, ms.
    due: int
    #: That is on the clock which nobody sets.
    relative: bool
    #: It takes another message back then, instead of being delivered.
    deletes: bool


def encode_code(wait: Wait) -> int:
    """What a queue entry carries."""
    return wait.due | (_RELATIVE if wait.relative else 0) | (_DELETES if wait.deletes else 0)


def decode_code(code: int) -> Wait | None:
    """What an entry says; None for the tag hash that recovery or a Java broker has put there."""
    if code < _LEAST_TIME:
        return None
    return Wait(code & LATEST, bool(code & _RELATIVE), bool(code & _DELETES))


def wait_of(table: Mapping[str, str]) -> Wait | None:
    """What the properties of a message that waits say; None where that is no time."""
    due = whole(table.get(OUT_MS), LATEST)
    if due is None:
        return None
    return Wait(due, "TIMER_DELAY_SEC" in table or "TIMER_DELAY_MS" in table, DELETE_KEY in table)


def wait_in(record: bytes) -> Wait | None:
    """What a stored message says; None where that is no time, or it is no message."""
    try:
        return wait_of(decode_record(record).properties)
    except ProtocolError:
        return None


def may_have(code: int, record: bytes) -> bool:
    """Whether an entry says of its message's time what the message does."""
    known, says = decode_code(code), wait_in(record)
    return known is not None and (says is None or known == says)


class RecallHandle(NamedTuple):
    """What a send's answer names a waiting message by, and request 370 takes (protocol.md 2.13)."""

    topic: str
    broker_name: str
    deliver_at: int
    unique_key: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.deliver_at} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """
        :raises ValueError: it is no handle.
        """
        try:
            parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        except ValueError as error:
            raise ValueError(f"it is not URL-safe base64 of text ({error})") from None
        if len(parts) != 5 or parts[0] != "v1" or not all(parts):
            raise ValueError("it does not hold: v1 topic brokerName deliverTimestampMs uniqueKey")
        deliver_at = whole(parts[3])
        return cls(parts[1], parts[2], -1 if deliver_at is None else deliver_at, parts[4])


class TimerSends:
    """Decides which sends wait for a time of their own."""

    def __init__(self, clock: Clock, settings: BrokerSettings, topics: TopicTable, store: Store) -> None:
        self._clock = clock
        self._settings = settings
        self._topics = topics
        self._store = store
        #: Messages that were made to wait since start, by topic.
        self.taken: Counter[str] = Counter()

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted for a deleted topic."""
        self.taken.pop(topic, None)

    def divert(self, table: dict[str, str], queue: Queue, *, checked: bool = False) -> tuple[Queue, int] | None:
        """The queue to wait in and the entry's code, with ``table`` changed; None for a message to deliver at once.

        :param checked: it was admitted before (a half message): its time is not judged again.
        :raises ResponseError: MESSAGE_ILLEGAL: not a time, or too far ahead.
        """
        asked = self._asked(table)
        if asked is None:
            return None
        now = self._clock.now_ms()
        due = self._due(table, asked, now, checked=checked)
        if due is None:
            return None
        for name in _OURS:
            table.pop(name, None)
        table[OUT_MS] = str(due)
        table["REAL_TOPIC"] = queue.topic
        table["REAL_QID"] = str(queue.id)
        if not checked:
            self._check_room(table)
        for topic in (TIMER_TOPIC, TIMER_DONE_TOPIC):
            self._topics.create_for_send_back(topic, 1, _READ_ONLY, 0)
        self.taken[queue.topic] += 1
        waits_in = self._store.queues.get_or_create(TIMER_TOPIC, 0)
        return waits_in, encode_code(Wait(due, asked != "TIMER_DELIVER_MS", DELETE_KEY in table))

    def asks(self, table: dict[str, str]) -> bool:
        """Whether a message names a delivery time."""
        return self._asked(table) is not None

    def check(self, table: dict[str, str]) -> None:
        """Refuse a half message now whose commit would be refused.

        :raises ResponseError: as :meth:`divert`.
        """
        asked = self._asked(table)
        if asked is not None:
            self._due(table, asked, self._clock.now_ms(), checked=False)
        self._check_room(table)

    def handle(self, table: dict[str, str], topic: str) -> str | None:
        """The recall handle of a message that was diverted; None when it cannot be recalled."""
        unique = table.get("UNIQ_KEY")
        if not unique or " " in unique or topic.startswith(RETRY_PREFIX) or DELETE_KEY in table:
            return None
        return RecallHandle(topic, self._settings.broker_name, int(table[OUT_MS]), unique).encode()

    @staticmethod
    def drop(table: dict[str, str]) -> None:
        """Take all timer properties away."""
        for name in (*_ASKED, *_OURS):
            table.pop(name, None)

    @staticmethod
    def _asked(table: dict[str, str]) -> str | None:
        for name in _ASKED:
            if name in table:
                return name
        return None

    def _due(self, table: dict[str, str], asked: str, now: int, *, checked: bool) -> int | None:
        settings = self._settings
        text = table[asked].strip()
        due = whole(text, 10**18 - 1, 1 - 10**18)
        if due is None:
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal, {asked}={text[:32]!r} is not a number"
            )
        if asked == "TIMER_DELAY_SEC":
            due *= 1000
        if asked != "TIMER_DELIVER_MS":
            due += now
        if due <= now:
            if DELETE_KEY in table and not checked:
                raise self._illegal()
            return None
        if not checked:
            if not settings.timer_wheel_enable:
                raise ResponseError(
                    ResponseCode.SYSTEM_ERROR,
                    "accurate timer message is not enabled, timerWheelEnable is false on this broker",
                )
            if due - now > settings.timer_max_delay_sec * 1000:
                raise self._illegal()
        precision = max(1, settings.timer_precision_ms)
        return -(-due // precision) * precision

    def _illegal(self) -> ResponseError:
        return ResponseError(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._settings.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than "
            "the current time",
        )

    @staticmethod
    def _check_room(table: dict[str, str]) -> None:
        if len(properties.encode(table).encode()) + _ROOM > properties.MAX_BYTES:
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal, properties of a message that waits may have {properties.MAX_BYTES - _ROOM} B",
            )
