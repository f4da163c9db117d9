"""The loop of a daemon stops cleanly on signals; its log goes to files through a queue, or says why not."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.protocol.errors import ConfigError
from rmq.runtime import logs
from rmq.runtime.background import LoopThread

PROGRAM = """
import asyncio, os, signal, sys
from rmq.runtime.loop import run
{hang_up}
async def main():
    print("ready", flush=True)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        {stop}
        print("stopped", flush=True)
sys.exit(run(main(), stop_seconds={seconds}))
"""


def daemon(stop: str, seconds: float, *signals: int, loop: str = "", nohup: bool = False) -> tuple[int, str]:
    # Who started the tests with nohup has all that they start ignore it.
    hang_up = "" if nohup else "signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    program = PROGRAM.format(stop=stop, seconds=seconds, hang_up=hang_up)
    env = {**os.environ, "RMQ_LOOP": loop}
    with subprocess.Popen(
        [*(["nohup"] if nohup else []), sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=env,
        cwd=os.getcwd(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for turn, number in enumerate(signals, 1):
            process.send_signal(number)
            if turn < len(signals) and not nohup:
                assert process.stdout.readline() == "stopping\n"
        output = process.stdout.read()
        return process.wait(100), output


@pytest.mark.parametrize("loop", ["", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_clean_stop(number: int, loop: str) -> None:
    assert daemon("await asyncio.sleep(0.01)", 20, number, loop=loop) == (0, "stopped\n")


def test_a_second_signal_gives_up() -> None:
    stop = 'print("stopping", flush=True); await asyncio.sleep(100)'
    assert daemon(stop, 50, signal.SIGTERM, signal.SIGTERM) == (1, "")


def test_a_hang_up_is_nobody_who_has_lost_patience() -> None:
    """A service manager sends it after SIGTERM; a terminal that closes is heard of twice, and then SIGTERM comes."""
    stop = """
        print("stopping", flush=True)
        for number in {others}:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.1)
    """.strip()
    others = [(signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)]
    for first, second in others:
        stop_now = stop.format(others=[int(second)])
        assert daemon(stop_now, 50, first) == (0, "stopping\nstopped\n"), (first, second)


def test_what_nohup_started_goes_on_when_its_terminal_hangs_up() -> None:
    stop = 'print("asked", flush=True)'
    assert daemon(stop, 20, signal.SIGHUP, signal.SIGTERM, nohup=True) == (0, "asked\nstopped\n")


def test_a_stop_that_hangs_gives_up() -> None:
    assert daemon("await asyncio.sleep(100)", 0.05, signal.SIGTERM) == (1, "")


@pytest.fixture
def clean_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("clean_logging")
def test_lines_go_to_the_file_of_the_daemon(tmp_path: Path) -> None:
    made = logs.configure(None, folder=str(tmp_path / "logs"), daemon="broker")
    logging.getLogger("rmq.test").info("hello %s", "file")
    logging.getLogger("rmq.test").debug("not this")
    made.stop()
    content = (tmp_path / "logs" / "broker.log").read_text()
    assert content.endswith("INFO rmq.test - hello file\n")
    assert "not this" not in content
    assert made.folder == str(tmp_path / "logs")


def test_a_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="log level 'LOUD': use DEBUG, INFO"):
        logs.configure(None, folder=str(tmp_path), daemon="broker", level="LOUD")


@pytest.mark.usefixtures("clean_logging")
def test_what_strangers_are_called_stays_in_its_line(tmp_path: Path) -> None:
    made = logs.configure(None, folder=str(tmp_path), daemon="broker")
    logging.getLogger("rmq.test").info("topic %s", "a\r\nb\x1b[31m\0\u202e\ud800 中\t")
    logging.getLogger("rmq.test").info("topic %s", "x" * 100_000)
    try:
        raise ValueError("inside")
    except ValueError:
        logging.getLogger("rmq.test").exception("went\nwrong")
    made.stop()
    lines = [line.rpartition(" - ")[2] for line in (tmp_path / "broker.log").read_text("utf-8").split("\n")]
    assert lines[0] == r"topic a\r\nb\x1b[31m\x00\u202e\ud800 中" + "\t"
    assert lines[1] == "topic " + "x" * 8_186 + "... (91814 more characters)"
    assert lines[2:4] == [r"went\nwrong", "Traceback (most recent call last):"]
    assert lines[-2:] == ["ValueError: inside", ""]


@pytest.mark.usefixtures("clean_logging")
def test_lines_from_before_are_written_first(tmp_path: Path) -> None:
    logs.hold()
    logs.hold()
    logging.getLogger("rmq.config.settings").info("early")
    logging.getLogger("rmq.config.settings").debug("not this")
    made = logs.configure(None, folder=str(tmp_path), daemon="broker")
    logging.getLogger("rmq.test").info("late")
    made.stop()
    lines = (tmp_path / "broker.log").read_text().splitlines()
    assert [line.rpartition(" - ")[2] for line in lines] == ["early", "late"]
    assert logging.getLogger("rmq").handlers == []


@pytest.mark.usefixtures("clean_logging")
def test_yaml_rules(tmp_path: Path) -> None:
    rules = tmp_path / "logging.yaml"
    rules.write_text(
        "version: 1\n"
        "formatters: {short: {format: '%(message)s'}}\n"
        "handlers:\n"
        "  main: {class: logging.FileHandler, formatter: short, filename: '${folder}/${daemon}-main.log'}\n"
        "  loud: {class: logging.FileHandler, formatter: short, filename: '${folder}/loud.log', level: ERROR}\n"
        "root: {level: INFO, handlers: [main, loud]}\n"
    )
    made = logs.configure(str(rules), folder=str(tmp_path / "l"), daemon="namesrv", level="debug")
    logging.getLogger("rmq.test").debug("quiet")
    logging.getLogger("rmq.test").error("loud")
    made.stop()
    assert (tmp_path / "l" / "namesrv-main.log").read_text() == "quiet\nloud\n"
    assert (tmp_path / "l" / "loud.log").read_text() == "loud\n"


@pytest.mark.usefixtures("clean_logging")
@pytest.mark.parametrize("with_yaml", [False, True])
def test_a_folder_that_cannot_be_written_is_said_in_one_line(
    with_yaml: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    rules = tmp_path / "logging.yaml"
    rules.write_text(
        "version: 1\nhandlers: {f: {class: logging.FileHandler, filename: '${folder}/x.log'}}\n"
        "root: {handlers: [f], level: INFO}\n"
    )
    made = logs.configure(str(rules) if with_yaml else None, folder=str(tmp_path / "file" / "logs"), daemon="broker")
    logging.getLogger("rmq.test").warning("seen all the same")
    made.stop()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"broker: log files cannot be written in {tmp_path}/file/logs (")
    assert lines[0].endswith("): logging to standard error")
    assert lines[1].endswith("WARNING rmq.test - seen all the same")
    assert len(lines) == 2
    assert made.folder is None


@pytest.mark.usefixtures("clean_logging")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("handlers: [", "not YAML"),
        ("just text", "not a logging configuration"),
        ("version: 1\nroot: {handlers: [missing]}", "missing"),
        ("version: 1\nhandlers: {x: {class: no.such.Class}}\nroot: {handlers: [x]}", "'x'"),
    ],
)
def test_rules_that_cannot_be_used(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        logs.configure(str(path), folder=str(tmp_path), daemon="broker")
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        logs.configure(str(tmp_path / "none.yaml"), folder=str(tmp_path), daemon="broker")


def test_a_loop_on_a_thread() -> None:
    import asyncio

    async def answer(value: int) -> int:
        await asyncio.sleep(0)
        return value

    thread = LoopThread()
    try:
        assert thread.call(answer(5)) == 5
        with pytest.raises(TimeoutError):
            thread.call(asyncio.sleep(100), timeout=0.01)
    finally:
        thread.stop()
        thread.stop()
