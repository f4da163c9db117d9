"""The tools that interop tests need, and what a missing one means: a skip here, a failure in CI."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


class ToolMissing(RuntimeError):
    """A program that an interop test needs is not on this machine, or a registry could not be asked."""


def require(*names: str) -> None:
    """Raise `ToolMissing` unless every program of `names` is on the PATH."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise ToolMissing(f"interop tests need {', '.join(missing)} on the PATH")


def skips_are_failures() -> bool:
    """True in CI (`CI=true`) and with pytest's `--no-tool-skips`."""
    return os.environ.get("CI", "").lower() == "true" or os.environ.get("RMQ_NO_TOOL_SKIPS") == "1"


def skip_or_fail(error: ToolMissing) -> NoReturn:
    """Skip the test with the reason, or fail it where a skip would hide a hole."""
    if skips_are_failures():
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))
