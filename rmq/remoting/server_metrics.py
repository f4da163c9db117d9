"""What a server tells of the connections it has closed (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.remoting.metrics import Family

__all__ = ["closed_connections"]

#: Every reason there is: a series that is there from the start shows its first rise.
_REASONS = ("connections", "handshake", "idle", "malformed", "unfinished", "unread")


def closed_connections(counts: Mapping[str, int]) -> Family:
    """The family of :attr:`Endpoint.cut_off`."""
    return Family(
        "rmq_connections_closed_total",
        "counter",
        "Connections that were closed for what they did, by the kind of reason",
        [("", (("reason", reason),), counts.get(reason, 0)) for reason in _REASONS],
    )
