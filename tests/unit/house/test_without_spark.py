"""``make test`` on a machine that has Python and make alone: what needs Spark or its libraries skips and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MISSING = ("pyspark", "pyarrow", "pandas", "numpy", "matplotlib", "fastavro")


def test_tests_are_collected_without_what_make_test_does_not_install(tmp_path: Path) -> None:
    for name in MISSING:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError({name!r}, name={name!r})\n")
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/spark",
            "tests/unit/spark",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "pip install 'rmq[spark]'" in ended.stdout
