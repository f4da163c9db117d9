"""Memory that a connection receives into, and the units of the HA stream in it, which are handed on where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmq.broker.replication.wire import HEADER_SIZE, head

__all__ = ["UnitBuffer"]


class UnitBuffer:
    """Makes units of bytes that are received into it, wherever they are cut.

    What comes next goes to the front again when everything is taken: memory that is used over and over stays in the
    processor's cache, and nothing is copied on the way to who takes a body.

    :param size: bytes that it has room for; a longer unit has its own memory, once so much of it is there and until it
        is taken.
    :param head: gives offset and size of the body of the unit that begins at a place.
    """

    __slots__ = ("_at", "_have", "_head", "_memory", "_own", "_whole")

    def __init__(self, size: int, head: Callable[[memoryview, int], tuple[int, int]] = head) -> None:
        self._head = head
        self._own = self._memory = memoryview(bytearray(size))
        #: Where the first unit begins that is not taken yet, and behind the last byte that has come.
        self._at = self._have = 0
        #: Bytes of that unit, with its head, when it is whole.
        self._whole = HEADER_SIZE

    def widen(self, size: int) -> None:
        """Have room for so many bytes from now on, once what is there is taken."""
        self._own = memoryview(bytearray(size))

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._have == len(self._memory):
            self._move(memoryview(bytearray(self._whole)))
        return self._memory[self._have :]

    def units(self, count: int) -> Iterator[tuple[int, memoryview]]:
        """Offset and body of each unit that is whole now.

        Taken to its end before more is received. A body is good until then: who keeps it longer copies it.

        :param count: bytes that have come, at the beginning of :meth:`room`.
        :raises ReplicationError: no unit begins like this; the stream is over.
        """
        memory, at = self._memory, self._at
        have = self._have = self._have + count
        whole = HEADER_SIZE
        while have - at >= HEADER_SIZE:
            offset, size = self._head(memory, at)
            whole = HEADER_SIZE + size
            if whole > have - at:
                break
            body = memory[at + HEADER_SIZE : at + whole]
            at += whole
            whole = HEADER_SIZE
            yield offset, body
        self._at, self._whole = at, whole
        if at == have:
            self._memory, self._at, self._have = self._own, 0, 0
        elif whole <= len(self._own) and (at + whole > len(memory) or memory is not self._own):
            self._move(self._own)

    def _move(self, to: memoryview) -> None:
        """Have what is not taken yet at the front."""
        rest = self._memory[self._at : self._have]
        to[: len(rest)] = rest
        self._memory, self._at, self._have = to, 0, len(rest)
