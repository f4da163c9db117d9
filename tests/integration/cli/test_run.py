"""``rmq run``: real processes of an application."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pytest

from rmq import Message, Producer
from rmq.cli.command import invoke
from rmq.cli.rmq import command
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import ROOT

#: The program of the page.
APP = re.search(r"```python\n# shop\.py\n(.*?)```", (ROOT / "docs/app.md").read_text(), re.DOTALL)[1]  # type: ignore[index]
APP = APP.replace("max_reconsume_times=5", 'consume_from_where="CONSUME_FROM_FIRST_OFFSET"')


Running = tuple[subprocess.Popen[str], Callable[[str], str]]


@contextmanager
def running(cluster: BlockingCluster, folder: Path, *arguments: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq.cli.rmq", "run", "shop", "--folder", str(folder), *arguments],
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv_addr, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: SimpleQueue[str] = SimpleQueue()
    assert process.stdout is not None
    reader = Thread(target=lambda: [lines.put(line) for line in process.stdout or ()], daemon=True)
    reader.start()

    def line_with(what: str) -> str:
        """The next line with it."""
        seen = []
        while True:
            seen.append(lines.get(timeout=60))
            if what in seen[-1]:
                return seen[-1]

    try:
        yield process, line_with
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    made.mkdir()
    (made / "shop.py").write_text(APP)
    return made


def test_workers_are_started_again_and_stop_in_order(cluster: BlockingCluster, folder: Path) -> None:
    with running(cluster, folder, "--workers", "2", "--health", "127.0.0.1:0") as (process, line_with):
        for _ in range(2):
            one = int(line_with("shop is up: 2 listeners in 2 groups").split()[-1])
        os.kill(one, signal.SIGKILL)
        assert "ended with -9: again in 1 s" in line_with("rmq run: worker")
        line_with("shop is up")
        process.send_signal(signal.SIGTERM)
        for _ in range(2):
            line_with("SIGTERM: stopping")
        assert process.wait(60) == 0


def test_a_file_that_changes_starts_it_anew(cluster: BlockingCluster, folder: Path) -> None:
    with (
        Producer("pg", namesrv=cluster.namesrv_addr) as producer,
        running(cluster, folder, "--reload") as (process, line_with),
    ):
        line_with("shop is up")
        (folder / "shop.py").write_text("not python")
        line_with("shop.py has changed: starting anew")
        line_with("worker 1 ended with 2: again when a file changes")
        (folder / "shop.py").write_text(APP.replace('"bill"', '"new bill"'))
        line_with("shop is up")
        producer.send(Message("orders", b'{"number": 7, "cents": 150}', tags="new"))
        assert line_with("new bill") == "new bill Bill(order=7, text='1.50')\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "why", "code"),
    [
        (["nowhere"], "rmq: the application is 'nowhere:app', and nowhere cannot be imported", 2),
        (["shop:nothing"], "there is no nothing in", 2),
        (["shop", "--health", "x"], "'x' is no address", 2),
        (["shop", "--folder", "/nowhere"], "there is no such folder", 2),
        (["shop", "--log-level", "LOUD"], "'LOUD' is not one of 'DEBUG', 'INFO'", 2),
        (["nowhere", "--workers", "2"], "nowhere cannot be imported", 2),
        (["shop"], "rmq: no name server: give namesrv='host:port', or set NAMESRV_ADDR", 2),
    ],
)
def test_what_cannot_be_run_is_one_line(
    folder: Path,
    arguments: list[str],
    why: str,
    code: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    assert invoke(command, "rmq", ["run", "--folder", str(folder), *arguments]) == code
    told = capfd.readouterr().err
    assert why in told
    assert "Traceback" not in told
    monkeypatch.delitem(sys.modules, "shop", raising=False)
