"""Options and fixtures for the whole suite."""

from __future__ import annotations

import os

import hypothesis
import pytest

# CI looks at the same examples every time: a run that fails there says something about the change, not about luck.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI") == "true":
    hypothesis.settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-tool-skips",
        action="store_true",
        help="fail, instead of skip, a test whose tool (java, mvn, go, node, npm) is missing; CI=true does the same",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-tool-skips"):
        os.environ["RMQ_NO_TOOL_SKIPS"] = "1"
