"""Tables, ratios and floors."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmark.cases import Case
from benchmark.program import Result


@dataclass(slots=True)
class Rounds:
    """The rounds of one case, in the order they ran: for each side one result a round."""

    case: Case
    ours: list[Result] = field(default_factory=list)
    java: list[Result] = field(default_factory=list)
    echo: list[Result] = field(default_factory=list)

    def ratio(self, name: str) -> tuple[float, float, float]:
        """Median, least and greatest of ours / Java's over the rounds, for one attribute of the result."""
        pairs = zip(self.ours, self.java, strict=True)
        each = [getattr(o, name) / getattr(j, name) if getattr(j, name) else 0.0 for o, j in pairs]
        return statistics.median(each), min(each), max(each)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One floor or ceiling and what was measured."""

    what: str
    measured: float
    limit: float
    at_least: bool

    @property
    def held(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        word = "at least" if self.at_least else "at most"
        return f"{'ok  ' if self.held else 'FAIL'} {self.what}: {self.measured:.2f} times Java's, {word} {self.limit}"


def median(results: Sequence[Result], name: str) -> float:
    values: list[float] = [getattr(result, name) for result in results]
    return statistics.median(values)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    out = []
    for line in lines:
        cells = [line[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
        ]
        out.append("  ".join(cells).rstrip())
    out.insert(1, "-" * len(out[0]))
    return "\n".join(out)


def _row(label: str, results: Sequence[Result]) -> list[str]:
    return [
        label,
        f"{median(results, 'rate'):,.0f}",
        f"{median(results, 'per_core'):,.0f}",
        f"{median(results, 'cpu_us'):.2f}",
        f"{min(result.cpu_us for result in results):.2f}",
        f"{median(results, 'p50_us'):,.0f}",
        f"{median(results, 'p99_us'):,.0f}",
        f"{max(r.max_us for r in results):,.0f}",
        f"{100 * median(results, 'load_share'):.0f}",
    ]


HEAD = ("case", "per s", "per CPU s", "CPU us", "least", "p50 us", "p99 us", "max us", "load %")


def figures(all_rounds: Sequence[Rounds]) -> str:
    """Medians for each case and side. "per CPU s" and "CPU us" are the broker process's own CPU time, "least" is the
    CPU us of the best round: what a neighbour spoils least."""
    rows: list[list[str]] = []
    for rounds in all_rounds:
        for side, results in (("ours", rounds.ours), ("java", rounds.java), ("echo", rounds.echo)):
            if results:
                rows.append(_row(f"{rounds.case.name}  {side}", results))
    return table(HEAD, rows)


def ratios(all_rounds: Sequence[Rounds]) -> str:
    """Ours over Java's, median of the rounds with the least and the greatest."""
    rows = []
    for rounds in all_rounds:
        if rounds.java and rounds.ours:
            row = [rounds.case.name]
            for name in ("per_core", "rate", "p50_us", "p99_us"):
                middle, low, high = rounds.ratio(name)
                row.append(f"{middle:.2f} ({low:.2f}-{high:.2f})")
            row.append(f"{min(r.cpu_us for r in rounds.java) / min(r.cpu_us for r in rounds.ours):.2f}")
            rows.append(row)
    return table(("ours / Java", "per CPU s", "per s", "p50", "p99", "per CPU s, best rounds"), rows)


def verdicts(all_rounds: Sequence[Rounds]) -> list[Verdict]:
    """The floors of the cases that were run."""
    found = []
    for rounds in all_rounds:
        if not (rounds.java and rounds.ours):
            continue
        case = rounds.case
        unit = "requests" if case.work == "pull" else "messages"
        if case.per_core is not None:
            found.append(Verdict(f"{case.name} {unit} per core", rounds.ratio("per_core")[0], case.per_core, True))
        if case.p50 is not None:
            found.append(Verdict(f"{case.name} p50", rounds.ratio("p50_us")[0], case.p50, False))
        if case.p99 is not None:
            found.append(Verdict(f"{case.name} p99", rounds.ratio("p99_us")[0], case.p99, False))
    return found


def noise(all_rounds: Sequence[Rounds]) -> str:
    """How far the echo baseline of one case moved over the rounds, which no broker can influence."""
    spread = []
    for rounds in all_rounds:
        rates = [result.rate for result in rounds.echo]
        if len(rates) > 1:
            spread.append(f"{rounds.case.name} {min(rates) / max(rates):.2f}")
    return ", ".join(spread)
