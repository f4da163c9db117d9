"""Log lines that strangers can cause: so many in a period, and what was kept back is counted."""

import asyncio

from rmq.remoting.limits import Rationed, Repeated
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


def test_one_cause_has_a_line_a_minute_whatever_others_do() -> None:
    async def main() -> None:
        lines: list[str] = []
        repeated = Repeated(Simulation(1).node("a").clock, most=2)

        def say(*causes: str) -> None:
            for cause in causes:
                repeated.say(cause, lambda form, *values: lines.append(form % values), "%s came", cause)

        say("x", "x", "y", "x")
        assert lines == ["x came", "y came"]
        await asyncio.sleep(59)
        say("x", "y")
        assert len(lines) == 2
        await asyncio.sleep(1)
        say("x", "x", "y")
        assert lines[2:] == ["x came (3 times more in the last 60 s)", "y came (1 times more in the last 60 s)"]
        say("z", "x")  # of three causes two are remembered, and strangers may have as many as they like
        assert lines[4:] == ["z came", "x came"]
        say(*map(str, range(100)))
        assert len(lines) == 10 + 2

    run(main())
