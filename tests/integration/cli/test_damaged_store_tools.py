"""``mqadmin store`` and a start on stores damaged in every way: one clear line, no trace of the program, no change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.broker.store.store import Store
from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root as mqadmin
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from tests.support.faults.damaged_store import filled
from tests.support.faults.damaged_tree import damage, derived, log_of, state_of_links
from tests.support.golden_store import INDEX_OPTIONS, unpack
from tests.support.kills.campaign import amount
from tests.support.scenes.store import ENTRIES, QUEUE_SIZE, SLOTS, opened, small

#: What cannot be seen when the files that would tell are gone.
SIZES = (
    "-o", f"maxHashSlotNum={SLOTS}", "-o", f"maxIndexNum={ENTRIES}", "-o", f"mappedFileSizeConsumeQueue={QUEUE_SIZE}",
)  # fmt: skip
LOOKS = (
    ("verify",), ("verify", "--json"), ("dump", "records", "--body"), ("dump", "records", "--json", "--body"),
    ("dump", "queue", "-t", "T", "-q", "1"), ("dump", "index"), ("dump", "index", "--json", "-t", "T", "-k", "k3"),
)  # fmt: skip


class Tool:
    """The command in this process."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._root = root
        self._capsys = capsys

    def __call__(self, *words: str, sizes: tuple[str, ...] = SIZES) -> tuple[int, str]:
        """Exit code and output; a refusal is one line about a file of the store, and all there is."""
        self._capsys.readouterr()
        code = invoke(mqadmin, "mqadmin", ["store", *words, "-s", str(self._root), *sizes])
        out, err = self._capsys.readouterr()
        assert code in (0, 1, 2)
        if code == 2:
            assert len(err.splitlines()) == 1
            assert words[0] == "dump" or not out
            assert err.startswith("mqadmin: ")
            assert str(self._root) in err
            return code, err
        assert err == ""
        return code, out


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One that was stopped, one whose broker was killed."""
    made = []
    for clean in (True, False):
        folder = tmp_path_factory.mktemp("stored")
        for path, data in asyncio.run(filled(clean=clean)).files.items():
            (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (folder / path[1:]).write_bytes(data)
        shutil.copytree(unpack(tmp_path_factory.mktemp("golden")) / "config", folder / "store/config")
        made.append(folder / "store")
    return made


async def started(root: Path) -> str:
    """What a start says of a store that it refuses, nothing when it takes it; the store is stopped again."""
    store = Store(World.real(), small(str(root)))
    try:
        await store.load()
        await store.start()
    except StoreError as error:
        return str(error)
    assert store.indexing.build is not None
    assert store.indexing.build.complete
    await store.stop()
    return ""


@pytest.mark.parametrize("seed", range(amount(12, 4000)))
def test_damaged(seed: int, stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(seed)
    root = tmp_path / "one/store"
    shutil.copytree(stores[seed % 2], root)
    done = damage(root, rng)
    tool = Tool(root, capsys)
    before = state_of_links(root)
    answers = {words: tool(*words) for words in LOOKS}
    assert state_of_links(root) == before, done
    for words, (code, out) in answers.items():
        assert all(char.isprintable() or char in "\n" for char in out), (words, done)
        if "--json" in words and code < 2:
            assert [json.loads(line) for line in ([out] if words[0] == "verify" else out.splitlines())] or not out
    shutil.copytree(root.parent, tmp_path / "two", symlinks=True)
    copy = tmp_path / "two/store"
    log = log_of(copy)
    refusal = asyncio.run(started(copy))
    if refusal:
        assert len(refusal.splitlines()) == 1
        assert str(tmp_path) in refusal
        # What a start mends before it meets what it cannot use is nothing of the log's.
        assert log_of(copy) == log, (refusal, done)
        assert answers["verify",][0] > 0, f"{done}: nothing is damaged, and the start was refused: {refusal}"
    rebuilt, told = tool("rebuild")
    if rebuilt == 2:
        assert state_of_links(root) == before, done
        return
    found = json.loads(tool("verify", "--json")[1])
    assert {one["part"] for one in found["damages"]} <= {"commitlog", "config"}, done
    made = derived(root)
    # What queues had and the log has not is told once, and known from then on.
    assert tool("rebuild")[0] in ((0, rebuilt) if "are given to no others" in told else (rebuilt,))
    assert derived(root) == made, done
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    assert asyncio.run(started(root)) == ""
    assert derived(root) == made, f"{done}: recovery builds something else"


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Every user may go there."""
    folder = Path(tempfile.mkdtemp(prefix="rmq-tools-"))
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        path.chmod(0o755)
    shutil.rmtree(folder)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Somebody whom permissions bind: root is nobody for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_without_permission(open_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who may only read may look; who may not even read is told what of."""
    root = unpack(open_place)
    tool = Tool(root, capsys)
    assert tool("verify", sizes=INDEX_OPTIONS)[0] == 0  # and loads what nobody may not
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with nobody():
        code, out = tool("verify", sizes=INDEX_OPTIONS)
        assert (code, out.splitlines()[-1]) == (0, "nothing is damaged")
        assert tool("dump", "records", sizes=INDEX_OPTIONS)[0] == 0
        code, line = tool("rebuild", sizes=INDEX_OPTIONS)
        assert code == 2
        assert f"{root}/lock: Permission denied: let the user" in line
    (root / "consumequeue/GoldTag/1").chmod(0)
    with nobody():
        code, out = tool("verify", sizes=INDEX_OPTIONS)
        assert code == 1
        assert f"{root}/consumequeue/GoldTag/1: Permission denied" in out
    (root / "commitlog").chmod(0)
    with nobody():
        for words in (("verify",), ("dump", "records")):
            assert f"{root}/commitlog: Permission denied" in tool(*words)[1]


async def test_a_broker_that_runs_keeps_the_tools_out(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(stores[0], tmp_path / "store"))
    store = await opened(World.real(), small(str(root)))
    tool = Tool(root, capsys)
    for words in (*LOOKS, ("rebuild",)):
        code, line = await asyncio.to_thread(tool, *words)
        assert code == 2
        assert "Lock failed" in line
    await store.stop()
