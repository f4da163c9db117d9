"""Log lines that strangers can cause: so many in a period, and what was kept back is counted."""

import asyncio

from rmq.remoting.limits import Rationed
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation


def test_a_period_has_so_many_lines_and_the_next_tells_what_was_kept_back() -> None:
    async def main() -> None:
        clock = Simulation(1).node("a").clock
        lines: list[str] = []
        ration = Rationed(clock, most=3, seconds=10.0)

        def say(count: int) -> None:
            for _ in range(count):
                ration.say(lambda form, *values: lines.append(form % values), "%s came", "x")

        say(5)
        assert lines == ["x came"] * 3
        await asyncio.sleep(9.75)
        say(1)
        assert len(lines) == 3
        await asyncio.sleep(0.25)
        say(4)
        assert lines[3:] == ["x came (3 earlier ones not logged)", "x came", "x came"]
        await asyncio.sleep(10)
        say(1)
        assert lines[6:] == ["x came (1 earlier ones not logged)"]

    run(main())
