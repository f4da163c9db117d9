"""S08, S09, S10, S11, S13: a real broker whose disk fails, fills up, writes half, is slow, or is taken already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rmq.protocol.bodies.kv import KVTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.daemons import PATIENCE
from tests.support.faults.os_calls import Rule
from tests.support.history import Verdict, judge, read_histories
from tests.support.kills.campaign import LONG, amount
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess, OsTree
from tests.support.kills.load import Load, pull, read_back, scan_back

T = TypeVar("T")


class Probe:
    """A client that nothing of the disk concerns: heartbeats, pulls and questions, one after the other."""

    def __init__(self) -> None:
        #: Rounds that began and ended while one and the same flush lasted.
        self.within_a_flush = 0
        self.longest_flush_ms = 0
        self.seconds: list[float] = []

    async def run(self, address: str) -> None:
        body = b'{"clientID":"probe","consumerDataSet":[],"producerDataSet":[{"groupName":"pg"}]}'
        async with RemotingClient(World.real()) as client:
            before = 0
            while True:
                await self._timed(client.request(address, Command(RequestCode.HEART_BEAT, body=body), PATIENCE))
                await self._timed(pull(client, address, "probe", "T0", 0, 0))
                info = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
                answer = await self._timed(client.request(address, info, PATIENCE))
                lasted = int(KVTable.decode(answer.body).table["pageCacheLockTimeMills"])
                self.within_a_flush += lasted > before > 0
                self.longest_flush_ms = max(self.longest_flush_ms, lasted)
                before = lasted
                await asyncio.sleep(0.01)

    async def _timed(self, work: Awaitable[T]) -> T:
        began = time.monotonic()
        result = await work
        self.seconds.append(time.monotonic() - began)
        return result

    def report(self) -> str:
        """How long answers took, for people."""
        took = sorted(self.seconds)
        middle, late, worst = (took[int((len(took) - 1) * share)] * 1000 for share in (0.5, 0.99, 1))
        return (
            f"{len(took)} heartbeats, pulls and questions, {self.within_a_flush} rounds within a flush of up to "
            f"{self.longest_flush_ms} ms; answered in {middle:.1f} ms (p50), {late:.1f} ms (p99), {worst:.1f} ms (most)"
        )


async def under(
    folder: Path, *rules: Rule, seconds: float = 0.3, until: Callable[[Load], bool], probe: Probe | None = None,
    claims: bool = False, **settings: str,
) -> tuple[Verdict, BrokerProcess]:  # fmt: skip
    """A life with faults under load, read while it lives, killed, recovered and read again.

    :param until: the load has seen what the fault does; on a busy machine that is later than after ``seconds``.
    :param probe: asks for other things meanwhile.
    :param claims: every send waits for the disk: one that a single flush is for is told when that fails.
    """
    broker = BrokerProcess(folder / "broker", RMQ_FLUSH_DISK_TYPE="SYNC_FLUSH", **settings)
    load = Load(folder / "history", producers=4, pause=0.002, claims=claims)
    async with broker:
        address = await broker.start(*rules)
        began = time.monotonic()

        def enough() -> bool:
            lived = time.monotonic() - began
            return lived > seconds and (until(load) or lived > PATIENCE)

        asking = asyncio.create_task(probe.run(address)) if probe is not None else None
        await load.run(address, enough)
        assert until(load), "what the fault does was not seen"
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
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


def taken_again() -> Callable[[Load], bool]:
    """Some were refused, and others taken after that."""
    before: list[int] = []

    def seen(load: Load) -> bool:
        if load.refused and not before:
            before.append(load.acknowledged)
        return bool(before) and load.acknowledged > before[0] + 40

    return seen


def enough_for_a_roll(load: Load) -> bool:
    return load.acknowledged > 600


async def test_s08_after_one_failed_fsync_nothing_is_acknowledged(tmp_path: Path) -> None:
    rule = Rule("run:log.datasync.before", "errno:EIO", skip=20, of="*/00000000000000000000")
    verdict, broker = await under(tmp_path, rule, until=both, claims=True)
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
    # The store tries again after some seconds, which one of them waits for.
    until = enough_for_a_roll if creates else taken_again() if rule.at.endswith(".half") else refusals
    verdict, broker = await under(tmp_path, rule, until=until, RMQ_CLEAN_RESOURCE_INTERVAL="200")
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
    verdict, _ = await under(tmp_path, *rules, until=taken_again(), RMQ_CLEAN_RESOURCE_INTERVAL="200")
    assert verdict.counts["send fail"]


async def slow_disk(folder: Path, flushes: int, each: float, *, bug: str = "") -> tuple[Verdict, Probe]:
    probe = Probe()

    def seen(load: Load) -> bool:
        return bool(bug) or (load.doubtful + load.refused > 0 and probe.within_a_flush > 10)

    verdict, _ = await under(
        folder, Rule("run:log.datasync.before", f"sleep:{each}", skip=10, count=flushes),
        seconds=flushes * each + 0.5, until=seen, probe=probe, RMQ_SYNC_FLUSH_TIMEOUT="300", RMQTEST_BUG=bug,
    )  # fmt: skip
    assert probe.longest_flush_ms > 300, "no flush was seen"
    assert probe.within_a_flush > 10, "heartbeats and pulls waited for the disk"
    return verdict, probe


@pytest.mark.timeout(0 if LONG else 120)
async def test_s11_a_slow_disk_is_told_and_loses_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Flushes of a second (5 s a dozen times in the long form): senders are told, and everybody else is served."""
    flushes, each = (amount(2, 12), 5.0) if LONG else (2, 1.0)
    verdict, probe = await slow_disk(tmp_path, flushes, each)
    say(f"S11: {flushes} flushes of {each:g} s: {probe.report()}; {dict(verdict.counts)}")
    assert verdict.counts["send unknown"] + verdict.counts["send fail"], "nobody was told that the disk is slow"
    assert verdict.counts["pull ok"]


async def test_s11_a_flush_on_the_loop_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no flush was seen|waited for the disk"):
        await slow_disk(tmp_path, 2, 1.0, bug="flush_on_the_loop")


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
