"""C01, C02, C08, C09: a real broker dies by SIGKILL, at random and at every named point, and stops by SIGTERM."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kills.campaign import LONG, PIECE, Campaign, Cycle, amount, shuffled

SYNC = {"RMQ_FLUSH_DISK_TYPE": "SYNC_FLUSH"}

#: What happens often is let pass a few times; the rest is taken the first time.
OFTEN = (
    "run:store.append.before",
    "run:store.append.after",
    "run:log.write.before",
    "run:log.write.half",
    "run:log.write.after",
    "run:log.datasync.before",
    "run:log.datasync.after",
    "run:store.flushed.before",
    "run:store.flushed.after",
    "run:client.answer.before",
    "run:client.answer.after",
    "run:queue.write.half",
    "run:queue.write.after",
)
RARE = (
    "run:store.roll.before",
    "run:store.roll.after",
    "run:log.create.before",
    "run:log.create.after",
    "run:log.extend.after",
    "run:log.syncdir.before",
    "run:log.syncdir.after",
    "run:queue.datasync.before",
    "run:queue.datasync.after",
    "run:index.write.half",
    "run:index.write.after",
    "run:index.datasync.before",
    "run:index.datasync.after",
    "run:checkpoint.write.half",
    "run:checkpoint.write.after",
    "run:checkpoint.datasync.after",
)
RECOVER = (
    "recover:lock.write.half",
    "recover:log.extend.before",
    "recover:log.extend.after",
    "recover:log.datasync.before",
    "recover:log.datasync.after",
    "recover:index.write.half",
    "recover:index.write.after",
    "recover:abort.create.before",
    "recover:abort.create.after",
    "recover:checkpoint.write.half",
    "recover:checkpoint.datasync.before",
    "recover:checkpoint.datasync.after",
    "recover:queue.extend.before",
    "recover:queue.extend.after",
)
STOP = (
    "stop:queue.datasync.before",
    "stop:index.datasync.before",
    "stop:checkpoint.write.half",
    "stop:checkpoint.datasync.after",
    "stop:log.unlink.before",
    "stop:log.unlink.after",
    "stop:abort.unlink.before",
    "stop:abort.unlink.after",
    "stop:offsets.write.half",
    "stop:offsets.fsync.after",
    "stop:offsets.rename.before",
    "stop:offsets.rename.after",
)
POINTS = OFTEN + RARE + RECOVER + STOP
#: Points at files that the store knows nothing of.
BROKER = tuple(point for point in POINTS if ":offsets." in point)
#: Only reached when a start finds something to repair: not every time.
SOMETIMES = {
    "recover:queue.extend.before", "recover:queue.extend.after",
    "recover:log.extend.before", "recover:log.extend.after",
    "recover:index.write.half", "recover:index.write.after", "run:index.datasync.before",
    "run:index.datasync.after", "stop:index.datasync.before",
}  # fmt: skip


def cycles_at(point: str, rng: random.Random, flush: str = "SYNC_FLUSH") -> list[Cycle]:
    """A life that ends there; one before it that ends cleanly, where the point is met after a clean stop only."""
    if point.startswith("recover:abort.create."):
        return [Cycle(seconds=0.3, stop=True), Cycle(point, seconds=2.0 if LONG else 0.3)]
    skip = rng.randint(0, 30) if point in OFTEN else 0
    if flush == "ASYNC_FLUSH" and ("log.datasync" in point or "store.flushed" in point):
        skip = min(skip, 1)  # twice a second, and at the ends of files
    stop = point.startswith("stop:")
    # So many messages fill a file of the commit log several times.
    sends = 600 if point.startswith("run:") and point not in SOMETIMES else 40
    # A start met its point or did not: what the life is for then is to leave something to the next one.
    short = stop or (point.startswith("recover:") and not LONG)
    return [Cycle(point, seconds=0.3 if short else 2.0, skip=skip, stop=stop, sends=sends)]


@pytest.mark.timeout(0 if LONG else 600)
async def test_c01_kills_at_random_times_lose_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    rng = random.Random(101 + 1000 * PIECE)
    # The many producers of a long form begin later, and have sent a little sooner than a life ends.
    least, sends = (0.15, 200) if LONG else (0.05, 40)
    campaign = Campaign(tmp_path, SYNC, seed=101)
    wanted = amount(6, 200)

    def cycles() -> Iterator[Cycle]:
        """Whether a send is in flight when a life ends is luck: more lives, until it was so in most of those wanted."""
        for number in range(4 * wanted):
            if number >= wanted and campaign.counts["cycles with sends in flight"] >= wanted * 3 // 4:
                return
            yield Cycle(seconds=min(3.0, least + rng.expovariate(3)), sends=sends)

    verdict = await campaign.run(cycles())
    say(f"{campaign.report('C01')} {dict(verdict.counts)}")
    verdict.demand()
    # A run in which nothing was in flight proves nothing.
    assert campaign.counts["cycles with sends in flight"] >= wanted * 3 // 4
    assert verdict.counts["send ok"] > 100
    assert verdict.counts["send unknown"]
    assert verdict.counts["unknown and stored"]


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_c02_kills_at_named_points_lose_nothing(tmp_path: Path, flush: str, say: Callable[[str], None]) -> None:
    rng = random.Random(102 + 1000 * PIECE)
    if LONG:
        # All points three times over, or this piece's share of that.
        whole = [point for number in range(3) for point in shuffled(POINTS, number)]
        share = amount(1, len(whole))
        points = (whole * (PIECE + 1))[PIECE * share : (PIECE + 1) * share]
    else:
        # Those of the broker's own files, and some of the store's, of which test_named_points.py meets every one.
        points = shuffled(BROKER, 102) if flush == "SYNC_FLUSH" else []
        points += shuffled([point for point in POINTS if point not in BROKER], 102)[flush == "SYNC_FLUSH" :: 2][:10]
    campaign = Campaign(tmp_path, {"RMQ_FLUSH_DISK_TYPE": flush}, seed=102)
    verdict = await campaign.run([cycle for point in points for cycle in cycles_at(point, rng, flush)])
    say(campaign.report(f"C02 {flush}", sorted(set(points))))
    verdict.demand()
    expected = {point for point in points if point not in SOMETIMES}
    missed = {point for point in expected if not campaign.died[point]}
    assert len(missed) <= len(expected) // 5, f"points that were never reached: {sorted(missed)}"


@pytest.mark.timeout(0 if LONG else 600)
async def test_c08_weak_sends_are_no_phantoms_and_records_are_whole(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Killed in the middle of a write: whole records come back, from the beginning of each batch on."""
    rng = random.Random(108 + 1000 * PIECE)
    cycles = [Cycle("run:log.write.half", 2.0, skip=rng.randint(0, 60)) for _ in range(amount(4, 60))]
    campaign = Campaign(tmp_path, seed=108)
    verdict = await campaign.run(cycles)
    say(f"{campaign.report('C08')} {dict(verdict.counts)}")
    verdict.demand()
    assert campaign.died["run:log.write.half"] >= len(cycles) // 2


@pytest.mark.timeout(0 if LONG else 600)
async def test_c09_sigterm_under_load_is_clean(tmp_path: Path, say: Callable[[str], None]) -> None:
    cycles = [Cycle(seconds=0.3, stop=True) for _ in range(amount(3, 50))]
    campaign = Campaign(tmp_path, SYNC, seed=109)
    verdict = await campaign.run(cycles)
    say(campaign.report("C09"))
    verdict.demand()
    assert campaign.counts["clean stops"] == len(cycles)
    log = (tmp_path / "broker" / "logs" / "broker.log").read_text()
    assert "after a clean stop" in log
    assert "after an unclean stop" not in log
