"""The file of undo notes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmq.cli.mqadmin.notes import put_first
from rmq.runtime.world import World


def test_the_last_change_stands_first(tmp_path: Path) -> None:
    file, link = tmp_path / "undo.sh", tmp_path / "link"
    link.symlink_to(file)
    files = World.around().files
    put_first(files, str(file), ["one", "two"])
    file.chmod(0o755)
    put_first(files, str(link), ["three"])
    assert file.read_text() == "three\none\ntwo\n"
    assert file.stat().st_mode & 0o777 == 0o755
    assert link.is_symlink()
    file.write_text("#!/bin/sh")
    put_first(files, str(file), ["one"])
    put_first(files, str(file), ["two"])
    assert file.read_text() == "#!/bin/sh\ntwo\none\n"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):  # nobody reads from it: that is said, and not waited for
        put_first(World.around().files, str(pipe), ["none"])
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put_first(World.around().files, str(pipe), ["one"])
    assert os.read(reader, 100) == b"one\n"
    os.close(reader)
