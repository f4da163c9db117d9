"""Groups that read from so far back that they cost everyone the disk (``disableConsumeIfConsumerReadSlowly``).

Every three minutes a group is switched off that read from further back than ``consumerFallbehindThreshold``, in any of
its queues, the last time it was handed messages (store-and-broker.md 10.2). It is switched on again by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.broker.groups.configs import GroupTable
    from rmq.broker.settings import BrokerSettings

__all__ = ["JUDGED_EVERY", "SlowReaders"]

#: Seconds.
JUDGED_EVERY = 180.0


class SlowReaders:
    """Remembers how far back groups read, and judges them."""

    def __init__(self, settings: BrokerSettings, groups: GroupTable) -> None:
        self._settings = settings
        self._groups = groups
        self._behind: dict[tuple[str, str, int], int] = {}

    def read(self, group: str, topic: str, queue_id: int, behind: int) -> None:
        """A group was handed messages.

        :param behind: bytes of the commit log that are newer.
        """
        self._behind[group, topic, queue_id] = behind

    def judge(self) -> None:
        """Switch off who is too far back, and forget what was read until now."""
        behind, self._behind = self._behind, {}
        if not self._settings.disable_consume_if_consumer_read_slowly:
            return
        limit = self._settings.consumer_fallbehind_threshold
        for group in {group: None for (group, _, _), size in behind.items() if size > limit}:
            self._groups.disable(group)
