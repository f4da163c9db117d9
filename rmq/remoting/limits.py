"""What one side of a connection may ask of the other: every limit of the transport in one place."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from rmq.protocol.frame import MAX_FRAME, MAX_HEADER
from rmq.runtime.world import Clock

__all__ = ["MAX_FRAME", "Limits", "Rationed", "Repeated"]


@dataclass(slots=True)
class Limits:
    """Limits of one endpoint; sizes in bytes, times in seconds. Some of a server follow its settings."""

    #: Whole frame, length word included. A longer one closes the connection before it is read.
    frame: int = MAX_FRAME
    #: The header part of a frame that is read: it is parsed in one go on the loop.
    header: int = MAX_HEADER
    #: A frame that was begun must be whole after this time ...
    partial_seconds: float = 30.0
    #: ... plus its bytes so far at this rate, so that a big frame may come over a slow line.
    partial_rate: int = 16_384
    #: Frames that are not whole, of all connections together: beyond it connections are not read (unfinished.py). One
    #: of which no more than ``unfinished_noted`` has come is not counted.
    unfinished: int = 256 << 20
    unfinished_noted: int = 16 << 10
    #: A TLS handshake must be done after this time.
    handshake_seconds: float = 10.0
    #: Open connections, of all addresses and of one; more are closed at once. 0 = no limit for one.
    connections: int = 60_000
    per_address: int = 0
    #: Whole frames read and not yet served, per connection: beyond it the connection is not read (an eighth of it while
    #: the connection waits for its turn); a single larger frame is served all the same.
    queued: int = 512 << 10
    #: Requests taken and not settled, per connection: beyond it the connection is not read.
    owed: int = 16 << 20
    #: Answers written and not taken by the peer: beyond ``write_noted`` they are counted, beyond ``write_high`` the
    #: connection is not read nor served until they are below ``write_low``, and beyond ``write_most`` (pushes) it is
    #: closed. Of a connection opened by us: beyond ``write_most`` further requests are refused.
    write_noted: int = 16 << 10
    write_low: int = 4 << 10
    write_high: int = 4 << 20
    write_most: int = 64 << 20
    #: The same of all connections together, answers that are being made included: beyond it requests wait (unread.py).
    unread: int = 256 << 20
    #: While they do, a connection is closed that takes its answers slower than at ``partial_rate`` after this time.
    unread_seconds: float = 10.0
    #: Our own requests that wait for an answer, per connection.
    waiting: int = 65_536
    #: A connection opened by us is given up when calls on it ran out of time and nothing came in for so long.
    unheard_seconds: float = 6.0
    #: Closed after this time without a byte in either direction; 0 = never (protocol.md 1.6).
    idle_seconds: float = 120.0
    #: A closed connection whose peer does not take what was written before is given up after this time.
    linger_seconds: float = 10.0
    #: What one loop tick serves; the rest comes next tick, in turn (design.md section 3).
    tick_frames: int = 2_000
    tick_bytes: int = 4 << 20
    #: The same by the clock, where every frame goes to the router.
    tick_seconds: float = 0.01

    def patience(self, received: int) -> float:
        """Seconds that a frame may take of which ``received`` bytes have come."""
        return self.partial_seconds + received / self.partial_rate


class Rationed:
    """Keeps a log line that strangers can cause from filling the disk.

    :param most: lines in each period of ``seconds``.
    """

    __slots__ = ("_clock", "_count", "_from", "_most", "_seconds", "suppressed")

    def __init__(self, clock: Clock, most: int = 10, seconds: float = 10.0) -> None:
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._from = clock.monotonic()
        self._count = 0
        #: Lines kept back since the last one that passed.
        self.suppressed = 0

    def passes(self) -> bool:
        """Whether one more line may be written now."""
        now = self._clock.monotonic()
        if now - self._from >= self._seconds:
            self._from = now
            self._count = 0
        if self._count >= self._most:
            self.suppressed += 1
            return False
        self._count += 1
        return True

    def say(self, write: Callable[..., None], form: str, *values: object) -> None:
        """Write the line with a logger's method, when it may be written now."""
        if self.passes():
            write(form + "%s", *values, self.note())

    def note(self) -> str:
        """`` (n more like it)`` for the lines kept back, or nothing; starts counting anew."""
        count, self.suppressed = self.suppressed, 0
        return f" ({count} earlier ones not logged)" if count else ""


class Repeated:
    """Keeps one cause that comes again and again from filling the log: a line a minute, with how often it came since.

    Causes of strangers are bounded, and all lines together rationed.

    :param most: causes that are remembered.
    """

    __slots__ = ("_clock", "_most", "_ration", "_seconds", "_told")

    def __init__(self, clock: Clock, seconds: float = 60.0, most: int = 64) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._ration = Rationed(clock)
        #: By cause: when it was told last, and how often it has come since.
        self._told: dict[Hashable, tuple[float, int]] = {}

    def say(self, cause: Hashable, write: Callable[..., None], form: str, *values: object) -> None:
        """Write the line with a logger's method, unless that cause has had one within the minute."""
        now = self._clock.monotonic()
        before = self._told.pop(cause, None)
        if before is not None and now - before[0] < self._seconds:
            self._told[cause] = before[0], before[1] + 1
            return
        if len(self._told) >= self._most:
            del self._told[next(iter(self._told))]
        self._told[cause] = now, 0
        again = (
            "" if before is None or not before[1] else f" ({before[1]} times more in the last {now - before[0]:.0f} s)"
        )
        self._ration.say(write, form + "%s", *values, again)
