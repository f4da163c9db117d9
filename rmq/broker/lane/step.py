"""The send lane: one step a loop tick, over every connection that has a whole frame.

The step decodes plain sends, appends them all with one log write, and answers each connection with one socket write
(design.md section 3). A send that is not plain is admitted by :mod:`rmq.broker.lane.admit` and joins the same append,
in arrival order. Pulls are served after the append, other commands after the pulls, in arrival order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, ValidationError

from rmq.broker.kinds import FIFO, SHARDING_KEY
from rmq.broker.lane.admit import SENT_PROPERTIES
from rmq.broker.lane.answers import Recallable
from rmq.broker.lane.hot_frames import PULL_START, SEND_START, decode_pull, decode_send
from rmq.broker.lane.new_topics import NewTopics
from rmq.broker.lane.plain import plain_properties
from rmq.broker.lane.pressure import UnansweredSends
from rmq.broker.store.log.append import PartlyAppended, RecordTooLarge
from rmq.broker.store.log.durability import Answers
from rmq.broker.store.state import Put, Queue, Span
from rmq.broker.store.trouble import Trouble
from rmq.protocol import batch
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import HeaderError, ProtocolError, ResponseError, StoreError
from rmq.protocol.frame import decode, encode
from rmq.protocol.headers.send import SendMessageRequest, SendMessageV2Request
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

__all__ = ["Lane"]

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
_DIVERTED_FLAGS = 0x3C

#: What sends that are not plain may weigh in one tick, bytes of properties: some 10 ms. One of them weighs as much as
#: its properties, a key that is indexed and the send itself so much more; of a batch its bodies count, too.
_SLOW_WEIGHT_PER_TICK = 128 << 10
_SLOW_WEIGHT = 400
_KEY_WEIGHT = 32
#: A batch that weighs more (:func:`batch.holds_more_than`; a thousand messages with few properties) is admitted in a
#: task of its own, a slice a turn of the loop. One such batch at a time: its records take many times its bytes until
#: they are stored.
_LONG_BATCH = 128 << 10
#: Messages of a batch that are appended in one go, some 10 ms, each with three keys at most; and one less for each key
#: more. The next of them come a turn of the loop later.
_PART = 5_000
_PLAIN_KEYS = 3
#: What a batch that waits for its turn takes, bytes, besides its body.
_LONG_BATCH_COST = 4_096

#: (connection, opaque or None for oneway, queue id, waits for durability, the request when it is answered in full)
Ack = tuple["Conn", int | None, int, bool, Command | None]


class Lane:
    """The step of the broker's server, and the send handlers for servers without a step."""

    def __init__(
        self,
        ground: Ground,
        topics: TopicTable,
        counted: Counted,
        lanes: LaneTable,
        admission: Admission,
        answers: SendAnswers,
        delivery: Delivery,
        pressure: Pressure,
        router: Router,
    ) -> None:
        world, settings = ground.world, ground.settings
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
        self._stats = counted.stats
        self._pressure = pressure
        self._router = router
        self._faults = router.faults
        self._store_host = ground.store_host
        self._kinds = counted.kinds
        self._latency = counted.latency
        self._trouble = Trouble(world.clock, log, "appending to the commit log", "producers are told so")
        self._long_batches = asyncio.Lock()
        # Sends with a sharding key that the next append takes.
        self._ordered: list[Put] = []
        #: The answers of a step are written: what can wait for that is done. Never raises.
        self.after: Callable[[], None] = ground.store.put_keys
        self._cluster = f"CLUSTER\x01{settings.broker_cluster_name}".encode()

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
                                and not (gate or fields.j or fields.m or fields.f & _DIVERTED_FLAGS or frame.flag & 1)
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
        self._failed(conn, command, error)
        return True

    def _failed(self, conn: Conn, request: Command, error: Exception) -> None:
        """A send that was not stored, for a reason that nobody expected."""
        self._stats.put_failed()
        self._timed(request, self._faults.fail(conn, request, "Lane", error), conn)

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
            shared = len(header.properties or "")
            if header.batch and batch.holds_more_than(request.body, _LONG_BATCH, shared):
                cost = len(request.body) + _LONG_BATCH_COST
                self._spawn(conn, self._long_batch(conn, request, header, cost), cost)
                return _SLOW_WEIGHT
            ticket = self._admission.admit(conn, header, request.body, request.version)
        except (ResponseError, HeaderError) as error:
            self._refused(conn, request, error)
            return _SLOW_WEIGHT
        self._ready(conn, request, header, ticket, puts, acks)
        weight = _SLOW_WEIGHT + _KEY_WEIGHT * sum([len(put.keys) for put in ticket.puts])
        return weight + (len(request.body) if header.batch else shared)

    def _ready(
        self, conn: Conn, request: Command, header: AnySend, ticket: Ticket, puts: list[Put], acks: list[Ack]
    ) -> None:
        """An admitted send is stored, or waits until its topic is in its file."""
        if self._topics.unsaved and self._new_topics.postpone(conn, request, header.topic or "", ticket):
            self._pressure.held += 1
            return
        self._admitted(conn, request, ticket, puts, acks)

    def _refused(self, conn: Conn, request: Command, error: ResponseError | HeaderError) -> None:
        """A send that is not admitted, and why."""
        self._stats.put_failed()
        if not request.is_oneway:
            code, remark = (
                (error.code, error.remark)
                if isinstance(error, ResponseError)
                else (ResponseCode.SYSTEM_ERROR, str(error))
            )
            conn.send(self._answers.refused(request, code, remark))
            self._timed(request, code, conn)

    async def _long_batch(self, conn: Conn, request: Command, header: AnySend, cost: int) -> None:
        """Admit a batch of very many messages: between its slices others are served."""
        try:
            async with self._long_batches:
                steps = self._admission.batch(conn, header, request.body)
                while True:
                    try:
                        next(steps)
                    except StopIteration as end:
                        ticket: Ticket = end.value
                        break
                    await asyncio.sleep(0)
            self._still_there(ticket.puts[0].queue)
            self._ready(conn, request, header, ticket, [], [])
        except (ResponseError, HeaderError) as error:
            self._refused(conn, request, error)
        except Exception as error:
            self._failed(conn, request, error)
        finally:
            self._settle(conn, cost)

    def _still_there(self, queue: Queue) -> None:
        if self._store.queues.get(queue.topic, queue.id) is not queue:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{queue.topic}] was deleted meanwhile")

    def _spawn(self, conn: Conn, work: Coroutine[Any, Any, None], cost: int) -> None:
        """Go on with a send in a task, which ends with :meth:`_settle`.

        :param cost: what it counts as owed meanwhile, bytes.
        """
        try:
            conn.spawn(work, "long batch")
        except RuntimeError:  # stopping: the other side finds the connection closed
            return
        conn.owed_bytes += cost
        self._pressure.held += 1

    def _settle(self, conn: Conn, cost: int) -> None:
        self._pressure.held -= 1
        conn.settle(cost)

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
                self._failed(conn, request, error)
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
            self._append_batch(conn, request, ticket)
            return
        if ticket.recall_handle is not None:
            request = Recallable(request, ticket.recall_handle)
        acks.append((conn, None if oneway else request.opaque, ticket.queue_id, ticket.wait, request))
        puts += ticket.puts
        self._ordered += _with_sharding_key(ticket.puts)

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
            self._ordered = _with_sharding_key(puts[:stored])
            self._appended(partly.span, puts[:stored], acks[:stored], began)
            self._append_failed(partly.reason, puts[stored:], acks[stored:])
        except Exception as error:
            self._append_failed(error, puts, acks)
        else:
            self._appended(span, puts, acks, began)

    def _appended(self, span: Span, puts: list[Put], acks: list[Ack], began: float) -> None:
        self._stats.put_took((self._monotonic() - began) * 1000, len(puts))
        if self._ordered:
            self._count_ordered()
        if self._store.waits:
            self._hold(span, puts, acks)
            return
        latency = self._latency
        if len(acks) == 1:
            # Who waits for each answer sends one at a time: it takes no gathering.
            ((conn, opaque, queue_id, _, request),) = acks
            if opaque is not None and request is None:
                index, physical = span.offsets[0]
                conn.send(self._answers.stored(0, opaque, queue_id, index, physical))
                if latency is not None:
                    latency.add(RequestCode.SEND_MESSAGE_V2, 0, conn.read_at)
                return
        template = self._answers.template
        lengths = self._answers.lengths
        current: Conn | None = None
        out: list[bytes] = []
        size = 0
        oneway = slow = 0
        for (conn, opaque, queue_id, _, request), (index, physical) in zip(acks, span.offsets, strict=True):
            if conn is not current:
                if current is not None and out:
                    current.send_parts(out, size)
                    out = []
                    size = 0
                current = conn
            if opaque is None:
                oneway += 1
                continue
            if request is None:
                header = template % (0, queue_id, physical, index, opaque)
                length = len(header)
                out += (lengths[length], header)
                size += length + 8
            else:
                whole = self._answer(0, (conn, opaque, queue_id, True, request), [(index, physical)])
                out.append(whole)
                size += len(whole)
                slow += 1
                self._timed(request, 0, conn)
        if current is not None and out:
            current.send_parts(out, size)
        if latency is not None:
            # The sends of a tick were read at the same time.
            read_at = acks[0][0].read_at
            plain = len(acks) - oneway - slow
            if plain:
                latency.add(RequestCode.SEND_MESSAGE_V2, 0, read_at, plain)
            if oneway:
                latency.add(RequestCode.SEND_MESSAGE_V2, 0, read_at, oneway, result="oneway")

    def _timed(self, request: Command, code: int, conn: Conn) -> None:
        """A send that is not plain is answered."""
        if self._latency is not None:
            self._latency.add(request.code, code, conn.read_at)

    def _count_ordered(self) -> None:
        self._kinds.count(FIFO, self._ordered)
        self._ordered.clear()

    def _hold(self, span: Span, puts: list[Put], acks: list[Ack]) -> None:
        """Answer WAIT=false now, the rest when the log is as durable as configured up to the span's end."""
        waiting: dict[Conn, list[tuple[Ack, list[tuple[int, int]]]]] = {}
        sizes: dict[Conn, int] = {}
        for ack, put, offset in zip(acks, puts, span.offsets, strict=True):
            conn = ack[0]
            oneway = ack[1] is None
            if oneway or not ack[3]:
                if not oneway:
                    conn.send(self._answer(0, ack, [offset]))
                if self._latency is not None:
                    self._latency.add(_code(ack), 0, conn.read_at, result="oneway" if oneway else "success")
                continue
            held = waiting.get(conn)
            if held is None:
                held = waiting[conn] = []
                sizes[conn] = 0
            held.append((ack, [offset]))
            sizes[conn] += len(put[1]) + len(put[2])
        if waiting:
            pressure = self._pressure
            owed = [
                (UnansweredSends(pressure, conn, len(held), sizes[conn], _code(held[0][0])), held)
                for conn, held in waiting.items()
            ]

            def answers(code: int) -> Answers:
                return [(who.answer(code), b"".join([self._answer(code, *one) for one in held])) for who, held in owed]

            self._store.hold(span.end, answers(0), answers)

    def _answer(self, code: int, ack: Ack, offsets: list[tuple[int, int]], ids: str | None = None) -> bytes:
        conn, opaque, queue_id, _, request = ack
        try:
            if request is not None:
                return self._answers.stored_command(code, request, queue_id, offsets, None, ids)
            index, physical = offsets[0]
            return self._answers.stored(code, opaque or 0, queue_id, index, physical)
        except Exception as error:  # it is stored all the same: who sends it again has it twice
            return encode(self._faults.unexpected(conn, request or _request(opaque), "SendAnswers", error))

    def _append_batch(self, conn: Conn, request: Command, ticket: Ticket) -> None:
        """A batch lies in one file; one that would hold the loop too long is stored in parts."""
        ack: Ack = (conn, None if request.is_oneway else request.opaque, ticket.queue_id, ticket.wait, request)
        parts = list(_parts(ticket.puts))
        if len(parts) > 1:
            self._spawn(conn, self._append_parts(ack, request, parts, cost := len(request.body)), cost)
            return
        try:
            span = self._store.append(ticket.puts, together=True)
        except Exception as error:
            self._append_failed(error, ticket.puts, [ack])
            return
        self._batch_appended(ack, ticket.puts, span.end, span.offsets)

    async def _append_parts(self, ack: Ack, request: Command, parts: list[list[Put]], cost: int) -> None:
        puts = [put for part in parts for put in part]
        end = 0
        offsets: list[tuple[int, int]] = []
        ids: list[str] = []
        try:
            for part in parts:
                self._still_there(part[0].queue)
                span = self._store.append(part, together=True)
                end = span.end
                offsets += span.offsets
                ids.append(self._answers.ids(span.offsets))
                await asyncio.sleep(0)
        except ResponseError as error:
            self._refused(ack[0], request, error)
        except Exception as error:
            self._append_failed(error, puts, [ack])
        else:
            self._batch_appended(ack, puts, end, offsets, ",".join(ids))
        finally:
            self._settle(ack[0], cost)

    def _batch_appended(
        self, ack: Ack, puts: list[Put], end: int, offsets: list[tuple[int, int]], ids: str | None = None
    ) -> None:
        self._ordered = _with_sharding_key(puts)
        if self._ordered:
            self._count_ordered()
        conn, opaque, _, wait, request = ack
        if opaque is None or request is None:
            return
        stored = self._answer(0, ack, offsets, ids)
        if self._store.waits and wait:
            owed = UnansweredSends(self._pressure, conn, 1, len(request.body), request.code)
            self._store.hold(
                end,
                [(owed, stored)],
                lambda code: [(owed.answer(code), self._answer(code, ack, offsets, ids))],
            )
        else:
            conn.send(stored)
            self._timed(request, 0, conn)

    def _append_failed(self, error: Exception, puts: list[Put], acks: list[Ack]) -> None:
        """Nothing of these sends was stored; say so to each, or store those that are not to blame."""
        self._ordered.clear()
        # A disk or a gate refuses all of them.
        refused = isinstance(error, (OSError, StoreError)) and not isinstance(error, RecordTooLarge)
        if len(acks) > 1 and not refused:
            for put, ack in zip(puts, acks, strict=True):
                self._ordered = _with_sharding_key([put])
                self._append([put], [ack])
            return
        if not refused and not isinstance(error, RecordTooLarge):
            for conn, opaque, _, _, request in acks:
                self._failed(conn, request or _request(opaque), error)
            return
        self._stats.put_failed(len(acks))
        if isinstance(error, RecordTooLarge):
            code, remark = int(ResponseCode.MESSAGE_ILLEGAL), str(error)
        else:
            if isinstance(error, OSError):
                # Nobody looks here for its end: that the gate opens, or a file can be made, is told by those.
                self._trouble.failed(error)
            if self._store.log.gate:
                # Closed by this very failure, perhaps: who comes next is told the same.
                refusal = self._admission.unavailable()
                code, remark = refusal.code, refusal.remark or ""
            else:
                code, remark = int(ResponseCode.SYSTEM_ERROR), "create mapped file failed, server is busy or broken."
        for conn, opaque, _, _, request in acks:
            if opaque is not None:
                command = request or _request(opaque)
                conn.send(self._answers.refused(command, code, remark))
                self._timed(command, code, conn)


def _parts(puts: list[Put]) -> Iterator[list[Put]]:
    """A batch in pieces that do not hold the loop too long."""
    first = weight = 0
    for number, put in enumerate(puts, 1):
        weight += max(1, len(put.keys) - _PLAIN_KEYS + 1)
        if weight >= _PART:
            yield puts[first:number]
            first, weight = number, 0
    if first < len(puts):
        yield puts[first:]


def _with_sharding_key(puts: list[Put]) -> list[Put]:
    """The messages with a sharding key."""
    return [put for put in puts if SHARDING_KEY in put[2]]


def _request(opaque: int | None) -> Command:
    """What is known of a plain send when it is answered; None: oneway."""
    return Command(RequestCode.SEND_MESSAGE_V2, opaque=opaque or 0, flag=_ONEWAY if opaque is None else 0)


def _code(ack: Ack) -> int:
    """The request code of a send."""
    return RequestCode.SEND_MESSAGE_V2 if ack[4] is None else ack[4].code
