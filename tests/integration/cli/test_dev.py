"""``rmq dev``, which ``make run`` is: a pair on loopback, ten messages there and back, until Ctrl-C."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

from rmq.cli.dev import BROKER_PORT_AFTER
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
                taken = await run("rmq", *args, env=environment(tmp_path))
                assert taken.code == 1
                (line,) = taken.lines
                assert re.match(rf"rmq: the nameserver cannot listen on 127\.0\.0\.1:{port}: .*make run PORT=\d+", line)
            assert await daemon.stop(signal.SIGINT) == 0
        assert daemon.errors == []
