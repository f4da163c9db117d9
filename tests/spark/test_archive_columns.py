"""Columns that only some files of an archive have, as after a version of the job that adds one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

import rmq.spark
from rmq.protocol.errors import ConfigError
from rmq.spark.pipeline import archive
from rmq.spark.pipeline.running.compaction import Compactor
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.staging import Staging

pytestmark = pytest.mark.timeout(300)

ROW = (
    "select 'b' as brokerName, 0 as queueId, {0}L as offset, timestamp'2026-03-01 10:00:00' as eventTime, "
    "'007' as topic, '2026-03-01' as date, 10 as hour"
)


class Archive:
    """An archive to which batches of one row are added."""

    def __init__(self, spark: Any, root: Path) -> None:
        self.spark = spark
        self.files = Files(spark, str(root))
        self.staging = Staging(self.files, "query")
        self.staging.settle()
        self.batches = 0

    def add(self, more: str = "") -> None:
        number = self.batches
        self.batches += 1
        rows = self.spark.sql(ROW.format(number) + more)
        self.staging.batch(number, None, lambda at: rows.write.partitionBy("topic", "date", "hour").parquet(at))

    def join(self) -> int:
        rules = archive.Compaction({"closed_for": 0.0, "min_files": 2}, 1)
        return Compactor(self.spark, self.files, self.staging, rules, "none").work(datetime(2026, 3, 2, tzinfo=UTC))

    def keys(self) -> dict[int, str | None]:
        return {row["offset"]: row["keys"] for row in rmq.spark.read_archive(self.spark, self.files.root).collect()}


@pytest.mark.parametrize("first", [0, 1])
def test_they_are_kept_by_who_reads_and_by_who_joins(spark: Any, tmp_path: Path, first: int) -> None:
    made = Archive(spark, tmp_path)
    for number in range(2):
        made.add("" if number == first else ", 'k' as keys")
    wanted = {first: None, 1 - first: "k"}
    assert made.keys() == wanted
    assert made.join() == 2
    assert made.keys() == wanted
    assert rmq.spark.read_archive(spark, made.files.root).columns[-3:] == ["topic", "date", "hour"]


def test_one_that_has_two_types_is_named(spark: Any, tmp_path: Path) -> None:
    made = Archive(spark, tmp_path)
    made.add(", 'k' as keys")
    made.add(", 5 as keys")
    with pytest.raises(ConfigError, match="a column has two types: read its files apart"):
        made.keys()


@pytest.mark.parametrize("name", ["a*", "[a]", "{a,b}", "a?"])
def test_a_path_that_spark_takes_for_a_pattern_is_refused(spark: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="makes it a pattern for Spark"):
        rmq.spark.read_archive(spark, str(tmp_path / name))
