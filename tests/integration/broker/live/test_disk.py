"""Live settings of the store: when things get to the disk, are looked at, and go."""

from __future__ import annotations

import asyncio
from datetime import datetime
from types import SimpleNamespace

from tests.support.scenes.live import LiveScene, live
from tests.support.virtual import eventually

#: So small that some messages fill many files.
SMALL = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400"}
#: No hour at which files are deleted.
NEVER = {"deleteWhen": "24"}
EVER = ";".join(str(hour) for hour in range(24))


async def actions(s: LiveScene, action: str, path: str, seconds: int, size: int = 10) -> int:
    """How often something is done to files with ``path`` in their name, while a message a second is sent."""
    disk = s.node.disk
    disk.recording = True
    disk.journal.clear()
    for _ in range(seconds):
        await s.send("x" * size)
        await asyncio.sleep(1)
    return sum(done == action and path in where for done, where in disk.journal)


async def fill(s: LiveScene, files: int) -> None:
    """Messages for so many files of the commit log."""
    for _ in range(files):
        for _ in range(3):
            await s.send("x" * 5_000)


def later(s: LiveScene, hours: int) -> None:
    """The clock goes on."""
    s.node.clock.skew_ms += hours * 3_600_000


def files(s: LiveScene) -> int:
    return len(s.app.store.log.segments)


@live("flushIntervalCommitLog")
async def test_how_often_the_log_is_flushed(s: LiveScene) -> None:
    assert await actions(s, "datasync", "/commitlog/", 30) >= 28
    await s.update(flushIntervalCommitLog=10_000)
    assert await actions(s, "datasync", "/commitlog/", 30) <= 4


@live("flushCommitLogTimed", "flushCommitLogLeastPages", flushIntervalCommitLog="3600000")
async def test_whether_much_is_flushed_at_once(s: LiveScene) -> None:
    await asyncio.sleep(10)
    assert await actions(s, "datasync", "/commitlog/", 10, 4_000) <= 1
    await s.update(flushCommitLogTimed=False)
    assert await actions(s, "datasync", "/commitlog/", 20, 4_000) >= 3
    await s.update(flushCommitLogLeastPages=1_000)
    assert await actions(s, "datasync", "/commitlog/", 20, 4_000) <= 1


@live("flushIntervalConsumeQueue")
async def test_how_often_queues_are_written(s: LiveScene) -> None:
    assert await actions(s, "pwrite", "/consumequeue/T/", 30) >= 28
    await s.update(flushIntervalConsumeQueue=10_000)
    assert await actions(s, "pwrite", "/consumequeue/T/", 30) <= 4


@live("flushConsumeQueueThoroughInterval")
async def test_how_often_queues_are_forced(s: LiveScene) -> None:
    assert 1 <= await actions(s, "datasync", "/consumequeue/T/", 120) <= 3
    await s.update(flushConsumeQueueThoroughInterval=5_000)
    await asyncio.sleep(60)
    assert await actions(s, "datasync", "/consumequeue/T/", 60) >= 10


@live("commitLogChecksumOnAppend")
async def test_whether_appends_make_checksums(s: LiveScene) -> None:
    await asyncio.sleep(120)
    assert await actions(s, "pwrite", "/checksums/", 30) == 0
    await s.update(commitLogChecksumOnAppend="true")
    assert await actions(s, "pwrite", "/checksums/", 30) >= 2


@live("commitLogChecksumEnable", commitLogChecksumOnAppend="true")
async def test_whether_checksums_are_kept(s: LiveScene) -> None:
    assert await actions(s, "pwrite", "/checksums/", 30) >= 2
    await s.update(commitLogChecksumEnable="false")
    await asyncio.sleep(20)
    assert await actions(s, "pwrite", "/checksums/", 30) == 0


@live("commitLogScrubRate", "commitLogScrubInterval")
async def test_when_the_log_is_checked(s: LiveScene) -> None:
    await fill(s, 3)
    checked = s.app.store.scrub

    async def after(hours: int) -> int:
        """Bytes that are checked once it is so much later."""
        before = checked.checked
        later(s, hours)
        await asyncio.sleep(100)
        return checked.checked - before

    assert await after(0) > 0
    assert await after(5) == 0
    await s.update(commitLogScrubInterval=1)
    assert await after(5) > 0
    await s.update(commitLogScrubRate=0)
    assert await after(5) == 0
    await s.update(commitLogScrubRate=4)
    assert await after(5) > 0


@live("commitLogScrubMaxRate")
async def test_how_fast_a_large_log_is_checked(s: LiveScene) -> None:
    scrub = s.app.store.scrub

    def rate() -> float:
        """MiB a second for a log of a tebibyte."""
        kept, scrub._log = scrub._log, SimpleNamespace(start=0, end=1 << 40)  # type: ignore[assignment]
        try:
            return scrub._rate()
        finally:
            scrub._log = kept

    assert rate() > 12
    await s.update(commitLogScrubMaxRate=6)
    assert rate() == 6


@live("fileReservedTime", "deleteWhen", **SMALL, **NEVER)
async def test_when_files_are_old(s: LiveScene) -> None:
    await fill(s, 4)
    before = files(s)
    later(s, 80)
    await asyncio.sleep(100)
    assert files(s) == before
    await s.update(deleteWhen=datetime.fromtimestamp(s.node.clock.now_ms() // 1000).hour)
    await asyncio.sleep(200)
    assert files(s) < before
    await s.update(deleteWhen=EVER)
    await fill(s, 4)
    kept = files(s)
    later(s, 2)
    await asyncio.sleep(100)
    assert files(s) == kept
    await s.update(fileReservedTime=1)
    await asyncio.sleep(100)
    assert files(s) < kept


@live("diskMaxUsedSpaceRatio", **SMALL, **NEVER, fileReservedTime="0")
async def test_how_full_makes_old_files_go(s: LiveScene) -> None:
    await fill(s, 4)
    before = files(s)
    s.node.disk.capacity = 2 * s.node.disk.used
    await asyncio.sleep(100)
    assert files(s) == before
    await s.update(diskMaxUsedSpaceRatio=20)
    await asyncio.sleep(100)
    assert files(s) < before


@live("diskSpaceCleanForciblyRatio", "cleanFileForciblyEnable", **SMALL, **NEVER)
async def test_how_full_makes_any_file_go(s: LiveScene) -> None:
    await fill(s, 6)
    before = files(s)
    s.node.disk.capacity = 2 * s.node.disk.used
    await s.update(cleanFileForciblyEnable=False)
    await s.update(diskSpaceCleanForciblyRatio=40)
    await asyncio.sleep(100)
    assert files(s) == before
    await s.update(diskSpaceCleanForciblyRatio=85)
    await s.update(cleanFileForciblyEnable=True)
    await asyncio.sleep(100)
    assert files(s) == before
    await s.update(diskSpaceCleanForciblyRatio=40)
    await asyncio.sleep(100)
    assert files(s) < before


@live("diskSpaceWarningLevelRatio", **SMALL, **NEVER, cleanFileForciblyEnable="false")
async def test_how_full_makes_sends_refused(s: LiveScene) -> None:
    await fill(s, 4)
    s.node.disk.capacity = 2 * s.node.disk.used
    await asyncio.sleep(60)
    await s.send("taken")
    await s.update(diskSpaceWarningLevelRatio=40)
    await asyncio.sleep(60)
    assert s.app.store.log.gate
    await s.update(diskSpaceWarningLevelRatio=90)
    await asyncio.sleep(200)
    await s.send("taken again")


@live("deleteCommitLogFilesInterval", **SMALL, **NEVER, fileReservedTime="0")
async def test_the_pause_between_files_of_the_log(s: LiveScene) -> None:
    await fill(s, 8)
    before = files(s)
    await s.update(deleteCommitLogFilesInterval=20_000)
    await s.update(deleteWhen=EVER)
    await eventually(lambda: files(s) < before, 300.0)
    first = files(s)
    assert await eventually(lambda: files(s) < first, 300.0) > 15


@live("deleteConsumeQueueFilesInterval", **SMALL, **NEVER, fileReservedTime="0")
async def test_the_pause_between_files_of_queues(s: LiveScene) -> None:
    await s.topic("Q", 3)
    for _ in range(60):
        for queue in range(3):
            await s.send("x" * 200, topic="Q", queue_id=queue)
    await asyncio.sleep(120)

    def left() -> int:
        return sum(len(s.node.files.list(f"/store/consumequeue/Q/{queue}")) for queue in range(3))

    await s.update(deleteConsumeQueueFilesInterval=60_000)
    before = left()
    await s.update(deleteWhen=EVER)
    await eventually(lambda: left() < before, 300.0)
    first = left()
    assert await eventually(lambda: left() < first, 300.0) > 50
