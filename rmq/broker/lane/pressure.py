"""Flow control of sends: refuse before it hurts, with Java's codes and remarks (store-and-broker.md 2.12).

Three signs of a broker that cannot keep up, looked at once a tick and once a connection, never once a message: frames
that have waited since they were read from the socket, sends that are not answered yet, and a write or flush of the
commit log that does not end. Pulls, heartbeats and administration are served all the same. Durations are monotonic
(field case B142).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from msgspec import DecodeError, ValidationError

from rmq.broker.lane.answers import text_bytes
from rmq.broker.lane.hot_frames import PULL_START, SEND_START, decode_send
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_RESPONSE, VERSION
from rmq.protocol.frame import decode

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.stats import BrokerStats
    from rmq.broker.store.store import Store
    from rmq.remoting.conn import Conn
    from rmq.remoting.latency import CallLatency
    from rmq.runtime.world import Clock

__all__ = ["Frame", "Pressure", "UnansweredSends"]

#: (buffer, position of the serialize-type byte, end)
Frame = tuple[bytes, int, int]

_head_of = Struct(">I").unpack_from
_lengths = Struct(">ii").pack
_RESPONSE = 1
_ONEWAY = 2
#: What Java's send pool serves.
_SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
#: A waiting send holds its frame, its answer and some objects.
_OVERHEAD = 512


class UnansweredSends:
    """Sends of one connection that wait for a flush or a replica: while they do, they count as owed bytes."""

    __slots__ = ("_began", "_code", "_conn", "_count", "_pressure", "_request", "_size")

    def __init__(self, pressure: Pressure, conn: Conn, count: int, size: int, request: int) -> None:
        self._pressure = pressure
        self._conn = conn
        self._count = count
        self._request = request
        self._code = 0
        self._began = conn.read_at
        self._size = size = size + count * _OVERHEAD
        conn.owed_bytes += size
        pressure.held += count

    def answer(self, code: int) -> UnansweredSends:
        """What comes next answers with this code."""
        self._code = code
        return self

    def send(self, data: bytes) -> None:
        """Answer them: reading goes on when they were what held the connection."""
        pressure = self._pressure
        pressure.held -= self._count
        self._conn.settle(self._size)
        self._conn.send_at_once(data)
        if pressure.latency is not None:
            pressure.latency.add(self._request, self._code, self._began, self._count)


class Pressure:
    """Says which sends of a tick are refused.

    :param settings: ``brokerFastFailureEnable``, ``waitTimeMillsInSendQueue``, ``sendThreadPoolQueueCapacity`` and
        ``osPageCacheBusyTimeOutMills``, each of which may change while running.
    :param store: whose running flush is watched.
    """

    def __init__(self, clock: Clock, settings: BrokerSettings, store: Store, stats: BrokerStats) -> None:
        self._monotonic = clock.monotonic
        self._settings = settings
        self._flusher = store.flusher
        self._durability = store.durability
        self._stats = stats
        #: Connections with whole frames that no tick has served yet.
        self.ready: Callable[[], Iterable[Conn]] = lambda: ()
        #: Counts answers, when there is one.
        self.latency: CallLatency | None = None
        #: Sends that are appended and not answered: they wait for a flush or a replica.
        self.held = 0
        #: Sends refused as busy since start.
        self.refused = 0
        self._now = 0.0
        self._late = -inf
        self._slow_since: float | None = None

    def look(self) -> tuple[float, int]:
        """Take stock at the beginning of a tick: (frames read before this time are late, sends that may still wait)."""
        settings = self._settings
        now = self._now = self._monotonic()
        self._late = (
            now - settings.wait_time_mills_in_send_queue / 1000 if settings.broker_fast_failure_enable else -inf
        )
        room = settings.send_thread_pool_queue_capacity - self.held
        since = self._flusher.since
        if since is not None:
            slow = since + settings.os_page_cache_busy_time_out_mills / 1000
            if now > slow:
                self._slow_since = slow
                return inf, room
        self._slow_since = None
        return self._late, room

    def shed(self, conn: Conn, frames: Sequence[Frame], room: int) -> list[Frame]:
        """Answer the sends of a connection that are refused; the other frames, in their order.

        :param room: how many sends may be admitted.
        """
        kept: list[Frame] = []
        templates: dict[str, bytes] = {}
        for frame in frames:
            found = _send_of(frame)
            if found is None:
                kept.append(frame)
                continue
            why = self._refusal(conn, room)
            if why is None:
                room -= 1
                kept.append(frame)
                continue
            self.refused += 1
            self._stats.put_refused()
            opaque, flag = found
            if flag & _ONEWAY:
                continue
            if self.latency is not None:
                self.latency.add(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, conn.read_at)
            template = templates.get(why)
            if template is None:
                template = templates[why] = self._template(conn, why)
            header = template % opaque
            conn.send(_lengths(len(header) + 4, len(header)) + header)
        return kept

    def _refusal(self, conn: Conn, room: int) -> str | None:
        slow = self._slow_since
        if slow is not None:
            if conn.read_at >= slow:
                return "[REJECTREQUEST]system busy, start flow control for a while"
            if self._settings.broker_fast_failure_enable:
                return "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, "
        if conn.read_at < self._late:
            return "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        if room <= 0:
            return "[OVERLOAD]system busy, start flow control for a while"
        return None

    def _template(self, conn: Conn, why: str) -> bytes:
        """The header of a refusal, but for the opaque."""
        if why.endswith(", "):
            waited = max(0, int((self._now - conn.read_at) * 1000))
            why += f"period in queue: {waited}ms, size of queue: {self.waiting()}"
        return (
            b'{"code":%d,"flag":%d,"language":"PYTHON","opaque":%%d,"remark":"%b",'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}'
            % (ResponseCode.SYSTEM_BUSY, FLAG_RESPONSE, text_bytes(why), VERSION)
        )

    # -- for the runtime information and the metrics

    def waiting(self) -> int:
        """Sends that are read and not answered yet."""
        return self.held + sum(_send_of(frame) is not None for conn in self.ready() for frame in conn.frames)

    def head_wait_ms(self) -> int:
        """How long the oldest of them has waited, ms."""
        now = self._monotonic()
        oldest = min((conn.read_at for conn in self.ready() if conn.frames), default=now)
        held = self._durability.oldest
        if self.held and held is not None:
            oldest = min(oldest, held.flush_by - self._settings.sync_flush_timeout / 1000)
        return max(0, int((now - oldest) * 1000))

    def flush_ms(self) -> int:
        """How long the running write or flush of the commit log has lasted, ms; 0 when there is none."""
        since = self._flusher.since
        return 0 if since is None else int((self._monotonic() - since) * 1000)


def _send_of(frame: Frame) -> tuple[int, int] | None:
    """Opaque and flags of a frame that asks for a message to be stored; None for any other, or one that is broken."""
    buf, lo, hi = frame
    (head,) = _head_of(buf, lo)
    start = lo + 4
    end = start + head
    if end <= hi:
        if buf.startswith(PULL_START, start):
            return None
        if buf.startswith(SEND_START, start):
            try:
                hot = decode_send(buf[start:end])
            except (ValidationError, DecodeError):
                pass
            else:
                return None if hot.flag & _RESPONSE else (hot.opaque, hot.flag)
    try:
        command = decode(buf[lo:hi])
    except Exception:
        return None  # the step says what is wrong with it
    if command.code not in _SENDS or command.flag & _RESPONSE:
        return None
    return command.opaque, command.flag
