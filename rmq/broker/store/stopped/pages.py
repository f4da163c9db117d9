"""Reads what the disk gives of a file, and says what it does not give."""

from __future__ import annotations

from rmq.broker.store.refusal import BAD_PLACE
from rmq.runtime.world import File

__all__ = ["read_pages"]

#: The kernel reads so many bytes or none.
_PAGE = 4096


def read_pages(file: File, size: int, position: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Up to ``size`` bytes at ``position``, zeros for pages that cannot be read. Blocks.

    :returns: and the places of those pages in the file: first byte, byte behind the last.
    :raises OSError: for another reason than the place.
    """
    try:
        return file.pread(size, position), []
    except OSError as error:
        if error.errno not in BAD_PLACE:
            raise
    parts: list[bytes] = []
    bad: list[tuple[int, int]] = []
    at, end = position, position + size
    while at < end:
        want = min(end - at, _PAGE - at % _PAGE)
        try:
            data = file.pread(want, at)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            data = bytes(want)
            if bad and bad[-1][1] == at:
                bad[-1] = (bad[-1][0], at + want)
            else:
                bad.append((at, at + want))
        parts.append(data)
        at += len(data)
        if len(data) < want:
            break
    return b"".join(parts), bad
