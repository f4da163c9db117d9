"""A Java client that writes its command headers in the ROCKETMQ form instead of JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.interop import PROMISED, Clusters, Scene, run_cell


@pytest.mark.parametrize("client", ["java-4.9.8-binary"])
@pytest.mark.parametrize("cell", PROMISED["java-4.9.8-binary"])
def test_cell(client: str, cell: str, scene: Callable[[str, str], Scene]) -> None:
    """Field case B074."""
    run_cell(cell, scene(Clusters.tested(), client))
