"""One connection of a slave to its master: bytes and time in; what to store, and what to send, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmq.broker.replication.incoming import IncomingRecords, LogsDiffer
from rmq.broker.replication.wire import UnitDecoder, report
from rmq.protocol.errors import ReplicationError

__all__ = ["HolesFound", "SlaveStream"]


class HolesFound(ReplicationError):
    """The master has all that this log has, and what it has lost: it is to be cut back, and copied again.

    :param at: commit-log offset where what was lost begins.
    """

    def __init__(self, at: int) -> None:
        super().__init__(f"the master has what this log has lost from {at} on")
        self.at = at


class SlaveStream:
    """The slave's end of a stream (Java: HAClient). Times are monotonic seconds.

    Java's slave waits 5 s before its first report; nothing is sent to it until then. This one reports at once: a master
    that waits for its slaves has it back sooner.

    :param end: where the slave's log ends; 0 for an empty one, which begins where its master begins to send.
    :param incoming: compares what arrives; it outlives the connection.
    :param tail: what this log has before ``end``: the master is asked for it again, and must have the same. The stream
        has no checksums, and two logs that parted may both have a record that ends here.
    :param holes: offsets from, to, of what is lost in it: bytes that are no records, whatever the master has there.
    :param heartbeat: seconds without a report until one is made.
    :param silence: seconds without a byte of the master after which it is given up.
    """

    def __init__(
        self,
        end: int,
        incoming: IncomingRecords,
        now: float,
        *,
        tail: bytes = b"",
        holes: Sequence[tuple[int, int]] = (),
        heartbeat: float = 5.0,
        silence: float = 20.0,
    ) -> None:
        self.heartbeat = heartbeat
        self.silence = silence
        #: What was reported last.
        self.reported = end - len(tail)
        self.last_read = self.last_write = now
        #: Bytes of bodies that arrived.
        self.taken = 0
        self._empty = end == 0
        self._end = end
        #: What the master has not sent of it yet, and heartbeats since it has sent some.
        self._tail = tail
        self._holes = holes
        self._idle = 0
        self._incoming = incoming
        self._decoder = UnitDecoder()

    @property
    def fits(self) -> bool:
        """Whether the master's log is the one here, as far as it was asked for again."""
        return not self._tail

    def first(self, now: float) -> bytes:
        """The report that asks for what lies behind the end of the log."""
        return self._report(self.reported, now)

    def received(self, data: bytes, now: float) -> Iterator[tuple[int, bytes]]:
        """What is to be stored: offset and bytes of one file, each before the next is asked for.

        Bodies that follow each other are one piece: a master's are small, and what is written costs by the piece.

        :raises LogsDiffer: the master's log is not this one; what came before that is stored.
        :raises HolesFound: it is, and has what is missing here.
        :raises ReplicationError: this is no such stream.
        """
        self.last_read = now
        size = self._incoming.file_size
        pieces: list[bytes] = []
        start = end = -1
        failed: ReplicationError | None = None
        try:
            for offset, body in self._ready(data):
                if pieces and (offset != end or not offset % size):
                    yield start, b"".join(pieces)
                    pieces = []
                if not pieces:
                    start = offset
                pieces.append(body)
                end = offset + len(body)
        except ReplicationError as error:
            failed = error
        if pieces:
            yield start, b"".join(pieces)
        if failed is not None:
            raise failed

    def _ready(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The same, unit by unit."""
        incoming = self._incoming
        for offset, body in self._decoder.units(data):
            if self._empty:
                if not body:
                    continue
                if offset % incoming.file_size:
                    raise ReplicationError(
                        f"the master begins to send at {offset}, where no file of a log begins with "
                        f"mappedFileSizeCommitLog={incoming.file_size}: set that here to what the master has"
                    )
                self._empty = False
                incoming.begin(offset, at_record=True)
            if self._tail:
                same = self._compare(offset, body)
                offset, body = offset + same, body[same:]
                if not body:
                    continue
            if offset != incoming.end:
                raise LogsDiffer(
                    f"the master goes on at {offset}, and this slave's log ends at {incoming.end}: the two logs are "
                    f"not the same"
                )
            if body:
                self.taken += len(body)
                stored = incoming.at
                ready = incoming.take(body)
                if ready:
                    yield stored, ready

    def _compare(self, offset: int, body: bytes) -> int:
        """How many of these bytes this log has, too."""
        tail = self._tail
        at = self._end - len(tail)
        if offset != at:
            raise LogsDiffer(f"the master was asked for its log from {at} on and sends it from {offset} on")
        self._idle = 0 if body else self._idle + 1
        if self._idle > 1:
            raise LogsDiffer(
                f"the master has nothing behind {at}, and this slave's log ends at {self._end}: it has what its master "
                f"has not"
            )
        size = min(len(body), len(tail))
        mine, theirs = tail[:size], body[:size]
        for start, end in self._holes:
            lo, hi = max(start - at, 0), min(end - at, size)
            if lo < hi:
                mine = mine[:lo] + theirs[lo:hi] + mine[hi:]
        if mine != theirs:
            raise LogsDiffer(
                f"the master has another record at {at} than this slave, whose log ends at {self._end}: the two logs "
                f"have parted before that"
            )
        self._tail = tail[size:]
        if self._holes and not self._tail:
            raise HolesFound(self._holes[0][0])
        return size

    def stored(self, end: int, now: float) -> bytes:
        """The log has everything up to ``end``, as safely as it is to be acknowledged: the report, or b""."""
        return self._report(end, now) if end > self.reported and not self._tail else b""

    def on_tick(self, now: float) -> bytes:
        """What is due: a report, or b"".

        :raises ReplicationError: the master is silent.
        """
        if now - self.last_read >= self.silence:
            raise ReplicationError(f"the master has sent nothing for {now - self.last_read:.0f} s")
        return self._report(self.reported, now) if now - self.last_write >= self.heartbeat else b""

    @property
    def due(self) -> float:
        """When :meth:`on_tick` is to be called."""
        return min(self.last_read + self.silence, self.last_write + self.heartbeat)

    def _report(self, end: int, now: float) -> bytes:
        self.reported = end
        self.last_write = now
        return report(end)
