"""Bytes of the log on their way: to members, out of memory or from the disk; and what is read of what has come."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from rmq.broker.raft.wire import Say
from rmq.broker.store.log.commit_log import CommitLog
from rmq.raft.messages import Append

__all__ = ["Spans"]


class Spans:
    """Of one member's log.

    :param say: to a member.
    """

    def __init__(self, log: CommitLog, say: Say) -> None:
        self._log = log
        self._say = say

    def send(self, to: str, message: Append) -> Coroutine[Any, Any, None] | None:
        """Send a span with its bytes; what is to be waited for where those come from the disk."""
        at, end, log = message.before.end, message.after.end, self._log
        if at < log.start:
            return None  # deleted since: the member asks again
        pieces = log.pieces(at, end - at)
        if pieces is None:
            pieces, size = [], log.file_size
            while at < end:
                behind = min(end, at - at % size + size)
                piece = log.read(at, behind - at)
                if piece is None:
                    return self._send_cold(to, message)
                pieces.append(piece)
                at = behind
        self._send_bytes(to, message, pieces)
        return None

    async def _send_cold(self, to: str, message: Append) -> None:
        at, end, size = message.before.end, message.after.end, self._log.file_size
        pieces = []
        while at < end:
            behind = min(end, at - at % size + size)
            pieces.append(await self._log.read_cold(at, behind - at))
            at = behind
        self._send_bytes(to, message, pieces)

    def _send_bytes(self, to: str, message: Append, pieces: list[bytes]) -> None:
        if sum(map(len, pieces)) == message.after.end - message.before.end:  # else it was deleted meanwhile
            self._say(to, message, pieces)

    async def warm(self, start: int, end: int) -> None:
        """Have in memory what is read next."""
        size = self._log.file_size
        while start < end:
            behind = min(end, start - start % size + size, start + (1 << 20))
            await self._log.read_cold(start, behind - start)
            start = behind

    def read(self, offset: int, size: int) -> bytes:
        """What lies in memory.

        :raises OSError: it does not.
        """
        data = self._log.read(offset, size)
        if data is None or len(data) != size:
            raise OSError(f"the log cannot be read at {offset}")
        return data
