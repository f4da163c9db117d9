"""Changing one setting changes one line of the file (field case B117)."""

from __future__ import annotations

from pathlib import Path

import javaproperties

from rmq.config.edit import edit, edit_file
from rmq.runtime.files import RealFiles

FILE = """\
# the broker of the shop
brokerName = broker-a
! hours
deleteWhen=04

fileReservedTime 48
long=one\\
  two
"""


def test_one_change_is_one_line() -> None:
    """Field case B117."""
    changed = edit(FILE, {"fileReservedTime": "72"})
    before, after = FILE.splitlines(), changed.splitlines()
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b] == [
        ("fileReservedTime 48", "fileReservedTime=72")
    ]


def test_a_new_key_is_added_at_the_end() -> None:
    assert edit(FILE, {"traceOn": "false"}) == FILE + "traceOn=false\n"
    assert edit("a=1", {"b": "2"}) == "a=1\nb=2\n"
    assert edit("", {"b": "2"}) == "b=2\n"


def test_continuation_lines_are_replaced_whole() -> None:
    assert javaproperties.loads(edit(FILE, {"long": "x"}))["long"] == "x"
    assert "two" not in edit(FILE, {"long": "x"})


def test_the_last_of_two_equal_keys_is_the_one_that_counts() -> None:
    assert edit("k=1\nk=2\n", {"k": "3"}) == "k=1\nk=3\n"


def test_values_are_escaped_so_that_they_read_back() -> None:
    value = " leading, = : # é 键\nnext"
    assert javaproperties.loads(edit(FILE, {"k": value}))["k"] == value


def test_a_mark_at_the_head_stays_there() -> None:
    """The bytes that say UTF-8, read as ISO-8859-1."""
    assert edit("\xef\xbb\xbfa=1\n", {"a": "2", "b": "3"}) == "\xef\xbb\xbfa=2\nb=3\n"


def test_a_file_that_was_emptied_takes_no_backups_place(tmp_path: Path) -> None:
    files, path = RealFiles(), tmp_path / "conf" / "b.properties"
    edit_file(files, str(path), {"a": "1"})
    edit_file(files, str(path), {"a": "2"})
    backup = path.with_name("b.properties.bak")
    assert (path.read_text(), backup.read_text()) == ("a=2\n", "a=1\n")
    for spoilt in ("", "\0\0\0\0"):
        path.write_text(spoilt)
        edit_file(files, str(path), {"a": "3"})
        assert backup.read_text() == "a=1\n"
