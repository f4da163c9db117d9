"""Bytes of the log on their way: to members, out of memory or from the disk; and what is read of what has come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from rmq.broker.raft.wire import Say
from rmq.broker.store.log.commit_log import CommitLog
from rmq.raft.messages import Append

__all__ = ["Spans"]

#: Bytes read in one go of what is only looked at.
_PIECE = 1 << 20


class Spans:
    """Of one member's log.

    :param say: to a member.
    """

    def __init__(self, log: CommitLog, say: Say) -> None:
        self._log = log
        self._say = say

    def send(self, to: str, message: Append) -> Coroutine[Any, Any, None] | None:
        """Send a span with its bytes; what is to be waited for where those come from the disk."""
        start, end, log = message.before.end, message.after.end, self._log
        if start < log.start:
            return None  # deleted since: the member asks again
        pieces = log.pieces(start, end - start)
        if pieces is None:
            pieces = []
            for at, size in self._parts(start, end):
                piece = log.read(at, size)
                if piece is None:
                    return self._send_cold(to, message)
                pieces.append(piece)
        self._send_bytes(to, message, pieces)
        return None

    async def _send_cold(self, to: str, message: Append) -> None:
        parts = self._parts(message.before.end, message.after.end)
        self._send_bytes(to, message, [await self._log.read_cold(at, size) for at, size in parts])

    def _send_bytes(self, to: str, message: Append, pieces: list[bytes]) -> None:
        if sum(map(len, pieces)) == message.after.end - message.before.end:  # else it was deleted meanwhile
            self._say(to, message, pieces)

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """What lies between two offsets, piece by piece.

        :raises OSError: the disk refused.
        """
        for at, size in self._parts(start, end, _PIECE):
            data = await self._log.read_cold(at, size)
            if len(data) != size:
                raise OSError(f"the log cannot be read at {at}")
            yield data

    def _parts(self, start: int, end: int, most: int = 1 << 62) -> Iterator[tuple[int, int]]:
        """Offset and size of what is read in one go: no read goes beyond the end of a file.

        :param most: bytes of each.
        """
        file_size = self._log.file_size
        while start < end:
            size = min(end - start, file_size - start % file_size, most)
            yield start, size
            start += size
