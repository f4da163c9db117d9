"""Which pages of a mapped file are in the page cache: ``mincore``, where the C library has it.

A read through a mapping is the cheapest there is, but a page that is not in memory stops the whole process for a disk
access. ``mincore`` tells before the page is touched.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

__all__ = ["Mapping"]

_PAGE = mmap.PAGESIZE
#: Pages asked about at once: 4 MiB.
_MOST_PAGES = 1024


class _Buffer(ctypes.Structure):
    """The beginning of CPython's Py_buffer, with room for the rest of it."""

    _fields_ = (("buf", ctypes.c_void_p), ("rest", ctypes.c_byte * 256))


def _find_mincore() -> Any:
    try:
        found = ctypes.CDLL(None, use_errno=True).mincore
    except (AttributeError, OSError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    found.restype = ctypes.c_int
    return found


_mincore = _find_mincore()


class Mapping:
    """A read-only mapping of a whole file.

    :param fd: the open file; it may be closed afterwards.
    :param size: its bytes, at least one; what grows behind them is not seen.
    :raises OSError: it cannot be mapped, or residency cannot be asked for here.
    """

    __slots__ = ("_address", "_answer", "_map", "_view", "size")

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

    def hot(self, offset: int, size: int) -> memoryview | None:
        """A view of the bytes; None when a page of them is not in memory, or they are too many or not in the file."""
        start = offset - offset % _PAGE
        pages = (offset + size - start + _PAGE - 1) // _PAGE
        if size <= 0 or pages > _MOST_PAGES or offset + size > self.size:
            return None
        if _mincore(self._address + start, offset + size - start, self._answer) != 0:
            return None
        if self._answer[:pages].count(1) != pages:
            return None
        return self._view[offset : offset + size]

    def close(self) -> None:
        """Give the mapping back, now or when the last view of it is gone."""
        self._view.release()
        try:
            self._map.close()
        except BufferError:
            return
