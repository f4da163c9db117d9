"""C03: the power of a real broker's machine fails, in the middle of anything, over and over."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.killer_campaign import LONG, Cycle, amount
from tests.support.killer_power import PowerCampaign

#: Where much is written and not yet forced, or forced and not yet told.
POINTS = (
    "",
    "run:log.datasync.before",
    "run:log.datasync.after",
    "run:client.answer.before",
    "run:log.create.after",
    "run:log.syncdir.before",
    "run:checkpoint.datasync.after",
    "recover:checkpoint.datasync.before",
    "stop:abort.unlink.after",
)


def scene(folder: Path, flush: str, *, tear: bool) -> tuple[PowerCampaign, list[Cycle]]:
    rng = random.Random(103 + tear)
    campaign = PowerCampaign(folder, {"RMQ_FLUSH_DISK_TYPE": flush}, seed=103 + tear, tear=tear)
    # The long form takes all in turn; the short one takes a few of those that come for sure, and a random time.
    points = [POINTS[number % len(POINTS)] for number in range(amount(0, 45))] or [*rng.sample(POINTS[1:4], 2), ""]
    return campaign, [
        Cycle(
            point,
            seconds=rng.uniform(0.3, 1.5),
            skip=rng.randint(0, 20) if point in POINTS[1:4] else 0,
            stop=point.startswith("stop:"),
        )
        for point in points
    ]


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("tear", [False, True], ids=["lost", "torn"])
async def test_c03_power_cuts_take_what_was_not_forced(
    tmp_path: Path, flush: str, tear: bool, say: Callable[[str], None]
) -> None:
    """SYNC_FLUSH: nothing acknowledged or consumed is lost. ASYNC_FLUSH: the youngest end of the log at most."""
    campaign, cycles = scene(tmp_path, flush, tear=tear)
    verdict = await campaign.run(cycles)
    points = sorted({cycle.point for cycle in cycles} - {""})
    title = f"C03 {flush}, {'lost, kept or torn' if tear else 'lost'}"
    say(f"{campaign.report(title, points)}\n  oldest lost: {campaign.oldest_lost_ms} ms, {dict(verdict.counts)}")
    verdict.demand()
    assert verdict.counts["send ok"] > 100
    assert campaign.counts["calls that forced"] > len(cycles)
    # A run in which every cut came too late to take anything proves nothing.
    assert campaign.counts["messages taken"]
    if flush == "ASYNC_FLUSH":
        assert campaign.counts["acknowledged and lost by right"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("bug", "flush", "tear", "says"),
    [
        ("acknowledge_before_fsync", "SYNC_FLUSH", True, "I[139]:"),
        ("no_directory_fsync", "SYNC_FLUSH", False, "I[139]:"),
        ("skip_crc", "ASYNC_FLUSH", True, "I2|bytes that are no record"),
    ],
)
async def test_planted_bugs_are_seen_in_a_whole_broker(
    tmp_path: Path, bug: str, flush: str, tear: bool, says: str
) -> None:
    """The same campaign with a bug in the broker is red."""
    settings = {"RMQ_FLUSH_DISK_TYPE": flush, "RMQTEST_BUG": bug}
    campaign = PowerCampaign(tmp_path, settings, seed=7, tear=tear, producers=12)
    cycles = [Cycle("run:client.answer.after", 1.5, skip=40), Cycle("run:log.datasync.before", 1.5, skip=30)]
    with pytest.raises(AssertionError, match=says):
        (await campaign.run(cycles)).demand()
