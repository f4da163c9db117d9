"""Every option that names a file, and every file that cannot be meant: one line, at once, before anybody is asked."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from pathlib import Path

import click
import pytest

from rmq.cli.command import invoke
from rmq.cli.messages.produce import lines_of
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command
from rmq.runtime import named_file

BOMB = "a: &a [x, x]\n" + "b: *a\n" * 3
NAMING = {
    "contexts": ("mqadmin", "topicList", "--context", "x"),
    "account": ("mqadmin", "topicList", "-n", "127.0.0.1:1", "--credentialsFile", "{}"),
    "account of rmq": ("rmq", "consume", "T", "-n", "127.0.0.1:1", "--credentials", "{}"),
    "certificates": ("mqadmin", "topicList", "-n", "127.0.0.1:1", "--tlsCaFile", "{}"),
    "cluster": ("rmq", "diff", "-n", "127.0.0.1:1", "-f", "{}"),
    "topics": ("mqadmin", "updateTopicList", "-n", "127.0.0.1:1", "-b", "127.0.0.1:1", "-f", "{}"),
    "groups": ("mqadmin", "updateSubGroupList", "-n", "127.0.0.1:1", "-b", "127.0.0.1:1", "-f", "{}"),
}


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> object:
    def run(naming: str, path: str) -> str:
        program, *words = NAMING[naming]
        monkeypatch.setenv("RMQ_CONTEXTS", path)
        groups: dict[str, click.Command] = {"mqadmin": root, "rmq": command}
        assert invoke(groups[program], program, [word.format(path) for word in words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert path in line
        return line

    return run


@pytest.mark.parametrize("naming", NAMING)
def test_what_is_no_file_to_read(naming: str, say: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(say)
    on_disk = naming == "certificates"  # OpenSSL opens it again
    assert ("it is a pipe or a device" if on_disk else "it is longer than ") in say(naming, "/dev/zero")
    assert "Is a directory" in say(naming, str(tmp_path))
    monkeypatch.setattr(named_file, "SILENT_SECONDS", 0.01)
    os.mkfifo(tmp_path / "pipe")
    assert ("it is a pipe" if on_disk else "nobody has written into this pipe") in say(naming, str(tmp_path / "pipe"))


@pytest.mark.parametrize("naming", NAMING)
@pytest.mark.parametrize("content", [b"\xff\xfe\xfa", b"a: 'x\0'\n", b"[" * 100_000, BOMB.encode(), BOM_UTF8 + b"- x"])
def test_what_no_such_file_has_in_it(naming: str, content: bytes, say: object, tmp_path: Path) -> None:
    assert callable(say)
    (tmp_path / "file.yml").write_bytes(content)
    say(naming, str(tmp_path / "file.yml"))


def test_a_mark_at_the_head_of_lines_is_none_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(BOM_UTF8 + b"first\r\n" + BOM_UTF8 + b"second")
    with (tmp_path / "lines").open("rb") as file:
        assert [line for _, line in lines_of(file)] == [b"first", BOM_UTF8 + b"second"]
