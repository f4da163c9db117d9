"""Which systems brokers and name servers run on."""

from __future__ import annotations

import os

from rmq.protocol.errors import StoreError

__all__ = ["check_serves"]


def check_serves() -> None:
    """:raises StoreError: this system lacks what a store and a daemon need, as Windows does; the SDK needs it not."""
    if not hasattr(os, "pwrite") or not hasattr(os, "sysconf"):
        raise StoreError(
            "brokers and name servers need Linux or another POSIX system, which this is not: run them in a container "
            "or on another machine; clients run here, and tests have rmq_cluster, which needs neither disk nor sockets"
        )
