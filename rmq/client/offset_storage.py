"""Where an application keeps a group's offsets itself (Java: OffsetStore, given to a consumer)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol, runtime_checkable

from rmq.client.message import MessageQueue

__all__ = ["OffsetStorage"]


@runtime_checkable
class OffsetStorage(Protocol):
    """What is given as ``offset_store``: a table, a file, the database that the messages change.

    Its methods are plain ones, called on a thread of their own, one call at a time; or coroutine functions. A call has
    ten seconds; one that raises or takes longer is made again later, and is told of in the log.
    """

    def read(self, group: str, queue: MessageQueue) -> int | Awaitable[int | None] | None:
        """The offset of the message to go on with; None: the group has none for this queue.

        Asked when a queue becomes this member's. ``group`` has its namespace, a queue has none.
        """

    def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> object:
        """Keep these offsets, which have changed since the last call that succeeded."""
