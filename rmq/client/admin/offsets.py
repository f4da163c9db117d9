"""Offsets of groups: moving them, and copying them to another group."""

from __future__ import annotations

from datetime import datetime

from rmq.client.admin.asking import Asking
from rmq.client.admin.reset import OffsetReset, clone_offsets, reset_queue, reset_to_time, stored_offsets
from rmq.client.checks import typed
from rmq.protocol.queue import MessageQueue

__all__ = ["Offsets"]


@typed()
class Offsets(Asking):
    """Operations on offsets."""

    async def consumer_offsets(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Where a group stands on a topic, as the masters have it; queues without an offset are absent.

        Unlike :meth:`consume_stats` it needs no retry topic of the group: a group that nobody subscribed has none.

        :raises ClientError: there is no such topic. :raises RMQError: the broker of a queue does not say.
        """
        return await stored_offsets(self._client, group, topic)

    async def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp: int | datetime, *, force: bool = True
    ) -> list[OffsetReset]:
        """Move a group on a topic to a time (resetOffsetByTime): its members go there, or its stored offsets do.

        :param timestamp: a datetime, or milliseconds since the epoch; -1: the end of each queue.
        :param force: forward as well; False: never beyond where the group stands.
        :raises NotFound: the group has no offset on the topic.
        """
        return await reset_to_time(self._client, group, topic, timestamp, force=force)

    async def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> OffsetReset:
        """Move a group on one queue to an offset, whether members are online or not.

        :raises ClientError: the queue does not have that offset; nothing is changed.
        """
        return await reset_queue(self._client, group, queue, offset)

    async def clone_group_offset(self, source: str, destination: str, topic: str) -> dict[MessageQueue, int]:
        """Give a group the offsets that another has on a topic (cloneGroupOffset); every queue's, and what they are.

        :raises NotFound: the source has no offset on the topic; nothing is changed.
        """
        return await clone_offsets(self._client, source, destination, topic)
