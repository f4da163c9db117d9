"""Starts our daemons as a user does, as processes of their own, in a folder and an environment of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What a daemon may take to be ready or to end, on a busy machine.
PATIENCE = 100.0


@dataclass
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


@dataclass
class Running:
    """A process that said it is ready."""

    process: asyncio.subprocess.Process
    ready: str
    errors: list[str] = field(default_factory=list)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, if it still runs, and wait for the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """A home of its own, nothing of ours from outside, loopback only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "ROCKETMQ_", "NAMESRV"))}
    return {
        **kept,
        "HOME": str(folder),
        "RMQ_LOG_DIR": str(folder / "logs"),
        "RMQ_BIND_ADDRESS": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        **variables,
    }


async def run(program: str, *args: str, env: dict[str, str]) -> Ended:
    """Run one of our programs to its end."""
    process = await _start(program, args, env)
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def running(program: str, *args: str, env: dict[str, str]) -> AsyncIterator[Running]:
    """One of our daemons, ready; stopped with SIGTERM at the end if it still runs."""
    process = await _start(program, args, env)
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []

    async def collect(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            errors.append(line.decode().rstrip())

    reading = asyncio.create_task(collect(process.stderr))
    try:
        async with asyncio.timeout(PATIENCE):
            ready = (await process.stdout.readline()).decode().rstrip()
            if not ready:
                await reading
                raise AssertionError(f"{program} ended with {await process.wait()}: {errors}")
        yield Running(process, ready, errors)
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.stdout.read()
            await process.wait()
            await reading


async def _start(program: str, args: Sequence[str], env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"rmq.cli.{program}",
        *args,
        env=env,
        cwd=env["HOME"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
