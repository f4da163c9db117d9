"""Files that commands write beside what they print, where the disk has no room."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from rmq.cli.mqadmin import exports, message_text
from rmq.cli.mqadmin.output import Output
from rmq.client.message import MessageExt
from rmq.protocol.errors import ClientError


def refuse(*words: object, **more: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_export_names_its_file_and_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "topic.json").write_text("of before")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ClientError, match=r"topic\.json cannot be written: No space left on device$"):
        exports._write(Output("classic"), str(tmp_path), "topic.json", {"a": 1})
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("topic.json", "of before")]
    with pytest.raises(ClientError, match="cannot be written: File exists"):
        exports._write(Output("classic"), str(tmp_path / "topic.json"), "x", {})


def test_a_message_is_shown_where_its_body_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/dev/null")
    message = MessageExt()
    message.topic, message.body, message.properties = "T", b"x", {"UNIQ_KEY": "AB"}
    message.queue_id = message.queue_offset = message.commit_log_offset = message.reconsume_times = 0
    message.born_timestamp = message.store_timestamp = message.sys_flag = message.store_size = 0
    message.born_host = message.store_host = ("10.0.0.1", 1)
    lines = [*message_text.sheet(message, offset_id=False)]
    assert lines[0].split() == ["Topic:", "T"]
    assert lines[-1].endswith("none: it cannot be written: Not a directory")
