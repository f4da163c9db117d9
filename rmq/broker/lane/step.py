"""The send lane: one step a loop tick, over every connection that has a whole frame.

The step decodes plain sends, appends them all with one log write, and answers each connection with one socket write
(design.md section 3). A send that is not plain is admitted by :mod:`rmq.broker.lane.admit` and joins the same append,
in arrival order. Pulls are served after the append, other commands after the pulls, in arrival order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from msgspec import DecodeError, ValidationError

from rmq.broker.lane.admit import SENT_PROPERTIES
from rmq.broker.lane.answers import Recallable
from rmq.broker.lane.batches import Batches
from rmq.broker.lane.hot_frames import PULL_START, SEND_START, decode_pull, decode_send
from rmq.broker.lane.new_topics import NewTopics
from rmq.broker.lane.outcomes import Ack, Outcomes, with_sharding_key
from rmq.broker.lane.plain import plain_properties
from rmq.broker.store.log.append import PartlyAppended, RecordTooLarge
from rmq.broker.store.state import Put
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import HeaderError, ProtocolError, ResponseError, StoreError
from rmq.protocol.frame import decode
from rmq.protocol.headers.send import SendMessageRequest, SendMessageV2Request
from rmq.protocol.permissions import publish_topic
from rmq.remoting.router import handles

if TYPE_CHECKING:
    from rmq.broker.delivery.pull import Delivery
    from rmq.broker.lane.admit import Admission, AnySend, Ticket
    from rmq.broker.lane.answers import SendAnswers
    from rmq.broker.lane.pressure import Pressure
    from rmq.broker.lane.topic_lane import LaneTable
    from rmq.broker.parts import Counted, Ground
    from rmq.broker.topics.table import TopicTable
    from rmq.remoting.conn import Conn
    from rmq.remoting.router import Router

__all__ = ["DIVERTED_FLAGS", "Lane"]

log = logging.getLogger(__name__)

_head_of = Struct(">I").unpack_from
_ONEWAY = 2
_RESPONSE = 1
#: Pulls of one connection served in one tick: an answer may be 256 KiB.
_PULLS_PER_TICK = 16
#: Other commands routed in one tick, and their bytes: a handler takes some 0.1 ms, and more the larger its request is.
_OTHERS_PER_TICK = 64
_OTHER_BYTES_PER_TICK = 128 << 10
#: Sends: what the step takes itself, whatever the header's form.
_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
#: System flags of a plain send: everything but transaction and host bits.
DIVERTED_FLAGS = 0x3C

#: What sends that are not plain may weigh in one tick, bytes of properties: some 10 ms. One of them weighs as much as
#: its properties, a key that is indexed and the send itself so much more; of a batch its bodies count, too.
_SLOW_WEIGHT_PER_TICK = 128 << 10
_SLOW_WEIGHT = 400
_KEY_WEIGHT = 32


class Sends(NamedTuple):
    """What sends pass through."""

    lanes: LaneTable
    admission: Admission
    answers: SendAnswers
    pressure: Pressure


class Lane:
    """The step of the broker's server, and the send handlers for servers without a step."""

    def __init__(
        self,
        ground: Ground,
        topics: TopicTable,
        counted: Counted,
        sends: Sends,
        delivery: Delivery,
        router: Router,
    ) -> None:
        world, settings = ground.world, ground.settings
        lanes, admission, answers, pressure = sends
        self._settings = settings
        self._store = ground.store
        self._topics = topics
        self._lanes = lanes
        self._new_topics = NewTopics(topics, lanes)
        topics.on_saved.append(self._topics_saved)
        self._admission = admission
        self._answers = answers
        self._delivery = delivery
        self._monotonic = world.clock.monotonic
        self._now_ms = world.clock.now_ms
        self._pressure = pressure
        self._outcomes = Outcomes(ground, counted, answers, pressure, router.faults, admission.unavailable)
        self._batches = Batches(ground.store, admission, self._outcomes, pressure, self._batch_admitted)
        self._router = router
        self._store_host = ground.store_host
        # Sends with a sharding key that the next append takes.
        self._ordered: list[Put] = []
        #: The answers of a step are written: what can wait for that is done. Never raises.
        self.after: Callable[[], None] = ground.store.indexing.fresh.put
        self._cluster = f"CLUSTER\x01{settings.broker_cluster_name}".encode()

    def give_away(self, stray: Callable[[Command], None]) -> None:
        """Have oneway sends taken that this broker does not take, since it follows."""
        self._outcomes.stray = stray

    def step(self, ready: list[Conn]) -> None:
        """Serve every frame of the ready connections."""
        self._answers.follow(self._settings)
        settings = self._settings
        lanes = self._lanes.get
        limit = settings.max_message_size
        room_of_properties = SENT_PROPERTIES
        store_host = self._store_host
        store_v6 = len(store_host) == 20
        cluster = self._cluster
        # Checked once a tick: while it is closed every send takes the slow branch, which says why.
        opens = settings.start_accept_send_request_time_stamp
        gate = self._store.log.gate or (opens and self._now_ms() < opens)
        pressure = self._pressure
        late, room = pressure.look()
        puts: list[Put] = []
        acks: list[Ack] = []
        pulls = []
        later: list[tuple[Conn, Command]] = []
        room_for_others = _OTHER_BYTES_PER_TICK
        room_for_slow = _SLOW_WEIGHT_PER_TICK
        for conn in ready:
            born_host = conn.born_host
            plain_hosts = not (store_v6 or conn.born_v6)
            frames, conn.frames = conn.frames, []
            if conn.read_at < late or len(frames) + len(puts) > room:
                frames = pressure.shed(conn, frames, room - len(puts))
            pulled = 0
            rest = iter(frames)
            for buf, lo, hi in rest:
                try:
                    (head,) = _head_of(buf, lo)
                    start = lo + 4
                    end = start + head
                    # A head of 16 MiB and more has a serialize type other than JSON in its first byte.
                    if end > hi:
                        pass
                    elif buf.startswith(SEND_START, start):
                        try:
                            frame = decode_send(buf[start:end])
                        except (ValidationError, DecodeError):
                            pass
                        else:
                            fields = frame.extFields
                            lane = lanes(fields.b)
                            queue_id = fields.e
                            if (
                                lane is not None
                                and lane.plain
                                and plain_hosts
                                and not (gate or fields.j or fields.m or fields.f & DIVERTED_FLAGS or frame.flag & 1)
                                and 0 <= queue_id < len(lane.queues)
                                and hi - end <= limit
                                and (plain := plain_properties(fields.i, cluster)) is not None
                            ):
                                stored, tag, keys, wait = plain
                                if len(stored) <= room_of_properties:
                                    code = lane.tag_codes.get(tag)
                                    if code is None:
                                        code = lane.tag_code(tag)
                                    puts.append(
                                        (  # type: ignore[arg-type]
                                            lane.queues[queue_id], buf[end:hi], stored, fields.h, fields.f, fields.g,
                                            born_host, store_host, 0, 0, code, keys,
                                        )
                                    )  # fmt: skip
                                    acks.append(
                                        (conn, None if frame.flag & _ONEWAY else frame.opaque, queue_id, wait, None)
                                    )
                                    continue
                    elif buf.startswith(PULL_START, start) and not conn.fast:
                        try:
                            pull = decode_pull(buf[start:end])
                        except (ValidationError, DecodeError):
                            pass
                        else:
                            if not pull.flag & _RESPONSE:
                                if pulled == _PULLS_PER_TICK:
                                    # Its answers have to be taken first: the rest comes again next tick.
                                    conn.frames = [(buf, lo, hi), *rest]
                                    break
                                pulled += 1
                                pulls.append((conn, pull))
                                continue
                    if room_for_others <= 0 or room_for_slow <= 0 or len(later) == _OTHERS_PER_TICK:
                        # A thousand heartbeats at once must not make everybody wait for the last of them.
                        conn.frames = [(buf, lo, hi), *rest]
                        break
                    try:
                        command = decode(buf[lo:hi])
                    except ProtocolError as error:
                        conn.malformed(str(error))
                        break
                    if command.code in _SENDS and not command.flag & _RESPONSE:
                        room_for_slow -= self._slow(conn, command, puts, acks)
                    else:
                        later.append((conn, command))
                        room_for_others -= hi - lo
                except Exception as error:
                    if not self._frame_failed(conn, buf[lo:hi], error):
                        break
        if puts:
            self._append(puts, acks, keys_later=True)
        if pulls:
            serve = self._delivery.serve_frame
            for conn, pull in pulls:
                serve(conn, pull)
        if later:
            route = self._router.route
            for conn, command in later:
                if command.flag & _RESPONSE:
                    conn.answered(command)
                else:
                    route(conn, command)

    def _frame_failed(self, conn: Conn, data: bytes, error: Exception) -> bool:
        """One frame met an error that nobody expected: it is answered by itself, and the tick goes on.

        :returns: False when the frame cannot be read: its connection is given up.
        """
        try:
            command = decode(data)
        except Exception:
            log.exception("a frame from %s broke the decoder", conn.peer)
            conn.malformed("a frame that cannot be decoded")
            return False
        self._outcomes.failed(conn, command, error)
        return True

    @handles(RequestCode.SEND_MESSAGE)
    def send(self, conn: Conn, request: Command) -> Command | None:
        """SEND_MESSAGE where it comes through the router: the same admission and append as the step's."""
        puts: list[Put] = []
        acks: list[Ack] = []
        self._slow(conn, request, puts, acks)
        if puts:
            self._append(puts, acks)
        return None

    @handles(RequestCode.SEND_MESSAGE_V2)
    def send_v2(self, conn: Conn, request: Command) -> Command | None:
        """SEND_MESSAGE_V2, as above."""
        return self.send(conn, request)

    @handles(RequestCode.SEND_BATCH_MESSAGE)
    def send_batch(self, conn: Conn, request: Command) -> Command | None:
        """SEND_BATCH_MESSAGE, as above."""
        return self.send(conn, request)

    def _slow(self, conn: Conn, request: Command, puts: list[Put], acks: list[Ack]) -> int:
        """Admit one send of any form; what that weighs, see ``_SLOW_WEIGHT_PER_TICK``."""
        try:
            header: AnySend
            if request.code == RequestCode.SEND_MESSAGE:
                header = request.header(SendMessageRequest)
            else:
                header = request.header(SendMessageV2Request)
            if request.grant is not None:
                request.demand(publish_topic(header.topic or ""))
            if self._batches.take_long(conn, request, header):
                return _SLOW_WEIGHT
            ticket = self._admission.admit(conn, header, request.body, request.version, request.grant)
        except (ResponseError, HeaderError) as error:
            self._outcomes.refused(conn, request, error)
            return _SLOW_WEIGHT
        self._ready(conn, request, header, ticket, puts, acks)
        weight = _SLOW_WEIGHT + _KEY_WEIGHT * sum([len(put.keys) for put in ticket.puts])
        return weight + len(request.body if header.batch else header.properties or "")

    def _ready(
        self, conn: Conn, request: Command, header: AnySend, ticket: Ticket, puts: list[Put], acks: list[Ack]
    ) -> None:
        """An admitted send is stored, or waits until its topic is in its file."""
        if self._topics.unsaved and self._new_topics.postpone(conn, request, header.topic or "", ticket):
            self._pressure.held += 1
            return
        self._admitted(conn, request, ticket, puts, acks)

    def _batch_admitted(self, conn: Conn, request: Command, header: AnySend, ticket: Ticket) -> None:
        self._ready(conn, request, header, ticket, [], [])

    def _topics_saved(self) -> None:
        """Topics have come into topics.json: store what was sent to them."""
        there = self._store.queues.get
        puts: list[Put] = []
        acks: list[Ack] = []
        for conn, request, ticket, _ in self._new_topics.take():
            self._pressure.held -= 1
            try:
                if all(there(put.queue.topic, put.queue.id) is put.queue for put in ticket.puts):
                    self._admitted(conn, request, ticket, puts, acks)
                else:  # its topic was deleted meanwhile
                    self._slow(conn, request, puts, acks)
            except Exception as error:
                self._outcomes.failed(conn, request, error)
        if puts:
            self._append(puts, acks)

    def _admitted(self, conn: Conn, request: Command, ticket: Ticket, puts: list[Put], acks: list[Ack]) -> None:
        """An admitted send joins the next append; a batch is appended at once, after what came before it."""
        oneway = request.is_oneway
        if ticket.together:
            if puts:
                self._append(puts, acks)
                puts.clear()
                acks.clear()
            self._batches.append(conn, request, ticket)
            return
        if ticket.recall_handle is not None:
            request = Recallable(request, ticket.recall_handle)
        acks.append((conn, None if oneway else request.opaque, ticket.queue_id, ticket.wait, request))
        puts += ticket.puts
        self._ordered += with_sharding_key(ticket.puts)

    def _append(self, puts: list[Put], acks: list[Ack], *, keys_later: bool = False) -> None:
        """Append and answer; with sync flush or a sync master the answers wait in the durability queue.

        A message that cannot be appended costs itself alone: the others are appended without it. Never raises.

        :param keys_later: in :meth:`after`; ``puts`` stays as it is until then.
        """
        began = self._monotonic()
        try:
            span = self._store.append(puts, keys_later=keys_later)
        except PartlyAppended as partly:
            stored = len(partly.span.offsets)
            self._outcomes.count_ordered(with_sharding_key(puts[:stored]))
            self._outcomes.stored(partly.span, puts[:stored], acks[:stored], began)
            self._not_appended(partly.reason, puts[stored:], acks[stored:])
        except Exception as error:
            self._not_appended(error, puts, acks)
        else:
            if self._ordered:
                self._outcomes.count_ordered(self._ordered)
                self._ordered.clear()
            self._outcomes.stored(span, puts, acks, began)

    def _not_appended(self, error: Exception, puts: list[Put], acks: list[Ack]) -> None:
        """Nothing of these sends was stored; say so to each, or store those that are not to blame."""
        self._ordered.clear()
        # A disk or a gate refuses all of them.
        refused = isinstance(error, (OSError, StoreError)) and not isinstance(error, RecordTooLarge)
        if refused or len(acks) == 1:
            self._outcomes.not_appended(error, acks)
            return
        for put, ack in zip(puts, acks, strict=True):
            self._ordered = with_sharding_key([put])
            self._append([put], [ack])
