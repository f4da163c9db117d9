"""Random histories of a stream in Spark itself; many more, with a stand-in for it, are in tests/unit/spark/source.

``make torture`` runs more; RMQ_TORTURE_PIECE=1 draws others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kills.campaign import PIECE, amount
from tests.support.peers.cluster import Cluster

pytestmark = pytest.mark.timeout(0)

SEEDS = amount(2, 80)
STEPS = 3


def test_every_message_is_in_the_table_once_or_its_loss_is_told(
    spark: Any, cluster: Cluster, tmp_path: Path, say: Callable[[str], None]
) -> None:
    from tests.support.spark.histories.live import LiveHistory

    for seed in range(PIECE * SEEDS, (PIECE + 1) * SEEDS):
        LiveHistory(seed, spark, cluster, tmp_path / "runs", {}).run(STEPS)
    say(f"{SEEDS} random histories of a stream in Spark: no row missing or twice, every loss told")


@pytest.mark.parametrize(("plant", "seed"), [("ranges_begin_a_message_late", 0), ("renewals_are_not_looked_for", 27)])
def test_a_planted_bug_is_found(spark: Any, cluster: Cluster, tmp_path: Path, plant: str, seed: int) -> None:
    from tests.support.spark.histories.live import LiveHistory, PlantedSource

    spark.dataSource.register(PlantedSource)
    with pytest.raises(AssertionError, match="not read"):
        LiveHistory(seed, spark, cluster, tmp_path / plant, {"plant": plant}).run(STEPS)
