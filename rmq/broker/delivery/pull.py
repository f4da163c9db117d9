"""PULL_MESSAGE and LITE_PULL_MESSAGE: checks, read, answer or park (store-and-broker.md 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from rmq.broker.delivery.answers import code_of, pull_answer
from rmq.broker.delivery.checks import SUBSCRIPTION, PullChecks
from rmq.broker.delivery.cold_pulls import ColdPulls
from rmq.broker.delivery.filtering import Filter
from rmq.broker.delivery.holds import Hold, Holds, Pull
from rmq.broker.delivery.read import Batch, Reader, ReadLimits, Status
from rmq.broker.delivery.slow_readers import SlowReaders
from rmq.broker.lane.hot_frames import PullFields, PullFrame
from rmq.protocol import subscription
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_RESPONSE, Command, SerializeType
from rmq.protocol.errors import FAQ, AuthError, HeaderError, ResponseError
from rmq.protocol.frame import encode
from rmq.protocol.headers.pull import PullMessageRequest
from rmq.protocol.names import MASTER_ID, is_private_topic
from rmq.protocol.permissions import use_group, use_topic
from rmq.remoting.router import BUSY, handles
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.broker.delivery.moved import OffsetMovedEvents
    from rmq.broker.groups.clients import Consumers
    from rmq.broker.parts import Counted, Ground, Tables
    from rmq.broker.store.state import Queue
    from rmq.protocol.permissions import Grant
    from rmq.remoting.conn import Conn
    from rmq.remoting.faults import Faults

__all__ = ["Delivery"]

_COMMIT = 1
_SUSPEND = 2


class Delivery:
    """Serves pulls.

    :param counted: told of each batch handed out, and of the answers' latency.
    :param faults: answers pulls that fail in a way nobody expected.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        consumers: Consumers,
        counted: Counted,
        moved: OffsetMovedEvents,
        limits: ReadLimits,
        faults: Faults,
    ) -> None:
        clock, settings, store = ground.world.clock, ground.settings, ground.store
        self._settings = settings
        self._topics = topics = tables.topics
        self._groups = groups = tables.groups
        self._checks = PullChecks(ground, tables, consumers)
        self._filters = tables.filters
        self._offsets = tables.offsets
        self._moved = moved
        self._on_delivered = counted.stats.delivered
        self._latency = counted.latency
        self._faults = faults
        self._tasks = TaskOwner("delivery")
        self._reader = Reader(store, limits)
        self._cold = ColdPulls(clock, self._tasks, limits, self._fail)
        self.holds = Holds(clock, self._wake, self._expire)
        self.slow_readers = SlowReaders(settings, groups)
        self.serve_as(leads=True)
        #: Whether nobody else can be the master by now: in a group, one that is cut off learns of the next one late.
        self.surely_leads: Callable[[], bool] = lambda: True
        #: Pulls that found nothing, for the statistics.
        self.missed = 0
        topics.on_change.append(self._topic_changed)

    def serve_as(self, *, leads: bool) -> None:
        """What depends on the broker's role.

        :param leads: False: it may be behind its master, so no offset is wrong here, and none is committed by a pull;
            and it hands out messages only with ``slaveReadEnable``.
        """
        self._leads = leads
        self._committing = _COMMIT if leads else 0
        if self._keeps_back and self.holds.count:
            # Whoever waits here for what comes is told at once that it comes elsewhere now.
            self.holds.release(lambda hold: True)

    @property
    def _keeps_back(self) -> bool:
        """Whether messages are handed out by the master alone, which this is not."""
        return not self._leads and not self._settings.slave_read_enable

    def _pull_from(self, group: str, behind: int) -> int:
        """The id of the broker that a group is to pull from next (store-and-broker.md 6.6).

        :param behind: bytes of the log behind what was read: beyond what memory holds, a slave is to read the disk.
        """
        config = self._groups.get(group) if self._settings.slave_read_enable else None
        if config is None:
            return MASTER_ID
        slow = behind > self._reader.limits.memory_bound
        return config.which_broker_when_consume_slowly if slow else config.broker_id

    async def close(self) -> None:
        """Answer what is parked and end what is reading from the disk."""
        self.holds.close()
        await self._tasks.close()

    def serve_frame(self, conn: Conn, frame: PullFrame) -> None:
        """A pull that the lane decoded. Never raises."""
        if frame.flag & 2:
            return
        self._serve(conn, frame.opaque, frame.extFields, SerializeType.JSON)

    @handles(RequestCode.PULL_MESSAGE)
    def pull(self, conn: Conn, request: Command) -> Command | None:
        """PULL_MESSAGE in any form of header."""
        if request.is_oneway:
            return None
        if conn.fast:
            # The VIP port serves everything but this (protocol.md 0).
            raise ResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
        fields = {name: text for name, text in (request.ext or {}).items() if text is not None}
        try:
            pull = msgspec.convert(fields, PullFields, strict=False)
        except msgspec.ValidationError as error:
            request.header(PullMessageRequest)  # says it in the words of all headers
            raise HeaderError(f"PullMessageRequest: {error}") from None
        _demand(request.grant, pull)
        self._serve(conn, request.opaque, pull, request.serialize, request.grant)
        return None

    @handles(RequestCode.LITE_PULL_MESSAGE)
    def lite_pull(self, conn: Conn, request: Command) -> Command | None:
        """LITE_PULL_MESSAGE: what 5.x lite pull consumers send; the same as a pull."""
        return self.pull(conn, request)

    def _serve(
        self, conn: Conn, opaque: int, fields: PullFields, serialize: SerializeType, grant: Grant | None = None
    ) -> None:
        """Answer a pull, now or later. Never raises."""
        began = conn.read_at
        try:
            if not conn.has_room():
                # What it was answered before has to be taken first.
                if not conn.when_room(lambda: self._serve_later(conn, opaque, fields, serialize, grant)):
                    self._refuse_more(conn, opaque, began)
                return
            if self._waits_for_its_turn(fields):
                self._spawn_later(conn, opaque, fields, serialize, grant)
                return
            try:
                queue, wants = self._checks.check(conn, fields)
            except ResponseError as refusal:
                # Java answers a refused pull with an empty header, not with none.
                answer = Command(
                    refusal.code, remark=refusal.remark, ext={}, flag=FLAG_RESPONSE, opaque=opaque, serialize=serialize
                )
                conn.send(encode(answer))
                self._answered(refusal.code, began)
                return
            if fields.sys_flag & self._committing and not is_private_topic(fields.topic):
                self._offsets.commit(fields.consumer_group, fields.topic, fields.queue_id, fields.commit_offset)
            if self._keeps_back:
                kept = Batch(Status.NO_MATCHED_MESSAGE, fields.queue_offset, queue.min, queue.visible, [])
                self._finish(Pull(conn, opaque, fields, serialize, began, grant), queue, wants, kept)
                return
            if wants.sql is None:
                batch = self._reader.at_once(queue, fields.queue_offset, fields.max_msg_nums, wants.codes)
                if batch is not None:
                    self._on_delivered(fields.consumer_group, fields.topic, fields.queue_id, batch.messages, batch.size)
                    if grant is not None:
                        grant.charge(batch.size)
                    if self._settings.disable_consume_if_consumer_read_slowly:
                        self.slow_readers.read(fields.consumer_group, fields.topic, fields.queue_id, batch.behind)
                    next_from = self._pull_from(fields.consumer_group, batch.behind)
                    conn.send_parts(*pull_answer(opaque, batch, 0, next_from, serialize))
                    if self._latency is not None:
                        self._latency.add(RequestCode.PULL_MESSAGE, 0, began)
                    return
            self._scan(Pull(conn, opaque, fields, serialize, began, grant), queue, wants)
        except Exception as error:
            self._failed(conn, opaque, error, began)

    def _waits_for_its_turn(self, fields: PullFields) -> bool:
        """Whether a pull brings an expression for which nothing is left of this turn: else it is compiled now."""
        if not fields.sys_flag & SUBSCRIPTION or fields.expression_type != subscription.SQL92:
            return False
        return not self._filters.expressions.may_compile(fields.subscription or "")

    def _serve_later(
        self, conn: Conn, opaque: int, fields: PullFields, serialize: SerializeType, grant: Grant | None
    ) -> None:
        """Serve a pull that had to wait, if its sender may still pull and is still there. Never raises."""
        if conn.closed:
            return
        try:
            _demand(grant, fields)
        except AuthError as error:
            self._failed(conn, opaque, error, conn.read_at)
        else:
            self._serve(conn, opaque, fields, serialize, grant)

    def _spawn_later(
        self, conn: Conn, opaque: int, fields: PullFields, serialize: SerializeType, grant: Grant | None
    ) -> None:
        """Serve a pull when its expression may be compiled; until then it counts as owed, with its text."""
        text = fields.subscription or ""
        size = len(text)
        conn.promise(size)

        async def waiting() -> None:
            try:
                await self._filters.expressions.compile(text)
            finally:
                conn.promise(-size)
            self._serve_later(conn, opaque, fields, serialize, grant)

        self._tasks.spawn(waiting(), "expression")

    def _scan(self, pull: Pull, queue: Queue, wants: Filter) -> None:
        """Look for messages where a filter or the disk has a say."""
        scan = self._reader.scan(queue, pull.fields.queue_offset, pull.fields.max_msg_nums, wants)
        try:
            waits_for = next(scan)
        except StopIteration as end:
            self._finish(pull, queue, wants, end.value)
            return
        self._cold.read(pull, scan, waits_for, lambda batch: self._finish(pull, queue, wants, batch))

    def _refuse_more(self, conn: Conn, opaque: int, began: float) -> None:
        """Too many pulls wait already."""
        answer = Command(ResponseCode.SYSTEM_BUSY, remark=BUSY, flag=FLAG_RESPONSE, opaque=opaque)
        conn.send(encode(answer))
        self._answered(ResponseCode.SYSTEM_BUSY, began)

    def _failed(self, conn: Conn, opaque: int, error: Exception, began: float, *, parked: bool = False) -> None:
        """A pull met what nobody expected: it is answered so, and its neighbours are served."""
        code = self._faults.fail(conn, Command(RequestCode.PULL_MESSAGE, opaque=opaque), "Delivery", error)
        self._answered(code, began, parked=parked)

    def _fail(self, pull: Pull, error: Exception) -> None:
        self._failed(pull.conn, pull.opaque, error, pull.began)

    def _finish(self, pull: Pull, queue: Queue, wants: Filter, batch: Batch) -> None:
        """Answer a pull with what was found, or have it wait for more."""
        fields = pull.fields
        code = code_of(batch, fields.queue_offset)
        settings = self._settings
        keeps_back = self._keeps_back
        if fields.sys_flag & _SUSPEND and (
            code == ResponseCode.PULL_NOT_FOUND or keeps_back or self._is_elsewhere(code)
        ):
            hold = Hold(pull, queue, wants)
            if not self.holds.has_room(hold, settings.max_held_pulls, settings.max_held_pulls_per_connection):
                self._refuse_more(pull.conn, pull.opaque, pull.began)
                return
            wait_ms = settings.short_polling_time_mills
            if settings.long_polling_enable and not keeps_back:
                wait_ms = fields.suspend_timeout_millis
            self.holds.park(hold, max(0, wait_ms) / 1000)
            return
        self._answer(pull, batch, code)
        self._answered(code, pull.began)

    def _is_elsewhere(self, code: int) -> bool:
        """Whether a slave has not got, or has no longer, what its master may have: who asks is to wait.

        The same of a master that may have a successor: it would send a group back that has come from there. Told to ask
        at once, as Java tells him, he would ask again and again for as long as the master is away.
        """
        if code != ResponseCode.PULL_OFFSET_MOVED:
            return False
        return not (self.surely_leads() if self._leads else self._settings.offset_check_in_slave)

    def _answered(self, code: int, began: float, *, parked: bool = False) -> None:
        """A pull is answered that was read then."""
        if self._latency is not None:
            self._latency.add(RequestCode.PULL_MESSAGE, code, began, long_polling=parked)

    def _answer_hold(self, hold: Hold, batch: Batch, code: int) -> None:
        self._answer(hold.pull, batch, code)
        self._answered(code, hold.pull.began, parked=True)

    def _answer(self, pull: Pull, batch: Batch, code: int) -> None:
        """:raises AuthError: its sender may not pull any more."""
        fields = pull.fields
        _demand(pull.grant, fields)
        if code == 0:
            self._on_delivered(fields.consumer_group, fields.topic, fields.queue_id, batch.messages, batch.size)
            if pull.grant is not None:
                pull.grant.charge(batch.size)
            if self._settings.disable_consume_if_consumer_read_slowly:
                self.slow_readers.read(fields.consumer_group, fields.topic, fields.queue_id, batch.behind)
        else:
            self.missed += 1
            if self._is_elsewhere(code):
                code = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
                batch = batch._replace(next_offset=fields.queue_offset)
            elif code == ResponseCode.PULL_OFFSET_MOVED and self._leads:
                self._moved.add(
                    fields.consumer_group, fields.topic, fields.queue_id, fields.queue_offset, batch.next_offset
                )
        next_from = self._pull_from(fields.consumer_group, batch.behind)
        pull.conn.send_parts(*pull_answer(pull.opaque, batch, code, next_from, pull.serialize))

    def _wake(self, hold: Hold) -> bool:
        """A message arrived: serve the hold again; whether it is answered. Never raises."""
        try:
            return self._serve_again(hold)
        except Exception as error:
            self._failed(hold.conn, hold.pull.opaque, error, hold.pull.began, parked=True)
            return True

    def _expire(self, hold: Hold) -> None:
        """The hold's time is up. Never raises."""
        try:
            self._give_up(hold)
        except Exception as error:
            self._failed(hold.conn, hold.pull.opaque, error, hold.pull.began, parked=True)

    def _serve_again(self, hold: Hold) -> bool:
        """False while only messages came that its filter refuses, and while its peer does not take its answers."""
        if not hold.conn.has_room():
            if not hold.waits:
                hold.waits = hold.conn.when_room(lambda: self._wake_again(hold))
            return False
        if self._keeps_back:
            return False
        scan = self._reader.scan(hold.queue, hold.next_offset, hold.pull.fields.max_msg_nums, hold.wants)
        try:
            waits_for = next(scan)
        except StopIteration as end:
            batch: Batch = end.value
            if batch.status is Status.NO_MATCHED_MESSAGE:
                hold.next_offset = batch.next_offset
                hold.refused = True
                return False
            code = code_of(batch, hold.next_offset)
            if code == ResponseCode.PULL_NOT_FOUND or self._is_elsewhere(code):
                return False
            self._answer_hold(hold, batch, code)
            return True
        self._cold.read(
            hold.pull, scan, waits_for, lambda batch: self._answer_hold(hold, batch, code_of(batch, hold.next_offset))
        )
        return True

    def _wake_again(self, hold: Hold) -> None:
        """There is room for the answer to a hold that was woken."""
        hold.waits = False
        if not (hold.done or hold.conn.closed) and self._wake(hold):
            self.holds.unpark(hold)

    def _give_up(self, hold: Hold) -> None:
        """Say that nothing came, or that everything that came was refused by its filter."""
        queue = hold.queue
        if self._topics.get(queue.topic) is None:
            refusal = Command(
                ResponseCode.TOPIC_NOT_EXIST,
                remark=f"topic[{queue.topic}] not exist, apply first please! {FAQ}",
                ext={},
                flag=FLAG_RESPONSE,
                opaque=hold.pull.opaque,
            )
            hold.conn.send(encode(refusal))
            self._answered(ResponseCode.TOPIC_NOT_EXIST, hold.pull.began, parked=True)
            return
        if hold.refused or self._keeps_back:
            status = Status.NO_MATCHED_MESSAGE
        elif queue.visible == 0:
            status = Status.NO_MESSAGE_IN_QUEUE
        else:
            status = Status.OFFSET_OVERFLOW_ONE
        batch = Batch(status, hold.next_offset, queue.min, queue.visible, [])
        self._answer_hold(hold, batch, code_of(batch, hold.next_offset))

    def _topic_changed(self, topic: str | None) -> None:
        if topic is not None and self.holds.count and self._topics.get(topic) is None:
            self.holds.release(lambda hold: hold.queue.topic == topic)


def _demand(grant: Grant | None, fields: PullFields) -> None:
    """:raises AuthError: whoever pulls may not."""
    if grant is not None:
        grant.demand(use_topic(fields.topic), use_group(fields.consumer_group))
