"""The store of a Java DLedger broker, made a plain one: Java's plain broker and ours tell all that its own told."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import rmq
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root as mqadmin
from tests.support.exchange.dledger import DLedgerTurn
from tests.support.exchange.turn import QUEUE_ENTRIES, SMALL, Turn, handed_over, verified
from tests.support.exchange.view import View
from tests.support.kills.killer import OsTree
from tests.support.peers import ToolMissing, skip_or_fail
from tests.support.peers.groups import start_group
from tests.support.peers.ports import free_port
from tests.support.store_scan import LogScan, Record, scan_log

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


def test_a_majority_of_killed_members_has_all_that_was_acknowledged(tmp_path: Path, say: Callable[[str], None]) -> None:
    """All three are killed while messages of up to 4 MiB come; two of their directories are enough."""
    size = 16 << 20
    try:
        group = start_group("java-4.9.4", properties={"mappedFileSizeCommitLog": str(size)})
    except ToolMissing as missing:
        skip_or_fail(missing)
    acknowledged: set[str] = set()
    with group:
        leader = group.leader()
        sizes = [4_000_000 if number % 9 == 0 else 500 for number in range(60)]
        # No body that gets shorter by being compressed.
        bodies = [b"%d " % number + Random(number).randbytes(length) for number, length in enumerate(sizes)]
        with rmq.Producer("dledger", namesrv=group.namesrv, send_msg_timeout=20) as producer:
            for number, body in enumerate(bodies):
                if producer.send(rmq.Message("Large", body, keys=f"k{number}")).send_status.name == "SEND_OK":
                    acknowledged.add(f"k{number}")
        for name in (leader, *sorted(set(group.members) - {leader})):
            group.kill(name)
        stores = [group.members[name].store for name in sorted(group.members)][:2]
        words = ["store", "import-dledger", *map(str, stores), "-s", str(tmp_path / "new"), *SIZES, "--yes"]
        assert invoke(mqadmin, "mqadmin", [*words, "--members", "3"]) == 0
    found = scan_log(OsTree(), str(tmp_path / "new/commitlog"), size)
    assert found.blanks, "rolled files"
    assert acknowledged <= {record.properties["KEYS"] for record in found.records}
    assert len(acknowledged) == len(bodies)
    assert sum(len(record.body) > 3_900_000 for record in found.records) == 7
    say(f"{len(found.records)} messages of {len(found.blanks) + 1} files from two of three killed members of Java's")
