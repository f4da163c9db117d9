"""The pages of the SDK: their programs run as they stand there, and print what the page says, in virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from rmq.client.blocking.consumers import PushConsumer
from rmq.testing import BlockingSimCluster
from tests.support.daemons import ROOT

PAGES = [ROOT / "docs" / "sdk.md", *sorted((ROOT / "docs" / "sdk").glob("*.md"))]
#: A program, and what it prints where the page says so.
PROGRAM = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
DEFAULT = "127.0.0.1:9876"
#: Minutes that ``run()`` takes until somebody stops the program.
MINUTES = 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_programs_print_what_it_says(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = PROGRAM.findall(page.read_text())
    assert programs, page
    monkeypatch.chdir(tmp_path)
    settings = {"enablePropertyFilter": "true", "defaultTopicQueueNums": "4"}
    with BlockingSimCluster(settings=settings) as cluster:

        def run(consumer: PushConsumer) -> None:
            with consumer:
                cluster.advance(minutes=MINUTES)

        def run_coroutine(main: Coroutine[Any, Any, object]) -> object:
            return cluster.call(lambda _: main)

        monkeypatch.setattr(PushConsumer, "run", run)
        monkeypatch.setattr(asyncio, "run", run_coroutine)
        for program, said in programs:
            assert "def test_" not in program, "tests are on testing.md"
            place = f"{page.name}:{page.read_text().partition(program)[0].count(chr(10)) + 1}"
            exec(compile(program.replace(DEFAULT, cluster.namesrv_addr), place, "exec"), {"__name__": "__main__"})
            printed = capsys.readouterr().out.replace(cluster.broker_addr, "127.0.0.1:10911")
            assert sorted(printed.splitlines()) == sorted(said.splitlines()), f"{place} prints:\n{printed}"
