"""What docs/sdk.md shows of tests in virtual time, run as it stands there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.daemons import ROOT


@pytest.mark.parametrize("how", ["simloop.run", "simulation.bridge"])
def test_the_example_runs(how: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sdk.md").read_text(), re.DOTALL)
    (text,) = [block for block in blocks if how in block]
    names: dict[str, Any] = {}
    exec(text, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test()
