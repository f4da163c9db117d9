"""Every recorded answer of a Java 4.9.4 broker, asked again of ours, in the same order.

Code, remark, ext fields, header keys, serialisation and bodies are compared; records field by field. Where we answer
otherwise on purpose, tests/golden/broker/differences.py says what and why.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from rmq.testing.cluster import Cluster
from tests.golden.broker.differences import ACCEPTED, EXCLUDED, SAMPLED
from tests.golden.broker.live import FILES, lines
from tests.support.answers.replay import CASES, SETTINGS, Replay
from tests.support.answers.steps import STEPS

#: Beginnings of the rows of the page that tells users.
ROWS = re.findall(r"^\| (.*?) \|", (Path(__file__).parents[3] / "docs/differences.md").read_text(), re.MULTILINE)


async def test_the_recorded_cases_are_answered_alike(tmp_path: Path) -> None:
    problems = []
    asked = 0
    async with Cluster(tmp_path, brokers=0) as cluster:
        await cluster.start_broker(**SETTINGS)
        replay = Replay(cluster, STEPS)
        try:
            for case in CASES:
                if case["id"] not in EXCLUDED:
                    asked += 1
                    problem = await problem_of(replay, case)
                    if problem:
                        problems.append(f"{case['id']}: {problem}")
        finally:
            await replay.close_all()
    assert not problems, "\n".join(problems)
    assert asked == len(CASES) - len(EXCLUDED)


async def problem_of(replay: Replay, case: dict[str, Any]) -> str | None:
    try:
        async with asyncio.timeout(100):
            came = await replay.run(case)
    except (TimeoutError, AssertionError) as error:
        return f"no answer: {error!r}"
    return replay.compare(case, came)


def test_what_is_excepted_was_recorded() -> None:
    known = {case["id"] for case in CASES}
    named = [case for difference in ACCEPTED for case in difference.cases]
    assert set(named) <= known
    assert len(named) == len(set(named))
    assert set(EXCLUDED) <= known
    assert known >= SAMPLED
    assert set(STEPS) <= known
    assert not set(STEPS) & set(EXCLUDED)


@pytest.mark.parametrize("name", FILES)
def test_what_may_differ_from_a_running_server_is_told_to_users(name: str) -> None:
    listed = lines(name)
    assert listed
    for line in listed:
        assert set(line) == {"why", "differs", "cases"}
        assert line["why"] in ROWS
        assert line["differs"]
        assert all(len(values) == 2 and values[0] != values[1] for values in line["differs"].values())
    cases = [case for line in listed for case in line["cases"]]
    assert len(cases) == len(set(cases))


def test_every_accepted_difference_is_told_to_users() -> None:
    assert {difference.why for difference in ACCEPTED} <= set(ROWS)
