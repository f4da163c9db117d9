"""The HA stream of 4.9, as bytes (store-and-broker.md 6.2). Each side speaks without being asked.

A slave sends reports, one after the other, nothing between them::

    at   width   field
    0    8       offset of the commit log up to which the slave has everything

A master sends units; one without a body is a heartbeat. A body never crosses the end of a commit-log file, and takes no
notice of records::

    at   width   field
    0    8       offset of the first byte of the body; in a heartbeat, of the byte that is sent next
    8    4       bytes of the body
    12   n       body
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from rmq.protocol.errors import ReplicationError

__all__ = ["HEADER_SIZE", "LARGEST_BODY", "REPORT_SIZE", "ReportDecoder", "UnitDecoder", "head", "header", "report"]

_HEADER = Struct(">qi")
_REPORT = Struct(">q")
HEADER_SIZE: Final = _HEADER.size
REPORT_SIZE: Final = _REPORT.size
#: Java's slave reads into 4 MiB: a unit that does not fit there is never whole for it.
LARGEST_BODY: Final = (4 << 20) - HEADER_SIZE
#: No log is so long: what lies behind has files whose names, and ends that reports, cannot say.
_LAST: Final = 1 << 62


def header(offset: int, size: int) -> bytes:
    """What stands before a body of ``size`` bytes; 0 makes a heartbeat."""
    return _HEADER.pack(offset, size)


def report(offset: int) -> bytes:
    """A slave has everything before ``offset``."""
    return _REPORT.pack(offset)


class UnitDecoder:
    """Makes units of the bytes that a master sends, wherever they are cut."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        #: A unit that is not whole yet.
        self._held = bytearray()

    def units(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Offset and body of each unit that is whole now; b"" is a heartbeat.

        Taken to its end before more is given.

        :raises ReplicationError: no unit begins like this; the stream is over.
        """
        held = self._held
        at, have = 0, len(data)
        while held:
            offset, size = head(held, 0) if len(held) >= HEADER_SIZE else (-1, 0)
            lacks = HEADER_SIZE + size - len(held)
            if offset >= 0 and not lacks:
                self._held = bytearray()
                yield offset, bytes(memoryview(held)[HEADER_SIZE:])
                held = self._held
                break
            if at == have:
                return
            held += data[at : at + lacks]
            at = min(at + lacks, have)
        while have - at >= HEADER_SIZE:
            offset, size = head(data, at)
            body_at = at + HEADER_SIZE
            if body_at + size > have:
                break
            at = body_at + size
            yield offset, data[body_at:at]
        held += memoryview(data)[at:]


def head(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Offset and size of the body of the unit that begins at ``at``.

    :raises ReplicationError: no unit begins like this.
    """
    offset, size = _HEADER.unpack_from(data, at)
    if not (0 <= offset <= _LAST and 0 <= size <= LARGEST_BODY):
        raise ReplicationError(f"this is no HA stream of 4.9: a unit of {size} bytes at {offset}")
    return offset, size


class ReportDecoder:
    """Makes reports of the bytes that a slave sends, wherever they are cut."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def reports(self, data: bytes) -> list[int]:
        """The reports that are whole now, in order."""
        data = self._rest + data
        whole = len(data) // REPORT_SIZE * REPORT_SIZE
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]
