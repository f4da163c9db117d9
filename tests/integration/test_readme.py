"""The README's five minutes, run as they stand there: its programs and its commands, against a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.testing.cluster import Cluster
from tests.support.daemons import PATIENCE, ROOT, environment

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
PROGRAMS = dict(
    zip(re.findall(r"\(`(\w+)\.py`\)", README), [text for kind, text in BLOCKS if kind == "python"], strict=True)
)
DEFAULT = "127.0.0.1:9876"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


async def start(folder: Path, cluster: Cluster, name: str) -> asyncio.subprocess.Process:
    """Run one of the README's programs, with the test's cluster in place of the default address."""
    text = PROGRAMS[name]
    assert DEFAULT in text
    (folder / f"{name}.py").write_text(text.replace(DEFAULT, cluster.namesrv_addr))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        f"{name}.py",
        cwd=folder,
        env=environment(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().splitlines()


async def printed(process: asyncio.subprocess.Process, expected: list[str]) -> None:
    """Wait until a program has printed all of it. Listeners print from several threads: newlines may be displaced."""
    assert process.stdout is not None
    assert process.stderr is not None
    got = ""
    async with asyncio.timeout(PATIENCE):
        while not all(text in got for text in expected):
            part = await process.stdout.read(4096)
            assert part, f"it ended after {got!r}: {(await process.stderr.read()).decode()}"
            got += part.decode()
    assert [got.count(text) for text in expected] == [1] * len(expected)


async def test_the_five_minutes(tmp_path: Path, cluster: Cluster) -> None:
    sent = await ended(await start(tmp_path, cluster, "producer"))
    assert [line.split()[0] for line in sent] == ["SEND_OK"] * 3

    consumer = await start(tmp_path, cluster, "consumer")
    await printed(consumer, [f"got order {number} order-{number}" for number in range(3)])

    assert await ended(await start(tmp_path, cluster, "async_producer")) == ["SEND_OK SEND_OK SEND_OK"]
    await printed(consumer, [f"got async {number} None" for number in range(3)])
    consumer.send_signal(signal.SIGTERM)
    assert [line for line in await ended(consumer) if line] == []

    for line in re.findall(r"^bin/mqadmin (.*)$", README, re.MULTILINE):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rmq.cli.mqadmin",
            *line.split(),
            cwd=tmp_path,
            env=environment(tmp_path, NAMESRV_ADDR=cluster.namesrv_addr),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert await ended(process), line


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([\w./-]+)\)", README))))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_paths_in_the_text_exist() -> None:
    named = set(re.findall(r"(?<![\w./])((?:bin|conf|docker|tests|docs)/[\w./-]*\w)", README))
    assert {path for path in named if not os.path.exists(ROOT / path)} == set()
