"""The store of a Java DLedger broker, made a plain one: Java's plain broker and ours tell all that its own told."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root as mqadmin
from tests.support.exchange.dledger import DLedgerTurn
from tests.support.exchange.turn import QUEUE_ENTRIES, SMALL, Turn, handed_over, verified
from tests.support.exchange.view import View
from tests.support.peers.ports import free_port
from tests.support.store_scan import LogScan, Record

#: Sizes of files: the new store's are to be as the tests read them.
SIZES = (
    "-o", f"mappedFileSizeConsumeQueue={QUEUE_ENTRIES * 20}",
    "-o", f"maxHashSlotNum={SMALL['maxHashSlotNum']}", "-o", f"maxIndexNum={SMALL['maxIndexNum']}",
)  # fmt: skip


def imported(store: Path, to: Path, *words: str, code: int = 0) -> None:
    assert invoke(mqadmin, "mqadmin", ["store", "import-dledger", str(store), "-s", str(to), *SIZES, *words]) == code


def moved(old: LogScan, new: LogScan) -> dict[bytes, bytes]:
    """Each record as it was -> as it is: the same but for where it lies, and where its half message does."""
    assert len(new.records) == len(old.records)
    places = {was.offset: now.offset for was, now in zip(old.records, new.records, strict=True)}
    assert len(set(places.values())) == len(places)

    def rewritten(record: Record) -> bytes:
        data = bytearray(record.raw)
        data[28:36] = places[record.offset].to_bytes(8, "big")
        at = 76 + 12 * (record.sys_flag >> 4 & 1) + 12 * (record.sys_flag >> 5 & 1)
        if record.prepared_offset:
            data[at : at + 8] = places[record.prepared_offset].to_bytes(8, "big")
        return bytes(data)

    wanted = {record.raw: rewritten(record) for record in old.records}
    assert [record.raw for record in new.records] == [wanted[record.raw] for record in old.records]
    return wanted


def translated(told: View, into: dict[bytes, bytes], old: LogScan, new: LogScan) -> View:
    """What a broker told of its records, of them as they are now."""
    places = {was.offset: now.offset for was, now in zip(old.records, new.records, strict=True)}
    return dataclasses.replace(
        told,
        records={place: {at: into[raw] for at, raw in found.items()} for place, found in told.records.items()},
        by_key={key: {into[raw] for raw in found} for key, found in told.by_key.items()},
        by_id={places[offset]: into[raw] for offset, raw in told.by_id.items()},
    )


def test_all_that_a_dledger_broker_told_is_told_by_plain_ones(tmp_path: Path) -> None:
    """Rolled files of everything that a directory can hold, IPv4 and IPv6 hosts; groups and delays go on."""
    source, peer = tmp_path / "dledger" / "store", free_port()
    with DLedgerTurn(source, peer) as turn:
        turn.fill(1)
        turn.stop()  # Java makes the topic of half messages here
    with DLedgerTurn(source, peer, six=True) as turn:
        turn.fill(2, plain=300)
        old, told = turn.view()
        turn.until_saved(2)
        turn.kill()
    assert len(old.blanks) > 2, "rolled files"
    assert {record.sys_flag & 0x30 for record in old.records} == {0, 0x30}, "IPv4 and IPv6 hosts"
    assert any(record.prepared_offset for record in old.records), "commits"
    kept = sorted((path.relative_to(source), path.stat().st_mtime_ns) for path in source.rglob("*"))
    to = tmp_path / "plain" / "store"
    to.parent.mkdir()
    imported(source, to, "--members", "1", "--yes")
    assert kept == sorted((path.relative_to(source), path.stat().st_mtime_ns) for path in source.rglob("*"))
    assert [path.name for path in to.parent.iterdir()] == ["store"]
    assert verified(to).entries == sum(map(len, told.records.values())) + sum(
        record.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC" for record in old.records
    )
    for kind in ("java-4.9.4", "ours"):
        copy = tmp_path / kind / "store"
        shutil.copytree(to, copy)
        with Turn(kind, copy) as turn:
            new, again = turn.view()
            handed_over(translated(told, moved(old, new), old, new), again)
            turn.fill(3, plain=100)
            turn.view()
            turn.stop()
        verified(copy)
