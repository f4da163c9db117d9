"""QUERY_ASSIGNMENT: the broker divides a topic's queues, and says whether to pull or to pop from them (400)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rmq.broker.pop.allocate import STRATEGIES, allocate_to_pop, strategy_for
from rmq.protocol.bodies.pop import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, ResponseError, TransportError
from rmq.protocol.headers.namesrv import GetRouteInfoRequest
from rmq.protocol.names import RETRY_PREFIX
from rmq.protocol.permissions import use_group, use_topic
from rmq.protocol.queue import MAX_QUEUES, MessageQueue
from rmq.remoting.long_body import in_pieces
from rmq.remoting.router import SHORT, handles

if TYPE_CHECKING:
    from rmq.broker.groups.clients import Consumers
    from rmq.broker.pop.modes import RequestModes
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.topics.table import TopicTable
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["Assignment"]

log = logging.getLogger(__name__)

#: A route is asked for again after this long, seconds; answers within a client's patience even with a dead name server.
_ROUTE_SECONDS = 5.0
_ROUTE_TIMEOUT = 0.8
#: Routes kept.
_ROUTES = 10_000
#: Queues made before the loop gets its turn.
_QUEUES_PER_TURN = 2_000


class Assignment:
    """Answers 400.

    :param client: calls the name servers.
    :param namesrvs: their addresses.
    """

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        topics: TopicTable,
        consumers: Consumers,
        modes: RequestModes,
        client: RemotingClient,
        namesrvs: Callable[[], Sequence[str]],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._topics = topics
        self._consumers = consumers
        self._modes = modes
        self._client = client
        self._namesrvs = namesrvs
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}

    @handles(RequestCode.QUERY_ASSIGNMENT, body=SHORT)
    async def query(self, conn: Conn, request: Command) -> Command:
        """400: the queues of one member, each with its mode; none while the broker does not know the group."""
        if not request.body:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the request has no body")
        body = QueryAssignmentRequestBody.decode(request.body)
        topic, group = body.topic, body.consumer_group
        for name, value in (("topic", topic), ("consumerGroup", group), ("messageModel", body.message_model)):
            if not value:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the request names no {name}")
        request.demand(use_topic(topic), use_group(group))
        mode = self._modes.get(topic, group)
        name = "PULL" if topic.startswith(RETRY_PREFIX) or body.message_model == "BROADCASTING" else mode.mode or "PULL"
        queues = await self._queues(topic)
        found: list[MessageQueue]
        if body.message_model == "BROADCASTING":
            found = queues
        else:
            strategy_name = body.strategy_name or "AVG"
            if strategy_name not in STRATEGIES:
                raise ResponseError(
                    ResponseCode.INVALID_PARAMETER,
                    f"the broker cannot divide queues by {body.strategy_name}: it knows {', '.join(STRATEGIES)}; "
                    "let the client divide them",
                )
            members = self._consumers.group(group)
            ids = sorted(members.client_ids()) if members is not None else []
            if not ids or not queues:
                found = []
            else:
                strategy = await strategy_for(strategy_name, queues, ids)
                if name == "POP":
                    found = allocate_to_pop(strategy, body.client_id, queues, ids, mode.pop_share_queue_num)
                else:
                    found = strategy(body.client_id, queues, ids) if body.client_id in ids else []

        def encode(queues: Sequence[MessageQueue]) -> bytes:
            return QueryAssignmentResponseBody(
                message_queue_assignments=[MessageQueueAssignment(message_queue=queue, mode=name) for queue in queues]
            ).encode()

        return request.reply(ResponseCode.SUCCESS, body=await in_pieces(found, encode))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Every readable queue of a topic in the cluster, sorted; this broker's own when no name server answers."""
        now = self._clock.monotonic()
        known = self._routes.get(topic)
        if known is not None and now - known[0] < _ROUTE_SECONDS:
            return known[1]
        found = await self._ask(topic)
        own = await self._own(topic)
        if found is None:
            return known[1] if known is not None else own
        if not any(queue.broker_name == self._settings.broker_name for queue in found):
            # A topic so young that the name server has not heard of it.
            counts = Counter(queue.broker_name for queue in (*found, *own))
            found = await _sorted(topic, list(counts.items()))
        if len(self._routes) >= _ROUTES:
            self._routes.clear()
        self._routes[topic] = (now, found)
        return found

    async def _ask(self, topic: str) -> list[MessageQueue] | None:
        for addr in self._namesrvs():
            request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic))
            try:
                answer = await self._client.request(addr, request, _ROUTE_TIMEOUT)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return []
                if answer.code != ResponseCode.SUCCESS:
                    continue
                route = TopicRouteData.decode(answer.body)
            except (TransportError, ProtocolError) as error:
                log.warning("the name server %s does not tell the route of %s: %s", addr, topic, error)
                continue
            return await _sorted(
                topic,
                [
                    (data.broker_name, min(data.read_queue_nums, MAX_QUEUES))
                    for data in route.queue_datas
                    if data.perm & 4
                ],
            )
        return None

    async def _own(self, topic: str) -> list[MessageQueue]:
        config = self._topics.get(topic)
        if config is None or not config.perm & 4:
            return []
        return await _sorted(topic, [(self._settings.broker_name, config.read_queue_nums)])


async def _sorted(topic: str, counts: list[tuple[str, int]]) -> list[MessageQueue]:
    """The queues of (broker name, how many) in the order of rebalancing, some thousands a turn of the loop."""
    found: list[MessageQueue] = []
    for broker, count in sorted(counts):
        for first in range(0, count, _QUEUES_PER_TURN):
            if first:
                await asyncio.sleep(0)
            found += [
                MessageQueue(topic, broker, number) for number in range(first, min(count, first + _QUEUES_PER_TURN))
            ]
    return found
