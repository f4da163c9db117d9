"""The nameserver as a process: ready line, signals, and one clear line for everything that can go wrong."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqnamesrv import command
from tests.support.daemons import environment, run, running

READY = "The Name Server boot success. serializeType=JSON"


def port_of(folder: Path) -> int:
    """The port that was taken, from the name of the pid file."""
    (found,) = (folder / "namesrv").glob("namesrv-*.pid")
    return int(found.stem.rpartition("-")[2])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_that_it_is_ready_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    env = environment(tmp_path, RMQ_LISTEN_PORT="0")
    async with running("mqnamesrv", env=env) as daemon:
        assert daemon.ready == READY
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(tmp_path))
        assert await daemon.stop(number) == 0
        writer.close()
    assert daemon.errors == [], "on loopback there is nothing to warn about"
    assert list((tmp_path / "namesrv").glob("*.pid")) == []
    logged = (tmp_path / "logs" / "namesrv.log").read_text()
    assert logged.index(READY) < logged.index("the nameserver stopped")


async def test_it_warns_when_strangers_can_reach_it(tmp_path: Path) -> None:
    env = environment(tmp_path, RMQ_LISTEN_PORT="0", RMQ_BIND_ADDRESS="0.0.0.0")
    async with running("mqnamesrv", env=env) as daemon:
        assert await daemon.stop() == 0
    (line,) = daemon.errors
    assert line.startswith("warning: the nameserver listens on every interface without access control")


async def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    async with running("mqnamesrv", env=environment(first, RMQ_LISTEN_PORT="0")):
        port = port_of(first)
        ended = await run("mqnamesrv", env=environment(tmp_path, RMQ_LISTEN_PORT=str(port)))
    assert ended.code == 1
    assert ended.out == ""
    (line,) = ended.lines
    assert re.match(rf"mqnamesrv: the nameserver cannot listen on 127\.0\.0\.1:{port}: .*in use", line)
    logged = (tmp_path / "logs" / "namesrv.log").read_text().splitlines()[-1]
    assert logged.endswith(f"the namesrv ends: {line.removeprefix('mqnamesrv: ')}")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("n.properties", "lisenPort=1\n", "n.properties line 1: lisenPort is not a key; did you mean listenPort?"),
        ("n.yaml", "listenPort: 1\norderMessageEnable: perhaps\n", "n.yaml line 2: orderMessageEnable='perhaps'"),
        ("n.properties", "listenPort=70000\n", "listenPort='70000': at most 65535 is expected"),
        ("n.properties", None, "n.properties: No such file or directory"),
    ],
)
def test_bad_settings_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, expected: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    assert invoke(command, "mqnamesrv", ["-c", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mqnamesrv: ")
    assert expected in line


async def test_enforced_tls_without_a_certificate_is_one_line(tmp_path: Path) -> None:
    ended = await run("mqnamesrv", env=environment(tmp_path, RMQ_TLS_SERVER_MODE="enforcing"))
    assert ended.code == 1
    assert ended.lines == [
        "mqnamesrv: environment variable RMQ_TLS_SERVER_MODE: tls.server.mode='enforcing': "
        "needs tls.server.certPath and tls.server.keyPath"
    ]


async def test_java_properties_and_flags_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    path.write_text(f"# Java's\nlistenPort = 0\nserverWorkerThreads=16\nkvConfigPath={tmp_path}/kv/kvConfig.json\n")
    shown = await run("mqnamesrv", "-c", str(path), "-n", "10.0.0.1:9876", "-p", env=environment(tmp_path))
    assert shown.code == 0
    assert f"kvConfigPath={tmp_path}/kv/kvConfig.json" in shown.out.splitlines()
    assert "listenPort=0" in shown.out.splitlines()
    async with running("mqnamesrv", "-c", str(path), env=environment(tmp_path)) as daemon:
        assert daemon.ready == READY
        assert len(list((tmp_path / "kv").glob("namesrv-*.pid"))) == 1


async def test_an_unknown_flag_is_one_line_and_a_usage_error(tmp_path: Path) -> None:
    ended = await run("mqnamesrv", "--bogus", env=environment(tmp_path))
    assert (ended.code, len(ended.lines)) == (2, 1)
    help_ = await run("mqnamesrv", "-h", env=environment(tmp_path))
    assert (help_.code, help_.err) == (0, "")
    assert all(flag in help_.out for flag in ("-c, --configFile", "-n, --namesrvAddr", "-p, --printConfigItem"))


async def test_mqshutdown_stops_it(tmp_path: Path) -> None:
    env = environment(tmp_path, RMQ_LISTEN_PORT="0")
    async with running("mqnamesrv", env=env) as daemon:
        ended = await run("mqshutdown", "namesrv", env=env)
        pid = daemon.process.pid
        assert ended.code == 0, ended.err
        assert ended.out.splitlines() == [
            f"The mqnamesrv({pid}) is running...",
            f"Send shutdown request to mqnamesrv({pid}) OK",
        ]
        assert await daemon.process.wait() == 0
    again = await run("mqshutdown", "namesrv", env=env)
    assert again.code == 1
    assert again.lines == [f"No mqnamesrv running (no pid file of one in {tmp_path}/namesrv)."]


async def test_mqshutdown_leaves_other_programs_alone(tmp_path: Path) -> None:
    other = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        (tmp_path / "namesrv").mkdir()
        (tmp_path / "namesrv" / "namesrv-9876.pid").write_text(f"{other.pid}\n")
        ended = await run("mqshutdown", "namesrv", env=environment(tmp_path))
        assert ended.code == 1
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()


async def test_output_that_nobody_reads_any_more_is_no_stack_trace(tmp_path: Path) -> None:
    program = f"{sys.executable} -m rmq.cli.mqnamesrv -p | true; echo ${{PIPESTATUS[0]}}"
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        program,
        env=environment(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert err == b""
    assert out.strip() in (b"0", b"1")
