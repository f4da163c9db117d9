"""One connection of a master to a slave: bytes and time in; what to send, and what the slave has, out."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from rmq.broker.replication.wire import REPORT_SIZE, ReportDecoder, header
from rmq.protocol.errors import ReplicationError

__all__ = ["CUT_BACK", "Extent", "MasterStream", "Refused", "Why"]

#: What is done where two logs are not the same, at the one that is to be a slave.
CUT_BACK = "mqadmin store truncate --to-master ADDR"
#: What is done where they have nothing in common.
EMPTY = "mqadmin store truncate --all"
#: Reports of a slave beyond one for each unit that it is sent: signs of life, by whatever rhythm it is set to.
_MORE_REPORTS = 1000
_REPORTS_A_SECOND = 100
#: The bytes that a slave of a 5.x controller begins with (state 1, two flags), as a report.
_HANDSHAKES = frozenset((1 << 32) + (last << 16) + learner for last in (0, 1) for learner in (0, 1))


class Why(Enum):
    """Why a connection is closed; the values are labels of a metric."""

    #: It has more than this master ever had or gave away: its log is another one.
    AHEAD = "ahead"
    #: What it needs next was deleted here.
    BEHIND = "behind"
    #: It acknowledges what was not sent to it.
    NOT_SENT = "not_sent"
    #: It speaks no HA stream of 4.9.
    STRANGE = "strange"
    #: It has reported nothing for too long.
    SILENT = "silent"
    #: It speaks no TLS where that is enforced, or speaks it where it is off, or wrongly.
    TLS = "tls"
    #: Its address is not one that gets the log.
    NOT_ALLOWED = "not_allowed"
    #: There are too many connections.
    TOO_MANY = "too_many"
    #: The log could not be read.
    UNREADABLE = "unreadable"


class Refused(ReplicationError):
    """The connection is closed; the text says why, and what to do.

    :param why: for who counts.
    """

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why = why


class Extent(NamedTuple):
    """What a master has of the log."""

    start: int
    end: int
    #: Up to where others can have it: where it ended when the broker became master, and what was sent since.
    given: int
    file_size: int


class MasterStream:
    """The master's end of a stream (Java: HAConnection). Times are monotonic seconds.

    :param heartbeat: seconds without a byte sent until a heartbeat is.
    :param silence: seconds without a report after which the slave is given up.
    :param from_first_file: an empty slave gets the whole log, not what begins with the last file.
    """

    def __init__(
        self, now: float, *, heartbeat: float = 5.0, silence: float = 20.0, from_first_file: bool = False
    ) -> None:
        self.heartbeat = heartbeat
        self.silence = silence
        #: What is sent next; -1 until the slave has said where it is.
        self.next = -1
        #: Where the stream began.
        self.begun_at = -1
        #: The slave has everything up to here; -1 before its first report.
        self.acked = -1
        #: Bytes of bodies that were sent.
        self.sent = 0
        self.last_read = self.last_write = now
        #: Units that were sent, and reports that came.
        self._units = 0
        self._reports = 0.0
        self._since = now
        self._from_first_file = from_first_file
        self._decoder = ReportDecoder()

    def received(self, data: bytes, log: Extent, now: float) -> int:
        """Take reports.

        :returns: up to where the slave has everything, as it says now; -1 while it has not said it.
        :raises Refused: the connection is over.
        """
        self._count(len(data), now)
        reports = self._decoder.reports(data)
        if not reports:
            return self.acked
        self.last_read = now
        if self.next < 0:
            self._begin(reports, log)
        if min(reports) < 0:
            raise Refused(Why.STRANGE, f"it reports the offset {min(reports)}")
        highest = max(reports)
        if highest > (self.next if self.sent else self.acked):
            raise Refused(Why.NOT_SENT, f"it acknowledges the log up to {highest}, and was sent it up to {self.next}")
        if highest > self.acked:
            self.acked = highest
        return self.acked

    def _count(self, size: int, now: float) -> None:
        """Before they are looked at: a flood of reports would leave nobody else the loop.

        :raises Refused: a slave has no cause for so many.
        """
        self._reports += size / REPORT_SIZE
        if self._reports > self._units + _MORE_REPORTS + (now - self._since) * _REPORTS_A_SECOND:
            raise Refused(
                Why.STRANGE, f"it has reported {self._reports:.0f} times, and was sent {self._units} units of the log"
            )

    def _begin(self, reports: list[int], log: Extent) -> None:
        at = reports[0]
        if at in _HANDSHAKES and len(reports) > 1 and 0 <= reports[1] < 1 << 32:
            raise Refused(
                Why.STRANGE,
                "it speaks the newer stream of 5.x's controller: set enableControllerMode=false at that slave",
            )
        if at < 0:
            raise Refused(Why.STRANGE, f"it reports the offset {at}")
        if at > log.given == 0:
            raise Refused(
                Why.AHEAD,
                f"its log ends at {at}, and this master's is empty: if this one has lost its disk, stop it, make that "
                f"slave the master, and have this one follow it; else stop that slave, and there: {EMPTY}",
            )
        if at > log.given:
            raise Refused(
                Why.AHEAD,
                f"its log ends at {at}, and this master has given away no more than {log.given} bytes: the two logs "
                f"are not the same; stop that slave, and there: {CUT_BACK}",
            )
        if at == 0:
            self.next = log.start if self._from_first_file else max(log.start, log.end - log.end % log.file_size)
        elif at < log.start:
            raise Refused(Why.BEHIND, _behind(at, log.start))
        else:
            self.next = at
        self.begun_at = self.next
        self.acked = at

    def wanted(self, log: Extent, limit: int) -> int:
        """Bytes from :attr:`next` on that go into the next unit; 0 when there are none.

        :param limit: bytes of a unit, at most.
        :raises Refused: they were deleted, or what was sent was taken back.
        """
        at = self.next
        if at < 0 or at == log.end:
            return 0
        if at > log.end:
            raise Refused(Why.AHEAD, f"it was sent the log up to {at}, which was cut back to {log.end}")
        if at < log.start:
            raise Refused(Why.BEHIND, _behind(at, log.start))
        return min(limit, log.end - at, log.file_size - at % log.file_size)

    def unit(self, size: int, now: float) -> bytes:
        """What is sent before the next ``size`` bytes of the log."""
        made = header(self.next, size)
        self.next += size
        self.sent += size
        self._units += 1
        self.last_write = now
        return made

    def on_tick(self, now: float) -> bytes:
        """What is due: a heartbeat, or b"".

        :raises Refused: the slave is silent.
        """
        if now - self.last_read >= self.silence:
            raise Refused(Why.SILENT, f"it has reported nothing for {now - self.last_read:.0f} s")
        if self.next < 0 or now - self.last_write < self.heartbeat:
            return b""
        self.last_write = now
        return header(self.next, 0)

    @property
    def due(self) -> float:
        """When :meth:`on_tick` is to be called."""
        silent = self.last_read + self.silence
        return silent if self.next < 0 else min(silent, self.last_write + self.heartbeat)


def _behind(at: int, start: int) -> str:
    return (
        f"its log ends at {at}, and this master's begins at {start}: what lies between is deleted here; empty that "
        f"slave's store, so that it begins anew ({EMPTY})"
    )
