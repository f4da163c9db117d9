"""Frames that wait for a connection to be opened: one task for all that go to one address.

Sends of a burst on a new producer are thousands of them.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from rmq.protocol.errors import ConnectFailed, ConnectTimeout
from rmq.remoting.calls import Done
from rmq.remoting.client import RemotingClient, left_for_answer
from rmq.runtime import patience
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["Openings"]

#: Bytes that are written together, while the transport takes them at once: a burst is not held in memory twice. What it
#: does not take is left to the end of the tick, so that nothing of a burst is refused for what lies there.
_PIECE = 256 << 10


class _Frame(NamedTuple):
    data: bytes
    opaque: int
    timeout: float
    #: Seconds of the monotonic clock.
    since: float
    done: Done


@dataclass(slots=True)
class _Opening:
    """What waits for one address.

    :ivar until: when the first of them has waited long enough, seconds of the monotonic clock.
    """

    until: float
    frames: list[_Frame] = field(default_factory=list)


class Openings:
    """Those of one client. On its loop only."""

    def __init__(self, remoting: RemotingClient, clock: Clock) -> None:
        self._remoting = remoting
        self._clock = clock
        self._openings: dict[str, _Opening] = {}

    def submit(self, tasks: TaskOwner, address: str, data: bytes, opaque: int, timeout: float, done: Done) -> None:
        """Write a frame once the connection is there; ``done`` is told once how it ended.

        :param tasks: owns the task that opens the connection.
        :param timeout: seconds for the connection, and what is left of them for the answer.
        """
        now = self._clock.monotonic()
        opening = self._openings.get(address)
        if opening is None or now + timeout < opening.until:
            opening = self._openings[address] = made = _Opening(now + timeout)
            task = tasks.spawn(self._open(address, made), f"connect {address}")
            # Not by the task: one that is cancelled before it begins says nothing.
            task.add_done_callback(lambda _: self._fail(address, made, "the client is shut down"))
        opening.frames.append(_Frame(data, opaque, timeout, now, done))

    async def _open(self, address: str, opening: _Opening) -> None:
        clock, frames = self._clock, opening.frames
        while frames:
            try:
                with patience.Standstill() as still:
                    async with patience.timeout(opening.until - clock.monotonic()):
                        conn = await self._remoting.connection(address)
            except TimeoutError:
                self._expire(address, opening)
                continue
            except Exception as error:
                for frame in self._taken(address, opening):
                    frame.done(copy(error))  # each says of its own queue what it is about
                return
            now = clock.monotonic()
            for frame in self._taken(address, opening):
                data, opaque, timeout, since, done = frame
                try:
                    conn.call_frame(data, opaque, left_for_answer(timeout, now - since - still.seconds), done)
                except Exception as error:
                    done(error)
                if _PIECE < conn.out_bytes < 4 * _PIECE and conn.unsent() < _PIECE:
                    conn.flush()

    def _expire(self, address: str, opening: _Opening) -> None:
        """Tell those whose time is up; the others wait on."""
        frames, until = opening.frames, opening.until
        late = [frame for frame in frames if frame.since + frame.timeout <= until]
        frames[:] = [frame for frame in frames if frame.since + frame.timeout > until]
        if frames:
            opening.until = min(frame.since + frame.timeout for frame in frames)
        else:
            self._forget(address, opening)
        for frame in late:
            why = f"connect to {address} failed: no answer in {float(f'{frame.timeout:.3g}'):g} s"
            frame.done(ConnectTimeout(why).about(address=address))

    def _fail(self, address: str, opening: _Opening, why: str) -> None:
        for frame in self._taken(address, opening):
            frame.done(ConnectFailed(f"{address}: {why}").about(address=address))

    def _taken(self, address: str, opening: _Opening) -> list[_Frame]:
        """What waits, which does not any more."""
        self._forget(address, opening)
        frames = opening.frames.copy()
        opening.frames.clear()
        return frames

    def _forget(self, address: str, opening: _Opening) -> None:
        if self._openings.get(address) is opening:
            del self._openings[address]
