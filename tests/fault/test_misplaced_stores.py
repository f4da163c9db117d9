"""A store's directories that are no directories are one line at start: which, why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.broker.app import BrokerApp
from rmq.broker.settings import BrokerSettings
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from tests.support.kills.killer import BrokerProcess, digest_of

IS_FILE = "Not a directory: it, or a part of its path, is a file: move that away or name another directory"
TAKEN = "File exists: it is a file, or a link to nothing: move it away or name another directory"
NOWHERE = "No such file or directory: it, or what it links to, is not there: bring that back, or take the link away"
LOOP = (
    "Too many levels of symbolic links: it, or a part of its path, is a symbolic link to itself: take that away or let "
    "it lead somewhere"
)
NO_FOLDER = "no directory, but a file or a link that leads to none: bring back what it links to, or move it away"

#: The root: what it is, the file that is named, and what is said.
ROOTS = [
    ("file", "file/config/topics.json", IS_FILE),
    ("file/below", "file/below/config/topics.json", IS_FILE),
    ("dangling", "dangling", TAKEN),
    ("dangling/below", "dangling/below", NOWHERE),
    ("loop", "loop/config/topics.json", LOOP),
]
LOGS = [("file", IS_FILE), ("file/below", IS_FILE), ("dangling", TAKEN), ("dangling/below", NOWHERE), ("loop", LOOP)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"something else")
    (tmp_path / "dangling").symlink_to(tmp_path / "unmounted" / "disk")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "store").mkdir()
    return tmp_path


async def refusal(**changes: Path) -> str:
    """What a broker says that cannot start."""
    fixed = {"listenPort": "0", "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "namesrvAddr": ""}
    settings = BrokerSettings.from_sources(overrides=fixed | {key: str(path) for key, path in changes.items()})
    with pytest.raises(StoreError) as caught:
        await BrokerApp(World.real(), settings).start()
    return str(caught.value)


@pytest.mark.parametrize(("root", "named", "said"), ROOTS)
async def test_a_root_that_is_no_directory(place: Path, root: str, named: str, said: str) -> None:
    before = digest_of(place)
    told = await refusal(storePathRootDir=place / root)
    assert told == f"the store in {place / root} cannot be used: {place / named}: {said}"
    assert digest_of(place) == before


@pytest.mark.parametrize(("log", "said"), LOGS)
async def test_a_commit_log_that_is_no_directory(place: Path, log: str, said: str) -> None:
    told = await refusal(storePathRootDir=place / "store", storePathCommitLog=place / log)
    assert told == f"the store in {place / 'store'} cannot be used: {place / log}: {said}"


@pytest.mark.parametrize("name", ["consumequeue", "index", "config", "commitlog"])
@pytest.mark.parametrize("kind", ["file", "dangling", "loop"])
async def test_a_folder_that_is_no_directory(place: Path, name: str, kind: str) -> None:
    """Not after a minute, when the first queue is written, nor at the first change of a topic."""
    path = place / "store" / name
    if kind == "file":
        path.write_bytes(b"")
    else:
        path.symlink_to(path if kind == "loop" else place / "unmounted")
    told = await refusal(storePathRootDir=place / "store")
    assert str(path) in told
    assert "Errno" not in told
    if name in ("consumequeue", "index"):
        assert told == f"the store in {place / 'store'} cannot be used: {path} is {NO_FOLDER}"
    assert not (place / "store" / "abort").exists()


async def test_a_daemon_says_it_in_one_line(place: Path) -> None:
    broker = BrokerProcess(place)
    broker.store.rmdir()
    broker.store.write_bytes(b"something else")
    with pytest.raises(AssertionError, match="the broker ended with 1"):
        await broker.start()
    (line,) = [text for text in broker.errors.splitlines() if not text.startswith("warning: ")]
    named = broker.store / "config" / "topics.json"
    assert line == f"mqbroker: the store in {broker.store} cannot be used: {named}: {IS_FILE}"
