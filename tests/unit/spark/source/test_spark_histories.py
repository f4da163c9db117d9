"""Random histories of a stream against a model of what becomes of each message, with a stand-in for Spark's engine.

``make torture`` runs 6,000 of them as Spark asks from 4.2 on, and 3,000 as it asked before, which take a processor 25
minutes (100 take 17 s); RMQ_TORTURE=0.1 runs a tenth of that, RMQ_TORTURE_PIECE=1 draws others.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from rmq.spark.source.readers import LIMITS
from tests.support.kills.campaign import PIECE, amount
from tests.support.spark.histories.history import run
from tests.support.spark.histories.plants import OLD_PLANTS, PLANTS, Patch

needs_limits = pytest.mark.skipif(not LIMITS, reason="this pyspark has no portions, which Spark asks for from 4.2 on")

SEEDS = amount(40, 6000)
OLD_SEEDS = amount(20, 3000)
#: The model has blamed the query for what it is to do, once in a thousand histories: told of a loss a second time since
#: an older checkpoint was put back (two), read from the end of a queue that grew before the first batch was planned,
#: known no queue that had been empty, asked for a loss that had been told while the queue was offered.
MISJUDGED = [2199, 2758, 3489, 3938, 1792]


@needs_limits
def test_every_message_is_in_the_table_once_or_its_loss_is_told(say: Callable[[str], None]) -> None:
    run(range(PIECE * SEEDS, (PIECE + 1) * SEEDS))
    say(f"{SEEDS} random histories of a Spark stream: no row missing or twice, every loss told")


def test_so_it_is_where_spark_does_not_say_where_it_is(say: Callable[[str], None]) -> None:
    """Spark 4.0 and 4.1."""
    run(range(PIECE * OLD_SEEDS, (PIECE + 1) * OLD_SEEDS), limits=False)
    say(f"{OLD_SEEDS} random histories of a stream of Spark 4.0: no row missing or twice, every loss told")


@needs_limits
@pytest.mark.parametrize("seed", MISJUDGED)
def test_the_model_asks_for_no_more_than_is_promised(seed: int) -> None:
    run(range(seed, seed + 1))


@needs_limits
@pytest.mark.parametrize(("plant", "first"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run(range(first, first + 200))


@pytest.mark.parametrize(("plant", "first"), OLD_PLANTS, ids=[plant.__name__ for plant, _ in OLD_PLANTS])
def test_a_bug_planted_for_older_sparks_is_found(
    plant: Callable[[Patch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run(range(first, first + 200), limits=False)
