"""``rmq dev``, which ``make run`` is: a pair on loopback, ten messages there and back, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rmq.cli.command import Refused, invoke
from rmq.cli.dev.cluster import BROKER_PORT_AFTER
from rmq.cli.dev.place import Place
from rmq.cli.rmq import command
from rmq.runtime.ports import free
from tests.support.daemons import PATIENCE, environment, run, running
from tests.support.peers.ports import free_port


async def test_ten_messages_go_there_and_back(tmp_path: Path) -> None:
    port = free_port(BROKER_PORT_AFTER - 2, BROKER_PORT_AFTER, BROKER_PORT_AFTER + 1)
    args = ("dev", "--port", str(port), "--folder", str(tmp_path / "dev"))
    for round_ in range(2):  # the second one finds the first one's store
        async with running("rmq", *args, "--demo", env=environment(tmp_path)) as daemon:
            assert daemon.ready == f"== nameserver on 127.0.0.1:{port}"
            lines = []
            assert daemon.process.stdout is not None
            async with asyncio.timeout(PATIENCE):
                while not lines or not lines[-1].startswith("== the cluster runs until Ctrl-C"):
                    lines.append((await daemon.process.stdout.readline()).decode().rstrip())
                    assert lines[-1], f"it ended: {lines} {daemon.errors}"
            assert lines[-1].endswith(f"NAMESRV_ADDR=127.0.0.1:{port}")
            assert lines[0].startswith(f"== broker dev on 127.0.0.1:{port + BROKER_PORT_AFTER}")
            told = [re.match(r"   (sent|received) +message (\d+) of 10 ", line) for line in lines]
            for what in ("sent", "received"):
                numbers = sorted(int(match[2]) for match in told if match is not None and match[1] == what)
                assert numbers == list(range(1, 11)), f"round {round_}: {lines}"
            assert "== all 10 messages were stored and consumed" in lines
            if round_ == 0:
                taken = await run("rmq", *args[:-1], str(tmp_path / "other"), env=environment(tmp_path))
                assert taken.code == 1
                (line,) = taken.lines
                assert re.match(rf"rmq: the nameserver cannot listen on 127\.0\.0\.1:{port}: .*make run PORT=\d+", line)
            assert await daemon.stop(signal.SIGINT) == 0
        assert daemon.errors == []


async def test_two_sets_with_a_slave_each(tmp_path: Path) -> None:
    first = BROKER_PORT_AFTER
    port = free_port(*(first + 10 * number + beside for number in range(4) for beside in (-2, 0, 1)))
    args = ("dev", "--port", str(port), "--folder", str(tmp_path), "--masters", "2", "--slaves", "1", "--demo")
    async with running("rmq", *args, env=environment(tmp_path)) as daemon:
        lines: list[str] = []
        assert daemon.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while not lines or not lines[-1].startswith("== the cluster runs until Ctrl-C"):
                lines.append((await daemon.process.stdout.readline()).decode().rstrip())
                assert lines[-1], f"it ended: {lines} {daemon.errors}"
        told = [re.match(r"== (.*) on 127\.0\.0\.1:(\d+), its store in (.*)", line) for line in lines[:4]]
        assert [match and (match[1], int(match[2]) - port - first, match[3]) for match in told] == [
            ("broker dev-1", 0, str(tmp_path / "store-1")),
            ("slave 1 of dev-1", 10, str(tmp_path / "store-1-slave-1")),
            ("broker dev-2", 20, str(tmp_path / "store-2")),
            ("slave 1 of dev-2", 30, str(tmp_path / "store-2-slave-1")),
        ]
        assert "== all 10 messages were stored and consumed" in lines
        assert await daemon.stop(signal.SIGINT) == 0
    assert daemon.errors == []


async def test_it_runs_in_the_background_and_forgets_when_told(tmp_path: Path) -> None:
    port = free_port(BROKER_PORT_AFTER - 2, BROKER_PORT_AFTER, BROKER_PORT_AFTER + 1)
    place = tmp_path / "dev"
    words = ("dev", "--port", str(port), "--folder", str(place))
    env = environment(tmp_path)
    up = await run("rmq", *words, "--detach", "--topic", "Orders:3", "--topic", "Others", env=env)
    try:
        assert (up.code, up.err) == (0, "")
        assert "== topic Orders, 3 queues on each master" in up.out
        assert f"rmq dev stop --folder {place} ends it" in up.out.splitlines()[-1]
        (program,) = re.findall(r"to send a message:\n((?:   .*\n)+)", up.out)
        sent = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True
        )
        assert "SEND_OK" in sent.stdout, sent.stderr
        for again in (words, (*words, "--reset"), (*words, "--detach")):
            refused = await run("rmq", *again, env=env)
            assert refused.code == 2
            assert "runs (process" in refused.err
    finally:
        down = await run("rmq", "dev", "stop", "--folder", str(place), env=env)
    assert (down.code, down.err) == (0, "")
    assert (place / "store").exists()
    nothing = await run("rmq", "dev", "stop", "--folder", str(place), env=env)
    assert (nothing.code, nothing.lines) == (2, [f"rmq: no cluster of rmq dev runs in {place}"])
    assert Place(str(place)).reset() == ["store"]
    assert not (place / "store").exists()


def test_a_folder_that_is_somebody_elses_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    with pytest.raises(Refused, match="was not made by rmq dev: remove store by hand"):
        Place(str(tmp_path)).reset()
    (tmp_path / "dev.json").write_text('{"namesrv": "127.0.0.1:9876"}')
    (tmp_path / "store-notes.txt").write_text("mine")
    (tmp_path / "mine").mkdir()
    assert Place(str(tmp_path)).reset() == ["store"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.json", "mine", "store-notes.txt"]


async def test_what_fails_in_the_background_is_said(tmp_path: Path) -> None:
    port = free_port(BROKER_PORT_AFTER - 2, BROKER_PORT_AFTER, BROKER_PORT_AFTER + 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        words = ("dev", "--port", str(port), "--folder", str(tmp_path / "dev"), "--detach")
        up = await run("rmq", *words, env=environment(tmp_path))
    assert up.code == 1
    (line,) = up.lines
    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert not free("127.0.0.1", [port, 70_000])


async def test_a_group_whose_members_are_killed_and_started_again(tmp_path: Path) -> None:
    port = free_port(*(BROKER_PORT_AFTER + 10 * number + beside for number in range(3) for beside in (-2, 0, 1)))
    place = tmp_path / "dev"
    words = ("dev", "--port", str(port), "--folder", str(place))
    env = {**environment(tmp_path), "NAMESRV_ADDR": f"127.0.0.1:{port}"}
    up = await run("rmq", *words, "--raft", "3", "--detach", "--demo", "--topic", "Orders:3", env=env)
    try:
        assert (up.code, up.err) == (0, "")
        told = re.findall(r"== member (n\d) of dev on 127\.0\.0\.1:(\d+), process (\d+), its store in (.*)", up.out)
        first = port + BROKER_PORT_AFTER
        assert [(name, int(at) - first, store) for name, at, _, store in told] == [
            (f"n{number}", 10 * number, str(place / f"store-n{number}")) for number in range(3)
        ]
        assert "== all 10 messages were stored and consumed" in up.out
        ((leader, pid, again),) = re.findall(
            r"== (n\d) leads; kill -9 (\d+) has another one lead, rmq (.*) brings", up.out
        )
        os.kill(int(pid), signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while True:
                doctor = await run("rmq", "doctor", env=env)
                if f"the member {leader} (127.0.0.1:" in doctor.out:
                    break
        assert doctor.code == 1
        for name, code, said in (
            ("n9", 2, f"rmq: {place} has no member n9 (known: n0, n1, n2): rmq dev --raft 3 makes a group"),
            (leader, 0, f"{leader} runs, process "), (leader, 2, f"rmq: {leader} runs (process "),
        ):  # fmt: skip
            back = await run("rmq", *again.replace(leader, name).split(), env=env)
            assert (back.code, (back.out + back.err)[: len(said)]) == (code, said)
    finally:
        down = await run("rmq", "dev", "stop", "--folder", str(place), env=env)
    assert (down.code, down.err) == (0, "")
    assert (
        f"== {leader} has ended; rmq dev start {leader} --folder {place} starts it again"
        in (place / "dev.out").read_text()
    )
    assert not list(place.glob("store-n*/broker.pid"))
    assert Place(str(place)).reset() == ["store-n0", "store-n1", "store-n2"]
    assert not list(place.glob("n*"))


@pytest.mark.parametrize("words", [("--masters", "2"), ("--slaves", "1")])
def test_a_group_is_in_place_of_masters_and_slaves(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(command, "rmq", ["dev", "--raft", "3", *words]) == 2
    assert "--raft is one group in place of masters and slaves" in capsys.readouterr().err
