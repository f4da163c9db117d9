"""Options and fixtures for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Callable

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


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Tell what a test counted: at once with ``-s``, and in the summary of the run."""

    def tell(text: str) -> None:
        print(text)
        record_property("said", text)

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    lines = [
        line
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == "said" and report.when == "call"
        for line in text.splitlines()
    ]
    if lines:
        terminalreporter.section("what was covered")
        for line in lines:
            terminalreporter.write_line(line)
