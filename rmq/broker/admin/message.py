"""Looking messages up: by key, by offset id, and queue entries as they are (requests 12, 33, 321)."""

from __future__ import annotations

import logging

from rmq.broker.admin.lookup import Lookup
from rmq.broker.groups.clients import Consumers
from rmq.broker.groups.filters import ConsumerFilters
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.store import Store
from rmq.protocol import fastjson
from rmq.protocol.bodies.stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.message import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from rmq.protocol.permissions import use_topic
from rmq.protocol.record import topic_of
from rmq.remoting.conn import Conn
from rmq.remoting.router import LARGE, handles

__all__ = ["MessageAdmin"]

log = logging.getLogger(__name__)

#: Most entries one 321 shows.
_MOST_ENTRIES = 4_096
#: What an answer with whole messages of any size counts for while it is made, bytes.
_MESSAGES = 4 << 20
#: Most bytes of messages in one answer: clients take frames of 16 MiB.
_MOST_BYTES = 12 << 20


class MessageAdmin:
    """Handlers of the message lookups (protocol.md 2.5, 2.10)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        consumers: Consumers,
        lookup: Lookup,
        filters: ConsumerFilters,
    ) -> None:
        self._filters = filters
        self._settings = settings
        self._store = store
        self._consumers = consumers
        self._lookup = lookup

    @handles(RequestCode.QUERY_MESSAGE, header=QueryMessageRequest, answer=_MESSAGES)
    async def query(self, conn: Conn, request: Command, header: QueryMessageRequest) -> Command:
        """12: messages of a topic with a key, or with a unique key, as whole records; says when there may be more."""
        settings = self._settings
        asked = settings.default_query_max_num if header.unique_key_query else header.max_num
        if asked < 0:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"maxNum={asked}: a number of messages is expected")
        limit = min(asked, settings.max_msgs_num_batch)
        records, cut = await self._store.query_message(
            header.topic, header.key, limit, header.begin_timestamp, header.end_timestamp, _MOST_BYTES
        )
        if not cut and limit < asked and len(records) == limit:
            cut = f"only the newest {limit}: one answer has no more (maxMsgsNumBatch)"
        stamp = position = 0
        if records and self._store.index is not None:
            stamp, position = self._store.index.end
        found = QueryMessageResponse(index_last_update_timestamp=stamp, index_last_update_phyoffset=position)
        building = None if self._store.indexing.build is None else self._store.indexing.build.progress()
        remark = "; ".join(filter(None, (building, cut))) or None
        if not records:
            remark = remark or "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, found)
        return _plain(request.reply(ResponseCode.SUCCESS, remark, found, body=b"".join(records)))

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, header=ViewMessageRequest, answer=_MESSAGES)
    async def view(self, conn: Conn, request: Command, header: ViewMessageRequest) -> Command:
        """33: the record at a commit-log offset, unless its topic was deleted since."""
        record = await self._store.messages.at(header.offset)
        if record is None or self._store.deletions.is_dead(topic_of(record), header.offset):
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        request.demand(use_topic(topic_of(record)))
        return _plain(request.reply(ResponseCode.SUCCESS, body=record))

    @handles(RequestCode.QUERY_CONSUME_QUEUE, header=QueryConsumeQueueRequest, answer=LARGE)
    async def consume_queue(self, conn: Conn, request: Command, header: QueryConsumeQueueRequest) -> Command:
        """321: entries of a queue, and whether a group's subscription lets each through."""
        topic, queue_id = header.topic or "", header.queue_id
        queue = self._lookup.queue(topic, queue_id)
        if queue is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not queue.min <= header.index < queue.visible:
            return request.reply(ResponseCode.SUCCESS, f"Index {header.index} of {queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(max_queue_index=queue.visible, min_queue_index=queue.min)
        wanted: frozenset[int] | None = None
        if header.consumer_group is not None:
            group = self._consumers.group(header.consumer_group)
            subscription = None if group is None else group.subscription(topic)
            if subscription is None:
                body.filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                body.subscription_data = subscription.data
                body.filter_data = self._filter_text(topic, header.consumer_group)
                # Whether an expression lets a message through its entry does not tell.
                wanted = subscription.code_set if subscription.data.is_tag_type else None
        entries = await self._lookup.entries(queue, header.index, min(max(header.count, 0), _MOST_ENTRIES))
        body.queue_data = [
            ConsumeQueueData(
                physic_offset=position,
                physic_size=size,
                tags_code=code,
                eval=wanted is not None and (not wanted or code in wanted),
            )
            for position, size, code in entries
        ]
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def _filter_text(self, topic: str, group: str) -> str:
        """What is known of a group's SQL92 expression, as Java writes it."""
        one = self._filters.get(topic, group)
        if one is None:
            return "null"
        return fastjson.pretty(one.to_body(self._filters.bloom.m).to_object()).decode()


def _plain(answer: Command) -> Command:
    """Answers that carry records have a JSON header whatever the request's was (protocol.md 1.1)."""
    answer.serialize = SerializeType.JSON
    return answer
