"""One side of remoting: its connections and the loop tick that serves them all (design.md section 3).

Connections with whole frames line up in ``ready``; one ``call_soon`` runs the tick. It hands the ready connections, up
to a budget, to the step, then writes what each gathered with one ``transport.write``. What the budget left over comes
next tick: connections that had no turn first, the one that was cut last.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from rmq.protocol import frame
from rmq.protocol.errors import ProtocolError
from rmq.remoting.calls import Deadline
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits, Rationed
from rmq.remoting.outgoing import Outgoing
from rmq.remoting.router import Router
from rmq.remoting.timeouts import Timeouts
from rmq.remoting.unfinished import Unfinished
from rmq.remoting.unread import Unread
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["Endpoint", "Step"]

log = logger(__name__)

#: A whole frame: (buffer, position of the serialize-type byte, end).
Frame = tuple[bytes, int, int]
#: Serves connections: takes over each one's ``frames``; what it leaves there comes again next tick. It must not raise:
#: a request that fails is answered by itself.
Step = Callable[[list[Conn]], None]
_SWEEP_SECONDS = 1.0
#: What a peer that was sent everything gets to close first, when we stop.
_FAREWELL_SECONDS = 1.0
_PARTIAL = "a frame of %d bytes came no further than %d"


class Endpoint:
    """Connections, the tick, deadlines of calls, the sweep for idle and unfinished ones.

    :param router: answers requests that the step does not.
    :param step: what serves the ready connections; the router alone when not given.
    :param at_once: what is read is served, by the router, in the turn of the loop that has read it.
    :param after: called at the end of each tick, when its answers are written. It must not raise.
    :param name: begins log lines and task names.
    """

    def __init__(
        self,
        world: World,
        router: Router,
        limits: Limits,
        *,
        step: Step | None,
        after: Callable[[], None] | None = None,
        at_once: bool = False,
        name: str,
    ) -> None:
        self.world = world
        self.router = router
        self.limits = limits
        self.name = name
        self.tasks = TaskOwner(name)
        self.ready: list[Conn] = []
        self.dirty: list[Outgoing] = []
        #: A tick is on its way or running.
        self.scheduled = False
        #: When the coming tick was asked for, monotonic seconds.
        self.woken = 0.0
        #: Stopping: nothing more is read.
        self.draining = False
        self.connections: dict[Conn, None] = {}
        #: Told each connection that ended, after its last frame was served.
        self.on_close: list[Callable[[Conn], None]] = []
        self.timeouts: Timeouts[Deadline] = Timeouts(_expire)
        self.now = world.clock.monotonic
        #: What peers have not taken.
        self.unread = Unread(limits, self.now)
        #: What peers have begun and not finished.
        self.unfinished = Unfinished(limits, self.now)
        #: Connections that were closed for what they did or did not do, by the kind of reason.
        self.cut_off: Counter[str] = Counter()
        #: Called when what was read has been served, in the same turn of the loop and before anything is written. They
        #: do not raise.
        self.on_served: list[Callable[[], None]] = []
        self._after = after
        self._step: Step = step if step is not None else self._route_all
        #: Called with the first frames that come: a server takes those of all connections together, in the next turn.
        self.come: Callable[[], None] = self.serve_now if at_once else self.schedule
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping = False
        self._changed = asyncio.Event()
        #: Says why a connection has ended that nobody here closed.
        self.why: Callable[[Conn, Exception | None], str] = _why
        self._complaints = Rationed(world.clock)
        self._notes = Rationed(world.clock, most=200)

    # -- the tick -----------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have a tick run in the next turn of the loop."""
        if not self.scheduled:
            self.scheduled = True
            self.woken = self.now()
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._tick)

    def serve_now(self) -> None:
        """Have the tick at once, in the turn of the loop that has read something."""
        self.scheduled = True  # what is sent meanwhile is written at its end
        self.woken = self.now()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        ready = self.ready
        conn = ready[0]
        if len(ready) == 1 and len(conn.frames) == 1 and conn._clear:
            # Nearly always it is one answer, and somebody waits for nothing else.
            ready.clear()
            (one,) = conn.frames
            conn.frames.clear()
            try:
                self.route_frame(conn, *one)
            finally:
                self.scheduled = False
            self._served(conn, [])
            for told in self.on_served:
                told()
            if not (self.dirty or ready or self.draining or self._after is not None):
                return
        self._tick()

    def _tick(self) -> None:
        try:
            if self.ready:
                self._serve()
                for told in self.on_served:
                    told()
        finally:
            self.scheduled = False
        dirty = self.dirty
        if dirty:
            self.dirty = []
            for conn in dirty:
                conn.flush()
        if self._after is not None:
            self._after()
        if self.ready:
            self.schedule()
        elif self.draining:
            self._changed.set()

    def _serve(self) -> None:
        turn = self.ready
        self.ready = []
        cut: Conn | None = None
        later: list[Frame] = []
        limits = self.limits
        frames = queued = 0
        clear = True
        for conn in turn:
            frames += len(conn.frames)
            queued += conn.queued
            if not conn._clear:
                clear = False
        if not clear or frames > limits.tick_frames or queued > limits.tick_bytes:
            turn, cut, later = self._portion(turn)
        try:
            self._step(turn)
        except Exception:
            log.exception("%s: the step failed; what it left is served one connection at a time", self.name)
            self._serve_singly([conn for conn in turn if conn.frames])
        owed = limits.owed
        for conn in turn:
            if conn._clear and not conn.frames and conn is not cut and conn.owed_bytes <= owed:
                conn.queued = 0
                conn._ready = False
                continue
            self._served(conn, later if conn is cut else [])

    def _served(self, conn: Conn, later: list[Frame]) -> None:
        """A connection has had its turn.

        :param later: frames behind those of its turn.
        """
        if conn._clear and not conn.frames and not later and conn.owed_bytes <= self.limits.owed:
            conn.queued = 0
            conn._ready = False
            return
        try:
            self._look_after(conn, later)
        except Exception as error:  # a transport that is broken
            self.complain("%s: closed: %r", conn.peer, error)
            conn.abort(repr(error))

    def _serve_singly(self, conns: list[Conn]) -> None:
        """After a step that broke its promise not to raise: whoever makes it raise again is closed."""
        for conn in conns:
            try:
                self._step([conn])
            except Exception:
                log.exception("%s: the step failed again for %s, which is closed", self.name, conn.peer)
                conn.frames.clear()
                conn.close("internal error")

    def _portion(self, waiting: list[Conn]) -> tuple[list[Conn], Conn | None, list[Frame]]:
        """The connections whose turn it is, the one of them that was cut, and its frames that come next tick."""
        turn: list[Conn] = []
        cut: Conn | None = None
        later: list[Frame] = []
        frames_left = self.limits.tick_frames
        bytes_left = self.limits.tick_bytes
        for number, conn in enumerate(waiting):
            if conn.congested and not conn.closed:
                conn._ready = False  # comes again when the peer reads
                continue
            count = len(conn.frames)
            turn.append(conn)
            if count > frames_left or conn.queued > bytes_left:
                at = _share(conn.frames, frames_left, bytes_left)
                if at < count:
                    cut = conn
                    later = conn.frames[at:]
                    del conn.frames[at:]
                self.ready = waiting[number + 1 :]
                break
            frames_left -= count
            bytes_left -= conn.queued
            if frames_left <= 0 or bytes_left <= 0:
                self.ready = waiting[number + 1 :]
                break
        held = self.limits.queued // 8
        for conn in self.ready:
            if conn.queued > held:  # its turn is later: it need not bring more until then
                conn._pause()
        return turn, cut, later

    def _look_after(self, conn: Conn, later: list[Frame]) -> None:
        """A connection was served that has frames left, does not read, or is about to end.

        :param later: frames behind those of its turn.
        """
        conn.frames.extend(later)
        if conn._broken:
            conn.frames.clear()
        if conn.frames:
            conn.queued = _weight(conn.frames)
            conn._pause()
            if not conn.congested or conn.closed:
                self.ready.append(conn)
            else:
                conn._ready = False
            return
        conn.queued = 0
        conn._ready = False
        if conn.owed_bytes > self.limits.owed:
            conn._pause()
        elif conn._paused:
            conn._resume()
        if conn._lost:
            conn._end()
        elif conn._doomed is not None:
            conn.close()
        conn._clear = not (conn._paused or conn.congested or conn._lost or conn._broken or conn._doomed is not None)

    def _route_all(self, ready: list[Conn]) -> None:
        """The step of an endpoint without a lane: everything goes to the router, in order of arrival."""
        until = self.now() + self.limits.tick_seconds
        count = 0
        for conn in ready:
            frames = conn.frames
            conn.frames = []
            for number, (buffer, low, end) in enumerate(frames):
                count += 1
                if not count & 15 and self.now() > until:  # what is left comes next tick
                    conn.frames = frames[number:]
                    return
                self.route_frame(conn, buffer, low, end)
                if conn._broken:
                    break
                if conn.congested and number + 1 < len(frames):
                    conn.frames = frames[number + 1 :]  # its answers first have to be taken
                    break

    def route_frame(self, conn: Conn, buffer: bytes, low: int, high: int) -> None:
        """Decode one frame and route it: a request to the router, an answer to who waits for it. Never raises."""
        try:
            command = frame.decode_at(buffer, low, high)
        except ProtocolError as error:
            conn.malformed(str(error))
            return
        except Exception:
            log.exception("%s: a frame from %s broke the decoder", self.name, conn.peer)
            conn.malformed("a frame that cannot be decoded")
            return
        if command.flag & 1:
            conn.answered(command)
        else:
            self.router.route(conn, command)

    # -- connections --------------------------------------------------------------------------------------------

    def opened(self, conn: Conn) -> None:
        """A connection was made."""
        conn.idle_since = conn.heard_at = conn.opened_at = self.now()
        self.connections[conn] = None
        self._say("%s: %s connected", self.name, conn.peer)
        if not self._sweeping:
            self._sweeping = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def greet(self, conn: Conn, data: bytes) -> bool:
        """The first bytes of an accepted connection; False when they were taken care of here (TLS)."""
        return True

    def lost(self, conn: Conn) -> None:
        """A connection ended."""
        if self.connections.pop(conn, self) is self:
            return
        self._changed.set()
        self._say("%s: %s closed: %s", self.name, conn.peer, conn._doomed or "by the other side")
        for told in self.on_close:
            try:
                told(conn)
            except Exception:
                log.exception("%s: a listener failed on the close of %s", self.name, conn.peer)

    def settled(self) -> None:
        """A connection that is not read has got all its answers."""
        if self.draining:
            self._changed.set()

    def _say(self, form: str, *values: object) -> None:
        self._notes.say(log.info, form, *values)

    def cut(self, conn: Outgoing, kind: str, why: str, form: str = "", *values: object) -> None:
        """Close a connection at once, count it, and say so.

        :param form: the words for the log, where they are others than ``why``.
        """
        self.cut_off[kind] += 1
        self.complain("%s: closed: " + (form or "%s"), conn.peer, *(values if form else (why,)))
        conn.abort(why)

    def complain(self, form: str, *values: object) -> None:
        """A log line that strangers can cause: rationed."""
        self._complaints.say(log.warning, "%s: " + form, self.name, *values)

    def _sweep(self) -> None:
        if not self.connections:
            self._sweeping = False
            return
        assert self._loop is not None
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        now = self.now()
        limits = self.limits
        idle = limits.idle_seconds
        for conn in self.unread.sweep():
            self.cut(conn, "unread", "it does not read what it is sent, and others wait")
        for conn in self.unfinished.sweep():
            self.cut(
                conn,
                "unfinished",
                "an unfinished frame, and others wait",
                _PARTIAL + ", and others wait",
                *_partial(conn),
            )
        for conn in list(self.connections):
            if conn.closed:
                if now - conn.idle_since > limits.linger_seconds:
                    conn.abort("it did not take what was left for it")
                continue
            if conn._paused:
                conn._since = now  # it is we who do not read
            if conn.active:
                conn.heard_at = now
            if conn.active or conn.wrote or conn._ready:
                conn.active = conn.wrote = False
                conn.idle_since = now
            elif idle and now - conn.idle_since >= idle:
                self.cut_off["idle"] += 1
                conn.close(f"idle for {idle:g} s")
            if conn.handshake is not None:
                if conn.handshake.ready:
                    conn.handshake = None
                elif now - conn._since > limits.handshake_seconds:
                    self.cut(conn, "handshake", "an unfinished TLS handshake", "its TLS handshake took too long")
            elif conn._have and now - conn._since > limits.patience(conn._have):
                self.cut(conn, "unfinished", "an unfinished frame", _PARTIAL, *_partial(conn))

    async def close_connections(self, seconds: float) -> None:
        """Answer what is in flight, what waits for a flush included; drain, close: at most ``seconds``."""
        self.draining = True
        deadline = self.now() + seconds
        for conn in list(self.connections):
            conn._pause()
        await self._until(lambda: not self.ready and not any(conn.owed_bytes for conn in self.connections), deadline)
        await self.tasks.drain(max(0.0, deadline - self.now()))
        await self.tasks.close()
        await asyncio.sleep(0)  # the tick that writes the last answers
        for conn in list(self.connections):
            conn.leave("stopped")
        await self._until(lambda: not self.connections, min(deadline, self.now() + _FAREWELL_SECONDS))
        for conn in list(self.connections):
            if not conn.unsent():
                conn.abort("stopped")
        await self._until(lambda: not self.connections, deadline)
        for conn in list(self.connections):
            conn.abort("stopped")
        for _ in range(3):
            if self.connections:
                await asyncio.sleep(0)
        for conn in list(self.connections):
            conn._end()
        self.timeouts.close()

    async def _until(self, so: Callable[[], bool], deadline: float) -> None:
        """Wait for ticks and ends of connections until ``so`` holds or the time is up."""
        while not so() and (left := deadline - self.now()) > 0:
            self._changed.clear()
            try:
                async with patience.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return


def _share(frames: list[Frame], most: int, size: int) -> int:
    """How many of the frames fit the budget: at least one."""
    taken = 0
    for _, low, high in frames:
        if taken and (taken >= most or size <= 0):
            break
        taken += 1
        size -= high - low
    return taken


def _weight(frames: list[Frame]) -> int:
    """Bytes of frames; of a long list as its first thousand has them: this runs every tick while it gets shorter."""
    sample = frames[:1000]
    return sum(high - low for _, low, high in sample) * len(frames) // len(sample)


def _partial(conn: Conn) -> tuple[int, int]:
    return conn._need, conn._have


def _why(conn: Conn, error: Exception | None) -> str:
    return str(error) if error else "closed by the other side"


def _expire(key: Deadline) -> None:
    conn, opaques, timeout, unwritten = key
    for opaque in opaques:
        conn.expired(opaque, timeout, unwritten)
