"""Which queues are ours, as a broker says: it divides them, and has them pulled or popped from (400)."""

from __future__ import annotations

from collections.abc import Callable

from rmq.client.allocate import AllocateMessageQueueStrategy
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.member import Member
from rmq.client.consumer.pop.pops import Pops
from rmq.client.consumer.rebalance import Rebalance, an_address
from rmq.client.consumer.subscriptions import Subscriptions
from rmq.client.message import MessageQueue
from rmq.protocol.bodies.pop import QueryAssignmentRequestBody, QueryAssignmentResponseBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import is_retry_topic
from rmq.runtime.aside import logger

__all__ = ["BrokerRebalance"]

log = logger(__name__)

#: What a broker answers that cannot divide queues, or not in the way that was asked for.
_CANNOT = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.INVALID_PARAMETER)


class BrokerRebalance(Rebalance):
    """Has assignment and pops follow what a broker of each topic says (Java: clientRebalance=false).

    A topic whose broker cannot say is divided by us, as without it.
    """

    def __init__(
        self,
        member: Member,
        strategy: AllocateMessageQueueStrategy,
        assignment: Assignment,
        beginning: Beginning,
        on_changed: Callable[[str, list[MessageQueue], list[MessageQueue]], object],
        pops: Pops,
        subscriptions: Subscriptions,
    ) -> None:
        super().__init__(member, strategy, assignment, beginning, on_changed)
        self._member = member
        self._pops = pops
        self._subscribed = subscriptions
        #: Topics that we divide ourselves.
        self._by_client: set[str] = set()

    async def _follow(self, topic: str, queues: list[MessageQueue]) -> tuple[bool, list[MessageQueue], bool]:
        if topic in self._by_client:
            return await super()._follow(topic, queues)
        try:
            assigned = await self._assigned(topic)
        except ResponseError as error:
            if error.code not in _CANNOT:
                raise
            log.warning("group %s: the broker does not divide the queues of %s, we do: %s", self._group, topic, error)
            self._by_client.add(topic)
            return await super()._follow(topic, queues)
        popped = [queue for queue, mode in assigned if mode == "POP"]
        pulled = [queue for queue, mode in assigned if mode != "POP"]
        if assigned and not is_retry_topic(topic):
            # Pops bring what failed at earlier pops by themselves; who pulls has to subscribe it.
            await self._subscribed.pop_retries(self._instance, topic, wanted=not popped)
        changed = self._pops.assign(topic, set(popped))
        return await self._take(topic, pulled, alone=False) or changed, [*popped, *pulled], True

    async def _assigned(self, topic: str) -> list[tuple[MessageQueue, str | None]]:
        """:raises RMQError: no broker says."""
        settings = self._member.settings
        body = QueryAssignmentRequestBody(
            client_id=self._instance.client_id,
            consumer_group=self._group,
            message_model="BROADCASTING" if settings.broadcasting else "CLUSTERING",
            strategy_name=getattr(self._strategy, "name", None),
            topic=topic,
        )
        reply = await self._instance.call(
            await an_address(self._instance, topic), RequestCode.QUERY_ASSIGNMENT, None, body.encode()
        )
        found = QueryAssignmentResponseBody.decode(reply.body).message_queue_assignments
        return [
            (one.message_queue, one.mode)
            for one in found
            if one.message_queue is not None and one.message_queue.topic == topic
        ]

    def _begin(self) -> None:
        super()._begin()
        self._pops.begin()

    async def _leave_unsubscribed(self) -> None:
        await super()._leave_unsubscribed()
        for topic in {queue.topic for queue in self._pops.queues} - self._subscriptions.keys():
            self._pops.assign(topic, set())
