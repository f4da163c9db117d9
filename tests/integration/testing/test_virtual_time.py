"""What docs/sdk.md shows of tests in virtual time, run as it stands there."""

from __future__ import annotations

import re
from typing import Any

from tests.support.daemons import ROOT


def test_the_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sdk.md").read_text(), re.DOTALL)
    (text,) = [block for block in blocks if "simloop.run" in block]
    names: dict[str, Any] = {}
    exec(text, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test()
