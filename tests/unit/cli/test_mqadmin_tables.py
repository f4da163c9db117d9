"""The tables of mqadmin: columns as wide as they look, times as people read them; standard output that is closed."""

from __future__ import annotations

import sys
import unicodedata
from datetime import datetime

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.cli.mqadmin.output import Output
from rmq.cli.mqadmin.text import width


def shown(capsys: pytest.CaptureFixture[str], *rows: dict[str, object]) -> list[str]:
    Output("table").rows(list(rows), lambda: ())
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("order", 5), ("订单", 4), ("注文1", 5), ("주문", 4), ("é", 1), ("e\u0301", 1), ("ｗ", 2)],
)
def test_letters_are_as_wide_as_they_look(text: str, columns: int) -> None:
    assert width(text) == columns


def test_wide_names_keep_what_is_behind_them_in_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = shown(capsys, {"key": "订单-1", "body": "x"}, {"key": "order-10", "body": "y"})
    assert [len(head.partition("body")[0]), *(width(line[:-1]) for line in lines)] == [10, 10, 10]
    assert unicodedata.normalize("NFC", lines[0]) == "订单-1    x"


def test_times_are_read_by_people_in_tables_alone(capsys: pytest.CaptureFixture[str]) -> None:
    when = int(datetime(2026, 11, 30, 3, 4, 5).timestamp() * 1000)
    rows = [{"storeTimestamp": when, "offset": 7}, {"storeTimestamp": 0, "offset": 8}]
    assert shown(capsys, *rows) == [
        "     storeTimestamp  offset",
        "2026-11-30 03:04:05       7",
        "                          8",
    ]
    Output("csv").rows(rows, lambda: ())
    assert capsys.readouterr().out == f"storeTimestamp,offset\n{when},7\n0,8\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_was_closed_is_written_to_by_nobody(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, stream, None)
    assert invoke(root, "mqadmin", ["help", "exit-codes"]) == 0
    assert invoke(root, "mqadmin", ["nosuch"]) == 2
    getattr(sys, stream).close()


def test_every_default_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in {
        "updateTopic": "[default: 8;",
        "updateSubGroup": "[default: true]",
        "printMsg": "[default: *]",
    }.items():
        assert invoke(root, "mqadmin", [name, "-h"]) == 0
        help_ = capsys.readouterr().out
        assert said in help_
        assert invoke(root, "mqadmin", ["help", name]) == 0
        assert capsys.readouterr().out.split("Options:")[1] == help_.split("Options:")[1]
