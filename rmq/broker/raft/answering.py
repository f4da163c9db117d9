"""The answers of a follower: of those to what came together the last says what the others did, and is the one sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmq.raft.messages import AppendReply, Message

__all__ = ["Answering"]


class Answering:
    """What one member says, where answers that tell how much it has wait until the loop has its turn.

    A later one of them tells more than an earlier one. Nothing overtakes them: to a leader they only come later, as any
    message may.

    :param send: to a member.
    """

    def __init__(self, send: Callable[[str, Message], None]) -> None:
        self._send = send
        self._waits: tuple[str, AppendReply] | None = None
        self._turn: asyncio.Handle | None = None

    def send(self, to: str, message: Message) -> None:
        """Say something, now or with the next turn of the loop."""
        tells = isinstance(message, AppendReply) and message.match is not None and message.rejected is None
        if self._waits is not None and (not tells or self._waits[0] != to):
            self._say()
        if isinstance(message, AppendReply) and tells:
            self._waits = to, message
            if self._turn is None:
                self._turn = asyncio.get_running_loop().call_soon(self._on_turn)
        else:
            self._send(to, message)

    def _on_turn(self) -> None:
        self._turn = None
        self._say()

    def _say(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            self._send(*waits)

    def drop(self) -> None:
        """What waits is not said any more."""
        self._waits = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
