"""What an installation of the SDK alone brings."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

from tests.support.daemons import ROOT

#: Bytes, sources of rmq included, what Python compiles of them not.
_MOST = 10 << 20


def test_a_client_needs_little() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=;\[ ]", needed)[0] for needed in project["dependencies"]]
    files = [found for name in names for found in importlib.metadata.files(name) or ()]
    paths = [*(found.locate() for found in files), *(ROOT / "rmq").rglob("*")]
    sizes = [path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc"]
    assert len(sizes) > 500
    assert sum(sizes) < _MOST
