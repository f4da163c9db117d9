"""A job that cannot start, as whoever types it at a terminal sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

from rmq.spark.pipeline import catalog

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "master: local[x]",
            "Spark cannot be started for the job orders (keys spark.master, spark.config): "
            "Could not parse Master URL: 'local[x]'",
        ),
        (
            "master: local[1]\n  config:\n    spark.driver.memory: much",
            "Spark's Java ended as it started: what it says stands above (memory and options of the driver)",
        ),
    ],
)
def test_a_spark_that_does_not_start_is_one_line(tmp_path: Path, settings: str, said: str) -> None:
    job = tmp_path / "orders.yaml"
    job.write_text(f"{catalog.sample('archive')}spark:\n  {settings}\n")
    command = [sys.executable, "-m", "rmq.cli.rmq", "pipeline", "run", str(job)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    *before, last = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert last == f"rmq: {said}"
    assert not [line for line in before if "Traceback" in line or "ERROR" in line or line.startswith("\tat ")], before
