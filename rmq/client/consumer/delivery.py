"""How messages come to a push consumer's listeners: its queues (``assignment``), their pulls (``fetch``), and what
calls listeners (``service``); which queues it has, ``rebalance`` decides."""

from __future__ import annotations

from collections.abc import Callable

from rmq.client.allocate import AllocateMessageQueueStrategy
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.fetch import Fetch
from rmq.client.consumer.kept_locks import KeptLocks
from rmq.client.consumer.member import Member
from rmq.client.consumer.rebalance import Rebalance
from rmq.client.consumer.service import Service
from rmq.client.message import MessageQueue

__all__ = ["Delivery"]


class Delivery:
    """The parts of one push consumer, wired.

    :param make_service: makes the service, given the locks it works under (None where it needs none).
    :param on_changed: told (topic, all queues, ours) when what we own of a topic changed; awaited.
    """

    def __init__(
        self,
        member: Member,
        strategy: AllocateMessageQueueStrategy,
        make_service: Callable[[KeptLocks | None], Service],
        on_changed: Callable[[str, list[MessageQueue], list[MessageQueue]], object],
    ) -> None:
        settings = member.settings
        self.locks: KeptLocks | None = None
        if settings.orderly and not settings.broadcasting:
            self.locks = KeptLocks(
                member.instance, member.group, member.tasks, lambda topics: self._rebalance.topics(topics)
            )
        self.service = make_service(self.locks)
        self.fetch = Fetch(member, self.service.submit, locks=self.locks is not None)
        beginning = Beginning(member.instance, member.store, settings)
        self.assignment = Assignment(member, self.fetch, self.service, self.locks, beginning.offset)
        self._rebalance = Rebalance(member, strategy, self.assignment, beginning, on_changed)

    def start(self) -> None:
        if self.locks is not None:
            self.locks.start()

    async def rebalance(self) -> None:
        await self._rebalance.run()

    async def stop(self, limit: float) -> int:
        """Pull and call nothing more, wait for the calls under way, keep every offset, give back every lock.

        :returns: how many calls still run after ``limit`` seconds: their messages come again.
        """
        self.assignment.stop()
        left = await self.service.drain(limit)
        await self.assignment.end()
        return left
