"""Finding and cutting many pieces of one buffer without a loop over them."""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Any

import numpy as np
import pyarrow as pa

from rmq.protocol.errors import ProtocolError
from rmq.protocol.record import FIXED_SIZE

__all__ = ["Numbers", "cut", "record_starts"]

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_SIZE = Struct(">i")
#: After so many more records of one size, the next of that size are looked for all at once, where so many may come:
#: an answer of few records is done sooner one by one.
_ALIKE = 8
_WORTH = 64


def cut(buffer: Any, begins: Numbers, ends: Numbers, kind: pa.DataType) -> Any:
    """The pieces of a buffer between pairs of places that only grow, as one array of its own memory.

    Arrow is given the whole buffer as an array in which every other element is what lies between two pieces, and
    copies out the rest; pieces that are all alike, as those of many messages are, numpy copies with a fixed stride.
    """
    count = len(begins)
    if not count:
        return pa.array([], kind)
    width = int(ends[0] - begins[0])
    if count > 1 and width and (ends - begins == width).all():
        steps = np.diff(begins)
        if (steps == steps[0]).all():
            return _cut_alike(buffer, int(begins[0]), int(steps[0]), count, width, kind)
    edges = np.empty(2 * count, np.int32)
    edges[::2] = begins
    edges[1::2] = ends
    every = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(buffer)])
    return every.take(pa.array(np.arange(0, 2 * count - 1, 2)))


def _cut_alike(buffer: Any, at: int, step: int, count: int, width: int, kind: pa.DataType) -> Any:
    """Pieces of one width that are one distance apart."""
    pieces: np.ndarray[Any, np.dtype[np.uint8]] = np.ndarray((count, width), np.uint8, buffer, at, (step, 1))
    edges = np.arange(0, count * width + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(edges), pa.py_buffer(pieces.copy())])


def record_starts(buffer: bytearray, at: int, end: int, address: str) -> list[int]:
    """Where each record between two places begins. :raises ProtocolError: they are no whole records."""
    starts: list[int] = []
    unpack = _SIZE.unpack_from
    append = starts.append
    alike = last = 0
    try:
        while at < end:
            append(at)
            (size,) = unpack(buffer, at)
            if size < FIXED_SIZE:
                raise ProtocolError(f"{address} sent a message record of {size} bytes")
            at += size
            if size != last:
                last, alike = size, 0
                continue
            alike += 1
            if alike >= _ALIKE and end - at >= _WORTH * size:
                alike = 0
                more = _same_size(buffer, at, end, size)
                starts += range(at, at + more * size, size)
                at += more * size
    except struct_error:
        at = -1
    if at != end:
        raise ProtocolError(f"{address} sent a message record that is cut off")
    return starts


def _same_size(buffer: bytearray, at: int, end: int, size: int) -> int:
    """How many records from a place on have this size, without looking at each: many messages are of one form."""
    most = (end - at) // size
    sizes: np.ndarray[Any, np.dtype[np.int32]] = np.ndarray((most,), ">i4", buffer, at, (size,))
    other = np.flatnonzero(sizes != size)
    return int(other[0]) if len(other) else most
