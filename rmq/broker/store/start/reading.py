"""How a start reads the commit log: what is bad, or the disk does not give, is met once, whoever reads it.

What the disk does not give costs the records in it, and no more. Where the log ends within it or behind it nobody
knows, unless a clean stop noted that: then nothing is cut away.
"""

from __future__ import annotations

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.refusal import BAD_PLACE
from rmq.broker.store.start.recovered import Recovered
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World

__all__ = ["Reading"]


class Reading:
    """The readers of one start.

    :param found: gets what is damaged, and what the disk does not give.
    :param crc: whether checksums of bodies are compared.
    :param clean_end: where a clean stop has noted the log's end, -1 when none has.
    """

    def __init__(self, world: World, log: CommitLog, found: Recovered, *, crc: bool, clean_end: int) -> None:
        self._world = world
        self._offload = world.offload
        self._log = log
        self._found = found
        self._crc = crc
        self._clean_end = clean_end
        #: Places met by whoever read the log in this start.
        self.places = UnreadablePlaces(log.file_size)

    def reader(self) -> LogReader:
        """For what may have been lost lately: the log may end in it."""
        reader = LogReader(self._world, self._log, crc=self._crc)
        self.join(reader)
        reader.clean_end = self._clean_end
        return reader

    def join(self, reader: LogReader) -> None:
        """One of the readers of this start: each thing that is bad is met once."""
        reader.damages = self._found.damages
        reader.passed_over = self._found.unreadable
        reader.unreadable = self.places
        reader.at_rest = True

    def reader_of_good(self) -> LogReader:
        """For what is in the log: its end is known."""
        reader = LogReader(self._world, self._log, crc=self._crc)
        self.join(reader)
        return reader

    async def peek(self, file: LogFile, size: int, position: int) -> bytes:
        """Bytes of a file; none where the disk does not give them."""
        return await self._offload(self.read_at, file.start + position, size)

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the log, of one file; none where there are none, or the disk does not give them. Blocks."""
        file = self._log.segment_of(offset)
        try:
            return b"" if file is None else file.file.pread(size, offset - file.start)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            return b""

    def end(self, reader: LogReader, files: list[LogFile]) -> int:
        """Where the log ends: behind the last record that can be read, unless there may be more of it.

        :raises StoreError: nobody knows.
        """
        last = files[-1].start + self._log.file_size
        noted = reader.clean_end
        places, at = self.places, reader.end
        if not places.touch(at, noted if noted >= at else last):
            return at
        if noted >= at:
            self._found.unreadable.append(Damage(at, noted))
            return noted
        start = max(at, next(start for start, end in places.ranges if end > at))
        file = self._log.segment_of(start)
        assert file is not None
        raise StoreError(
            f"{file.path} cannot be read at {start - file.start}, and no message is found behind offset {at}: where "
            "the commit log ends is not known after this stop, and nothing is cut away: have the disk checked; to go "
            "on without what cannot be read, put a copy of the file in its place that has zeros there"
        )
