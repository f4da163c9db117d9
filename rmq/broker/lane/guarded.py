"""The step of a broker with access control: sends and pulls ride the same tick, each of them checked by itself.

Every frame is decoded in full, for the signature covers all fields and the body. What is checked is what is served: the
command that was decoded, never the bytes read a second time by another reader.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq.broker.lane.step import Lane
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import FLAG_RESPONSE, Command
from rmq.protocol.errors import ProtocolError
from rmq.protocol.frame import decode

if TYPE_CHECKING:
    from rmq.broker.lane.outcomes import Ack
    from rmq.broker.store.state import Put
    from rmq.remoting.conn import Conn

__all__ = ["GuardedLane"]

log = logging.getLogger(__name__)

_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
#: As in the step without access control: pulls of a connection, and other commands, in one tick.
_PULLS_PER_TICK = 16
_OTHERS_PER_TICK = 64
_OTHER_BYTES_PER_TICK = 128 << 10
#: Bytes that are signed, and what a signature costs besides, in a tick: some 10 ms.
_WEIGHT_PER_TICK = 4 << 20
_WEIGHT = 16 << 10


class GuardedLane(Lane):
    """Lane of a broker with ``aclEnable``."""

    def step(self, ready: list[Conn]) -> None:
        """Serve every frame of the ready connections."""
        self._answers.follow(self._settings)
        guard = self._router.guard
        assert guard is not None
        admit = guard.admit
        late, room = self._pressure.look()
        puts: list[Put] = []
        acks: list[Ack] = []
        pulls: list[tuple[Conn, Command]] = []
        later: list[tuple[Conn, Command]] = []
        room_for_others = _OTHER_BYTES_PER_TICK
        weight = _WEIGHT_PER_TICK
        for conn in ready:
            frames, conn.frames = conn.frames, []
            if conn.read_at < late or len(frames) + len(puts) > room:
                frames = self._pressure.shed(conn, frames, room - len(puts))
            pulled = 0
            rest = iter(frames)
            for buf, lo, hi in rest:
                if weight <= 0 or room_for_others <= 0 or len(later) == _OTHERS_PER_TICK or pulled == _PULLS_PER_TICK:
                    conn.frames = [(buf, lo, hi), *rest]
                    break
                weight -= hi - lo + _WEIGHT
                try:
                    command = decode(buf[lo:hi])
                except ProtocolError as error:
                    conn.malformed(str(error))
                    break
                except Exception:
                    log.exception("a frame from %s broke the decoder", conn.peer)
                    conn.malformed("a frame that cannot be decoded")
                    break
                try:
                    if command.flag & FLAG_RESPONSE or command.code not in _SENDS:
                        if command.code in _PULLS and not command.flag & FLAG_RESPONSE:
                            pulled += 1
                            pulls.append((conn, command))
                        else:
                            later.append((conn, command))
                            room_for_others -= hi - lo
                    else:
                        admit(conn, command)
                        weight -= self._slow(conn, command, puts, acks)
                except Exception as error:
                    self._outcomes.failed(conn, command, error)
        if puts:
            self._append(puts, acks, keys_later=True)
        route = self._router.route
        for conn, command in (*pulls, *later):
            if command.flag & FLAG_RESPONSE:
                conn.answered(command)
            else:
                route(conn, command)
