"""pytest fixtures: ``pytest_plugins = ["rmq.testing.plugin"]`` in a conftest.py.

``rmq_cluster`` is a running cluster for blocking tests; ``rmq_aio_cluster`` is one on the test's own loop, where
pytest-asyncio is installed. Each test gets its own, with an empty store; it starts in a tenth of a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rmq.testing.cluster import BlockingCluster, Cluster

try:
    import pytest_asyncio
except ImportError:  # blocking tests need none
    pytest_asyncio = None  # type: ignore[assignment]

__all__ = ["rmq_aio_cluster", "rmq_cluster"] if pytest_asyncio else ["rmq_cluster"]


@pytest.fixture
def rmq_cluster(tmp_path: Path) -> Iterator[BlockingCluster]:
    """A nameserver and a broker on a thread of their own."""
    with BlockingCluster(tmp_path) as cluster:
        yield cluster


if pytest_asyncio:

    @pytest_asyncio.fixture
    async def rmq_aio_cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
        """A nameserver and a broker on the test's loop."""
        async with Cluster(tmp_path) as cluster:
            yield cluster
