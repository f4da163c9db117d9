"""``mqadmin store`` on stores of the real daemon and of Java: exit codes, one clear line, nothing changed by a look."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root as mqadmin
from tests.support.daemons import Ended, environment, run
from tests.support.dledger_files import DLedgerFiles, message
from tests.support.golden_store import INDEX_OPTIONS, MANIFEST, state_of, unpack
from tests.support.kills.killer import BrokerProcess
from tests.support.kills.load import Load

INDEX = ("-o", "maxHashSlotNum=1000", "-o", "maxIndexNum=4000")


async def tool(home: Path, *words: str, code: int = 0) -> Ended:
    ended = await run("mqadmin", "store", *words, env=environment(home))
    assert ended.code == code, ended
    return ended


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def golden(unpacked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked, tmp_path / "golden"))


def lines_of(path: Path, *words: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> list[str]:
    capsys.readouterr()
    assert invoke(mqadmin, "mqadmin", ["store", *words, "-s", str(path)]) == code
    return capsys.readouterr().out.splitlines()


def test_dump_prints_a_json_line_an_item(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state_of(golden)
    records = [json.loads(line) for line in lines_of(golden, "dump", "records", "--json", "--body", capsys=capsys)]
    assert [(one["offset"], one["topic"], one["queueOffset"], one["properties"]) for one in records] == [
        (one["offset"], one["topic"], one["queueOffset"], one["properties"]) for one in MANIFEST["records"]
    ]
    assert all(("body" in one) != ("bodyBase64" in one) for one in records)
    entries = lines_of(golden, "dump", "queue", "-t", "GoldTag", "-q", "1", "--json", "-l", "2", capsys=capsys)
    assert [list(json.loads(line)) for line in entries] == [["queueOffset", "offset", "size", "tagsCode"]] * 2
    index = lines_of(golden, "dump", "index", "--json", *INDEX_OPTIONS, capsys=capsys)
    assert len(index) == 273
    assert list(json.loads(index[0])) == ["file", "number", "hash", "offset", "time", "before"]
    assert state_of(golden) == before


@pytest.mark.parametrize("what", [("records",), ("queue", "-t", "GoldTag", "-q", "1"), ("index", *INDEX_OPTIONS)])
def test_dump_for_people_has_columns(golden: Path, capsys: pytest.CaptureFixture[str], what: tuple[str, ...]) -> None:
    heading, *lines = lines_of(golden, "dump", *what, "-l", "3", capsys=capsys)
    assert heading.lstrip().startswith("#")
    assert len(lines) == 3


def test_the_log_of_a_member_is_not_cut_by_hand(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has promised its group to keep it; with an empty store it is one that has lost its disk, and counted later."""
    (golden / "raft").mkdir()
    (golden / "raft" / "members").write_text("{}")
    before = state_of(golden)
    words = ["store", "truncate", "-s", str(golden), *INDEX_OPTIONS]
    assert invoke(mqadmin, "mqadmin", [*words, "--to-master", "127.0.0.1:1", "--yes"]) == 2
    assert "is the store of a member of a group, which cuts its log itself" in capsys.readouterr().err
    assert state_of(golden) == before
    (golden / "raft" / "plain").write_text('{"end": 1}')
    assert invoke(mqadmin, "mqadmin", [*words, "--to-master", "127.0.0.1:1", "--yes"]) == 2
    assert "127.0.0.1:1" in capsys.readouterr().err  # it is a plain broker's now, and that master does not answer
    (golden / "raft" / "plain").unlink()
    assert invoke(mqadmin, "mqadmin", [*words, "--all", "--yes"]) == 0
    assert not (golden / "raft").exists()


def test_verify_tells_by_words_by_json_and_by_exit_code(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(golden, "verify", *INDEX_OPTIONS, capsys=capsys)[-1] == "nothing is damaged"
    (golden / "consumequeue/GoldTag/1/00000000000000000000").unlink()
    lines = lines_of(golden, "verify", *INDEX_OPTIONS, capsys=capsys, code=1)
    assert any(line.startswith("DAMAGED  consumequeue     entry") and "0 to 9" in line for line in lines)
    found = json.loads("\n".join(lines_of(golden, "verify", "--json", *INDEX_OPTIONS, capsys=capsys, code=1)))
    assert list(found) == [
        "root", "clean", "damaged", "commitLog", "consumeQueue", "index", "damages", "notes", "dropped",
    ]  # fmt: skip
    assert found["damages"][0]["topic"] == "GoldTag"
    assert lines_of(golden, "rebuild", *INDEX_OPTIONS, capsys=capsys)[0].startswith(
        f"{golden}: made of commit log 0 to"
    )
    assert lines_of(golden, "verify", *INDEX_OPTIONS, capsys=capsys)[-1] == "nothing is damaged"


@pytest.mark.parametrize("command", ["verify", "rebuild", "dump"])
async def test_what_cannot_be_looked_at_is_one_line_and_2(tmp_path: Path, command: str) -> None:
    words = (command, *(("records",) if command == "dump" else ()))
    (line,) = (await tool(tmp_path, *words, "-s", str(tmp_path / "nowhere"), code=2)).lines
    assert line.startswith("mqadmin: ")
    assert str(tmp_path / "nowhere") in line
    (line,) = (await tool(tmp_path, *words, "-s", str(tmp_path), "-o", "mappedFileSizeComitLog=1", code=2)).lines
    assert "did you mean mappedFileSizeCommitLog" in line


async def test_the_store_of_the_daemon(tmp_path: Path) -> None:
    """In use: refused, all three. Stopped: clean. Killed: whatever it lacks, rebuild makes, and the daemon goes on."""
    async with BrokerProcess(tmp_path / "broker") as broker:
        load = Load(tmp_path / "history", producers=4)
        address = await broker.start()
        where = ("-s", str(broker.store), *INDEX)
        await load.run(address, lambda: load.acknowledged > 1500)
        for words in (("verify",), ("rebuild",), ("dump", "records")):
            (line,) = (await tool(tmp_path, *words, *where, code=2)).lines
            assert "Lock failed" in line
            assert str(broker.store) in line
        assert await broker.stop() == 0
        assert "nothing is damaged" in (await tool(tmp_path, "verify", *where)).out
        address = await broker.start()
        await load.run(address, lambda: load.acknowledged > 3000)
        await broker.kill()
        ended = await run("mqadmin", "store", "verify", "--json", *where, env=environment(tmp_path))
        assert ended.code in (0, 1), ended
        found = json.loads(ended.out)
        assert ("store", "unclean") in [(note["part"], note["kind"]) for note in found["notes"]]
        assert {one["part"] for one in found["damages"]} <= {"consumequeue", "index", "checkpoint"}
        await tool(tmp_path, "rebuild", *where)
        assert "nothing is damaged" in (await tool(tmp_path, "verify", *where)).out
        await broker.start()
        assert await broker.stop() == 0
        records = (await tool(tmp_path, "dump", "records", "--json", *where)).out.splitlines()
        assert len(records) >= load.acknowledged
        assert "nothing is damaged" in (await tool(tmp_path, "verify", *where)).out
        load.close()


def test_names_and_times_that_are_none_are_shown(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, text in JSON, and nothing that a terminal would obey."""
    for name in (b"\xff\xfe", b"a\nb\x1b[31m"):
        with open(os.fsencode(golden / "commitlog") + b"/" + name, "wb"):
            pass
    lines = lines_of(golden, "verify", *INDEX_OPTIONS, capsys=capsys)
    assert [line.split(": ")[0].rpartition("/")[2] for line in lines if "foreign" in line] == [
        r"a\nb\x1b[31m", r"\xff\xfe",
    ]  # fmt: skip
    found = json.loads("\n".join(lines_of(golden, "verify", "--json", *INDEX_OPTIONS, capsys=capsys)))
    assert [note["path"].rpartition("/")[2] for note in found["notes"]] == ["a\nb\x1b[31m", r"\xff\xfe"]
    record = MANIFEST["records"][0]
    with (golden / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(record["offset"] + 56)
        file.write((1 << 62).to_bytes(8, "big"))  # no checksum covers a store time
    _, line = lines_of(golden, "dump", "records", "-l", "1", capsys=capsys)
    assert str(1 << 62) in line


def test_an_import_says_what_it_would_do_and_does_it_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = DLedgerFiles(tmp_path / "n0")
    member.add(*(message(queue_offset=number) for number in range(40)))
    member.committed(29)
    member.topics(["T"])
    words = ("import-dledger", str(member.root), *INDEX_OPTIONS)
    lines = lines_of(tmp_path / "new", *words, "--dry-run", capsys=capsys)
    assert lines[0] == f"{member.root}: entries 0 to 39, term 1; committed: 29; 4096 bytes a file"
    assert lines[1].startswith("taken: entries 0 to 29 (30) of ")
    assert lines[2].startswith("left out: the 10 entries behind that")
    assert lines_of(tmp_path / "new", *words, capsys=capsys, code=2)[1:3] == lines[1:3], "nobody has said yes"
    assert not (tmp_path / "new").exists()
    done = json.loads("\n".join(lines_of(tmp_path / "new", *words, "--yes", "--json", capsys=capsys)))
    assert (done["messages"], done["leftOut"], done["mappedFileSizeCommitLog"]) == (30, 10, 4096)
    assert lines_of(tmp_path / "new", "verify", *INDEX_OPTIONS, capsys=capsys)[-1] == "nothing is damaged"
    member.write(member.places[7][0] + 150, b"damage")
    lines = lines_of(tmp_path / "more", *words, "--members", "1", "--yes", capsys=capsys, code=1)
    assert lines[-1].endswith("its message record is damaged; left out: entry 7")
    assert lines_of(tmp_path / "third", *words, str(member.root), "--yes", capsys=capsys, code=2) == []
