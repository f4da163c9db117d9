"""A page of metrics is rendered in pieces, between which others run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rmq.remoting.metrics import Family, Sample, render


def _many(count: int) -> Iterator[Sample]:
    for number in range(count):
        yield "", (("topic", f"T{number}"),), number


async def test_a_page_of_many_series_lets_others_run_and_is_never_put_together() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    pieces = await render([Family("many", "gauge", "Many", _many(10_500)), Family("none", "gauge", "None", [])])
    beside.cancel()
    assert turns >= 10
    assert max(piece.count(b"\n") for piece in pieces) <= 1_002
    page = b"".join(pieces).decode().splitlines()
    assert page[:3] == ["# HELP many Many", "# TYPE many gauge", 'many{topic="T0"} 0']
    assert page[2:] == [f'many{{topic="T{number}"}} {number}' for number in range(10_500)]


async def test_of_a_family_that_fails_late_nothing_is_told() -> None:
    def failing() -> Iterator[Sample]:
        yield from _many(1_500)
        raise RuntimeError("no more")

    pieces = await render(
        [Family("bad", "gauge", "Bad", failing()), Family("good", "counter", "Good", [("_total", (), 1.5)])],
        (("node", "a"),),
    )
    page = b"".join(pieces).decode()
    assert page == '# HELP good Good\n# TYPE good counter\ngood_total{node="a"} 1.5\n'
