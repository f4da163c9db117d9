"""Starts real brokers, kills them (SIGKILL at a named point or at random), and starts them again on the same store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.daemons import PATIENCE, environment
from tests.support.faults.os_calls import Rule
from tests.support.kills.forks import Forked, fork

__all__ = ["LOG_FILE_SIZE", "QUEUE_FILE_SIZE", "BrokerProcess", "Killed", "OsTree", "digest_of"]

LOG_FILE_SIZE = 256 << 10
QUEUE_FILE_SIZE = 400 * 20
_READY = re.compile(r"The broker\[[\w.-]+, (127\.0\.0\.1:\d+)\] boot success")


class Killed(Exception):
    """The broker died while it started."""


class OsTree:
    """The operating system's files for :mod:`tests.support.store_scan`."""

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)


def digest_of(folder: Path) -> dict[str, str]:
    """Every file's content and every directory, but the home's logs."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
    return found


class BrokerProcess:
    """One store, and the processes that serve it one after the other.

    :param folder: the home of the processes; the store is ``folder/store``.
    :param settings: ``RMQ_*`` variables on top of small files and quick rhythms.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.points = folder / "points"
        self.address = ""
        self._settings = settings
        self._process: Forked | None = None
        self._errors: asyncio.Task[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def _environment(self, rules: list[Rule]) -> dict[str, str]:
        return environment(
            self.folder,
            RMQ_BROKER_IP1="127.0.0.1",
            RMQ_STORE_PATH_ROOT_DIR=str(self.store),
            **{
                "RMQ_BROKER_NAME": "broker-a",
                "RMQ_NAMESRV_ADDR": "",
                "RMQ_LISTEN_PORT": "0",
                "RMQ_MAPPED_FILE_SIZE_COMMIT_LOG": str(LOG_FILE_SIZE),
                "RMQ_MAPPED_FILE_SIZE_CONSUME_QUEUE": str(QUEUE_FILE_SIZE),
                "RMQ_MAX_HASH_SLOT_NUM": "1000",
                "RMQ_MAX_INDEX_NUM": "4000",
                "RMQ_DISK_MAX_USED_SPACE_RATIO": "95",
                "RMQ_WAIT_TIME_MILLS_IN_SEND_QUEUE": "60000",
                "RMQ_OS_PAGE_CACHE_BUSY_TIME_OUT_MILLS": "60000",
                "RMQ_FLUSH_INTERVAL_CONSUME_QUEUE": "100",
                "RMQ_FLUSH_CONSUME_QUEUE_THOROUGH_INTERVAL": "400",
                "RMQTEST_RULES": json.dumps([asdict(rule) for rule in rules]),
                "RMQTEST_POINTS": str(self.points),
                **self._settings,
            },
        )

    async def start(self, *rules: Rule) -> str:
        """Start it; the address it serves.

        :raises Killed: it died before it was ready.
        """
        await self._reap()
        self._process = await fork(self._environment(list(rules)))
        self._errors = asyncio.create_task(self._process.stderr.read())
        async with asyncio.timeout(PATIENCE):
            line = (await self._process.stdout.readline()).decode()
        ready = _READY.match(line)
        if ready is None:
            code = await self.wait()
            if code == -signal.SIGKILL:
                raise Killed
            raise AssertionError(f"the broker ended with {code}: {line}{self.errors}")
        self.address = ready[1]
        return self.address

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def errors(self) -> str:
        """What the ended process wrote to standard error."""
        return self._errors.result().decode() if self._errors is not None and self._errors.done() else ""

    async def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        assert self._process is not None
        async with asyncio.timeout(seconds):
            code = await self._process.wait()
        if self._errors is not None:
            await self._errors
        return code

    async def ended_within(self, seconds: float) -> bool:
        """Give it time to die by a rule."""
        try:
            await self.wait(seconds)
        except TimeoutError:
            return False
        return True

    async def kill(self) -> None:
        """SIGKILL, unless it is dead already."""
        if self.running:
            assert self._process is not None
            self._process.kill()
        await self.wait()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        if self.running:
            self._process.terminate()
        return await self.wait()

    async def _reap(self) -> None:
        if self._process is not None:
            assert self._process.returncode is not None, "the last broker still runs"
            self._process = None

    def lines(self) -> list[str]:
        """The points met so far, and the kills."""
        return self.points.read_text().splitlines() if self.points.exists() else []

    async def __aenter__(self) -> BrokerProcess:
        return self

    async def __aexit__(self, *_: Any) -> None:
        if self.running:
            await self.kill()
