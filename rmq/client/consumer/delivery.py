"""How messages come to an application: a consumer's queues (``assignment``), their pulls (``fetch``), and what hands
messages out (``service``); which queues it has, ``rebalance`` decides, or the application (``chosen``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from typing import Protocol

from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.fetch import Fetch, Limits
from rmq.client.consumer.kept_locks import KeptLocks
from rmq.client.consumer.member import Member
from rmq.client.consumer.pop.pops import Pops
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
    :param pops: where a broker may have queues popped from.
    """

    def __init__(
        self,
        member: Member,
        limits: Limits,
        make_service: Callable[[KeptLocks | None], Service],
        make_share: Callable[[Assignment, Beginning], Share],
        *,
        in_order: bool = False,
        pops: Pops | None = None,
    ) -> None:
        self._instance = member.instance
        self.pops = pops
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
        self.fetch.start()
        if self.pops is not None:
            self.pops.start()
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
            ours = [*self.assignment.queues, *(self.pops.queues if self.pops is not None else ())]
            brokers = sorted({queue.broker_name for queue in ours if queue.topic == topic})
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
        pops = self.pops
        if pops is None:
            left = await self.service.drain(limit)
        else:
            pops.stop()
            left = sum(await asyncio.gather(self.service.drain(limit), pops.drain(limit)))
        await self.assignment.end()
        return left

    def runs_in(self, task: asyncio.Task[object] | None) -> bool:
        """A listener is called by this task."""
        return task in self.service.listener_tasks or (
            self.pops is not None and task in self.pops.service.listener_tasks
        )

    def pause(self, paused: bool) -> None:
        """Nothing more comes, or it comes again; what is held is consumed."""
        self.fetch.paused = paused
        if self.pops is not None:
            self.pops.paused = paused

    def resize(self, most: int) -> None:
        """Another number of calls at a time."""
        self.service.resize(most)
        if self.pops is not None:
            self.pops.service.resize(most)
