"""Random histories of a stream against a model of what becomes of each message, with a stand-in for Spark's engine.

``make torture`` runs 6,000 of them, which take a processor 17 minutes (100 take 17 s); RMQ_TORTURE=0.1 runs a tenth of
that, RMQ_TORTURE_PIECE=1 draws others.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from rmq.spark.source.readers import LIMITS
from tests.support.kills.campaign import PIECE, amount
from tests.support.spark.histories.history import run
from tests.support.spark.histories.plants import PLANTS, Patch

pytestmark = pytest.mark.skipif(not LIMITS, reason="the stand-in asks a source as Spark 4.2 and later do")

SEEDS = amount(40, 6000)
#: The model has blamed the query for what it is to do, once in a thousand histories: told of a loss a second time since
#: an older checkpoint was put back (two), read from the end of a queue that grew before the first batch was planned,
#: known no queue that had been empty, asked for a loss that had been told while the queue was offered.
MISJUDGED = [2199, 2758, 3489, 3938, 1792]


def test_every_message_is_in_the_table_once_or_its_loss_is_told(say: Callable[[str], None]) -> None:
    run(range(PIECE * SEEDS, (PIECE + 1) * SEEDS))
    say(f"{SEEDS} random histories of a Spark stream: no row missing or twice, every loss told")


@pytest.mark.parametrize("seed", MISJUDGED)
def test_the_model_asks_for_no_more_than_is_promised(seed: int) -> None:
    run(range(seed, seed + 1))


@pytest.mark.parametrize(("plant", "first"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run(range(first, first + 200))
