"""Every recorded answer of a Java 4.9.4 broker, asked again of ours, in the same order.

Code, remark, ext fields, header keys, serialisation and bodies are compared; records field by field. Where we answer
otherwise on purpose, tests/golden/broker/differences.py says what and why.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rmq.testing.cluster import Cluster
from tests.golden.broker.differences import ACCEPTED, EXCLUDED, SAMPLED
from tests.support.broker_replay import CASES, SETTINGS, Replay
from tests.support.broker_steps import STEPS


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
