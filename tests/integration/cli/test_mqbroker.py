"""The broker as a process: ready line, signals, Java's samples, and one clear line for everything that can go wrong."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqbroker import command
from tests.support.daemons import ROOT, environment, run, running

READY = re.compile(r"The broker\[([\w.-]+), 127\.0\.0\.1:(\d+)\] boot success\. serializeType=JSON(.*)")
NOWHERE = "127.0.0.1:1"


def variables(folder: Path, **more: str) -> dict[str, str]:
    """A small broker on a free port, with its store under the folder."""
    return environment(
        folder,
        RMQ_BROKER_IP1="127.0.0.1",
        RMQ_LISTEN_PORT="0",
        RMQ_STORE_PATH_ROOT_DIR=str(folder / "store"),
        RMQ_MAPPED_FILE_SIZE_COMMIT_LOG="1048576",
        RMQ_MAX_HASH_SLOT_NUM="1000",
        RMQ_MAX_INDEX_NUM="4000",
        **more,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_that_it_is_ready_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    env = variables(tmp_path, RMQ_BROKER_NAME="broker-x")
    async with running("mqbroker", env=env) as daemon:
        ready = READY.fullmatch(daemon.ready)
        assert ready is not None, daemon.ready
        assert (ready[1], ready[3]) == ("broker-x", "")
        assert (tmp_path / "store" / "broker.pid").read_text() == f"{daemon.process.pid}\n"
        assert await daemon.stop(number) == 0
    assert not (tmp_path / "store" / "broker.pid").exists()
    assert not (tmp_path / "store" / "abort").exists(), "the mark of an unclean end is gone"
    assert "the broker stopped" in (tmp_path / "logs" / "broker.log").read_text()


async def test_a_sample_of_java_starts_as_it_is(tmp_path: Path) -> None:
    sample = str(ROOT / "conf/2m-2s-async/broker-a.properties")
    async with running("mqbroker", "-c", sample, "-n", NOWHERE, env=variables(tmp_path)) as daemon:
        ready = READY.fullmatch(daemon.ready)
        assert ready is not None, daemon.ready
        assert (ready[1], ready[3]) == ("broker-a", f" and name server is {NOWHERE}")
        assert await daemon.stop() == 0
    (line,) = daemon.errors
    assert line.startswith("warning: ")
    assert NOWHERE in line, "the broker starts all the same, and says which name server it does not reach"


async def test_keys_of_java_that_do_nothing_here_are_named_in_the_log(tmp_path: Path) -> None:
    settings = tmp_path / "broker.properties"
    settings.write_text("transientStorePoolEnable=true\nenableBatchPush=true\ntimerStopEnqueue=true\n")
    async with running("mqbroker", "-c", str(settings), env=variables(tmp_path)) as daemon:
        assert await daemon.stop() == 0
    log = (tmp_path / "logs" / "broker.log").read_text()
    (line,) = re.findall("WARNING .*these settings have no effect here: (.*)", log)
    for key in ("transientStorePoolEnable", "enableBatchPush", "timerStopEnqueue"):
        assert f"{key} (" in line


async def test_a_second_broker_on_the_same_store_is_one_line(tmp_path: Path) -> None:
    async with running("mqbroker", env=variables(tmp_path)) as daemon:
        second = await run("mqbroker", env=variables(tmp_path))
        assert second.code == 1
        (line,) = second.lines
        assert str(tmp_path / "store") in line
        assert (tmp_path / "store" / "broker.pid").read_text() == f"{daemon.process.pid}\n"


async def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with running("mqbroker", env=variables(other)) as daemon:
        ready = READY.fullmatch(daemon.ready)
        assert ready is not None
        ended = await run("mqbroker", env=variables(tmp_path) | {"RMQ_LISTEN_PORT": ready[2]})
    assert ended.code == 1
    (line,) = ended.lines
    assert re.match(rf"mqbroker: the broker cannot listen on 127\.0\.0\.1:{ready[2]}: .*in use", line)


def planted(folder: Path, text: str) -> dict[str, str]:
    """A broker whose process runs this before anything else."""
    (folder / "sitecustomize.py").write_text(f"def fails(*_, **__):\n    raise RuntimeError('planted')\n{text}\n")
    return variables(folder, PYTHONPATH=f"{folder}:{ROOT}")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("from rmq.broker.store.care.upkeep import Upkeep\nUpkeep.finish = fails", "the store"),
        ("from rmq.broker.stats import BrokerStats\nBrokerStats.stop = fails", "the statistics"),
    ],
)
async def test_a_stop_that_fails_is_one_line_and_an_exit_code(tmp_path: Path, text: str, part: str) -> None:
    async with running("mqbroker", env=planted(tmp_path, text)) as daemon:
        daemon.errors.clear()
        assert await daemon.stop() == 1
    assert daemon.errors == [f"mqbroker: it did not stop cleanly: {part} failed: the log says why"]
    log = (tmp_path / "logs" / "broker.log").read_text()
    assert "RuntimeError: planted" in log
    assert (tmp_path / "store" / "abort").exists() == (part == "the store")


async def test_a_failure_that_nobody_expected_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    env = planted(tmp_path, "from rmq.broker.app import BrokerApp\nBrokerApp.start = fails")
    ended = await run("mqbroker", env=env)
    assert ended.code == 1
    assert ended.lines == [
        "mqbroker: it failed in a way nobody expected (RuntimeError: planted): the log of the broker has more"
    ]
    assert "Traceback" in (tmp_path / "logs" / "broker.log").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerNane=x\n", "b.properties line 1: brokerNane is not a key; did you mean brokerName?"),
        ("brokerRole=SLAVE\n", "brokerId='0': a SLAVE has an id above 0"),
        ("aclEnable=true\n", "aclEnable='true': needs rocketmqHome"),
        (None, "b.properties: No such file or directory"),
    ],
)
def test_bad_settings_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, expected: str
) -> None:
    path = tmp_path / "b.properties"
    if text is not None:
        path.write_text(text)
    assert invoke(command, "mqbroker", ["-c", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mqbroker: ")
    assert expected in line


async def test_p_and_m_show_settings_as_java_spells_them(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("brokerName: from-yaml\ndeleteWhen: 04\n")
    every = await run("mqbroker", "-c", str(path), "-n", "10.0.0.1:9876", "-p", env=variables(tmp_path))
    assert every.code == 0
    shown = every.out.splitlines()
    assert {"brokerName=from-yaml", "deleteWhen=04", "namesrvAddr=10.0.0.1:9876"} <= set(shown)
    important = (await run("mqbroker", "-c", str(path), "-m", env=variables(tmp_path))).out.splitlines()
    assert "brokerName=from-yaml" in important
    assert 5 < len(important) < len(shown)


async def test_mqshutdown_stops_the_broker_of_a_store(tmp_path: Path) -> None:
    env = variables(tmp_path)
    async with running("mqbroker", env=env) as daemon:
        ended = await run("mqshutdown", "broker", env=env)
        assert (ended.code, ended.err) == (0, "")
        assert await daemon.process.wait() == 0
    again = await run("mqshutdown", "broker", "--store", str(tmp_path / "store"), env=env)
    assert again.lines == [f"No mqbroker running (no pid file of one in {tmp_path}/store)."]
