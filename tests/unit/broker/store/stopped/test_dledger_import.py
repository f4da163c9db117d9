"""Stores made of a Java DLedger member's: what is committed is there, what is damaged is told and never taken."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from rmq.broker.store.stopped.dledger_import import Imported, import_log
from rmq.broker.store.stopped.dledger_plan import look
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import verify
from rmq.protocol.errors import StoreError
from rmq.protocol.names import HALF_TOPIC
from rmq.runtime.files import RealFiles
from rmq.runtime.world import Usage, World
from tests.support.dledger_files import FILE_SIZE, DLedgerFiles, message
from tests.support.kills.killer import OsTree
from tests.support.scenes.store import opened, put, small
from tests.support.store_scan import Record, scan_log


@pytest.fixture
def member(tmp_path: Path) -> DLedgerFiles:
    """One with 60 messages of two queues in several files, all of which its checkpoint calls committed."""
    made = DLedgerFiles(tmp_path / "n0")
    made.add(*(message(queue_id=number % 2, queue_offset=number // 2, size=150) for number in range(60)))
    made.committed(59)
    made.topics(["T"])
    return made


def brought(
    to: Path,
    *roots: Path,
    members: int | None = None,
    everything: bool = False,
    world: World | None = None,
    **more: int,
) -> Imported:
    """The import of these members."""
    world = world or World.real()
    settings = small(str(to), **{"commit_log_file_size": 1 << 20, **more})

    async def main() -> Imported:
        plan = look(world.files, list(map(str, roots)), str(to), members=members, everything=everything)
        return await import_log(world, plan, settings, lambda *_: None)

    return asyncio.run(main())


def records_of(to: Path) -> list[Record]:
    return scan_log(OsTree(), str(to / "commitlog"), FILE_SIZE).records


def places(to: Path) -> list[tuple[str, int, int]]:
    return [(record.topic, record.queue_id, record.queue_offset) for record in records_of(to)]


def is_clean(to: Path) -> None:
    async def main() -> None:
        async with StoppedStore(World.real(), small(str(to), commit_log_file_size=FILE_SIZE)) as store:
            found = await verify(store)
        assert found.findings.damages == []

    asyncio.run(main())


def expected(count: int, but: Collection[int] = ()) -> list[tuple[str, int, int]]:
    return [("T", number % 2, number // 2) for number in range(count) if number not in but]


def test_every_message_is_there_and_every_queue(tmp_path: Path, member: DLedgerFiles) -> None:
    member.config(consumerOffset='{"offsetTable":{"T@g":{0:7,1:5}}}')
    done = brought(tmp_path / "new", member.root)
    assert (done.messages, done.lost, done.torn, done.whole) == (60, [], None, True)
    assert places(tmp_path / "new") == expected(60)
    assert len(list((tmp_path / "new/commitlog").iterdir())) > 2
    assert sorted(os.listdir(tmp_path)) == ["n0", "new"]
    is_clean(tmp_path / "new")
    for name in ("topics.json", "consumerOffset.json"):
        assert (tmp_path / "new/config" / name).read_bytes() == (member.root / "config" / name).read_bytes()

    async def main() -> None:
        store = await opened(World.real(), small(str(tmp_path / "new"), commit_log_file_size=FILE_SIZE), start=False)
        assert [(queue.topic, queue.id, queue.min, queue.next) for queue in store.queues] == [
            ("T", 0, 0, 30),
            ("T", 1, 0, 30),
        ]
        assert not store.recovered.damages
        await store.abandon()

    asyncio.run(main())


def test_queues_have_files_of_the_groups_size_unless_another_is_said(tmp_path: Path, member: DLedgerFiles) -> None:
    """Java's broker.conf names it, and starts with nothing else."""
    queue = member.root / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(600_000))
    for name, said, size in (("as-theirs", 6_000_000, 600_000), ("said", 400, 400)):
        done = brought(tmp_path / name, member.root, queue_file_size=said)
        assert (done.whole, done.queue_file_size) == (True, size)
        assert (tmp_path / name / "consumequeue/T/0" / f"{0:020d}").stat().st_size == size


def test_a_log_whose_first_files_are_deleted_begins_where_it_did(tmp_path: Path) -> None:
    member = DLedgerFiles(tmp_path / "n0", first=500, start=3 * FILE_SIZE)
    member.add(*(message(queue_offset=70 + number) for number in range(40)))
    member.committed(539)
    done = brought(tmp_path / "new", member.root)
    assert (done.messages, done.log_start) == (40, 3 * FILE_SIZE)
    assert places(tmp_path / "new") == [("T", 0, 70 + number) for number in range(40)]
    is_clean(tmp_path / "new")


def test_a_commit_names_its_half_message_where_that_is_now(tmp_path: Path) -> None:
    member = DLedgerFiles(tmp_path / "n0")
    (half,) = member.add(message(HALF_TOPIC))
    member.add(message("T"), message("T", queue_offset=1, prepared_transaction_offset=half, sys_flag=8))
    member.add(message("T", queue_offset=2, prepared_transaction_offset=123456, born_host=("::1", 5), sys_flag=8))
    member.committed(3)
    brought(tmp_path / "new", member.root)
    first, _, commit, lonely = records_of(tmp_path / "new")
    assert (first.topic, first.offset) == (HALF_TOPIC, 0)
    assert (commit.prepared_offset, lonely.prepared_offset) == (first.offset, 0)
    assert lonely.born_host.startswith("0" * 31 + "1:")


def test_what_is_not_known_to_be_committed_is_left_out(tmp_path: Path, member: DLedgerFiles) -> None:
    member.committed(41)
    plan = look(RealFiles(), [str(member.root)], str(tmp_path / "new"), members=3, everything=False)
    assert (plan.upto, plan.entries, plan.left_out) == (41, 42, 18)
    assert brought(tmp_path / "new", member.root, members=3).messages == 42
    assert places(tmp_path / "new") == expected(42)
    assert brought(tmp_path / "all", member.root, members=3, everything=True).messages == 60


def test_the_backup_of_a_checkpoint_counts_and_none_is_refused(tmp_path: Path, member: DLedgerFiles) -> None:
    (member.folder / "checkpoint").unlink()
    with pytest.raises(StoreError, match="no checkpoint beside it"):
        brought(tmp_path / "new", member.root)
    member.committed(20, "checkpoint.bak")
    assert brought(tmp_path / "new", member.root).messages == 21


def test_of_a_majority_the_one_that_would_lead_is_taken_whole(tmp_path: Path) -> None:
    """The longer log is of an earlier term: what it has more was never acknowledged."""
    members = [DLedgerFiles(tmp_path / name, name=name) for name in ("n0", "n1")]
    same = [message(queue_offset=number) for number in range(10)]
    for one in members:
        one.add(*same)
        one.committed(3)
    members[0].add(*(message("Late", queue_offset=number) for number in range(5)))
    members[1].term = 2
    members[1].add(message("T", queue_offset=10))
    done = brought(tmp_path / "new", *(one.root for one in members), members=3)
    assert done.messages == 11
    assert {record.topic for record in records_of(tmp_path / "new")} == {"T"}
    assert brought(tmp_path / "one", *(one.root for one in members)).messages == 4, "of how many members is not said"


def test_topics_and_groups_are_those_of_the_member_that_has_the_newest(tmp_path: Path, member: DLedgerFiles) -> None:
    """A follower takes them from its leader every ten seconds, and may have none yet."""
    shutil.copytree(member.root, tmp_path / "n1")
    shutil.rmtree(member.root / "config")
    member.add(message("T", queue_offset=30), message("U"))
    member.config(topics='{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{}}')
    done = brought(tmp_path / "new", member.root, tmp_path / "n1", members=3)
    assert done.messages == 62
    assert (tmp_path / "new/config/topics.json").read_bytes() == (tmp_path / "n1/config/topics.json").read_bytes()
    assert done.deleted == {"U": 1}


def flip(member: DLedgerFiles, index: int, at: int) -> None:
    position = member.places[index][0] + at
    path = member.data / f"{position - position % FILE_SIZE:020}"
    data = bytearray(path.read_bytes())
    data[position % FILE_SIZE] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (0, "the head of the entry"), (3, "the head of the entry"), (5, "the head of the entry"),
        (12, "the head of the entry"), (30, "the head of the entry"), (47, "the head of the entry"),
        (53, "its message record"), (80, "its message record"), (150, "its message record"),
    ],
)  # fmt: skip
def test_a_damaged_entry_costs_itself(at: int, why: str, tmp_path: Path, member: DLedgerFiles) -> None:
    """A flipped bit in magic, size, index, position, length of the record; in its magic, offset, body."""
    flip(member, 20, at)
    done = brought(tmp_path / "new", member.root)
    (lost,) = done.lost
    assert (lost.first, lost.end, lost.position) == (20, 21, member.places[20][0])
    assert lost.why.startswith(why)
    assert not done.whole
    assert places(tmp_path / "new") == expected(60, {20})
    is_clean(tmp_path / "new")


def test_a_record_that_names_another_place_is_told(tmp_path: Path, member: DLedgerFiles) -> None:
    """No checksum covers the queue offset; the queue knows better."""
    flip(member, 20, 48 + 25)
    done = brought(tmp_path / "new", member.root)
    (damage,) = done.damages
    assert damage.start == records_of(tmp_path / "new")[20].offset
    assert (done.lost, done.whole) == ([], False)


@pytest.mark.parametrize("index", [0, 59])
def test_the_first_and_the_last_may_be_the_damaged_one(index: int, tmp_path: Path, member: DLedgerFiles) -> None:
    flip(member, index, 150)
    done = brought(tmp_path / "new", member.root)
    assert [(lost.first, lost.end) for lost in done.lost] == [(index, index + 1)]
    assert places(tmp_path / "new") == expected(60, {index})


def test_what_one_member_lacks_another_gives(tmp_path: Path, member: DLedgerFiles) -> None:
    shutil.copytree(member.root, tmp_path / "n1")
    flip(member, 20, 150)
    flip(member, 40, 5)
    (member.data / f"{FILE_SIZE:020}").unlink()
    done = brought(tmp_path / "new", member.root, tmp_path / "n1", members=3)
    assert done.whole
    assert done.from_others > 2
    assert places(tmp_path / "new") == expected(60)


def test_a_missing_file_costs_what_was_in_it(tmp_path: Path, member: DLedgerFiles) -> None:
    (member.data / f"{FILE_SIZE:020}").unlink()
    done = brought(tmp_path / "new", member.root)
    gone = {number for number, (start, _) in enumerate(member.places) if FILE_SIZE <= start < 2 * FILE_SIZE}
    (lost,) = done.lost
    assert (set(range(lost.first, lost.end)), lost.why) == (gone, "the file is missing")
    assert places(tmp_path / "new") == expected(60, gone)


def test_a_file_that_is_too_short_costs_what_it_lacks(tmp_path: Path, member: DLedgerFiles) -> None:
    path = member.data / f"{FILE_SIZE:020}"
    path.write_bytes(path.read_bytes()[:1000])
    done = brought(tmp_path / "new", member.root)
    gone = {
        number
        for number, (start, end) in enumerate(member.places)
        if start // FILE_SIZE == 1 and end > FILE_SIZE + 1000
    }
    (lost,) = done.lost
    assert set(range(lost.first, lost.end)) == gone
    assert places(tmp_path / "new") == expected(60, gone)


def test_a_torn_end_is_told_and_no_damage(tmp_path: Path, member: DLedgerFiles) -> None:
    member.write(member.position, b"\0\0\0\1\0\0\2\0" + bytes(40) + b"half a record")
    done = brought(tmp_path / "new", member.root)
    assert done.whole
    assert done.torn == (member.position, "the head of the entry is damaged")
    assert places(tmp_path / "new") == expected(60)


def test_committed_entries_that_are_not_there_are_told(tmp_path: Path, member: DLedgerFiles) -> None:
    member.committed(70)
    plan = look(RealFiles(), [str(member.root)], str(tmp_path / "new"), members=None, everything=False)
    assert plan.upto == 70
    done = brought(tmp_path / "new", member.root)
    assert [(lost.first, lost.end, lost.why) for lost in done.lost] == [(60, 71, "the log ends before")]
    assert not done.whole


def test_what_lies_there_from_an_earlier_term_is_no_entry(tmp_path: Path, member: DLedgerFiles) -> None:
    """A follower's log was cut and grew again: behind its end lies what it had before."""
    member.places.clear()
    member.index, member.term = 60, 1
    member.add(*(message(queue_offset=30 + number, size=100) for number in range(3)))
    start = member.places[0][0]
    member.position, member.index, member.term = start, 60, 2
    member.add(message(queue_offset=30, size=100))
    member.committed(60)
    done = brought(tmp_path / "new", member.root, members=1)
    assert done.messages == 61
    assert done.whole


def test_entries_of_the_groups_own_hold_no_message(tmp_path: Path, member: DLedgerFiles) -> None:
    member.entry(b"", magic=2)
    member.add(message(queue_offset=30))
    member.committed(61)
    done = brought(tmp_path / "new", member.root)
    assert (done.messages, done.own, done.whole) == (61, 1, True)


def test_deleted_topics_come_into_no_queue(tmp_path: Path, member: DLedgerFiles) -> None:
    member.add(*(message("Gone", queue_offset=number) for number in range(4)))
    member.committed(63)
    done = brought(tmp_path / "new", member.root)
    assert done.deleted == {"Gone": 4}
    assert os.listdir(tmp_path / "new/consumequeue") == ["T"]
    is_clean(tmp_path / "new")


def test_a_plain_log_from_before_is_the_first_part(tmp_path: Path) -> None:
    """A broker that was a plain one before it was a member: DLedger begins at the file behind its log."""
    before = tmp_path / "before"

    async def fill() -> None:
        store = await opened(World.real(), small(str(before), commit_log_file_size=FILE_SIZE))
        for number in range(40):
            store.append([put(store.queues.get_or_create("T", 0), b"x" * 100)])
            if not number % 8:
                await store.force()
        await store.stop()

    asyncio.run(fill())
    old = scan_log(OsTree(), str(before / "commitlog"), FILE_SIZE)
    last = max((before / "commitlog").iterdir())
    data = bytearray(last.read_bytes())
    at = old.end - int(last.name)
    data[at : at + 8] = (FILE_SIZE - at).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    last.write_bytes(data)
    member = DLedgerFiles(before, start=int(last.name) + FILE_SIZE)
    member.add(*(message(queue_offset=40 + number, store_timestamp=1 << 42) for number in range(30)))
    member.committed(29)
    done = brought(tmp_path / "new", before)
    assert (done.messages, done.log_start) == (30, 0)
    found = records_of(tmp_path / "new")
    assert [record.queue_offset for record in found] == list(range(70))
    assert [record.raw for record in found[:40]] == [record.raw for record in old.records]
    is_clean(tmp_path / "new")


# -- refused -----------------------------------------------------------------------------------------------------------


def _foreign(member: DLedgerFiles) -> None:
    for path in member.data.iterdir():
        path.write_bytes(b"something else " * 273 + b"!")


def _names(member: DLedgerFiles) -> None:
    (member.data / f"{77:020}").write_bytes(bytes(FILE_SIZE))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_foreign, "there is no entry of one in its files"),
        (_names, "names do not fit"),
        (lambda member: shutil.rmtree(member.data), "holds no DLedger log"),
        (lambda member: shutil.copytree(member.folder, member.root / "dledger-n1"), "has several of them"),
        (lambda member: [path.unlink() for path in member.data.iterdir()], "has no file of a DLedger log"),
        (lambda member: shutil.rmtree(member.root), "there is no such directory"),
    ],
)
def test_a_directory_of_something_else_is_refused(
    spoil: Callable[[DLedgerFiles], object], text: str, tmp_path: Path, member: DLedgerFiles
) -> None:
    spoil(member)
    with pytest.raises(StoreError, match=text):
        brought(tmp_path / "new", member.root)
    assert not (tmp_path / "new").exists()


def test_nothing_that_is_there_is_written_over(tmp_path: Path, member: DLedgerFiles) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/mine").touch()
    with pytest.raises(StoreError, match="is there already"):
        brought(tmp_path / "new", member.root)
    (tmp_path / "new/mine").unlink()
    (tmp_path / "new.importing").mkdir()
    with pytest.raises(StoreError, match="none of this command's"):
        brought(tmp_path / "new", member.root)
    (tmp_path / "new.importing/import-dledger").touch()
    (tmp_path / "new.importing/commitlog").mkdir()
    assert brought(tmp_path / "new", member.root).messages == 60, "what a killed one has left goes"
    assert sorted(os.listdir(tmp_path)) == ["n0", "new"]


def test_a_disk_that_is_too_small_is_told_before(tmp_path: Path, member: DLedgerFiles) -> None:
    class Small(RealFiles):
        def usage(self, path: str) -> Usage:
            return replace(super().usage(path), free=1 << 20)

    with pytest.raises(StoreError, match="MiB are free there: make room"):
        brought(tmp_path / "new", member.root, world=replace(World.real(), files=Small()))
    assert os.listdir(tmp_path) == ["n0"]


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, member: DLedgerFiles) -> None:
    world = World.real()

    async def main() -> None:
        plan = look(world.files, [str(member.root)], str(tmp_path / "new"), members=1, everything=False)
        task: asyncio.Task[Imported]

        def stop(what: str, *_: int) -> None:
            seen.append(what)
            task.cancel()

        task = asyncio.ensure_future(
            import_log(world, plan, small(str(tmp_path / "new"), commit_log_file_size=FILE_SIZE), stop)
        )
        with pytest.raises(asyncio.CancelledError):
            await task

    seen: list[str] = []
    asyncio.run(main())
    assert seen
    assert os.listdir(tmp_path) == ["n0"]
