"""Java's own mqadmin prints of our cluster what it prints of Java's, command by command."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.support.parity.accepted import unaccepted
from tests.support.parity.commands import COMMANDS
from tests.support.parity.stage import Stage
from tests.support.peers import Client, ToolMissing, skip_or_fail, start_client

#: Whose cluster a version's tools are compared on.
VERSIONS = {"4.9.4": "java-4.9.4", "4.9.8": "java-4.9.4", "5.3.3": "java-5.3.3"}


@pytest.fixture
def tools(version: str) -> Iterator[Client]:
    try:
        client = start_client(f"java-{version}")
    except ToolMissing as missing:
        skip_or_fail(missing)
    with client:
        yield client


@contextmanager
def staged(*kinds: str) -> Iterator[list[Stage]]:
    """Stages of these kinds, made at the same time: that is waiting for the most part."""
    with ThreadPoolExecutor(len(kinds)) as pool:
        made = [pool.submit(Stage, kind) for kind in kinds]
    try:
        yield [each.result() for each in made]
    finally:
        for each in made:
            if each.exception() is None:
                each.result().close()


@pytest.mark.parametrize("version", VERSIONS)
def test_commands_print_the_same(version: str, tools: Client) -> None:
    """Both clusters are asked in one JVM; where an answer differs without a reason the test names the command."""
    told: dict[str, list[list[str]]] = {}
    with staged("ours", VERSIONS[version]) as stages:
        for stage in stages:
            told[stage.kind] = [stage.lines(tools, asked) for asked in COMMANDS if version in asked.tools]
    commands = [asked for asked in COMMANDS if version in asked.tools]
    differ = {}
    for number, asked in enumerate(commands):
        lines = unaccepted(asked, version, told[VERSIONS[version]][number], told["ours"][number])
        if lines:
            differ[f"{number}: {asked.words}"] = lines
    assert not differ, "\n".join(f"{words}\n  " + "\n  ".join(lines) for words, lines in differ.items())
