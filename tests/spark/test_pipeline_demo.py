"""``make pipeline``, with fewer orders: generator, broker, Spark, topic and archive, table and chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmq.cli import pipeline_demo

pytestmark = pytest.mark.timeout(600)

ORDERS = 6000


class _Kept:
    """The session of the tests, which the example is not to stop."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def test_orders_become_totals_an_archive_and_a_chart(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    monkeypatch.setattr(pipeline_demo, "session", lambda *_, **__: _Kept(spark))
    pipeline_demo.demo(str(tmp_path), ORDERS, "local[2]")
    said = capsys.readouterr().out
    same = re.search(r"== the archive says the same up to \S+: ([\d,]+) orders", said)
    assert same, said
    assert f"   {ORDERS:,} messages in {tmp_path}/archive" in said
    totals = json.loads((tmp_path / "totals.json").read_text())
    counted = sum(one["orders"] for one in totals)
    assert f"{counted:,}" == same[1]
    assert 0.85 * ORDERS < counted < ORDERS, "all but those of the window that is open"
    assert {one["city"] for one in totals} == set(pipeline_demo.CITIES)
    assert "unreadable 1" in said, "one is no JSON"
    assert (tmp_path / "revenue.png").read_bytes().startswith(b"\x89PNG")
    assert "== done; everything is in " in said
