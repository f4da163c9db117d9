"""Records of a DLedger log get their places in a plain one: two fields of each change, and nothing else."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from struct import Struct

from rmq.broker.store.log.files import file_name
from rmq.broker.store.log.stamps import Steps
from rmq.broker.store.stopped.dledger_plan import topics_of
from rmq.protocol.names import HALF_TOPIC, is_system_topic
from rmq.protocol.record import BLANK_MAGIC, FIELDS, host_places, places, store_time
from rmq.runtime.world import File, Files

__all__ = ["DeletedTopics", "LogWriter", "Records"]

_WRITTEN = 4 << 20
#: Half messages whose commits are waited for: a commit comes within minutes, or never.
_MOST_HALVES = 65_536
_OFFSET_AT = FIELDS["physical_offset"][0]
_FLAG_AT = FIELDS["sys_flag"][0]
#: From the end of the store host to the prepared transaction offset: the reconsume times lie between.
_PREPARED_BEHIND = 4
#: DLedger takes store times before it has the order of messages: they are not quite in order. More than that is another
#: machine's clock.
_JITTER_MS = 1000
_long = Struct(">q")
_int = Struct(">i")
_pair = Struct(">ii")


class DeletedTopics:
    """Topics of which no member has a line in topics.json or queues: their records are nobody's.

    :param root: of the member whose topics.json is taken.
    :param roots: of all members that are here.
    """

    def __init__(self, files: Files, root: str, roots: Sequence[str], segment: int) -> None:
        table = topics_of(files, root)
        folders = [os.path.join(one, "consumequeue") for one in roots]
        queues = [name for folder in folders if files.is_dir(folder) for name in files.list(folder)]
        #: None = nobody knows.
        self._there = {*table.topic_config_table, *queues} if table is not None and queues else None
        version = None if table is None else table.data_version
        #: Counter and timestamp of topics.json.
        self.version = (0, 0) if version is None else (version.counter, version.timestamp)
        self.segment = segment
        self.messages: Counter[str] = Counter()
        #: First byte of a segment of the new log -> bytes of such records in it.
        self.bytes: Counter[int] = Counter()

    def note(self, topic: str, offset: int, size: int) -> None:
        """A record has got its place in the new log."""
        if self._there is not None and topic not in self._there and not is_system_topic(topic):
            self.messages[topic] += 1
            self.bytes[offset - offset % self.segment] += size


class Records:
    """Gives records their places in the new log."""

    def __init__(self, writer: LogWriter, deleted: DeletedTopics) -> None:
        self._writer = writer
        self._deleted = deleted
        #: Of half messages, the latest last: where they were -> where they are.
        self._halves: OrderedDict[int, int] = OrderedDict()
        #: Where store times go back, and the newest since.
        self.steps = Steps()
        self._newest = 0

    def add(self, record: bytearray, old: int) -> None:
        """Append one.

        :param old: the commit-log offset at which it was.
        """
        offset = self._writer.place(len(record))
        _long.pack_into(record, _OFFSET_AT, offset)
        _, _, name_at, behind = places(record)
        topic = record[name_at:behind].decode(errors="replace")
        sys_flag = _int.unpack_from(record, _FLAG_AT)[0]
        prepared_at = host_places(sys_flag)[3] + _PREPARED_BEHIND
        if prepared := _long.unpack_from(record, prepared_at)[0]:
            # Where a half message is gone, or was never one, there is nothing to point to.
            _long.pack_into(record, prepared_at, self._halves.pop(prepared, 0))
        if topic == HALF_TOPIC:
            self._halves[old] = offset
            if len(self._halves) > _MOST_HALVES:
                self._halves.popitem(last=False)
        stamp = store_time(record)
        if stamp < self._newest - _JITTER_MS:
            self.steps.add(offset)
            self._newest = stamp
        self._newest = max(self._newest, stamp)
        self._deleted.note(topic, offset, len(record))
        self._writer.append(record)


class LogWriter:
    """Writes a commit log in files of its size, each with a blank end, as any broker's."""

    def __init__(self, files: Files, folder: str, start: int, file_size: int) -> None:
        self._files = files
        self._folder = folder
        self._size = file_size
        #: Where the next bytes go.
        self.position = start
        #: What is not written yet, each piece within one file.
        self._pieces: list[tuple[int, bytearray]] = []
        self._waiting = 0
        self._open: tuple[int, File] | None = None

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be written."""
        return self._waiting >= _WRITTEN

    def place(self, size: int) -> int:
        """Where a record of so many bytes goes: into the next file, if this one has no room for it."""
        room = self._size - self.position % self._size
        if size + 8 > room:
            self.append(_pair.pack(room, BLANK_MAGIC))
            self.position += room - 8
        return self.position

    def append(self, data: bytes | bytearray) -> None:
        begun, piece = self._pieces[-1] if self._pieces and self.position % self._size else (0, None)
        if piece is not None and begun + len(piece) == self.position:
            piece += data
        else:
            self._pieces.append((self.position, bytearray(data)))
        self.position += len(data)
        self._waiting += len(data)

    def write(self) -> None:
        """Bring what waits to the files. Blocks."""
        pieces, self._pieces, self._waiting = self._pieces, [], 0
        for position, data in pieces:
            start = position - position % self._size
            self._file(start).pwrite(data, position - start)

    def finish(self) -> None:
        """Everything is to be on the disk. Blocks."""
        self.write()
        self._leave()
        self._files.sync_dir(self._folder)

    def _file(self, start: int) -> File:
        if self._open is None or self._open[0] != start:
            self._leave()
            file = self._files.open(os.path.join(self._folder, file_name(start)), create=True)
            self._open = (start, file)
            file.allocate(self._size)
        return self._open[1]

    def _leave(self) -> None:
        if self._open is not None:
            self._open[1].datasync()
            self.close()

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()
