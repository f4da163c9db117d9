"""Servers spawn nothing, run no text as code, and open no file but theirs, whatever they are asked (X01, B110)."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.support.accounts import home
from tests.support.audit import watched
from tests.support.odd import requests as odd_requests
from tests.support.odd.campaign import Line
from tests.support.raw_peer import send

#: What was asked to have a command run, or a file written somewhere.
_SETTINGS = (
    b"rocketmqHome=-c $@|sh . echo touch /tmp/x\nfilterServerNums=1", b"filterServerNums=1",
    b"configStorePath=/tmp/x\nproductEnvName=*/1 * * * * id", b"kvConfigPath=/tmp/x", b"brokerConfigPath=/tmp/x",
    b"storePathRootDir=/tmp/x", b"storePathCommitLog=/tmp/x", b"aclCredentialsFile=/etc/passwd",
    b"tls.server.certPath=/etc/passwd", b"metricsTokenFile=/etc/passwd", b"rocketmq.acl.plain.file=/etc/passwd",
)  # fmt: skip


async def _ask(address: tuple[str, int], requests: list[odd_requests.Odd]) -> None:
    """Each of them, with a plain one behind it whose answer is awaited."""
    line: Line | None = None
    for number, odd in enumerate(requests):
        if line is None or line.lost:
            _, line = await asyncio.get_running_loop().create_connection(Line, *address)
        plain = Command(28, opaque=10_000 + number)
        line.transport.write(odd.data + frame.encode(plain))
        await line.answer(plain.opaque, 20.0)
    if line is not None:
        line.transport.close()


@pytest.mark.parametrize("guarded", [False, True])
async def test_whatever_is_asked(tmp_path: Path, guarded: bool) -> None:
    """B110: no request spawns a process, or opens a file outside of the daemon's folders."""
    chance = random.Random(f"audit {guarded}")
    with watched(str(tmp_path)) as audit:
        async with Cluster(tmp_path / "store", settings=home(tmp_path) if guarded else {}) as cluster:
            broker, namesrv = cluster.brokers[0], cluster.namesrvs[0]
            host, port = broker.address
            ports = ((host, port), (host, port - 2), namesrv.address)
            for address, app in zip(ports, (broker, broker, namesrv), strict=True):
                made = [odd_requests.drawn(chance, [code for code in app.codes if code != 11]) for _ in range(150)]
                made += [
                    odd
                    for code in (25, 318)
                    for body in _SETTINGS
                    if (odd := odd_requests.made(code, None, body, "settings")) is not None
                ]
                await _ask(address, made)
            # And what is right.
            _, line = await asyncio.get_running_loop().create_connection(Line, host, port)
            one = send("T")
            one.opaque = 1
            line.transport.write(frame.encode(one))
            assert await line.answer(1, 20.0) is not None
            line.transport.close()
    assert audit.found == [], audit.found[:3]
    assert audit.events > 50


def test_the_watch_sees_what_it_should(tmp_path: Path) -> None:
    """Or the test above is worth nothing."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    with watched(str(tmp_path)) as audit:
        (tmp_path / "own").write_text("x")
        assert audit.found == [], audit.found[:3]
        subprocess.run([sys.executable, "-c", ""], check=True)
        assert any("subprocess.Popen" in line for line in audit.found)
        audit.found.clear()
        for what, event in (
            (lambda: outside.write_text("x"), "open"),
            (lambda: os.rename(outside, tmp_path / "in"), "os.rename"),
            (lambda: os.symlink("/etc", tmp_path / "link"), "os.symlink"),
            (lambda: (tmp_path / "link" / "rmq-planted").unlink(missing_ok=True), "os.remove"),
            (lambda: eval("1 + 1"), "compile"),
            (lambda: pickle.loads(b"cbuiltins\nlen\n."), "pickle.find_class"),
        ):  # fmt: skip
            what()
            assert any(line.startswith(event) for line in audit.found), event
            audit.found.clear()
