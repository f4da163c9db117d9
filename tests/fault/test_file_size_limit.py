"""S10: a process that may not write files of the size it needs (RLIMIT_FSIZE, EFBIG)."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from tests.support.history import judge, read_histories
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess, OsTree
from tests.support.kills.load import Load, read_back, scan_back

#: Seconds within which messages are taken again.
PATIENCE = 60.0


class _CutTree(OsTree):
    """What a failed write left was cut off, and the file could not be made longer again: it reads as zeros there."""

    def read(self, path: str) -> bytes:
        return super().read(path).ljust(LOG_FILE_SIZE, b"\0")


async def test_s10_a_limit_that_is_too_low_is_told_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    async with broker:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_FILE_SIZE // 2, before[1]))  # the child inherits it
        try:
            with pytest.raises(AssertionError, match=r"File too large: let the process write larger files \(ulimit -f"):
                await broker.start()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not list((broker.store / "commitlog").iterdir())
        await broker.start()
        assert await broker.stop() == 0


async def _until_refused(broker: BrokerProcess, load: Load, address: str) -> tuple[int, int]:
    """Lower the limit below the end of the third file until sends are refused; pulls go on. The limits before."""
    limits = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    files = broker.store / "commitlog"

    def refused() -> bool:
        if len(list(files.iterdir())) > 2:
            # Within a file: some bytes of a record go in, and then none.
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LOG_FILE_SIZE // 2 + 77, limits[1]))
        return load.refused > 0

    await load.run(address, refused)
    held = await read_back(address)
    assert sum(map(len, held.places.values())) >= load.acknowledged
    return limits


async def test_s10_a_limit_that_comes_while_it_runs_loses_nothing(tmp_path: Path) -> None:
    """Sends are refused, pulls go on, and with a higher limit a restart has all that was acknowledged."""
    broker = BrokerProcess(tmp_path / "broker", RMQ_FLUSH_DISK_TYPE="SYNC_FLUSH")
    load = Load(tmp_path / "history", producers=4)
    async with broker:
        address = await broker.start()
        files = broker.store / "commitlog"
        await _until_refused(broker, load, address)
        text = (broker.folder / "logs" / "broker.log").read_text()
        assert "let the process write larger files" in text
        await broker.kill()
        scanned = scan_back(_CutTree(), str(files), LOG_FILE_SIZE)
        address = await broker.start()
        pulled = await read_back(address)
        assert await broker.stop() == 0
    load.close()
    verdict = judge(read_histories(tmp_path / "history"), [scanned, pulled])
    verdict.demand()
    assert verdict.counts["send ok"]
    assert verdict.counts["send fail"]


async def test_s10_a_higher_limit_is_enough(tmp_path: Path) -> None:
    """RLIMIT_FSIZE is met in the middle of a record; reads go on; prlimit raises it, and the same process writes on."""
    broker = BrokerProcess(tmp_path / "broker", RMQ_FLUSH_DISK_TYPE="SYNC_FLUSH")
    load = Load(tmp_path / "history", producers=4)
    async with broker:
        address = await broker.start()
        limits = await _until_refused(broker, load, address)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, limits)
        more = load.acknowledged + 400
        async with asyncio.timeout(PATIENCE):
            await load.run(address, lambda: load.acknowledged > more)
        pulled = await read_back(address)
        text = (broker.folder / "logs" / "broker.log").read_text()
        assert "let the process write larger files" in text
        assert await broker.stop() == 0
        assert not (broker.store / "abort").exists()
        scanned = scan_back(OsTree(), str(broker.store / "commitlog"), LOG_FILE_SIZE)
    load.close()
    verdict = judge(read_histories(tmp_path / "history"), [scanned, pulled])
    verdict.demand()
    assert verdict.counts["send fail"]
