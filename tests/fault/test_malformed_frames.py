"""Structured malformed frames on every port: each costs its own connection, and nobody else notices (A.2, X04, X06).

``make torture`` sends a million of them; and has atheris, where it is installed, look for bytes that take the readers
of frames and bodies where none has been.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.testing import simloop
from rmq.testing.cluster import Cluster
from rmq.testing.simworld import Simulation
from tests.support.accounts import ACCOUNTS, by
from tests.support.kills.campaign import LONG, PIECE, amount
from tests.support.odd import malformed
from tests.support.odd.campaign import PROMPT, Line, TimedLoop
from tests.support.raw_peer import send

#: Frames of all ports together; of one cluster, whose disk is in memory.
FRAMES = amount(3_000, 1_000_000)
OF_ONE_CLUSTER = 20_000
#: CPU seconds of a turn of the loop, however busy the machine is.
STALL = 1.0
#: Bytes of a connection's frames that are held, of all of them together, while they wait for the rest.
HELD = 64 << 20


class Errors(logging.Handler):
    """Errors, and whatever has a traceback; warnings are lines."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.ERROR or record.exc_info or "\n" in text:
            self.found.append(self.format(record)[:2_000])


class Mute(asyncio.Protocol):
    """A connection that takes no notice of its answers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)


async def _campaign(seed: int, frames: int, *, guarded: bool) -> list[str]:
    """Send so many; what should not have been.

    :param guarded: the broker has access control.
    """
    chance = random.Random(f"malformed {seed}")
    node = Simulation(seed).node("one")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimedLoop)
    found: list[str] = []
    observed = {"metricsExporterType": "PROM", "metricsPromExporterPort": "5557"}
    if guarded:
        node.files.mkdir("/home/conf")
        node.files.write_atomic("/home/conf/plain_acl.yml", ACCOUNTS.encode())
        observed |= {"aclEnable": "true", "rocketmqHome": "/home"}
    async with Cluster("/data", world=node.world, settings={"listenPort": "10911", **observed}) as cluster:
        broker, namesrv = cluster.brokers[0], cluster.namesrvs[0]
        host = broker.address[0]
        ports = {10911: broker, 10909: broker, namesrv.address[1]: namesrv}

        async def line(port: int) -> Mute:
            _, protocol = await node.network.connect(Mute, host, port)
            assert isinstance(protocol, Mute)
            return protocol

        bystanders: dict[int, Line] = {}
        for port in ports:
            _, bystander = await node.network.connect(Line, host, port)
            assert isinstance(bystander, Line)
            bystanders[port] = bystander
        opaque = 0
        sent = 0
        while sent < frames and not found:
            lines = []
            for port, app in ports.items():
                pieces, count = malformed.volley(chance, app.codes, 12)
                one = await line(port)
                for piece in pieces:
                    one.transport.write(piece)
                    if len(pieces) > 1 and chance.random() < 0.2:
                        await asyncio.sleep(0.001)
                lines.append(one)
                sent += count
            for port, made in ((10912, malformed.report(chance)), (5557, malformed.head(chance))):
                one = await line(port)
                one.transport.write(made)
                lines.append(one)
                sent += 1
            for port, bystander in bystanders.items():
                opaque += 1
                asked = by("operator", send("BYSTANDER")) if ports[port] is broker else Command(206)
                asked.opaque = opaque
                bystander.transport.write(frame.encode(asked))
                if await bystander.answer(opaque, PROMPT * 4) is None:
                    found.append(
                        f"after {sent}: the bystander on {port} is {'cut off' if bystander.lost else 'not served'}"
                    )
            for one in lines:
                one.transport.close()
            held = sum(server.unfinished.total + server.unread.total for server in (broker.server, namesrv._server))
            if held > HELD:
                found.append(f"after {sent}: {held} bytes are held for those who send and do not read")
            if loop.longest > STALL:
                found.append(f"after {sent}: a turn of the loop took {loop.longest:.1f} s of CPU")
        print(f"{sent} frames; closed: {dict(broker.server.cut_off)}, {dict(namesrv._server.cut_off)}")
        await asyncio.sleep(200)
        for name, server in (("broker", broker.server), ("nameserver", namesrv._server)):
            left = len(server.connections) - 1 - (name == "broker")
            if left > 2 or server.unfinished.total or server.unread.total:
                found.append(f"the {name} keeps {left} connections and {server.unfinished.total} bytes of nobody")
    return found


def test_on_every_port() -> None:
    sent = seed = 0
    while sent < FRAMES:
        seed += 1
        frames = min(OF_ONE_CLUSTER, FRAMES // 2)
        errors = Errors()
        logging.getLogger().addHandler(errors)
        began = time.process_time()
        try:
            found = simloop.run(_campaign(PIECE * 1_000 + seed, frames, guarded=seed % 2 == 0), loop=TimedLoop())
        finally:
            logging.getLogger().removeHandler(errors)
        found += errors.found
        assert not found, f"seed {PIECE * 1_000 + seed}: {len(found)} findings\n" + "\n".join(found[:10])
        sent += frames
        print(f"seed {seed}: {frames} frames, {time.process_time() - began:.1f} s of CPU")


@pytest.mark.skipif(not LONG, reason="minutes: make torture")
@pytest.mark.parametrize("target", ["frame", "body", "batch", "namesrv"])
def test_guided_by_coverage(tmp_path: Path, target: str) -> None:
    pytest.importorskip("atheris", reason="the fuzzer that is guided by coverage: pip install atheris")
    seconds = amount(60, 600)
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.odd.guided", target, f"-max_total_time={seconds}", "-max_len=4096",
         "-rss_limit_mb=1024", "-timeout=5", f"-artifact_prefix={tmp_path}/", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=seconds + 300,
    )  # fmt: skip
    done = re.search(r"Done (\d+) runs", run.stderr)
    assert run.returncode == 0, run.stderr[-4_000:] + run.stdout[-2_000:]
    assert done is not None
    print(f"{target}: {done[1]} runs")
