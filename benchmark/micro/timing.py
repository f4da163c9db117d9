"""Timing of variants that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

Program = tuple[str, Callable[[], object]]
Variant = tuple[str, Callable[[Any], Any]]


def show(title: str, programs: Sequence[Program], per: int, *, rounds: int = 40, again: int = 3) -> None:
    """Print the least nanoseconds an operation of each program, the cheapest marked.

    :param per: operations that one run of a program makes.
    """
    best = [float("inf")] * len(programs)
    for _ in range(rounds):
        for i, (_, run) in enumerate(programs):
            start = time.thread_time_ns()
            for _ in range(again):
                run()
            best[i] = min(best[i], (time.thread_time_ns() - start) / (per * again))
    print(f"\n## {title}")
    for ns, (name, _) in zip(best, programs, strict=True):
        print(f"{ns:8.0f} ns  {'*' if ns == min(best) else ' '} {name}")


def compare(title: str, items: Sequence[Any], variants: Sequence[Variant], *, same: bool = True) -> None:
    """Time each variant over the items; with ``same`` all must give the result of the first.

    :raises SystemExit: a variant gives another result.
    """
    expected = [variants[0][1](item) for item in items]
    programs: list[Program] = []
    for name, one in variants:
        got = [one(item) for item in items]
        if same and got != expected:
            raise SystemExit(f"{title}: {name} gives another result: {got[0]!r} instead of {expected[0]!r}")

        def run(one: Callable[[Any], Any] = one) -> None:
            for item in items:
                one(item)

        programs.append((name, run))
    show(title, programs, len(items))


def check_same(programs: Sequence[Program]) -> None:
    """All programs give the same result.

    :raises SystemExit: one does not.
    """
    expected = programs[0][1]()
    for name, run in programs:
        if run() != expected:
            raise SystemExit(f"{name} gives another result")
