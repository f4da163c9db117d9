"""The offset file of broadcasting groups: Java's form, its backup, and damage (field case B026)."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path

import pytest

from rmq.client.consumer.offsets import LocalFileOffsetStore
from rmq.client.message import MessageQueue
from rmq.protocol.errors import ClientError
from rmq.runtime.world import FileLock, World

Q0, Q1 = MessageQueue("T1", "b1", 0), MessageQueue("T1", "b1", 1)


def store(path: Path, *, ignore_damage: bool = False) -> LocalFileOffsetStore:
    return LocalFileOffsetStore(World.real(), str(path), "10.0.0.1@DEFAULT", "g", ignore_damage=ignore_damage)


def text_of(path: str) -> str:
    return Path(path).read_text()


def damage(path: str, text: str) -> None:
    Path(path).write_text(text)


async def saved(path: Path, offset: int) -> LocalFileOffsetStore:
    made = store(path)
    made.update(Q0, offset)
    made.update(Q1, 7)
    await made.persist([Q0, Q1])
    return made


async def test_the_file_is_javas(tmp_path: Path) -> None:
    made = await saved(tmp_path, 5)
    assert made.path == str(tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json")
    assert text_of(made.path) == (
        '{\n\t"offsetTable":{\n'
        '\t\t{"brokerName":"b1","queueId":0,"topic":"T1"}:5,\n'
        '\t\t{"brokerName":"b1","queueId":1,"topic":"T1"}:7\n'
        "\t}\n}"
    )
    again = store(tmp_path)
    await again.load()
    assert again.table() == {Q0: 5, Q1: 7}
    assert await again.read(Q0) == 5
    assert await again.read(MessageQueue("T2", "b1", 0)) == -1


async def test_a_truncated_file_is_read_from_its_backup(tmp_path: Path) -> None:
    """Field case B026."""
    made = await saved(tmp_path, 5)
    made.update(Q0, 6)
    await made.persist([Q0, Q1])
    damage(made.path, '{\n\t"offsetTable":{\n\t\t{"brok')
    again = store(tmp_path)
    await again.load()
    assert again.table() == {Q0: 5, Q1: 7}


@pytest.mark.parametrize("spoilt", ['{\n\t"offsetTable":{\n\t\t{"brok', "", "\0\0"])
async def test_what_cannot_be_read_never_becomes_the_backup(tmp_path: Path, spoilt: str) -> None:
    made = await saved(tmp_path, 5)
    made.update(Q0, 6)
    await made.persist([Q0, Q1])
    good = text_of(made.path + ".bak")
    damage(made.path, spoilt)
    again = store(tmp_path)
    await again.load()
    again.update(Q0, 9)
    await again.persist([Q0, Q1])
    assert text_of(made.path + ".bak") == good
    damage(made.path, spoilt)
    third = store(tmp_path)
    await third.load()
    assert third.table() == {Q0: 5, Q1: 7}


async def test_two_damaged_files_refuse_to_start_and_name_them(tmp_path: Path) -> None:
    """Field case B026."""
    made = await saved(tmp_path, 5)
    damage(made.path, "")
    damage(made.path + ".bak", "[")
    with pytest.raises(ClientError, match=r"offsets.json.*offsets.json.bak.*ignore_damaged_offset_file"):
        await store(tmp_path).load()
    ignoring = store(tmp_path, ignore_damage=True)
    await ignoring.load()
    assert ignoring.table() == {}


QUEUE = '{"brokerName":"b1","queueId":0,"topic":"T1"}'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "no offsetTable"), ('{"name":"x"}', "no offsetTable"), ('{"offsetTable":null}', "no offsetTable"),
        ("[]", "no offsetTable"), ("null", "no offsetTable"),
        (f'{{"offsetTable":{{{QUEUE}:null}}}}', "without an offset"),
        (f'{{"offsetTable":{{{QUEUE}:-5}}}}', "has the offset -5"),
        ('{"offsetTable":{{"brokerName":"b1","queueId":0}:5}}', "is no queue"),
        ('{"offsetTable":{{"brokerName":"b1","queueId":-1,"topic":"T1"}:5}}', "is no queue"),
        ('{"offsetTable":{"T1@g":{0:5}}}', "no message queue"),
    ],
)  # fmt: skip
async def test_what_would_begin_elsewhere_is_damage_and_not_no_offset(tmp_path: Path, text: str, what: str) -> None:
    made = store(tmp_path)
    os.makedirs(os.path.dirname(made.path))
    damage(made.path, text)
    with pytest.raises(ClientError, match=what) as refused:
        await made.load()
    assert "\n" not in str(refused.value)
    assert made.table() == {}


async def test_a_table_of_no_queues_and_minus_one_are_no_offsets(tmp_path: Path) -> None:
    """Java's client writes the first before it has read anything."""
    made = store(tmp_path)
    os.makedirs(os.path.dirname(made.path))
    for text in ('{"offsetTable":{}}', f'{{"offsetTable":{{{QUEUE}:-1}}}}'):
        damage(made.path, text)
        await made.load()
        assert await made.read(Q0) == -1


async def test_no_file_is_no_damage(tmp_path: Path) -> None:
    made = store(tmp_path)
    await made.load()
    assert made.table() == {}


async def test_the_go_clients_keys_are_read(tmp_path: Path) -> None:
    made = store(tmp_path)
    os.makedirs(os.path.dirname(made.path))
    damage(made.path, '{"offsetTable":{"{\\"topic\\":\\"T1\\",\\"brokerName\\":\\"b1\\",\\"queueId\\":0}":3}}')
    await made.load()
    assert made.table() == {Q0: 3}


async def test_saving_one_queue_keeps_the_others_and_unchanged_tables_are_not_saved(tmp_path: Path) -> None:
    """A queue that is given up is saved alone: a kill right after it must not take the offsets of all the others."""
    made = await saved(tmp_path, 5)
    stamp = os.stat(made.path).st_mtime_ns
    await made.persist([Q0, Q1])
    assert os.stat(made.path).st_mtime_ns == stamp
    made.update(Q1, 8)
    await made.persist([Q1])
    again = store(tmp_path)
    await again.load()
    assert again.table() == {Q0: 5, Q1: 8}


async def test_saves_side_by_side_end_with_the_newest(tmp_path: Path) -> None:
    made = store(tmp_path)

    async def save(offset: int) -> None:
        made.update(Q0, offset)
        await made.persist([Q0])

    await asyncio.gather(*(save(offset) for offset in range(20)))
    assert made.failed_saves == 0
    again = store(tmp_path)
    await again.load()
    assert again.table() == {Q0: 19}


async def test_failed_saves_are_counted_and_the_offset_stays_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Field case B026."""
    damage(str(tmp_path / "file"), "a file where a folder should be")
    made = store(tmp_path / "file")
    made.update(Q0, 5)
    await made.persist([Q0])
    assert made.failed_saves == 1
    assert "cannot be written (failure 1)" in caplog.text
    assert made.known(Q0) == 5


def test_offsets_go_backwards_only_when_told_to(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.update(Q0, 5)
    made.update(Q0, 3)
    assert made.known(Q0) == 5
    made.update(Q0, 3, increase_only=False)
    assert made.known(Q0) == 3
    made.remove(Q0)
    assert made.known(Q0) == -1


async def test_another_process_with_the_same_file_is_refused(tmp_path: Path) -> None:
    made = store(tmp_path)
    await made.open()
    program = (
        "import asyncio, sys\n"
        "from rmq.client.consumer.offsets import LocalFileOffsetStore as Store\n"
        "from rmq.runtime.world import FileLock, World\n"
        "asyncio.run(Store(World.real(), sys.argv[1], '10.0.0.1@DEFAULT', 'g').open())\n"
    )

    async def other() -> str:
        command = sys.executable, "-c", program, str(tmp_path)
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, told = await process.communicate()
        return told.decode().strip().rpartition("\n")[2]

    assert (await other()).startswith("rmq.protocol.errors.ClientError: another consumer on this machine broadcasts ")
    await made.close()
    assert await other() == ""


async def test_offsets_that_cannot_be_read_do_not_stay_locked(tmp_path: Path) -> None:
    made = await saved(tmp_path, 5)
    damage(made.path, "{")
    for _ in range(2):
        with pytest.raises(ClientError, match="cannot be read"):
            await store(tmp_path).open()


async def test_a_place_where_nothing_can_be_locked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World.real()

    def no_locks(path: str, *, shared: bool = False) -> FileLock:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(type(world.files), "lock", staticmethod(no_locks))
    made = store(tmp_path)
    await made.open()
    await made.close()
    assert "offsets.json cannot be locked" in caplog.text
