"""How messages come to an application: a consumer's queues (``assignment``), their pulls (``fetch``), and what hands
messages out (``service``); which queues it has, ``rebalance`` decides, or the application (``chosen``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.fetch import Fetch, Limits
from rmq.client.consumer.kept_locks import KeptLocks
from rmq.client.consumer.member import Member
from rmq.client.consumer.service import Service

__all__ = ["Delivery", "Share"]


class Share(Protocol):
    """Decides which queues are ours, and has the assignment follow."""

    async def run(self) -> None:
        """Take and give up queues as things stand now; one at a time."""

    async def topics(self, topics: Set[str]) -> None:
        """The same for some topics alone."""

    def unknown(self, topic: str) -> str | None:
        """Why it is not known which queues of a topic are ours; None when it is, and when the topic has none."""


class Delivery:
    """The parts of one consumer, wired.

    :param limits: of what may be held.
    :param make_service: makes the service, given the locks it works under (None where it needs none).
    :param make_share: makes what decides which queues are ours.
    :param in_order: queues are locked at their brokers.
    """

    def __init__(
        self,
        member: Member,
        limits: Limits,
        make_service: Callable[[KeptLocks | None], Service],
        make_share: Callable[[Assignment, Beginning], Share],
        *,
        in_order: bool = False,
    ) -> None:
        self._instance = member.instance
        self.locks: KeptLocks | None = None
        if in_order and not member.settings.broadcasting:
            self.locks = KeptLocks(
                member.instance, member.group, member.tasks, lambda topics: self._share.topics(topics)
            )
        self.service = make_service(self.locks)
        self.fetch = Fetch(member, limits, self.service, locks=self.locks is not None)
        beginning = Beginning(member.instance, member.store, member.settings)
        self.assignment = Assignment(member, self.fetch, self.service, self.locks, beginning.offset)
        self._share = make_share(self.assignment, beginning)

    def start(self) -> None:
        if self.locks is not None:
            self.locks.start()

    async def rebalance(self) -> None:
        await self._share.run()

    def missing(self, topics: Iterable[str]) -> str | None:
        """Why nothing comes of one of these topics: nobody answers who would have to.

        None while messages come, and while no queue is for this member or the topic does not exist.
        """
        for topic in topics:
            shown = self._instance.namespace.plain(topic)
            brokers = sorted({queue.broker_name for queue in self.assignment.queues if queue.topic == topic})
            if brokers:
                if not any(map(self._instance.answers, brokers)):
                    return f"no broker answers that has its queues of {shown}: {', '.join(brokers)}"
            elif (why := self._share.unknown(topic)) is not None:
                return f"it is not known which queues of {shown} are for it: {why}"
            elif due := self.assignment.due.get(topic):
                return f"none of the {due} queues of {shown} that are for it could be taken yet"
        return None

    async def stop(self, limit: float) -> int:
        """Pull and call nothing more, wait for the calls under way, keep every offset, give back every lock.

        :returns: how many calls still run after ``limit`` seconds: their messages come again.
        """
        self.assignment.stop()
        left = await self.service.drain(limit)
        await self.assignment.end()
        return left
