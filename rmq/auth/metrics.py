"""What access control tells of itself (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator

from rmq.auth.control import AccessControl
from rmq.remoting.metrics import Family

__all__ = ["acl_families"]


def acl_families(access: AccessControl | None) -> Iterator[Family]:
    """Nothing where it is off."""
    if access is None:
        return
    yield Family(
        "rmq_acl_refused_total",
        "counter",
        "Requests that access control refused, by the kind of reason",
        [("", (("reason", reason),), count) for reason, count in sorted(access.guard.refused.items())],
    )
    yield Family(
        "rmq_acl_files_in_force",
        "gauge",
        "0 while the files of accounts cannot be used as they are, and what they said before stays in force",
        [("", (), int(access.fault is None))],
    )
