"""The SDK is installed without a compiler wherever there is Python: what it needs has a wheel for every platform."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.daemons import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("platform", "extras"),
    [
        ("win_amd64", ("zstd", "lz4")),
        ("macosx_11_0_arm64", ("zstd", "lz4")),
        ("musllinux_1_2_x86_64", ("zstd",)),  # lz4 has none there
    ],
)
def test_every_dependency_has_a_wheel(platform: str, extras: tuple[str, ...], tmp_path: Path) -> None:
    needed = PROJECT["dependencies"] + [name for extra in extras for name in PROJECT["optional-dependencies"][extra]]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run"]
    there = ["--only-binary=:all:", "--platform", platform, "--python-version", "3.12", "--target", str(tmp_path)]
    told = subprocess.run(
        [*pip, *there, "--ignore-installed", *needed],
        capture_output=True,
        text=True,
        check=False,
    )
    if "connection" in told.stderr.lower():
        pytest.skip(f"no package index is reached: {told.stderr.splitlines()[0]}")
    assert told.returncode == 0, told.stderr
