"""The accepted differences between a running Java server's answers and ours: for each case, both sides' exact values.

``differs-*.jsonl`` has one line for cases that differ alike: ``why`` begins a row of docs/differences.md, ``differs``
gives a place in the answer (``code``, ``remark``, ``ext.NAME``, ``body/...``) with Java's value and ours, ``cases``
names the requests. Whatever is not in it must be alike, and whatever is in it must differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["FILES", "Listed", "lines"]

_FOLDER = Path(__file__).parent
#: One file a comparison.
FILES = ("broker-4.9.4", "namesrv-4.9.4", "broker-5.3.3", "busy-4.9.4", "last-4.9.4")


def lines(name: str) -> list[dict[str, Any]]:
    """The accepted differences of one comparison."""
    text = (_FOLDER / f"differs-{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


class Listed:
    """Says why a case may differ, and which of them did not."""

    def __init__(self, name: str) -> None:
        self._lines = lines(name)
        self._of_case: dict[str, list[dict[str, Any]]] = {}
        for line in self._lines:
            for case in line["cases"]:
                self._of_case.setdefault(case, []).append(line)
        self._seen: set[str] = set()

    def why(self, case: str, differs: dict[str, list[Any]]) -> str | None:
        """The row that allows exactly this; None when none does."""
        for line in self._of_case.get(case, ()):
            if line["differs"] == differs:
                self._seen.add(case)
                return str(line["why"])
        return None

    def unseen(self) -> Iterable[str]:
        """Cases that are listed and did not differ so."""
        return [case for case in self._of_case if case not in self._seen]
