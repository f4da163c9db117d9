"""Writing again what a failed flush has left in doubt.

A system tells of bytes that it could not bring to the disk once, and takes them for written from then on: the next
flush succeeds and does nothing. They are still read back as they were written, until they leave the page cache; a
power cut, too, shows what the disk has. Only bytes that are written once more are brought to the disk at all.
"""

from __future__ import annotations

from rmq.runtime.backed_file import BAD_PLACE
from rmq.runtime.world import File

__all__ = ["write_again"]

_PIECE = 1 << 20
_PAGE = 4096


def write_again(file: File, start: int, end: int) -> None:
    """Write what a file holds from ``start`` to ``end`` over itself; holes, and what cannot be read, stay. Blocks.

    :raises OSError: some of it could not be written.
    """
    position = file.data_from(start)
    while position < end:
        piece = min(_PIECE, end - position)
        if not _copied(file, position, piece):
            for page in range(position, position + piece, _PAGE):
                _copied(file, page, min(_PAGE, position + piece - page))
        position = file.data_from(position + piece)


def _copied(file: File, position: int, size: int) -> bool:
    """Write a piece over itself; False when it cannot be read."""
    try:
        data = file.pread(size, position)
    except OSError as error:
        if error.errno not in BAD_PLACE:
            raise
        return False
    if data:
        file.pwrite(data, position)
    return True
