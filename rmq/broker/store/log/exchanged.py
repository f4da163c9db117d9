"""Files of the commit log that have got each other's names: what is in them is not lost, and not to be written over.

The first record of a file says where in the log it belongs. Where that is another file's place, and the messages of
that file are not found there, either, renaming brings everything back; whatever is made of the log as it is costs them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rmq.broker.store.log.files import LogFile, file_name
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.log.records import check
from rmq.broker.store.refusal import BAD_PLACE
from rmq.protocol.errors import StoreError
from rmq.protocol.record import FIXED_SIZE, fields

__all__ = ["Exchanged", "exchanged", "refuse_exchanged"]

_place = fields("physical_offset")


class Exchanged(NamedTuple):
    """A file under another one's name.

    :param place: commit-log offset that its messages begin at.
    """

    file: LogFile
    place: int

    @property
    def told(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"holds the messages of {file_name(self.place)}: files have got other names; rename them, or move this one "
            "away to go on without its messages"
        )


def exchanged(files: Sequence[LogFile], size: int, end: int, damages: Collection[Damage]) -> Exchanged | None:
    """The first file whose messages would be lost, or written over, under the name that it has. Blocks.

    :param size: bytes of a file.
    :param end: where the log ends.
    :param damages: what is in it and cannot be read.
    """
    by_start = {file.start: file for file in files}
    for file in files:
        behind = file.start >= end
        if not behind and not any(part.start <= file.start < part.end for part in damages):
            continue
        place = _begins_with(file, size)
        if place in (-1, file.start):
            continue
        other = by_start.get(place)
        if behind or other is None or _begins_with(other, size) != place:
            return Exchanged(file, place)
    return None


def refuse_exchanged(files: Sequence[LogFile], size: int, end: int, damages: Collection[Damage]) -> None:
    """:func:`exchanged`, for who would go on with the log as it is. Blocks.

    :raises StoreError: a file has the messages of another one, which has not got them itself or is before the end.
    """
    if (found := exchanged(files, size, end, damages)) is not None:
        raise StoreError(f"{found.file.path} {found.told}")


def _begins_with(file: LogFile, size: int) -> int:
    """Where the file should begin whose messages one has; -1 where it begins with none."""
    head = _read(file, FIXED_SIZE)
    (place,) = _place(head, 0) if len(head) == FIXED_SIZE else (-1,)
    if place < 0 or place % size:
        return -1
    record = _read(file, min(size, int.from_bytes(head[:4], "big")))
    return place if check(record, 0, place, size) == len(record) else -1


def _read(file: LogFile, size: int) -> bytes:
    """The beginning of a file; nothing where the disk does not give it."""
    try:
        return file.file.pread(size, 0)
    except OSError as error:
        if error.errno not in BAD_PLACE:
            raise
        return b""
