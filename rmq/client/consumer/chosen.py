"""Queues that the application assigns itself, in place of a share of its group's."""

from __future__ import annotations

from collections.abc import Callable, Set

from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.delivery import Share
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue

__all__ = ["Chosen"]


class Chosen(Share):
    """Has the assignment follow what was chosen.

    :param queues: the chosen ones; None: none were, and ``otherwise`` decides.
    """

    def __init__(
        self,
        instance: ClientInstance,
        assignment: Assignment,
        beginning: Beginning,
        queues: Callable[[], Set[MessageQueue] | None],
        otherwise: Share,
    ) -> None:
        self._instance = instance
        self._assignment = assignment
        self._beginning = beginning
        self._queues = queues
        self._otherwise = otherwise

    async def run(self) -> None:
        chosen = self._queues()
        if chosen is None:
            await self._otherwise.run()
            return
        assignment = self._assignment
        async with assignment.changing:
            for topic in sorted({queue.topic for queue in (*chosen, *assignment.queues)}):
                mine = {queue for queue in chosen if queue.topic == topic}
                # Whichever of them is assigned later was there before: nothing in it is newer than we are.
                self._beginning.looked(topic, self._instance.routes.subscribe_queues(topic) or mine)
                await assignment.assign(topic, mine, _nothing)
            assignment.begin()

    def unknown(self, topic: str) -> str | None:
        return self._otherwise.unknown(topic) if self._queues() is None else None

    async def topics(self, topics: Set[str]) -> None:
        await self.run()


async def _nothing() -> None:
    return None
