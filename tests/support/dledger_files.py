"""Writes the files of a Java DLedger member as store-and-broker.md 12.2 has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from rmq.protocol.message import MessageRecord, encode_record

__all__ = ["FILE_SIZE", "DLedgerFiles", "message"]

FILE_SIZE = 4096


def message(
    topic: str = "T", queue_id: int = 0, queue_offset: int = 0, *, size: int = 100, **more: object
) -> MessageRecord:
    """A message whose body tells its place."""
    body = b"%s %d %d " % (topic.encode(), queue_id, queue_offset)
    values: dict[str, object] = {
        "born_timestamp": 1, "store_timestamp": 10_000 + queue_offset, "born_host": ("127.0.0.1", 5),
        "store_host": ("127.0.0.1", 10911), "body": body * (size // len(body)),
        "properties": {"KEYS": f"{topic}-{queue_offset}"},
    }  # fmt: skip
    return MessageRecord(topic, queue_id, queue_offset=queue_offset, **(values | more))  # type: ignore[arg-type]


class DLedgerFiles:
    """The store of a member: ``dledger-n0/data`` and its checkpoint.

    :param root: its storePathRootDir.
    :param first: index of the first entry, and ``start`` the position of the first file.
    """

    def __init__(self, root: Path, *, name: str = "n0", first: int = 0, start: int = 0, term: int = 1) -> None:
        self.root = root
        self.folder = root / f"dledger-{name}"
        self.data = self.folder / "data"
        self.data.mkdir(parents=True)
        self.index = first
        self.position = start
        self.term = term
        #: Of each entry: position, and behind it.
        self.places: list[tuple[int, int]] = []
        self._file()

    def _file(self) -> None:
        path = self._path(self.position)
        if not path.exists():
            path.write_bytes(bytes(FILE_SIZE))

    def _path(self, position: int) -> Path:
        return self.data / f"{position - position % FILE_SIZE:020}"

    def add(self, *records: MessageRecord) -> list[int]:
        """Entries of these records; the commit-log offsets that they get."""
        offsets = []
        for record in records:
            size = 48 + len(encode_record(record))
            room = FILE_SIZE - self.position % FILE_SIZE
            if size + 8 > room:
                self.write(self.position, (-1).to_bytes(4, "big", signed=True) + room.to_bytes(4, "big"))
                self.position += room
                self._file()
            offsets.append(self.position + 48)
            self.entry(encode_record(dataclasses.replace(record, physical_offset=self.position + 48)))
        return offsets

    def entry(self, body: bytes, magic: int = 1) -> None:
        size = 48 + len(body)
        fields = ((magic, 4), (size, 4), (self.index, 8), (self.term, 8), (self.position, 8), (0, 12), (len(body), 4))
        self.write(self.position, b"".join(value.to_bytes(width, "big") for value, width in fields) + body)
        self.places.append((self.position, self.position + size))
        self.position += size
        self.index += 1

    def write(self, position: int, data: bytes) -> None:
        """Bytes of one file."""
        with self._path(position).open("r+b") as file:
            file.seek(position % FILE_SIZE)
            file.write(data)

    def committed(self, index: int, name: str = "checkpoint") -> None:
        (self.folder / name).write_text(f"#Mon Nov 30\ncommittedIndex={index}\nendIndex={self.index - 1}\n")

    def config(self, **files: str) -> None:
        folder = self.root / "config"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.json").write_text(text)

    def topics(self, names: Iterable[str]) -> None:
        """topics.json, and a queue of each."""
        table = ",".join(f'"{name}":{{"topicName":"{name}","readQueueNums":1,"writeQueueNums":1}}' for name in names)
        self.config(topics=f'{{"dataVersion":{{"counter":3,"timestamp":5}},"topicConfigTable":{{{table}}}}}')
        for name in names:
            (self.root / "consumequeue" / name).mkdir(parents=True, exist_ok=True)
