"""A store that cannot be used is refused with one clear line, naming the file and the remedy; nothing is modified."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults.os_calls import Rule
from tests.support.kills.killer import LOG_FILE_SIZE, QUEUE_FILE_SIZE, BrokerProcess, OsTree, digest_of
from tests.support.kills.load import Load, scan_back

#: Takes the lock that Java's FileLock takes on Linux: a POSIX record lock on byte 0.
HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several log files that was stopped cleanly."""
    folder = tmp_path_factory.mktemp("stored")

    async def fill() -> None:
        async with BrokerProcess(folder / "broker") as broker:
            load = Load(folder / "history", producers=8)
            address = await broker.start()
            await load.run(address, lambda: load.acknowledged > 2000)
            assert await broker.stop() == 0
            load.close()

    asyncio.run(fill())
    assert len(list((folder / "broker/store/commitlog").iterdir())) > 2
    return folder / "broker" / "store"


@pytest.fixture
def broker(stored: Path, tmp_path: Path) -> BrokerProcess:
    """A broker over a copy of that store, not started."""
    made = BrokerProcess(tmp_path / "broker")
    shutil.copytree(stored, made.store)
    return made


async def refused(broker: BrokerProcess, *rules: Rule) -> str:
    """Start it; the one line with which it ended."""
    before = digest_of(broker.store)
    with pytest.raises(AssertionError, match="the broker ended with 1"):
        await broker.start(*rules)
    lines = [line for line in broker.errors.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("mqbroker: ")
    assert digest_of(broker.store) == before, "the store was modified"
    return lines[0]


async def test_b012_locked_by_another_process(broker: BrokerProcess) -> None:
    """Our own lock and Java's are the same one; S13 has two brokers."""
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(broker.store / "lock"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    line = await refused(broker)
    await holder.communicate(b"")
    assert "Lock failed,MQ already started" in line
    assert str(broker.store) in line
    assert "storePathRootDir" in line
    async with broker:
        await broker.start()


def _first(folder: Path) -> Path:
    return sorted(folder.iterdir())[0]


def _longer(store: Path) -> Path:
    path = _first(store / "commitlog")
    os.truncate(path, LOG_FILE_SIZE + 1000)
    return path


def _shorter(store: Path) -> Path:
    path = _first(store / "commitlog")
    os.truncate(path, LOG_FILE_SIZE - 1000)
    return path


def _missing(store: Path) -> Path:
    files = sorted((store / "commitlog").iterdir())
    files[1].unlink()
    return files[2]


@pytest.mark.parametrize("spoil", [_longer, _shorter, _missing])
async def test_commit_log_files_of_another_size(broker: BrokerProcess, spoil: Callable[[Path], Path]) -> None:
    path = spoil(broker.store)
    line = await refused(broker)
    assert str(path) in line
    assert "mappedFileSizeCommitLog" in line


async def test_another_commit_log_file_size_is_configured(stored: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", RMQ_MAPPED_FILE_SIZE_COMMIT_LOG=str(LOG_FILE_SIZE * 2))
    shutil.copytree(stored, broker.store)
    line = await refused(broker)
    assert "mappedFileSizeCommitLog" in line
    assert str(broker.store / "commitlog") in line


@pytest.mark.parametrize("size", [QUEUE_FILE_SIZE * 2, QUEUE_FILE_SIZE // 2])
async def test_another_queue_file_size_is_configured(stored: Path, tmp_path: Path, size: int) -> None:
    broker = BrokerProcess(tmp_path / "broker", RMQ_MAPPED_FILE_SIZE_CONSUME_QUEUE=str(size))
    shutil.copytree(stored, broker.store)
    line = await refused(broker)
    assert "mappedFileSizeConsumeQueue" in line
    assert str(broker.store / "consumequeue") in line


async def test_foreign_files_are_named_and_left_alone(broker: BrokerProcess) -> None:
    """Java refuses such a directory; here a broker that has lost nothing by it starts."""
    strangers = [
        broker.store / "commitlog" / "notes.txt",
        broker.store / "consumequeue" / "T0" / "0" / "00000000000000000000.swp",
        broker.store / "consumequeue" / "T0" / "x" / "00000000000000000000",
    ]
    strangers[2].parent.mkdir()
    for path in strangers:
        path.write_bytes(b"not ours")
    before = scan_back_all(broker)
    async with broker:
        await broker.start()
        assert await broker.stop() == 0
    warnings = [line for line in broker.errors.splitlines() if line.startswith("warning: ")]
    for path in (strangers[0], strangers[1], strangers[2].parent):
        assert any(str(path) in line for line in warnings), (path, warnings)
    for path in strangers:
        assert path.read_bytes() == b"not ours"
    strangers[0].unlink()
    assert scan_back_all(broker) == before


def scan_back_all(broker: BrokerProcess) -> dict[tuple[str, int], dict[int, tuple[str, str]]]:
    notes = broker.store / "commitlog" / "notes.txt"
    held = notes.read_bytes() if notes.exists() else None
    if held is not None:
        notes.unlink()
    try:
        return dict(scan_back(OsTree(), str(broker.store / "commitlog"), LOG_FILE_SIZE).places)
    finally:
        if held is not None:
            notes.write_bytes(held)


#: (where it fails, which error, what the line must name). Root may do everything, so the errors are made.
DENIED = [
    ("recover:lock.open.before", "EACCES", "lock"),
    ("recover:log.open.before", "EACCES", "commitlog"),
    ("recover:queue.open.before", "EACCES", "consumequeue"),
    ("recover:lock.open.before", "EROFS", "lock"),
    ("recover:log.open.before", "EROFS", "commitlog"),
    ("recover:*.create.before", "ENOSPC", "commitlog"),
    ("recover:log.open.before", "EMFILE", "commitlog"),
]
REMEDY = {
    "EACCES": r"[Pp]ermission|owner|allow",
    "EROFS": r"[Rr]ead-only|writable",
    "ENOSPC": r"[Ss]pace",
    "EMFILE": r"ulimit|nofile|open files",
}


@pytest.mark.parametrize(("point", "error", "name"), DENIED)
async def test_without_permission_or_space(broker: BrokerProcess, point: str, error: str, name: str) -> None:
    rules = [Rule(point, f"errno:{error}", count=-1)]
    if error in ("EROFS", "ENOSPC"):
        rules += [Rule(f"*:*.{call}.before", f"errno:{error}", count=-1) for call in ("create", "extend")]
    line = await refused(broker, *rules)
    assert str(broker.store) in line
    assert name in line
    assert re.search(REMEDY[error], line), line


async def test_the_root_is_a_file(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    broker.store.write_bytes(b"a file")
    with pytest.raises(AssertionError, match="the broker ended with 1"):
        await broker.start()
    (line,) = [text for text in broker.errors.splitlines() if not text.startswith("warning: ")]
    assert str(broker.store) in line
    assert broker.store.read_bytes() == b"a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; the errors themselves are simulated above")
async def test_a_directory_of_another_user(broker: BrokerProcess) -> None:
    folder = broker.store / "commitlog"
    folder.chmod(0)
    try:
        with pytest.raises(AssertionError, match="the broker ended with 1"):
            await broker.start()
        assert str(folder) in broker.errors
    finally:
        folder.chmod(0o755)
