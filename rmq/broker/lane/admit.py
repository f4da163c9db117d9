"""The slow branch of the send lane: every check of a send, and every diversion.

What the fast branch does not recognise comes here as a typed header: delayed, retried and dead-lettered messages, new
topics, batches, odd queue ids, the binary header. Order and texts of the refusals are Java's (store-and-broker.md 7.6,
2.7); a diverted message is a :class:`Put` with another topic, queue and property string, appended like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from rmq.broker.store.index.words import keys_to_index
from rmq.broker.store.state import Put, Queue
from rmq.broker.topics.names import topic_name_fault
from rmq.protocol import batch, properties
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import FAQ, ProtocolError, ResponseError
from rmq.protocol.headers.send import SendMessageRequest, SendMessageV2Request
from rmq.protocol.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.permissions import publish_topic
from rmq.protocol.sysflags import perm_text
from rmq.protocol.tags import string_hash
from rmq.remoting.buckets import Buckets

if TYPE_CHECKING:
    from rmq.broker.lane.topic_lane import LaneTable
    from rmq.broker.parts import Ground, Tables
    from rmq.broker.store.queues.multi_dispatch import MultiDispatch
    from rmq.protocol.bodies.topic import TopicConfig
    from rmq.protocol.permissions import Grant
    from rmq.remoting.conn import Conn

__all__ = ["SENT_PROPERTIES", "Admission", "DelayLevels", "Ticket"]

log = logging.getLogger(__name__)

#: From this client version on a retry limit in the request overrides the group's (V3_4_9, protocol.md 1.5).
RETRY_LIMIT_SINCE = 121

_HOUR = 3600.0
_TRANSACTION_BITS = 0xC
_PREPARED = 0x4
_ROLLBACK = 0xC
_HOST_BITS = 0x30
_BORN_V6 = 0x10
_STORE_V6 = 0x20
_MULTI_TAG = 0x2
#: Bytes kept free in the properties of a message for what is added to them until it is a dead letter: names of cluster,
#: topics and group, ids, delay, times and tries. Without it a message that was taken could be neither tried again nor
#: buried.
_ROOM = 750
#: Most bytes of properties of a message that is sent; a retry brings along what was added.
SENT_PROPERTIES = properties.MAX_BYTES - _ROOM
#: What a copy keeps in any case: the broker's notes, and what readers find it by.
_KEPT = properties.RESERVED - {properties.KEYS} | {"ORIGIN_GROUP"}
#: What of a batch is admitted in one go, by the weight that :mod:`rmq.protocol.batch` gives: some 4 ms.
_SLICE = 64 << 10
#: Bytes of properties that a batch may have in its records, in times of ``maxMessageSize``: those that its messages
#: share are stored with each.
_MOST_PROPERTIES = 16


class DelayLevels(Protocol):
    """The table of delay levels (schedule): what is stored now is due at ``deliver_at``."""

    @property
    def max_level(self) -> int: ...

    def deliver_at(self, level: int, store_timestamp: int) -> int: ...


class Timers(Protocol):
    """Messages with a delivery time of their own (schedule)."""

    def divert(self, table: dict[str, str], queue: Queue, *, checked: bool = False) -> tuple[Queue, int] | None: ...

    def asks(self, table: dict[str, str]) -> bool: ...

    def check(self, table: dict[str, str]) -> None: ...

    def handle(self, table: dict[str, str], topic: str) -> str | None: ...

    def drop(self, table: dict[str, str]) -> None: ...


@dataclass(slots=True)
class Ticket:
    """Messages that may be appended, and what their answer needs."""

    puts: list[Put]
    #: What the answer names: for a diverted message still the queue that was asked for.
    queue_id: int
    #: False: answered before the message is durable (property WAIT=false).
    wait: bool = True
    #: A batch: all records in one file.
    together: bool = False
    #: What a message that waits for its time is recalled by.
    recall_handle: str | None = None


AnySend = SendMessageRequest | SendMessageV2Request


def _shown(config: TopicConfig) -> str:
    """A topic as Java prints one inside a remark."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={'true' if config.order else 'false'}]"
    )


def _shown_time(stamp: int) -> str:
    """A wall-clock time as Java prints one in the refusal: local, down to the millisecond."""
    try:
        text = datetime.fromtimestamp(stamp // 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return str(stamp)
    return f"{text},{stamp % 1000:03d}"


class Admission:
    """Turns a send header and a body into a :class:`Ticket`, or raises the refusal as a ResponseError."""

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        lanes: LaneTable,
        levels: DelayLevels,
        timers: Timers,
    ) -> None:
        self._clock = ground.world.clock
        #: Topics that were made by sends, by account or address.
        self._makers = Buckets(ground.world.clock.monotonic)
        self._random = ground.world.random
        self._settings = settings = ground.settings
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = ground.store
        self._lanes = lanes
        self.levels = levels
        self.timers = timers
        self._store_host = ground.store_host
        self._cluster_size = len(f"\x02CLUSTER\x01{settings.broker_cluster_name}".encode())

    def admit(self, conn: Conn, header: AnySend, body: bytes, version: int, grant: Grant | None = None) -> Ticket:
        """Check a send and make its records.

        :param version: what the client announced; decides whose retry limit counts.
        :param grant: what its sender may do. Its topic was asked for before; queues that messages name are asked for
            here, where they are read.
        :raises ResponseError: with Java's code and remark.
        :raises AuthError: a message names a queue that is not its sender's to write.
        """
        if header.batch:
            return finished(self.batch(conn, header, body, grant))
        config, queue_id = self._addressed(conn, header, grant)
        topic = config.topic_name
        text = header.properties or ""
        if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            self._check_room(len(text.encode()))
        table = properties.decode(text)
        if topic.startswith(RETRY_PREFIX):
            dead = self._dead_letter_topic(topic, header, version)
            if dead is not None:
                config, queue_id = dead, 0
                # A dead letter is there at once, whatever delay its last retry had (field case B048).
                if "DELAY" in table:
                    table["DELAY"] = "0"
                self.timers.drop(table)
        wait = table.get("WAIT", "true").lower() == "true"
        sys_flag = header.sys_flag & ~_HOST_BITS
        if config.topic_filter_type == "MULTI_TAG":
            sys_flag |= _MULTI_TAG
        level = self.delay_level(table)
        table["CLUSTER"] = self._settings.broker_cluster_name
        answer_queue = queue_id
        handle = None
        queue = self._queue(config.topic_name, queue_id)
        if table.get("TRAN_MSG", "").lower() == "true":
            if self._settings.reject_transaction_message:
                raise ResponseError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._settings.broker_ip1}] sending transaction message is forbidden",
                )
            queue, code = self._half(table, queue)
            sys_flag &= ~_TRANSACTION_BITS
        elif sys_flag & _TRANSACTION_BITS not in (_PREPARED, _ROLLBACK) and (waits := self.later(table, level, queue)):
            handle = None if level > 0 else self.timers.handle(table, queue.topic)
            queue, code = waits
        else:
            table.pop("WAIT", None)
            tag = table.get("TAGS")
            code = string_hash(tag) if tag else 0
        return Ticket(
            [
                self.put(
                    queue, body, table, header.flag, sys_flag, header.born_timestamp, conn.born_host, self._store_host,
                    header.reconsume_times or 0, 0, code, sent=True, grant=grant,
                )
            ],
            answer_queue,
            wait=wait,
            recall_handle=handle,
        )  # fmt: skip

    def _addressed(self, conn: Conn, header: AnySend, grant: Grant | None) -> tuple[TopicConfig, int]:
        """The topic and the queue of a send, when it may be stored at all."""
        self._check_open()
        config = self._topic_for(conn, header, grant)
        queue_id = self._queue_id(conn, header.queue_id, config)
        self._check_takes(self._store.queues.get(config.topic_name, queue_id))
        return config, queue_id

    def put(
        self,
        queue: Queue,
        body: bytes,
        table: dict[str, str],
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        tags_code: int,
        *,
        sent: bool = False,
        grant: Grant | None = None,
    ) -> Put:
        """A record from its parts, with the host bits of ``sys_flag`` set.

        :param sent: a client sends it, and the size limits count. What is stored again was taken before and is not
            judged by the limits of today; of properties that have become too long those that matter least are left out.
        :param grant: of who sends it.
        :raises ResponseError: MESSAGE_ILLEGAL (store-and-broker.md 2.7).
        :raises AuthError: it names a queue that is not its sender's to write.
        """
        # The broker's own note; a retry brings that of its original along, and a client may send any.
        table.pop("INNER_MULTI_QUEUE_OFFSET", None)
        stored = properties.encode(table).encode()
        if not sent and len(stored) > properties.MAX_BYTES:
            stored = self._shortened(table, queue.topic)
        names = table.get("INNER_MULTI_DISPATCH") if sent else None
        if names is not None and self._store.multi_dispatch is not None:
            self._check_dispatch(self._store.multi_dispatch, names, queue.id, len(stored), grant)
        if sent:
            self._check_takes(queue)
        if stored.endswith(b"\0"):
            # Recovery takes a last record that ends in zeros for a torn one: a separator behind the value keeps it.
            stored += b"\x02"
        limit = self._settings.max_message_size
        size = 91 + len(body) + len(stored) + len(queue.topic_field)
        if (
            not queue.topic_field
            or len(stored) > properties.MAX_BYTES
            or (sent and (len(body) > limit or size > limit + 65536))
            or size + 8 > self._store.log.file_size
        ):
            raise self.illegal()
        if sys_flag & _PREPARED:
            # Such a record is in no queue, says every recovery: it must not be in one until then.
            sys_flag &= ~_TRANSACTION_BITS
        sys_flag &= ~_HOST_BITS
        if len(born_host) == 20:
            sys_flag |= _BORN_V6
        if len(store_host) == 20:
            sys_flag |= _STORE_V6
        return Put(
            queue, body, stored, flag, sys_flag, born_timestamp, born_host, store_host, reconsume_times,
            prepared_offset, tags_code, keys_to_index(table),
        )  # fmt: skip

    @staticmethod
    def _shortened(table: dict[str, str], topic: str) -> bytes:
        """The properties of a message that was stored without room for what is added, the longest others taken out."""
        out = []
        while len(stored := properties.encode(table).encode()) > properties.MAX_BYTES:
            name = max(table.keys() - _KEPT, key=lambda name: (len(name) + len(table[name]), name), default=None)
            if name is None:
                break
            out.append(name[:64])
            del table[name]
        log.warning("a copy of a message for %s has no room for its properties %s", topic, ", ".join(out))
        return stored

    def _check_room(self, size: int) -> None:
        """Refuse properties of so many bytes, without CLUSTER, that leave no room for what is added."""
        if size <= SENT_PROPERTIES:
            return
        if size + self._cluster_size > properties.MAX_BYTES:
            raise self.illegal()
        raise ResponseError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its properties take {size} bytes; with more than {SENT_PROPERTIES} it could not "
            "be tried again",
        )

    def _check_takes(self, queue: Queue | None) -> None:
        """Refuse what is sent to a queue of which too many entries wait to be written."""
        reason = self._store.queues.full.get(queue) if queue is not None else None
        if queue is not None and reason is not None:
            raise ResponseError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"queue {queue.id} of topic[{queue.topic}] takes no messages now: {reason}; other queues do",
            )

    def _check_dispatch(
        self, multi_dispatch: MultiDispatch, names: str, queue_id: int, stored: int, grant: Grant | None
    ) -> None:
        fault = multi_dispatch.fault(names, queue_id, stored)
        if fault is not None:
            raise ResponseError(ResponseCode.MESSAGE_ILLEGAL, fault)
        if grant is not None:
            grant.demand(*map(publish_topic, multi_dispatch.named(names)))
        self._check_takes(multi_dispatch.full(names, queue_id))
        if multi_dispatch.exceeded(names, queue_id):
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num "
                "exceed maxLmqConsumeQueueNum config num, default limit 2w.",
            )

    def later(
        self, table: dict[str, str], level: int, queue: Queue, *, checked: bool = False
    ) -> tuple[Queue, int] | None:
        """Divert a message that is not to be delivered now; a level wins over a time, as in Java 5.

        :param checked: a time that was admitted before is not judged again.
        """
        if level > 0:
            self.timers.drop(table)
            return self.delay(table, level, queue)
        return self.timers.divert(table, queue, checked=checked)

    def delay(self, table: dict[str, str], level: int, queue: Queue) -> tuple[Queue, int]:
        """Divert to the schedule topic: (its queue, the delivery time in ms as the entry's tags code)."""
        level = min(level, self.levels.max_level)
        table["DELAY"] = str(level)
        table["REAL_TOPIC"] = queue.topic
        table["REAL_QID"] = str(queue.id)
        # Not from the store stamp: after the clock was set back, that one stands still until it has caught up.
        due = self.levels.deliver_at(level, self._clock.now_ms())
        return self._queue(SCHEDULE_TOPIC, level - 1), due

    def _half(self, table: dict[str, str], queue: Queue) -> tuple[Queue, int]:
        """Divert to the half topic. A delay level waits for the commit (Java parks the half itself and loses it)."""
        table["REAL_TOPIC"] = queue.topic
        table["REAL_QID"] = str(queue.id)
        # The broker's own notes about a half message are not taken from a client.
        table.pop("TRANSACTION_CHECK_TIMES", None)
        table.pop("TRAN_PREPARED_QUEUE_OFFSET", None)
        self.timers.check(table)
        self._topics.create_for_send_back(HALF_TOPIC, 1, 6, 0)
        tag = table.get("TAGS")
        return self._queue(HALF_TOPIC, 0), string_hash(tag) if tag else 0

    def _queue(self, topic: str, queue_id: int) -> Queue:
        return self._store.queues.get_or_create(topic, queue_id)

    def _check_open(self) -> None:
        settings = self._settings
        opens = settings.start_accept_send_request_time_stamp
        if opens and self._clock.now_ms() < opens:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {_shown_time(opens)}")
        if self._store.log.gate:
            raise self.unavailable()

    def unavailable(self) -> ResponseError:
        """SERVICE_NOT_AVAILABLE with Java's remark and the measured disk ratios."""
        commit_log, consume_queue, index = self._store.disk_ratios()
        return ResponseError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now. It may be caused by one of the following reasons: "
            f"the broker's disk is full [CL: {commit_log:5.2f} CQ: {consume_queue:5.2f} INDEX: {index:5.2f}], "
            "messages are put to the slave, message store has been shut down, etc.",
        )

    def illegal(self) -> ResponseError:
        """The refusal of a message that is too long, in Java's words."""
        return ResponseError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._settings.max_message_size}B, msg properties length limit 32KB.",
        )

    def _makes_topic(self, conn: Conn, grant: Grant | None, *, made: bool) -> None:
        """Whoever sends to a topic that is not there is about to have it made, or it was made.

        :raises ResponseError: SYSTEM_BUSY: there were too many of them.
        """
        most = self._settings.max_new_topics_per_hour
        if not most:
            return
        maker = (grant.account if grant is not None else "") or conn.host
        if made:
            self._makers.take(maker, 1, most / _HOUR, most)
        elif self._makers.level(maker, most / _HOUR, most) < 1:
            raise ResponseError(
                ResponseCode.SYSTEM_BUSY,
                f"[FLOW] {maker} has made {most} topics within an hour (maxNewTopicsPerHour): make them with mqadmin",
            )

    def _topic_for(self, conn: Conn, header: AnySend, grant: Grant | None) -> TopicConfig:
        settings = self._settings
        topic = header.topic or ""
        if not settings.broker_permission & 2 and self._topics.is_order(topic):
            raise ResponseError(
                ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] sending message is forbidden"
            )
        refusal = topic_name_fault(topic)
        if refusal is not None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, refusal)
        if self._topics.system.refuses_send(topic):
            raise ResponseError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic)
        if config is None:
            unit = header.unit_mode is True
            sys_flag = (2 if topic.startswith(RETRY_PREFIX) else 1) if unit else 0
            self._makes_topic(conn, grant, made=False)
            config = self._topics.create_for_send(
                topic, header.default_topic or "", header.default_topic_queue_nums or 0, sys_flag, conn.peer
            )
            if config is None and topic.startswith(RETRY_PREFIX):
                self._topics.check_room()
                config = self._topics.create_for_send_back(topic, 1, 6, sys_flag)
            if config is not None:
                self._makes_topic(conn, grant, made=True)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        self._lanes.of(config)
        return config

    def _queue_id(self, conn: Conn, queue_id: int, config: TopicConfig) -> int:
        if queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {_shown(config)} Producer: {conn.peer}",
            )
        if queue_id < 0:
            return self._random.randrange(max(config.write_queue_nums, 1))
        return queue_id

    def _dead_letter_topic(self, topic: str, header: AnySend, version: int) -> TopicConfig | None:
        """Where a retried message goes that has used up its tries; None while it has some left."""
        group = topic[len(RETRY_PREFIX) :]
        found = self._groups.find(group)
        if found is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
            )
        limit = found.retry_max_times
        if version >= RETRY_LIMIT_SINCE and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        if (header.reconsume_times or 0) < limit:
            return None
        return self._topics.create_for_send_back(DLQ_PREFIX + group, 1, 6, 0)

    @staticmethod
    def delay_level(table: dict[str, str]) -> int:
        text = table.get("DELAY")
        if text is None:
            return 0
        level = whole(text.strip(), INT_MAX, -INT_MAX)
        if level is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"the property DELAY is {text[:32]!r}: a delay level is a number"
            )
        return level

    def batch(
        self, conn: Conn, header: AnySend, body: bytes, grant: Grant | None = None
    ) -> Generator[None, None, Ticket]:
        """One ticket with a record a message (store-and-broker.md 2.5), in slices: a batch may have very many.

        :raises ResponseError: with Java's code and remark.
        :raises AuthError: as :meth:`admit`.
        """
        config, queue_id = self._addressed(conn, header, grant)
        settings = self._settings
        if len(config.topic_name) > 127:
            raise ResponseError(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(config.topic_name)}")
        shared = properties.decode(header.properties or "")
        sys_flag = header.sys_flag & ~_HOST_BITS
        if len(body) > settings.max_message_size or sys_flag & _TRANSACTION_BITS or self.delay_level(shared) > 0:
            raise self.illegal()
        shared["CLUSTER"] = settings.broker_cluster_name
        queue = self._queue(config.topic_name, queue_id)
        puts: list[Put] = []
        done = whole = 0
        items = batch.read(body)
        while True:
            try:
                item_flag, item_body, tail = next(items)
            except StopIteration:
                break
            except ProtocolError as error:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the batch cannot be read: {error}") from None
            table = properties.decode(tail.decode(errors="replace"))
            table.update(shared)
            # A batch is one write to one queue: none of it can wait. Java delivers it at once.
            if self.delay_level(table) > 0 or self.timers.asks(table):
                raise ResponseError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    "the message is illegal: one with a delay or a delivery time is sent by itself, not in a batch",
                )
            tag = table.get("TAGS")
            put = self.put(
                queue, item_body, table, item_flag, sys_flag, header.born_timestamp, conn.born_host,
                self._store_host, header.reconsume_times or 0, 0, string_hash(tag) if tag else 0, sent=True,
                grant=grant,
            )  # fmt: skip
            self._check_room(len(put.properties) - self._cluster_size)
            puts.append(put)
            whole += len(put.properties)
            if whole > _MOST_PROPERTIES * settings.max_message_size:
                raise self.illegal()
            done += batch.MESSAGE_WEIGHT + len(put.properties)
            if done >= _SLICE:
                done = 0
                yield
        if not puts:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the batch is empty: send at least one message")
        wait = shared.get("WAIT", "true").lower() == "true"
        return Ticket(puts, queue_id, wait=wait, together=True)


def finished(steps: Generator[None, None, Ticket]) -> Ticket:
    """What a piece of work in slices gives, without a pause between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            ticket: Ticket = end.value
            return ticket
