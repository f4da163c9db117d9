"""What becomes of sends: each is answered, at once or when the log is as durable as configured; counted and timed.

A send that failed is answered by itself, with a code that says whether another try may help.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from rmq.broker.kinds import FIFO, SHARDING_KEY
from rmq.broker.lane.pressure import UnansweredSends
from rmq.broker.store.log.append import RecordTooLarge
from rmq.broker.store.log.durability import Answers
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.state import Put, Span
from rmq.broker.store.trouble import Trouble
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.errors import HeaderError, ResponseError, StoreError
from rmq.protocol.frame import encode

if TYPE_CHECKING:
    from rmq.broker.lane.answers import SendAnswers
    from rmq.broker.lane.pressure import Pressure
    from rmq.broker.parts import Counted, Ground
    from rmq.remoting.conn import Conn
    from rmq.remoting.faults import Faults

__all__ = ["Ack", "Outcomes", "with_sharding_key"]

log = logging.getLogger(__name__)

#: Whom to answer of one send: connection, opaque or None for oneway, queue id, whether it waits for durability, and the
#: request when it is answered in full. A plain tuple: one is made for every message.
Ack = tuple["Conn", int | None, int, bool, Command | None]
_opaque, _waits = itemgetter(1), itemgetter(3)


class Outcomes:
    """Answers sends.

    :param unavailable: makes the refusal of sends while the log takes none.
    """

    def __init__(
        self,
        ground: Ground,
        counted: Counted,
        answers: SendAnswers,
        pressure: Pressure,
        faults: Faults,
        unavailable: Callable[[], ResponseError],
    ) -> None:
        self._store = ground.store
        self._monotonic = ground.world.clock.monotonic
        self._answers = answers
        self._pressure = pressure
        self._faults = faults
        self._unavailable = unavailable
        self._stats = counted.stats
        self._kinds = counted.kinds
        self._latency = counted.latency
        #: Takes oneway sends that this broker does not, since it follows.
        self.stray: Callable[[Command], None] | None = None
        self._trouble = Trouble(ground.world.clock, log, "appending to the commit log", "producers are told so")

    # -- stored ----------------------------------------------------------------------------------------------------

    def stored(self, span: Span, puts: list[Put], acks: list[Ack], began: float) -> None:
        """One message a send is appended, in this order.

        :param began: when the append did, monotonic seconds.
        """
        self._stats.put_took((self._monotonic() - began) * 1000, len(puts))
        if self._store.acks.waits:
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

    def batch_stored(
        self, ack: Ack, puts: list[Put], end: int, offsets: list[tuple[int, int]], ids: str | None = None
    ) -> None:
        """The messages of one send are appended.

        :param end: where the log ends behind them.
        :param offsets: one (queue index, commit-log offset) a message.
        :param ids: their ids, when they are there already.
        """
        self.count_ordered(with_sharding_key(puts))
        conn, opaque, _, wait, request = ack
        if opaque is None or request is None:
            return
        stored = self._answer(0, ack, offsets, ids)
        if self._store.acks.waits and (wait or self._store.settings.group):
            sender = UnansweredSends(self._pressure, conn, 1, len(request.body), request.code)
            self._store.acks.hold(
                end,
                [(sender, stored)],
                lambda code: [(sender.answer(code), self._answer(code, ack, offsets, ids))],
            )
        else:
            conn.send(stored)
            self._timed(request, 0, conn)

    def ids(self, offsets: list[tuple[int, int]]) -> str:
        """:meth:`SendAnswers.ids`."""
        return self._answers.ids(offsets)

    def count_ordered(self, puts: list[Put]) -> None:
        """These messages with a sharding key are appended."""
        if puts:
            self._kinds.count(FIFO, puts)

    def _hold(self, span: Span, puts: list[Put], acks: list[Ack]) -> None:
        """Answer WAIT=false now, the rest when the log is as durable as configured up to the span's end."""
        offsets = span.offsets
        # A group may take back what it has not committed: nobody is told before that it is stored.
        in_group = self._store.settings.group
        if None in map(_opaque, acks) or not (in_group or all(map(_waits, acks))):
            acks, puts, offsets = self._answered(puts, acks, offsets, in_group)
        held: list[tuple[UnansweredSends, list[Ack], list[tuple[int, int]]]] = []
        first, count = 0, len(acks)
        while first < count:
            # The sends of a connection were read together.
            conn = acks[first][0]
            behind = first + 1
            while behind < count and acks[behind][0] is conn:
                behind += 1
            of_conn = acks[first:behind]
            size = sum([len(put[1]) + len(put[2]) for put in puts[first:behind]])
            sends = UnansweredSends(self._pressure, conn, behind - first, size, _code(of_conn[0]))
            held.append((sends, of_conn, offsets[first:behind]))
            first = behind
        if held:

            def answers(code: int) -> Answers:
                return [
                    (sends.answer(code), self._answer_all(code, of_conn, places)) for sends, of_conn, places in held
                ]

            self._store.acks.hold(span.end, answers(0), answers)

    def _answered(
        self, puts: list[Put], acks: list[Ack], offsets: list[tuple[int, int]], in_group: bool
    ) -> tuple[list[Ack], list[Put], list[tuple[int, int]]]:
        """Answer those that wait for nothing; the others, and what was stored of them."""
        waiting: tuple[list[Ack], list[Put], list[tuple[int, int]]] = ([], [], [])
        for ack, put, offset in zip(acks, puts, offsets, strict=True):
            conn = ack[0]
            oneway = ack[1] is None
            if oneway or not (ack[3] or in_group):
                if not oneway:
                    conn.send(self._answer(0, ack, [offset]))
                if self._latency is not None:
                    self._latency.add(_code(ack), 0, conn.read_at, result="oneway" if oneway else "success")
            else:
                waiting[0].append(ack)
                waiting[1].append(put)
                waiting[2].append(offset)
        return waiting

    def _answer_all(self, code: int, acks: list[Ack], offsets: list[tuple[int, int]]) -> bytes:
        """The answers to sends of one connection; most are plain."""
        template, lengths = self._answers.template, self._answers.lengths
        out: list[bytes] = []
        for ack, offset in zip(acks, offsets, strict=True):
            _, opaque, queue_id, _, request = ack
            if request is None:
                index, physical = offset
                header = template % (code, queue_id, physical, index, opaque)
                out += (lengths[len(header)], header)
            else:
                out.append(self._answer(code, ack, [offset]))
        return b"".join(out)

    def _answer(self, code: int, ack: Ack, offsets: list[tuple[int, int]], ids: str | None = None) -> bytes:
        conn, opaque, queue_id, _, request = ack
        try:
            if request is not None:
                return self._answers.stored_command(code, request, queue_id, offsets, None, ids)
            index, physical = offsets[0]
            return self._answers.stored(code, opaque or 0, queue_id, index, physical)
        except Exception as error:  # it is stored all the same: who sends it again has it twice
            return encode(self._faults.unexpected(conn, request or _request(opaque), "SendAnswers", error))

    # -- not stored ------------------------------------------------------------------------------------------------

    def refused(self, conn: Conn, request: Command, error: ResponseError | HeaderError) -> None:
        """A send that is not admitted, and why."""
        self._stats.put_refused()
        if request.is_oneway:
            if self.stray is not None and self._store.log.gate & Gate.SLAVE and _is_unavailable(error):
                self.stray(request)
        else:
            code, remark = (
                (error.code, error.remark)
                if isinstance(error, ResponseError)
                else (ResponseCode.SYSTEM_ERROR, str(error))
            )
            conn.send(self._answers.refused(request, code, remark))
            self._timed(request, code, conn)

    def failed(self, conn: Conn, request: Command, error: Exception) -> None:
        """A send that was not stored, for a reason that nobody expected."""
        self._stats.put_failed()
        self._timed(request, self._faults.fail(conn, request, "Lane", error), conn)

    def not_appended(self, error: Exception, acks: list[Ack]) -> None:
        """Nothing of these sends was stored; say so to each."""
        if not isinstance(error, (OSError, StoreError)):
            for conn, opaque, _, _, request in acks:
                self.failed(conn, request or _request(opaque), error)
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
                refusal = self._unavailable()
                code, remark = refusal.code, refusal.remark or ""
            else:
                code, remark = int(ResponseCode.SYSTEM_ERROR), "create mapped file failed, server is busy or broken."
        for conn, opaque, _, _, request in acks:
            if opaque is not None:
                command = request or _request(opaque)
                conn.send(self._answers.refused(command, code, remark))
                self._timed(command, code, conn)

    def _timed(self, request: Command, code: int, conn: Conn) -> None:
        """A send that is not plain is answered."""
        if self._latency is not None:
            self._latency.add(request.code, code, conn.read_at)


def with_sharding_key(puts: list[Put]) -> list[Put]:
    """The messages with a sharding key."""
    return [put for put in puts if SHARDING_KEY in put[2]]


def _is_unavailable(error: Exception) -> bool:
    return isinstance(error, ResponseError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE


def _request(opaque: int | None) -> Command:
    """What is known of a plain send when it is answered; None: oneway."""
    return Command(RequestCode.SEND_MESSAGE_V2, opaque=opaque or 0, flag=FLAG_ONEWAY if opaque is None else 0)


def _code(ack: Ack) -> int:
    """The request code of a send."""
    return RequestCode.SEND_MESSAGE_V2 if ack[4] is None else ack[4].code
