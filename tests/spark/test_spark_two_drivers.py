"""Two drivers on one checkpoint, which nothing keeps from beginning: what comes of it (``make torture``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kills.campaign import LONG
from tests.support.peers.cluster import Cluster
from tests.support.spark.drivers import Driver
from tests.support.spark.topics import create, fill, stored

pytestmark = [pytest.mark.timeout(0), pytest.mark.skipif(not LONG, reason="two more JVMs: make torture")]


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def test_spark_ends_one_of_them_and_what_both_sent_has_one_identity(
    spark: Any, cluster: Cluster, tmp_path: Path, drivers: list[Driver]
) -> None:
    """The second begins while the first is within its batch, and so begins with that batch as well."""
    import rmq.spark

    for topic in ("both", "sent"):
        create(cluster.namesrv, cluster.broker_addr, topic)
    fill(cluster.namesrv, "both", 3000, size=12_000)
    for tasks in (2, 4):
        drivers.append(Driver("local[2]", cluster, "both", tmp_path, "sent"))
        drivers[-1].until_open(tasks)
    (tmp_path / "go").touch()
    codes = [driver.code() for driver in drivers]
    assert sorted(codes) == [0, 1]
    # The second where both end a batch in the same moment.
    said = ("[CONCURRENT_STREAM_LOG_UPDATE]", "Multiple streaming queries are concurrently using")
    tail = drivers[codes.index(1)].tail()
    assert any(each in tail for each in said), tail
    rows = spark.read.format("rocketmq").options(nameServer=cluster.namesrv, topic="sent").load()
    wanted = {f"{queue} {offset}" for _, _, queue, offset in stored(cluster.namesrv, "both")}
    assert rows.count() == 2 * len(wanted), "both have sent the batch"
    once = [bytes(row.value).decode() for row in rmq.spark.deduplicate(rows).collect()]
    assert len(once) == len(wanted)
    assert set(once) == wanted
