"""The step of a broker with access control: sends and pulls ride the same tick, each of them checked by itself.

Every frame is decoded in full, for the signature covers all fields and the body. What is checked is what is served: the
command that was decoded, never the bytes read a second time by another reader.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import ValidationError, convert

from rmq.broker.lane.admit import SENT_PROPERTIES
from rmq.broker.lane.hot_frames import SendFields
from rmq.broker.lane.plain import plain_properties
from rmq.broker.lane.step import DIVERTED_FLAGS, Lane
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import FLAG_RESPONSE, Command
from rmq.protocol.errors import ProtocolError
from rmq.protocol.frame import decode
from rmq.protocol.permissions import publish_topic

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
        settings = self._settings
        opens = settings.start_accept_send_request_time_stamp
        gate = self._store.log.gate or (opens and self._now_ms() < opens)
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
                        if len(command.body) > settings.max_message_size:  # nobody has it hashed
                            self._outcomes.refused(conn, command, self._admission.illegal())
                            continue
                        admit(conn, command)
                        if gate or not self._plain(conn, command, puts, acks):
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

    def _plain(self, conn: Conn, command: Command, puts: list[Put], acks: list[Ack]) -> bool:
        """Put a plain send without the checks of admission, as the step without access control does.

        :returns: False when it is not plain: it is admitted then.
        :raises AuthError: the topic is not its sender's to write.
        """
        if command.code != RequestCode.SEND_MESSAGE_V2 or len(self._store_host) == 20 or conn.born_v6:
            return False
        try:
            fields = convert(command.ext, SendFields, strict=False)
        except ValidationError:
            return False
        lane = self._lanes.get(fields.b)
        if lane is None or not lane.plain or fields.j or fields.m or fields.f & DIVERTED_FLAGS:
            return False
        if not 0 <= fields.e < len(lane.queues):
            return False
        plain = plain_properties(fields.i, self._cluster)
        if plain is None or len(plain[0]) > SENT_PROPERTIES:
            return False
        command.demand(publish_topic(fields.b))
        stored, tag, keys, wait = plain
        code = lane.tag_codes.get(tag)
        if code is None:
            code = lane.tag_code(tag)
        queue = lane.queues[fields.e]
        puts.append(
            (  # type: ignore[arg-type]
                queue, command.body, stored, fields.h, fields.f, fields.g, conn.born_host, self._store_host, 0, 0, code,
                keys,
            )
        )  # fmt: skip
        acks.append((conn, None if command.is_oneway else command.opaque, fields.e, wait, None))
        return True
