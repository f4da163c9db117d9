"""Which pages of a mapped file are in the page cache: ``mincore``, where the C library has it.

A read through a mapping is the cheapest there is, but a page that is not in memory stops the whole process for a disk
access. ``mincore`` tells before the page is touched.
"""

from __future__ import annotations

import ctypes
import mmap
from time import monotonic
from typing import Any

from rmq.runtime.clib import c_function

__all__ = ["Mapping"]

_PAGE = mmap.PAGESIZE
#: Pages asked about at once: 4 MiB.
_MOST_PAGES = 1024
#: Pages are remembered to be in memory by blocks of so many bytes, ...
_BLOCK = 256 << 10
#: ... so many of them, ...
_MOST_KNOWN = 1024
#: ... for so many seconds.
_TRUSTED = 0.1


class _Buffer(ctypes.Structure):
    """The beginning of CPython's Py_buffer, with room for the rest of it."""

    _fields_ = (("buf", ctypes.c_void_p), ("rest", ctypes.c_byte * 256))


def _find_mincore() -> Any:
    found = c_function("mincore")
    if found is None:
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    found.restype = ctypes.c_int
    return found


_mincore = _find_mincore()


class Mapping:
    """A read-only mapping of a whole file, given back with the last view of it.

    What was in memory a moment ago still is, as good as always: a block that was asked about is not asked about again
    for ``_TRUSTED`` seconds. Neighbouring queues are read at the same place, and a question costs as much as a read.

    :param fd: the open file; it may be closed afterwards.
    :param size: its bytes, at least one; what grows behind them is not seen.
    :raises OSError: it cannot be mapped, or residency cannot be asked for here.
    """

    __slots__ = ("_address", "_answer", "_known", "_map", "_view", "size")

    def __init__(self, fd: int, size: int) -> None:
        if _mincore is None:
            raise OSError("mincore is not available")
        self.size = size
        self._map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        self._view = memoryview(self._map)
        buffer = _Buffer()
        api = ctypes.pythonapi
        api.PyObject_GetBuffer(ctypes.py_object(self._map), ctypes.byref(buffer), 0)
        self._address: int = buffer.buf or 0
        api.PyBuffer_Release(ctypes.byref(buffer))
        self._answer: Any = ctypes.create_string_buffer(_MOST_PAGES)
        #: When each block of the file was last seen to be in memory as a whole, monotonic seconds.
        self._known: dict[int, float] = {}

    def hot(self, offset: int, size: int) -> memoryview | None:
        """The whole file as a view, good for these bytes; None when a page of them is not in memory.

        Neither is what is not in the file, nor more than 4 MiB at once.
        """
        end = offset + size
        first = offset // _BLOCK
        last = (end - 1) // _BLOCK
        known = self._known
        now = monotonic()
        since = now - _TRUSTED
        if (
            known.get(first, 0.0) > since
            and known.get(last, 0.0) > since
            and (last - first < 2 or all(known.get(at, 0.0) > since for at in range(first + 1, last)))
        ):
            return self._view if end <= self.size and size > 0 else None
        if size <= 0 or end > self.size:
            return None
        low = first * _BLOCK
        high = min((last + 1) * _BLOCK, self.size)
        if high - low <= _MOST_PAGES * _PAGE and self._resident(low, high):
            if len(known) >= _MOST_KNOWN:
                known.clear()
            for at in range(first, last + 1):
                known[at] = now
            return self._view
        return self._view if self._resident(offset - offset % _PAGE, end) else None

    def _resident(self, low: int, high: int) -> bool:
        """Whether every page from ``low``, where one begins, to ``high`` is in memory."""
        pages = (high - low + _PAGE - 1) // _PAGE
        if pages > _MOST_PAGES or _mincore(self._address + low, high - low, self._answer) != 0:
            return False
        return bool(self._answer[:pages].count(1) == pages)
