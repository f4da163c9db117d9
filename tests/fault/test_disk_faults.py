"""S08, S09, S10, S11, S13: a real broker whose disk fails, fills up, writes half, is slow, or is taken already."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemons import PATIENCE
from tests.support.faulty_os import Rule
from tests.support.history import Verdict, judge, read_histories
from tests.support.killer import LOG_FILE_SIZE, BrokerProcess, OsTree
from tests.support.killer_load import Load, read_back, scan_back


async def under(
    folder: Path, *rules: Rule, seconds: float = 1.5, until: Callable[[Load], bool], **settings: str
) -> tuple[Verdict, BrokerProcess]:
    """A life with faults under load, read while it lives, killed, recovered and read again.

    :param until: the load has seen what the fault does; on a busy machine that is later than after ``seconds``.
    """
    broker = BrokerProcess(folder / "broker", RMQ_FLUSH_DISK_TYPE="SYNC_FLUSH", **settings)
    load = Load(folder / "history", producers=4, pause=0.002)
    async with broker:
        address = await broker.start(*rules)
        began = time.monotonic()

        def enough() -> bool:
            lived = time.monotonic() - began
            return lived > seconds and (until(load) or lived > PATIENCE)

        await load.run(address, enough)
        assert broker.running, "a failing disk does not end the broker"
        await read_back(address)  # pulls are still served
        await broker.kill()
        scanned = scan_back(OsTree(), str(broker.store / "commitlog"), LOG_FILE_SIZE)
        address = await broker.start()
        pulled = await read_back(address)
        assert await broker.stop() == 0
    load.close()
    verdict = judge(read_histories(folder / "history"), [scanned, pulled])
    verdict.demand()
    assert verdict.counts["send ok"]
    return verdict, broker


def both(load: Load) -> bool:
    """Some were told that their message is stored perhaps, and some that it is not."""
    return load.doubtful > 0 and load.refused > 0


def refusals(load: Load) -> bool:
    return load.refused > 0


def enough_for_a_roll(load: Load) -> bool:
    return load.acknowledged > 600


async def test_s08_after_one_failed_fsync_nothing_is_acknowledged(tmp_path: Path) -> None:
    verdict, broker = await under(tmp_path, Rule("run:log.datasync.before", "errno:EIO", skip=20), until=both)
    assert verdict.counts["send unknown"], "those who waited were told 10"
    assert verdict.counts["send fail"], "those who came later were refused"
    assert "could not be forced to disk" in (broker.folder / "logs" / "broker.log").read_text()


@pytest.mark.parametrize(
    "rule",
    [
        Rule("run:log.write.before", "errno:ENOSPC", skip=40, count=3),
        Rule("run:log.write.half", "errno:ENOSPC", skip=40, count=3),
        Rule("run:log.create.before", "errno:EMFILE", skip=1, count=3),
        Rule("run:log.write.before", "errno:EROFS", skip=40, count=3),
    ],
    ids=["full", "full within a record", "no descriptors", "read-only"],
)
async def test_s09_what_cannot_be_written_is_refused_until_it_can(tmp_path: Path, rule: Rule) -> None:
    # The next file is made beforehand, and tried again before it is needed.
    creates = "create" in rule.at
    until = enough_for_a_roll if creates else refusals
    verdict, broker = await under(tmp_path, rule, seconds=3.0, until=until, RMQ_CLEAN_RESOURCE_INTERVAL="200")
    if not creates:
        assert verdict.counts["send fail"]
    assert rule.at in broker.lines()


async def test_s10_short_writes_are_completed(tmp_path: Path) -> None:
    rule = Rule("run:log.write.before", "short:100", skip=5, count=200)
    verdict, _ = await under(tmp_path, rule, until=enough_for_a_roll)
    assert not verdict.counts["send fail"]


async def test_s10_what_a_failed_write_left_is_cleared_before_the_next(tmp_path: Path) -> None:
    """As with a limit of the file's size (EFBIG): some bytes of a record, then an error for the rest."""
    rules = [Rule("run:log.write.before", "short:60", skip=60), Rule("run:log.write.before", "errno:EFBIG", skip=60)]
    verdict, _ = await under(tmp_path, *rules, seconds=3.0, until=refusals, RMQ_CLEAN_RESOURCE_INTERVAL="200")
    assert verdict.counts["send fail"]


async def test_s11_a_slow_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    verdict, _ = await under(
        tmp_path, Rule("run:log.datasync.before", "sleep:1.5", skip=10, count=1),
        seconds=2.5, until=lambda load: load.doubtful + load.refused > 0, RMQ_SYNC_FLUSH_TIMEOUT="300",
    )  # fmt: skip
    assert verdict.counts["send unknown"] + verdict.counts["send fail"], "nobody was told that the disk is slow"
    assert verdict.counts["pull ok"]


async def test_s13_one_broker_a_store(tmp_path: Path) -> None:
    first = BrokerProcess(tmp_path / "broker")
    second = BrokerProcess(tmp_path / "broker")
    async with first, second:
        await first.start()
        with pytest.raises(AssertionError, match="Lock failed,MQ already started"):
            await second.start()
        await first.kill()
        await second.start()
        assert await second.stop() == 0
