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


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_c03_power_cuts_take_what_was_not_forced(tmp_path: Path, flush: str, say: Callable[[str], None]) -> None:
    """SYNC_FLUSH: nothing acknowledged or consumed is lost. ASYNC_FLUSH: the youngest end of the log at most."""
    rng = random.Random(103)
    campaign = PowerCampaign(tmp_path, {"RMQ_FLUSH_DISK_TYPE": flush}, seed=103)
    # The long form takes all in turn; the short one takes a few of those that come for sure, and a random time.
    points = [POINTS[number % len(POINTS)] for number in range(amount(0, 100))] or [*rng.sample(POINTS[1:4], 2), ""]
    cycles = [
        Cycle(
            point,
            seconds=rng.uniform(0.3, 1.5),
            skip=rng.randint(0, 20) if point in POINTS[1:4] else 0,
            stop=point.startswith("stop:"),
        )
        for point in points
    ]
    verdict = await campaign.run(cycles)
    say(f"{campaign.report(f'C03 {flush}', sorted({*points} - {''}))}\n  oldest lost: {campaign.oldest_lost_ms} ms")
    verdict.demand()
    assert verdict.counts["send ok"] > 100
    assert campaign.counts["calls that forced"] > len(cycles)
    # A run in which every cut came too late to take anything proves nothing.
    assert campaign.counts["messages taken"]
    if flush == "ASYNC_FLUSH":
        assert campaign.counts["acknowledged and lost by right"]
