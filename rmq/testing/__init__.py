"""Tests of your own against a real nameserver and broker in the test process (docs/testing.md).

pytest finds the fixture ``rmq_cluster`` by itself (:mod:`rmq.testing.plugin`): a cluster in virtual time,
:class:`SimCluster` or :class:`BlockingSimCluster`. :class:`Cluster` and :class:`BlockingCluster` are one over loopback.
The other ``sim`` modules simulate time, threads, network and disk.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.testing.cluster import BlockingCluster, Cluster
    from rmq.testing.simcluster import BlockingSimCluster, SimCluster

__all__ = ["BlockingCluster", "BlockingSimCluster", "Cluster", "SimCluster"]

_HOMES = {
    "BlockingCluster": "rmq.testing.cluster",
    "BlockingSimCluster": "rmq.testing.simcluster",
    "Cluster": "rmq.testing.cluster",
    "SimCluster": "rmq.testing.simcluster",
}


def __getattr__(name: str) -> object:
    """Loaded at first use: pytest imports this package in every run, for its plugin."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
