"""Brokers that were registered and are not any more: whoever asks for the cluster would not miss them.

Java's name server forgets them with their last registration, and a cluster of three with one that stands still looks
like a healthy cluster of two. They are read as the namespace ``DEPARTED_BROKERS`` of the key-value settings, by name,
and are nowhere else in any answer; deleting the entry says that one is gone for good. They are kept in memory alone.
"""

from __future__ import annotations

import orjson

__all__ = ["ENDED", "SILENT", "UNREGISTERED", "Departed"]

#: How a broker left: no word for two minutes; its connection ended; it said so.
SILENT, ENDED, UNREGISTERED = "silent", "ended", "unregistered"
#: Brokers that are remembered; the one that left first is forgotten first.
_MOST = 256


class Departed:
    """By broker name."""

    def __init__(self) -> None:
        self._left: dict[str, str] = {}

    def left(self, name: str, cluster: str, addr: str, how: str) -> None:
        """The last broker of a name has gone. :param addr: where it was. :param how: one of the words above."""
        self._left.pop(name, None)
        self._left[name] = orjson.dumps({"cluster": cluster, "addr": addr, "how": how}).decode()
        if len(self._left) > _MOST:
            del self._left[next(iter(self._left))]

    def forget(self, name: str) -> None:
        """It is back, or gone for good; one that is not here is fine."""
        self._left.pop(name, None)

    def table(self) -> dict[str, str]:
        """A copy: JSON with ``cluster``, ``addr`` and ``how``."""
        return dict(self._left)
