"""docs/clients.md says what runs: its cells are the matrix's, its tests are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.interop import PROMISED
from tests.unit.house.test_field_case_table import ROOT, sources

PAGE = Path(ROOT / "docs/clients.md").read_text()
COLUMNS = {"Java 4.5.2": "java-4.5.2", "Java 4.9.8": "java-4.9.8", "Java 5.3.3": "java-5.3.3", "Go": "go"}
COLUMNS |= {"Node": "node", "Python SDK": "python"}


def rows() -> list[dict[str, str]]:
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in lines[0]]
    return [dict(zip(head, (cell.strip() for cell in line), strict=True)) for line in lines[2:]]


def test_cells_are_those_of_the_matrix() -> None:
    told = {row["Test"].removeprefix("cell "): row for row in rows() if row["Test"].startswith("cell ")}
    assert set(told) == {cell for cells in PROMISED.values() for cell in cells}
    for title, client in COLUMNS.items():
        assert {cell for cell, row in told.items() if row[title] == "yes"} == set(PROMISED[client]), title


def test_its_tests_are_there() -> None:
    for row in rows():
        if row["Test"].startswith("cell "):
            continue
        named = re.findall(r"`([^`:]+)::(test_\w+)`", row["Test"])
        assert named, row["Feature"]
        for path, test in named:
            assert test in sources(path), f"{path} has no {test}"
