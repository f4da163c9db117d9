"""What the tests of the source share."""

from __future__ import annotations

import pytest

from tests.support.spark.memory import MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    """A cluster in memory with the topic ``t``."""
    made = MemoryCluster()
    made.create("t")
    return made
