"""A commit log over several directories, opened in turn by our broker and by Java 4.9.4's."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exchange.turn import LOG_SIZE, Turn, handed_over


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rmq-paths-"))
    yield made
    shutil.rmtree(made)


def _digests(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(directory.iterdir())}


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [("java-4.9.4", "ours", "before"), ("java-4.9.4", "ours", "at the end"), ("ours", "java-4.9.4", "at the end")],
)
def test_a_log_over_two_directories_changes_hands(first: str, second: str, where: str, folder: Path) -> None:
    """The directory that becomes read-only holds older files, or the one the log ends in, too, which then goes on."""
    store, logs = folder / "store", [folder / "disk1", folder / "disk2"]
    for directory in logs:
        directory.mkdir()
    with Turn(first, store, logs=logs) as turn:
        turn.fill(1, plain=1000)
        turn.stop()
    with Turn(first, store, logs=logs) as turn:  # Java lets the half messages be read only when it is started again
        scan, written = turn.view()
        turn.stop()
    placed = {int(file.name) // LOG_SIZE: directory for directory in logs for file in directory.iterdir()}
    last = placed[scan.records[-1].offset // LOG_SIZE]
    assert set(placed.values()) == set(logs), "the files take turns"
    closed = last if where == "at the end" else next(directory for directory in logs if directory != last)
    before = _digests(closed)
    with Turn(second, store, logs=logs, read_only=[closed]) as turn:
        again, opened = turn.view()
        assert [record.raw for record in again.records] == [record.raw for record in scan.records]
        handed_over(written, opened)
        turn.fill(2, plain=1000)
        _, continued = turn.view()
        turn.stop()
    after = _digests(closed)
    assert after.keys() == before.keys(), "no new file in a directory that is read only"
    changed = [name for name in after if after[name] != before[name]]
    assert changed == ([max(before)] if where == "at the end" else [])
    with Turn(first, store, logs=logs) as turn:
        _, returned = turn.view()
        handed_over(continued, returned)
        turn.fill(3, plain=100, delays=False)
        turn.view()
