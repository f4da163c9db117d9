"""`--version` of every program, and `python -m rmq`."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

import rmq
from rmq import __version__
from rmq.cli.command import invoke

PROGRAMS = {"rmq": "rmq.cli.rmq:command", "mqadmin": "rmq.cli.mqadmin.commands:root",
            "mqnamesrv": "rmq.cli.mqnamesrv:command", "mqbroker": "rmq.cli.mqbroker:command",
            "mqshutdown": "rmq.cli.mqshutdown:command"}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_its_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, command = PROGRAMS[name].partition(":")
    assert invoke(getattr(importlib.import_module(module), command), name, ["--version"]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(rf"{name} {re.escape(__version__)} \(RocketMQ 4[.]9[.]8, Python 3[.]\d+[.]\d+\S*\)\n", said)


def test_the_package_is_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["rmq", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(Path(rmq.__file__).with_name("__main__.py")), run_name="__main__")
    assert capsys.readouterr().out.startswith(f"rmq {__version__} ")
