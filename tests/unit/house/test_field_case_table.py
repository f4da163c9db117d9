"""Every case of the collection has a test that carries its number, or a reason why there is none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.parsed import parsed

ROOT = Path(__file__).parents[3]
#: The numbers of the collection.
CASES = """
    002 005 007 009 012 013 014 015 017 018 020 022 023 024 026 029 030 031 032 036 037 038 040 041 043 044 046
    047 048 049 050 051 053 055 058 060 061 062 064 066 067 068 069 071 073 074 076 077 078 079 080 081 082 084
    085 087 088 089 091 092 093 095 096 099 100 101 102 103 104 105 106 107 108 109 110 112 113 114 115 117 118
    119 121 122 123 125 126 127 129 131 132 133 134 136 137 138 139 140 141 142
""".split()  # noqa: SIM905 - a list this long is easier to read as text
TABLE = dict(re.findall(r"^\| B(\d{3}) \|[^|\n]+\| (.+) \|$", (ROOT / "docs/field-cases.md").read_text(), re.MULTILINE))


@cache
def sources(path: str) -> dict[str, str]:
    """The tests of a file, each with its text."""
    text = (ROOT / path).read_text()
    lines = text.splitlines()
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.walk(parsed(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def test_every_case_is_in_the_table() -> None:
    assert list(TABLE) == CASES


@pytest.mark.parametrize("case", CASES)
def test_its_tests_are_there_and_carry_its_number(case: str) -> None:
    named = re.findall(r"`([^`:]+)::(test_\w+)`", TABLE[case])
    if not named:
        assert re.search(r"not built yet|not offered", TABLE[case])
    for path, test in named:
        assert test in sources(path), f"{path} has no {test}"
        assert f"b{case}" in sources(path)[test].lower()
