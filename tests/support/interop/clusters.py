"""The clusters of a test session: started when first asked for, one of each kind."""

from __future__ import annotations

import os

from tests.support.peers import Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import FAST_RETRIES
from tests.support.peers.process import ProcessFailed

#: Retries and the checks of open transactions come after a second.
_FAST = {**FAST_RETRIES, "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
#: What a kind needs besides. 5.3.3 writes ends of transactions down every three seconds, and asks about them meanwhile.
_BESIDES = {"java-5.3.3": {"transactionOpBatchInterval": "100", "recallMessageEnable": "true"}}


class Clusters:
    """Clusters by kind; the one that RMQ_INTEROP_CLUSTER names (ours without it) is the one under test."""

    def __init__(self) -> None:
        self._running: dict[str, Cluster] = {}
        self._failed: dict[str, Exception] = {}

    @staticmethod
    def tested() -> str:
        """The kind that the matrix runs against."""
        return os.environ.get("RMQ_INTEROP_CLUSTER", "ours")

    def get(self, kind: str | None = None) -> Cluster:
        """A running cluster of a kind (the tested one), with retries and checks of transactions after a second.

        One that did not start is not tried again: each test that wants it gets the same error.
        """
        kind = kind or self.tested()
        if kind in self._failed:
            raise self._failed[kind]
        if kind not in self._running:
            try:
                self._running[kind] = start_cluster(kind, properties={**_FAST, **_BESIDES.get(kind, {})})
            except ToolMissing as missing:
                skip_or_fail(missing)
            except ProcessFailed as failed:
                self._failed[kind] = failed
                raise
        return self._running[kind]

    def running(self) -> list[Cluster]:
        """Those that were started."""
        return list(self._running.values())

    def stop(self) -> None:
        """Stop all."""
        for cluster in self._running.values():
            cluster.stop()
