"""Multi-dispatch: one stored message in several queues (``enableMultiDispatch``), light message queues among them.

A message names the other queues in INNER_MULTI_DISPATCH, separated by ``,``. The broker adds INNER_MULTI_QUEUE_OFFSET,
the message's index in each of them in the same order, and every named queue gets an entry that points to the one record
(store-and-broker.md 3.2). A name stands for the queue with the message's own queue id, or with id 0 when it begins with
``%LMQ%`` and ``enableLmq`` is on. The record holds all of it, so recovery makes the same entries again.

Messages that only wait (schedule, half messages, timers) and those that are on their way back to one group (retries,
dead letters) are not dispatched: the message itself is, when it is delivered. Java 5 does the same; Java 4.9 dispatches
them, too, so that light queues hold such a message twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmq.broker.store.log.append import pack_entries
from rmq.broker.store.state import Delta, Put, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRANS_CHECK_MAX_TIME_TOPIC,
    is_broker_topic,
    is_lmq,
)
from rmq.protocol.numbers import whole
from rmq.protocol.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET

if TYPE_CHECKING:
    from rmq.broker.store.queues.queues import QueueTable

__all__ = ["Copies", "Copy", "MultiDispatch", "index_named"]

log = logging.getLogger(__name__)

_NAMES = f"{INNER_MULTI_DISPATCH}\x01".encode()
_INDEXES = f"{INNER_MULTI_QUEUE_OFFSET}\x01".encode()
_PROPERTIES_LIMIT = 32767
#: The most digits of a queue index, and its separator.
_INDEX_SIZE = 20
_NOT_DISPATCHED = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)

#: (position of a message among those of one append, the queues it names)
Copies = list[tuple[int, list[Queue]]]

_WAITING = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC})


class Copy(NamedTuple):
    """One more queue that a record is in."""

    topic: str
    queue_id: int
    #: Its index there.
    queue_offset: int


class MultiDispatch:
    """Finds the queues a message names, numbers it in them, and gives them their entries.

    :param queues: the queue table.
    :param lmq: ``enableLmq``.
    :param most_lmq: ``maxLmqConsumeQueueNum``: so many light queues there may be; those that exist keep working.
    """

    def __init__(self, queues: QueueTable, *, lmq: bool, most_lmq: int) -> None:
        self._queues = queues
        self._lmq = lmq
        self._most_lmq = most_lmq

    # -- judging ---------------------------------------------------------------------------------------------------

    def fault(self, names: str, queue_id: int, stored: int) -> str | None:
        """Why a message cannot go to the queues it names, or None.

        :param names: the property INNER_MULTI_DISPATCH.
        :param queue_id: the message's own.
        :param stored: bytes of its property string without the indexes.
        """
        found = _split(names)
        room = _PROPERTIES_LIMIT - stored - len(_INDEXES) - 1
        if len(found) * _INDEX_SIZE > room:
            return f"{INNER_MULTI_DISPATCH}: the properties have no room for the offsets of {len(found)} queues"
        for name in found:
            if is_broker_topic(name):
                return f"{INNER_MULTI_DISPATCH}: {name} is the broker's own"
            if self._queues.get(name, self._id(name, queue_id)) is None:
                try:
                    self._queues.disk.directory(name, self._id(name, queue_id))
                except StoreError as error:
                    return f"{INNER_MULTI_DISPATCH}: {error}"
                if len(name.encode()) > 255:
                    return f"{INNER_MULTI_DISPATCH}: a queue name of {len(name.encode())} bytes (at most 255)"
        return None

    @staticmethod
    def named(names: str) -> list[str]:
        """The queues that a message names.

        :param names: the property INNER_MULTI_DISPATCH.
        """
        return _split(names)

    def exceeded(self, names: str, queue_id: int) -> bool:
        """Whether a message wants light queues beyond ``maxLmqConsumeQueueNum``."""
        if not self._lmq or self._queues.lmq_count < self._most_lmq:
            return False
        return any(self.refuses_queue(name, self._id(name, queue_id)) for name in _split(names))

    def full(self, names: str, queue_id: int) -> Queue | None:
        """A queue among those a message names that takes none at the moment."""
        full = self._queues.full
        named = [self._queues.get(name, self._id(name, queue_id)) for name in _split(names)] if full else []
        return next((queue for queue in named if queue in full), None)

    def refuses_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a queue would be one light queue too many."""
        return (
            self._lmq
            and self._queues.lmq_count >= self._most_lmq
            and is_lmq(topic)
            and self._queues.get(topic, queue_id) is None
        )

    def _id(self, name: str, queue_id: int) -> int:
        return 0 if self._lmq and is_lmq(name) else queue_id

    # -- appending -------------------------------------------------------------------------------------------------

    def address(self, puts: Sequence[Put]) -> list[tuple[Sequence[Put], Copies]]:
        """Number the messages of one append in the queues they name.

        :returns: the messages in groups, each for one append: those that are dispatched have their
            INNER_MULTI_QUEUE_OFFSET, and (position in the group, queues) says where they go. One group, but where a
            queue is sent to and named by other messages: the append numbers only what it puts in itself.
        """
        if not any(_NAMES in put[2] for put in puts):
            return [(puts, [])]
        groups: list[tuple[Sequence[Put], Copies]] = []
        group: list[Put] = []
        copies: Copies = []
        owners: set[Queue] = set()
        guests: set[Queue] = set()
        # Where each queue will be when the messages before this one are in it.
        ahead: dict[Queue, int] = {}
        for put in puts:
            queue = put[0]
            named = self._named(queue, put[2]) if _NAMES in put[2] else []
            others = {one for one in named if one is not queue}
            if queue in guests or not owners.isdisjoint(others):
                groups.append((group, copies))
                group, copies, owners, guests = [], [], set(), set()
            owners.add(queue)
            if named:
                guests |= others
                indexes = ",".join([str(ahead.get(one, one.next)) for one in named])
                stored = put[2].rstrip(b"\x02") + b"\x02" + _INDEXES + indexes.encode()
                put = Put(queue, put[1], stored, *put[3:])
                copies.append((len(group), named))
                for one in others:
                    ahead[one] = ahead.get(one, one.next) + 1
            ahead[queue] = ahead.get(queue, queue.next) + 1
            group.append(put)
        groups.append((group, copies))
        return groups

    def _named(self, queue: Queue, stored: bytes) -> list[Queue]:
        """The queues that a message for ``queue`` names."""
        if queue.topic in _WAITING or queue.topic.startswith(_NOT_DISPATCHED):
            return []
        names = _value(stored, _NAMES)
        if self.fault(names, queue.id, len(stored)) is not None:
            # It was admitted before multi-dispatch was switched on.
            log.warning("a message of %s is dispatched to no other queue: it names %.80r", queue.topic, names)
            return []
        return [self._queues.get_or_create(name, self._id(name, queue.id)) for name in _split(names)]

    def deltas(self, puts: Sequence[Put], offsets: Sequence[tuple[int, int]], copies: Copies) -> list[Delta]:
        """What the named queues get.

        :param offsets: one (queue index, commit-log offset) a message.
        """
        entries: dict[Queue, list[int]] = {}
        for at, named in copies:
            put = puts[at]
            own = put.queue
            physical = offsets[at][1]
            size = own.overhead + len(put.body) + len(put.properties) + len(put.born_host) + len(put.store_host) - 16
            for queue in dict.fromkeys(named):
                if queue is not own:
                    entries.setdefault(queue, []).extend((physical, size, put.tags_code))
        return [(queue, pack_entries(new), len(new) // 3, 0, new[-3] + new[-2]) for queue, new in entries.items()]

    # -- reading records -------------------------------------------------------------------------------------------

    def copies(self, properties: bytes, topic: str, queue_id: int) -> list[Copy]:
        """The other queues that a stored record is in, each once.

        :param properties: its property string.
        :param topic: its own, with
        :param queue_id: its queue.
        """
        if _INDEXES not in properties or topic in _WAITING or topic.startswith(_NOT_DISPATCHED):
            return []
        names = _split(_value(properties, _NAMES))
        indexes = _split(_value(properties, _INDEXES))
        numbers = [whole(index) for index in indexes]
        if len(names) != len(indexes):
            return []
        copies: dict[tuple[str, int], Copy] = {}
        for name, index in zip(names, numbers, strict=True):
            key = name, self._id(name, queue_id)
            if index is None:
                return []
            if key != (topic, queue_id):
                copies.setdefault(key, Copy(*key, index))
        return list(copies.values())


def index_named(properties: bytes, queue_id: int, queue: Queue) -> int:
    """The index that a stored record has in another queue, as it says itself; -1 when it does not name that.

    It holds whoever has dispatched the record, with whatever settings.

    :param properties: the record's property string, with
    :param queue_id: its own queue.
    """
    if _INDEXES in properties and queue.id in (0, queue_id):
        names, indexes = _split(_value(properties, _NAMES)), _split(_value(properties, _INDEXES))
        for name, index in zip(names, indexes, strict=False):
            if name == queue.topic:
                place = whole(index)
                return -1 if place is None else place
    return -1


def _split(names: str) -> list[str]:
    """As Java splits: empty names at the end do not count."""
    return names.rstrip(",").split(",") if names.strip(",") else []


def _value(text: bytes, name: bytes) -> str:
    """The last value of a property in a property string; ``name`` ends with the separator."""
    at = text.rfind(b"\x02" + name)
    if at < 0 and not text.startswith(name):
        return ""
    start = at + 1 + len(name)
    end = text.find(b"\x02", start)
    return text[start : end if end >= 0 else len(text)].decode(errors="replace")
