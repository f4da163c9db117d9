"""Which queues are ours: who is in the group, and what the strategy says (protocol.md 7.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Set

from rmq.client.allocate import AllocateMessageQueueStrategy, is_quick
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.member import Member
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.shown import shown, told
from rmq.protocol.bodies.kv import GetConsumerListByGroupResponseBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ClientError, RequestTimeout, RMQError
from rmq.protocol.headers.client import GetConsumerListByGroupRequest
from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.runtime.aside import logger

__all__ = ["HANDOVER", "Rebalance", "an_address", "consumer_ids", "our_share"]

log = logger(__name__)

#: Seconds that the last owners of queues have to note their offsets, once in a rebalance.
HANDOVER = 0.2
#: How long a rebalance waits for an application's own strategy.
_SECONDS = 10.0


async def an_address(instance: ClientInstance, topic: str) -> str:
    """One of the brokers that a topic is on, where it is now. :raises RMQError: it is on none, or nobody is there."""
    route = instance.routes.own.get(topic)
    brokers = [broker.broker_name for broker in route.broker_datas if broker.broker_addrs] if route else []
    if not brokers:
        raise ClientError(f"the topic {topic} has no broker now")
    address, _ = await instance.find_reader(MessageQueue(topic, instance.world.random.choice(brokers), 0))
    return address


async def consumer_ids(instance: ClientInstance, group: str, topic: str) -> list[str]:
    """The client ids of a group, sorted, as a broker of the topic knows them (code 38).

    :raises RMQError: no broker says.
    """
    address = await an_address(instance, topic)
    header = GetConsumerListByGroupRequest(consumer_group=group)
    reply = await instance.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return sorted(set(GetConsumerListByGroupResponseBody.decode(reply.body).consumer_id_list))


async def our_share(
    strategy: AllocateMessageQueueStrategy,
    instance: ClientInstance,
    group: str,
    queues: list[MessageQueue],
    client_ids: list[str],
) -> list[MessageQueue]:
    """What the strategy gives this client; nothing while the broker does not know it.

    :raises ClientError: an application's own strategy fails, or gives something else.
    """
    client_id = instance.client_id
    if client_id not in client_ids:
        log.info("group %s: %s is not among its %d members yet", group, client_id, len(client_ids))
        return []
    if not queues:
        return []
    topic = queues[0].topic
    what = f"the allocation strategy {getattr(strategy, 'name', type(strategy).__name__)}"

    def allocate() -> list[MessageQueue]:
        return list(strategy.allocate(group, client_id, queues, client_ids))

    try:
        share = allocate() if is_quick(strategy) else await instance.application.call(allocate, _SECONDS, what)
    except RequestTimeout:
        raise
    except Exception as error:
        raise ClientError(f"{what} raised {told(error)}") from error
    if not all(isinstance(queue, MessageQueue) for queue in share):
        raise ClientError(f"{what} gave {shown(share)}: it must give queues")
    return [queue for queue in share if queue.topic == topic]  # a fixed list may name those of several topics


class Rebalance:
    """Looks at the group and has the assignment follow: all queues when broadcasting, else this member's share.

    :param on_changed: told (topic, all queues, ours) when what we own of a topic changed; awaited.
    """

    def __init__(
        self,
        member: Member,
        strategy: AllocateMessageQueueStrategy,
        assignment: Assignment,
        beginning: Beginning,
        on_changed: Callable[[str, list[MessageQueue], list[MessageQueue]], object],
    ) -> None:
        self._instance = member.instance
        self._group = member.group
        self._broadcasting = member.settings.broadcasting
        self._strategy = strategy
        self._subscriptions = member.subscriptions
        self._assignment = assignment
        self._beginning = beginning
        self._on_changed = on_changed
        #: Topics whose last rebalance failed, and why: said once while it lasts.
        self._failing: dict[str, str] = {}
        #: Topics of which it is known what is ours, if anything.
        self._known: set[str] = set()
        #: This rebalance has given last owners their time.
        self._gave_time = False

    async def run(self) -> None:
        """Take and give up queues as the group stands now; one at a time."""
        assignment = self._assignment
        async with assignment.changing:
            if assignment.stopped:
                return
            self._gave_time = False
            for topic in list(self._subscriptions):
                await self._try_topic(topic)
            await self._leave_unsubscribed()

    async def _leave_unsubscribed(self) -> None:
        for queue, pq in list(self._assignment.queues.items()):
            if queue.topic not in self._subscriptions:
                await self._assignment.give_up(pq)

    async def topics(self, topics: Set[str]) -> None:
        """The same for some topics alone."""
        async with self._assignment.changing:
            for topic in sorted(topics & self._subscriptions.keys()):
                await self._try_topic(topic)

    def unknown(self, topic: str) -> str | None:
        """Why it is not known which queues of a topic are ours; None when it is, and when the topic has none."""
        return self._failing.get(topic) or (None if topic in self._known else "nobody has said yet")

    async def _try_topic(self, topic: str) -> None:
        try:
            await self._topic(topic)
            self._failing.pop(topic, None)
        except RMQError as error:
            level = logging.DEBUG if topic in self._failing else self._instance.outages.level(error)
            log.log(level, "group %s: rebalance of %s waits: %s", self._group, topic, error)
            self._failing[topic] = str(error)

    async def _topic(self, topic: str) -> None:
        if self._assignment.stopped:
            return
        queues = self._instance.routes.subscribe_queues(topic)
        if queues is None:
            await self._instance.refresh_route(topic)
            queues = self._instance.routes.subscribe_queues(topic)
            if queues is None:
                self._note_missing(topic)
                self._known.add(topic)
                return
            await self._instance.beats.beat()  # its brokers may not know us yet
        self._beginning.looked(topic, queues)
        changed, mine, known = await self._follow(topic, queues)
        if changed:
            result = self._on_changed(topic, queues, sorted(mine))
            if asyncio.iscoroutine(result):
                await result
        if known:
            self._known.add(topic)
        self._begin()

    async def _follow(self, topic: str, queues: list[MessageQueue]) -> tuple[bool, list[MessageQueue], bool]:
        """Own what is ours of a topic.

        :returns: whether that changed, what it is, and whether it was said: not while a broker does not know us yet.
        """
        if self._broadcasting:
            return await self._take(topic, queues, alone=True), queues, True
        ids = await consumer_ids(self._instance, self._group, topic)
        mine = await our_share(self._strategy, self._instance, self._group, queues, ids)
        return await self._take(topic, mine, alone=len(ids) <= 1), mine, self._instance.client_id in ids

    async def _take(self, topic: str, mine: list[MessageQueue], *, alone: bool) -> bool:
        return await self._assignment.assign(topic, set(mine), _nothing if alone else self._wait_for_last_owners)

    def _begin(self) -> None:
        """Messages come from what is new."""
        self._assignment.begin()

    async def _wait_for_last_owners(self) -> None:
        """They have heard of it when we have: what they note now is where we go on."""
        if not self._gave_time:
            self._gave_time = True
            await asyncio.sleep(HANDOVER)

    def _note_missing(self, topic: str) -> None:
        if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) and self._beginning.looked(topic, ()):
            log.warning(
                "group %s: no broker has the topic %s: either the name is wrong, or nobody has sent to it yet; "
                "it is looked for again",
                self._group,
                topic,
            )


async def _nothing() -> None:
    return None
