"""Real Java, Go and Node clients, unmodified, against our cluster: every cell of every client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.interop import PROMISED, Clusters, Scene, run_cell

FOREIGN = ("java-4.5.2", "java-4.9.8", "java-5.3.3", "go", "node")


@pytest.mark.parametrize(("client", "cell"), [(client, cell) for client in FOREIGN for cell in PROMISED[client]])
def test_cell(client: str, cell: str, scene: Callable[[str, str], Scene]) -> None:
    run_cell(cell, scene(Clusters.tested(), client))
