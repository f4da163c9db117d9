"""Half messages: their topics, the records they become, and the marks that say a half is settled.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC until its producer commits or rolls back; an op record in
RMQ_SYS_TRANS_OP_HALF_TOPIC, whose body is the half's queue index in decimal, says that it is settled
(store-and-broker.md 7.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.store.own import own_message
from rmq.broker.store.queues.deletions import TopicDeleted
from rmq.broker.store.state import Put
from rmq.protocol.errors import StoreError
from rmq.protocol.ids import pack_host
from rmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANSACTION_CONSUMER_GROUP
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.tags import string_hash

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Admission
    from rmq.broker.store.store import Store
    from rmq.protocol.message import MessageRecord
    from rmq.runtime.world import Clock

__all__ = ["CHECK_GROUP", "DISCARD_TOPIC", "OP_TAG", "Halves"]

#: The consumer group under which the check's progress is kept.
CHECK_GROUP = TRANSACTION_CONSUMER_GROUP
DISCARD_TOPIC = TRANS_CHECK_MAX_TIME_TOPIC
OP_TAG = "d"
_TRANSACTION_BITS = 0xC
_COMMIT = 0x8


class Halves:
    """Writes what transactions write."""

    def __init__(self, clock: Clock, store: Store, admission: Admission, store_host: bytes) -> None:
        self._clock = clock
        self._store = store
        self._admission = admission
        self._store_host = store_host

    def committed(self, half: MessageRecord) -> Put:
        """The message of a committed half, for its real topic; delayed when it carries a level.

        The property string stays as it was: consumers still see TRAN_MSG, REAL_TOPIC and REAL_QID, as with Java.

        :raises TopicDeleted: there is nothing to deliver it to.
        """
        table = dict(half.properties)
        queue_id = whole(table.get("REAL_QID"), INT_MAX)
        if queue_id is None:
            raise StoreError("the half message names no queue")
        queue = self._store.destination(table["REAL_TOPIC"], queue_id, half.physical_offset)
        tag = table.get("TAGS")
        code = string_hash(tag) if tag else 0
        table.pop("TRAN_PREPARED_QUEUE_OFFSET", None)
        # A delay runs from the commit.
        waits = self._admission.later(table, self._admission.delay_level(table), queue, checked=True)
        if waits is not None:
            queue, code = waits
        return self._admission.put(
            queue,
            half.body,
            table,
            half.flag,
            half.sys_flag & ~_TRANSACTION_BITS | _COMMIT,
            half.born_timestamp,
            pack_host(*half.born_host),
            pack_host(*half.store_host),
            half.reconsume_times,
            half.physical_offset,
            code,
        )

    def is_dead(self, half: MessageRecord) -> bool:
        """Whether a half's own topic was deleted since it was stored."""
        try:
            self._store.deletions.check_alive(half.properties.get("REAL_TOPIC", ""), half.physical_offset)
        except TopicDeleted:
            return True
        return False

    def again(self, half: MessageRecord, table: dict[str, str], *, keep_flags: bool = False) -> Put:
        """A half put back at the end of the half topic, with other properties."""
        return self._copy(half, HALF_TOPIC, table, keep_flags=keep_flags)

    def discarded(self, half: MessageRecord, table: dict[str, str]) -> Put:
        """A half that was checked too often, for the topic where an operator finds it."""
        return self._copy(half, DISCARD_TOPIC, table, keep_flags=True)

    def _copy(self, half: MessageRecord, topic: str, table: dict[str, str], *, keep_flags: bool) -> Put:
        tag = table.get("TAGS")
        return self._admission.put(
            self._store.queues.get_or_create(topic, 0),
            half.body,
            table,
            half.flag if keep_flags else 0,
            half.sys_flag,
            half.born_timestamp,
            pack_host(*half.born_host),
            pack_host(*half.store_host),
            half.reconsume_times if keep_flags else 0,
            0,
            string_hash(tag) if tag else 0,
        )

    def settled(self, index: int) -> Put:
        """The op record which says that the half at queue index ``index`` needs no check any more."""
        ops = self._store.queues.get_or_create(OP_HALF_TOPIC, 0)
        table = {"TAGS": OP_TAG, "WAIT": "true"}
        return own_message(ops, str(index).encode(), table, self._clock.now_ms(), self._store_host)
