"""What one slave is sent of the commit log: read from memory, or from the disk beside the loop, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from rmq.broker.replication.master import Extent, MasterStream, Refused, Why
from rmq.broker.replication.pace import Pace, Speed
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.commit_log import CommitLog
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["Filling", "LogSource", "Wire"]

#: Bytes for one slave in one turn of the loop, which producers may have to wait for: each turn wakes a slave, which
#: costs both as much as the bytes do. And bytes of one read from the disk.
_TURN = 64 << 10
_COLD = 1 << 20
#: Reads from the disk for slaves at a time: consumers' have the same threads, flushes have one of their own.
_COLD_READS = 2


class Wire(Protocol):
    """What takes bytes for a slave."""

    def write(self, data: bytes) -> None:
        """Send them, some time."""
        ...


class Turns(Protocol):
    """Says what there is, and when it is sent: the pump."""

    def extent(self) -> Extent: ...

    def gave(self, end: int) -> None: ...

    def fill_soon(self) -> None: ...

    def producers_send(self, now: float) -> bool: ...


class LogSource:
    """The log as all slaves read it.

    :param tasks: owns the reads.
    """

    def __init__(self, clock: Clock, settings: BrokerSettings, commit_log: CommitLog, tasks: TaskOwner) -> None:
        self.clock = clock
        self.settings = settings
        self.log = commit_log
        self.tasks = tasks
        self.speed = Speed()
        self.cold_reads = asyncio.Semaphore(_COLD_READS)


class Filling:
    """Fills the socket of one slave.

    :param refuse: closes the connection, which cannot go on.
    """

    def __init__(
        self, source: LogSource, turns: Turns, stream: MasterStream, refuse: Callable[[Refused], None]
    ) -> None:
        self._source = source
        self._turns = turns
        self._stream = stream
        self._refuse = refuse
        #: The slave's socket; None before it is there and when it is gone.
        self.wire: Wire | None = None
        #: It has as much as it takes.
        self.paused = False
        self._pace = Pace(source.speed)
        self._rest: asyncio.TimerHandle | None = None
        #: A read from the disk is under way; what the last one gave, and where that begins.
        self._reading = False
        self._page_at = 0
        self._page = b""

    def close(self) -> None:
        """Nothing more is sent."""
        self.wire = None
        self._page = b""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def fill(self, most: int | None = None) -> None:
        """Send what there is, some ``most`` bytes of it; by default a turn's part."""
        wire, stream, source, turns = self.wire, self._stream, self._source, self._turns
        if wire is None or self.paused or self._reading or stream.next in (-1, source.log.end):
            return
        now = source.clock.monotonic()
        if self._rest is not None:
            if not self._pace.may_go_on(self._unheard, source.log.end, now):
                return
            self._rest.cancel()
            self._rest = None
        extent = turns.extent()
        limit = source.settings.ha_transfer_batch_size
        pieces: list[bytes | memoryview] = []
        left = most = _TURN if most is None else most
        try:
            while left > 0 and (size := stream.wanted(extent, left)):
                if not pieces:
                    pieces.append(stream.on_tick(now))
                data = self._read(stream.next, size)
                if data is None:
                    self._reading = True
                    source.tasks.spawn(self._read_cold(), "read")
                    break
                view = memoryview(data)
                for at in range(0, size, limit):
                    piece = view[at : at + limit]
                    pieces += (stream.unit(len(piece), now), piece)
                left -= size
        except Refused as error:
            self._refuse(error)
            return
        if pieces:
            turns.gave(stream.next)
            wire.write(b"".join(pieces))
            if left <= 0:
                self._go_on(most, now)
            else:
                self._pace.on_through()

    def _go_on(self, sent: int, began: float) -> None:
        """There is more of the backlog: in the next turn, or after a rest."""
        now = self._source.clock.monotonic()
        rest = self._pace.on_sent(sent, self._unheard, self._source.log.end, now, now - began)
        if not self._turns.producers_send(now):
            self._pace.on_free()
        elif rest:
            self._rest = asyncio.get_running_loop().call_later(rest, self._rested)
            return
        self._turns.fill_soon()

    def _rested(self) -> None:
        self._rest = None
        self._pace.on_rested(self._source.log.end, self._source.clock.monotonic())
        self._turns.fill_soon()

    def heard(self) -> None:
        """The slave has reported: a backlog that waits for that goes on."""
        if self._rest is not None:
            self._turns.fill_soon()

    @property
    def _unheard(self) -> int:
        return self._stream.next - self._stream.acked

    def _read(self, offset: int, size: int) -> bytes | None:
        """Bytes of the log, when they are in memory.

        :raises Refused: the log does not give them.
        """
        at = offset - self._page_at
        if at >= 0 and at + size <= len(self._page):
            return self._page[at : at + size]
        self._page = b""
        data = self._source.log.read(offset, size)
        if data is not None and len(data) != size:
            raise Refused(Why.UNREADABLE, f"the log has no {size} bytes at {offset}")
        return data

    async def _read_cold(self) -> None:
        """Read on from the disk; a consumer's read or a flush waits for no slave's."""
        source, stream = self._source, self._stream
        at = stream.next
        try:
            async with source.cold_reads:
                data = await source.log.read_cold(at, stream.wanted(self._turns.extent(), _COLD))
            if not data:
                raise Refused(Why.UNREADABLE, f"the log could not be read at {at}")
        except OSError as error:
            self._refuse(Refused(Why.UNREADABLE, f"the log could not be read at {at}: {error}"))
        except Refused as error:
            self._refuse(error)
        else:
            self._page_at, self._page = at, data
        finally:
            self._reading = False
        self.fill()
