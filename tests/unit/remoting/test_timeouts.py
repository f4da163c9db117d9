"""Deadlines that share one timer."""

from __future__ import annotations

import asyncio

from rmq.remoting.timeouts import Timeouts
from rmq.testing import simloop


def test_deadlines_share_one_timer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        told: list[tuple[str, float]] = []
        timeouts: Timeouts[str] = Timeouts(lambda key: told.append((key, loop.time() - began)))
        for number in range(1000):
            timeouts.add(3.0 - number * 0.001, f"{number}")
        scheduled = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert len(scheduled) == 1
        timeouts.add(0.5, "soon")
        await asyncio.sleep(4)
        assert told[0][0] == "soon"
        assert len(told) == 1001
        for key, when in told[1:]:
            assert 0 <= when - (3.0 - int(key) * 0.001) <= 0.02
        timeouts.add(1, "never")
        timeouts.close()
        await asyncio.sleep(2)
        assert len(told) == 1001

    simloop.run(main())


def test_a_deadline_that_fails_ends_no_other() -> None:
    async def main() -> None:
        told: list[int] = []

        def expire(key: int) -> None:
            told.append(key)
            if key == 1:
                raise ZeroDivisionError

        timeouts: Timeouts[int] = Timeouts(expire)
        for key in range(3):
            timeouts.add(1.0, key)
        timeouts.add(2.0, 3)
        await asyncio.sleep(3.0)
        assert told == [0, 1, 2, 3]

    simloop.run(main())
