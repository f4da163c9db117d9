"""The matrix that the interop tests print: a line a client, a column a cell."""

from __future__ import annotations

from collections.abc import Iterator

from .cells import CELLS, NO_CALL, PROMISED


class Matrix:
    """Collects the outcome and duration of every cell, per cluster."""

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[tuple[str, str], str]] = {}

    def note(self, cluster: str, client: str, cell: str, outcome: str, seconds: float) -> None:
        """Remember one cell: outcome is pytest's ("passed", "failed", "skipped")."""
        shown = f"ok {seconds:.1f}s" if outcome == "passed" else outcome.upper()
        self._outcomes.setdefault(cluster, {})[client, cell] = shown

    def lines(self) -> Iterator[str]:
        """The tables, cluster by cluster."""
        for cluster, outcomes in self._outcomes.items():
            clients = list(dict.fromkeys(client for client, _ in outcomes))
            yield f"clients against {cluster}, 1,000 messages a cell"
            yield "| client | " + " | ".join(CELLS) + " |"
            yield "|---" * (len(CELLS) + 1) + "|"
            for client in clients:
                row = []
                for cell in CELLS:
                    missing = "not run" if cell in PROMISED[client] else NO_CALL
                    row.append(outcomes.get((client, cell), missing))
                yield f"| {client} | " + " | ".join(row) + " |"
            yield ""
