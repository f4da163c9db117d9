"""Cutting many pieces out of one buffer without a loop over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Numbers", "cut"]

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def cut(buffer: Any, begins: Numbers, ends: Numbers, kind: pa.DataType) -> Any:
    """The pieces of a buffer between pairs of places that only grow, as one array.

    Arrow is given the whole buffer as an array in which every other element is what lies between two pieces, and
    copies out the rest.
    """
    count = len(begins)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[::2] = begins
    edges[1::2] = ends
    every = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(buffer)])
    return every.take(pa.array(np.arange(0, 2 * count - 1, 2)))
