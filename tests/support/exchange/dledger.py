"""A Java broker in DLedger mode, alone in its group, and its log as the format description has it."""

from __future__ import annotations

from pathlib import Path

from tests.support.exchange.turn import LOG_SIZE, Turn
from tests.support.store_scan import LogScan, Record, parse_record

__all__ = ["DLedgerTurn", "scan_entries"]


def scan_entries(data_folder: Path, file_size: int) -> LogScan:
    """The records of DLedger's data files, each where it says that it lies (store-and-broker.md 12.2)."""
    records: list[Record] = []
    blanks: list[tuple[int, int]] = []
    at = index = 0
    files = {int(path.name): path.read_bytes() for path in sorted(data_folder.iterdir())}
    at = min(files)
    while (start := at - at % file_size) in files:
        data, place = files[start], at - start
        magic, size = (int.from_bytes(data[place + n : place + n + 4], "big", signed=True) for n in (0, 4))
        if magic == -1 and size == file_size - place:
            blanks.append((at, size))
            at += size
            continue
        if magic != 1:
            break
        index, position = (int.from_bytes(data[place + n : place + n + 8], "big") for n in (8, 24))
        assert (index, position) == (len(records), at)
        record = parse_record(data[: place + size], place + 48, at + 48)
        assert record is not None, at
        assert record.size == size - 48
        records.append(record)
        at += size
    return LogScan(records, blanks, at, -1)


class DLedgerTurn(Turn):
    """Its time with a directory.

    :param peer: its port for the others of its group, which it does not have.
    """

    def __init__(self, store: Path, peer: int, *, six: bool = False) -> None:
        settings = {
            "enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerPeers": f"n0-127.0.0.1:{peer}",
            "dLegerSelfId": "n0", "brokerId": "-1",
        }  # fmt: skip
        super().__init__("java-4.9.4", store, six=six, more=settings)

    def scan(self) -> LogScan:
        return scan_entries(self.store / "dledger-n0" / "data", LOG_SIZE)
