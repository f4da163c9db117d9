"""Files that somebody names: too long, never ending, folders, pipes; one line says it, within a bounded time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmq.runtime import named_file
from rmq.runtime.files import RealFiles
from rmq.runtime.named_file import read_named

MOST = 1_000


@pytest.mark.parametrize(
    ("content", "taken"), [(b"", True), (b"x" * MOST, True), (b"x" * (MOST + 1), False), (b"\0\xff\xef\xbb\xbf", True)]
)
def test_a_file_is_taken_whole_or_not_at_all(tmp_path: Path, content: bytes, taken: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    if taken:
        assert read_named(str(path), MOST) == RealFiles().read(str(path), MOST) == content
        return
    with pytest.raises(OSError, match="it is longer than 1000 bytes"):
        RealFiles().read(str(path), MOST)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dev/zero", "it is longer than 1000 bytes"),
        ("/", "Is a directory"),
        ("/none/such", "No such file or directory"),
        ("/dev/null/x", "Not a directory"),
        ("a\0b", "this can be no name of a file: embedded null byte"),
    ],
)
def test_what_can_be_no_file_is_said(path: str, said: str) -> None:
    with pytest.raises(OSError, match=said) as failed:
        read_named(path, MOST)
    assert failed.value.strerror == said


def test_a_sparse_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="longer than"):
        read_named(str(path), MOST)


def test_a_pipe_is_read_to_its_end_and_given_up_where_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_file, "SILENT_SECONDS", 0.01)
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    with pytest.raises(TimeoutError, match="nobody has written into this pipe for"):
        read_named(path, MOST)
    with pytest.raises(OSError, match="it is a pipe or a device, and a file on a disk is expected"):
        read_named(path, MOST, plain=True)
    out, into = os.pipe()
    os.write(into, b"what a command prints")
    os.close(into)
    try:
        assert read_named(f"/dev/fd/{out}", MOST) == b"what a command prints"  # bash: -f <(command)
    finally:
        os.close(out)
