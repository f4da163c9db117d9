"""Our SDK, both its surfaces: every cell against the real Java 4.9.4 nameserver and broker, and against ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.interop import PROMISED, Scene, run_cell


@pytest.mark.parametrize("cell", PROMISED["python"])
@pytest.mark.parametrize("client", ["python", "python-blocking"])
@pytest.mark.parametrize("kind", ["java-4.9.4", "ours"])
def test_cell(kind: str, client: str, cell: str, scene: Callable[[str, str], Scene]) -> None:
    run_cell(cell, scene(kind, client))
