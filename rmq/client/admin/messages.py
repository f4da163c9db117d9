"""Messages: reading a queue from an offset on, and entries of queues."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rmq.client.admin.asking import Asking
from rmq.client.checks import check_number, typed
from rmq.client.lookup import FOREVER, query_message
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import PullResult, PullStatus, QueryResult
from rmq.protocol import subscription
from rmq.protocol.bodies.stats import QueryConsumeQueueResponseBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.message import QueryConsumeQueueRequest

if TYPE_CHECKING:
    from rmq.client.consumer.puller import Puller

__all__ = ["TOOLS_CONSUMER", "Messages"]

#: The group that Java's tools read with: every broker has it.
TOOLS_CONSUMER = "TOOLS_CONSUMER"


@typed(but=("offset", "max_nums", "key"))
class Messages(Asking):
    """Operations on messages."""

    _puller: Puller | None = None

    async def pull(self, queue: MessageQueue, offset: int, max_nums: int = 32, *, expression: str = "*") -> PullResult:
        """Messages of a queue from an offset on; answered at once, and nobody's offset moves.

        :param max_nums: at most; brokers give 32 at most by default.
        :param expression: tags, ``TagA || TagB``, or ``*``.
        """
        from rmq.client.consumer.puller import Puller  # few commands pull, and it is slow to load

        check_number(offset, "the offset")
        check_number(max_nums, "max_nums")
        if self._puller is None:
            self._puller = Puller(self._client, TOOLS_CONSUMER, ())
        wanted = subscription.build(queue.topic, expression)
        return await self._puller.pull(
            queue,
            wanted,
            offset,
            max_nums=max_nums,
            timeout=self._settings.mq_client_api_timeout,
            post_subscription=True,
        )

    async def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int | datetime = 0, end: int | datetime = FOREVER
    ) -> QueryResult:
        """Messages of a topic with a key, none where there is none (queryMsgByKey); ``missing`` names brokers that did
        not answer within ``mq_client_api_timeout``, the remark says what else is to be known.

        :param max_num: most messages a broker is asked for.
        :param begin: from this store time on, a datetime or milliseconds since the epoch. :param end: up to this one.
        """
        limit = self._settings.mq_client_api_timeout
        request = self._client.remoting.request

        async def through(address: str, command: Command, seconds: float) -> Command:
            return await self._unless_silent(address, lambda: request(address, command, seconds))

        return await query_message(self._client, topic, key, max_num, begin, end, timeout=limit, through=through)

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """The message at an offset of a queue (queryMsgByOffset); None when there is none."""
        result = await self.pull(queue, offset, 1)
        if result.status is not PullStatus.FOUND:
            return None
        return next((message for message in result.messages if message.queue_offset == offset), None)

    async def query_consume_queue(
        self, broker_addr: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a queue, and whether a group's filter lets each through (queryCq).

        :param index: the first entry's offset. :param count: entries at most.
        """
        header = QueryConsumeQueueRequest(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        reply = await self._client.call(broker_addr, RequestCode.QUERY_CONSUME_QUEUE, header)
        return QueryConsumeQueueResponseBody.decode(reply.body)
