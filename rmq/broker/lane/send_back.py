"""CONSUMER_SEND_MSG_BACK: a consumer gives a message back, to have it again later (store-and-broker.md 7.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.lane.admit import RETRY_LIMIT_SINCE
from rmq.broker.reserved import check_group, check_private
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import FAQ, ProtocolError, ResponseError, StoreError
from rmq.protocol.headers.send import ConsumerSendMsgBackRequest
from rmq.protocol.ids import offset_msg_id, pack_host
from rmq.protocol.message import decode_record
from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from rmq.protocol.permissions import use_group, use_topic
from rmq.protocol.tags import string_hash
from rmq.remoting.router import handles

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.groups.configs import GroupTable
    from rmq.broker.lane.admit import Admission
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.protocol.bodies.group import SubscriptionGroupConfig
    from rmq.protocol.bodies.topic import TopicConfig
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import World

__all__ = ["SendBack"]

#: The level of the first retry: 3 and one more each time.
_FIRST_LEVEL = 3


class SendBack:
    """Stores retries and dead letters.

    :param on_sent_back: called with (group, original topic) of each message given back.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        store: Store,
        admission: Admission,
        on_sent_back: Callable[[str, str], None],
    ) -> None:
        self._random = world.random
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._store = store
        self._admission = admission
        self._on_sent_back = on_sent_back

    @handles(RequestCode.CONSUMER_SEND_MSG_BACK, header=ConsumerSendMsgBackRequest)
    async def send_back(self, conn: Conn, request: Command, header: ConsumerSendMsgBackRequest) -> Command | None:
        """Store a copy for later, or as a dead letter."""
        check_group(header.group)
        if request.grant is not None:
            await self._check_permitted(request, header)
        group = self._groups.find(header.group)
        if group is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} {FAQ}"
            )
        if not self._settings.broker_permission & 2:
            raise ResponseError(
                ResponseCode.NO_PERMISSION, f"the broker[{self._settings.broker_ip1}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return request.reply(ResponseCode.SUCCESS)
        unit = 2 if header.unit_mode else 0
        retry = self._topics.create_for_send_back(RETRY_PREFIX + header.group, group.retry_queue_nums, 6, unit)
        if retry is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"topic[{RETRY_PREFIX}{header.group}] not exist")
        if not retry.perm & 2:
            raise ResponseError(
                ResponseCode.NO_PERMISSION, f"the topic[{retry.topic_name}] sending message is forbidden"
            )
        data = await self._store.messages.at(header.offset) if header.offset >= 0 else None
        if data is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        try:
            end = self._store_copy(header, request.version, group, retry, data)
        except ProtocolError:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}") from None
        except (OSError, StoreError) as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the message was not stored: {error}") from None
        if self._topics.unsaved:  # the retry or the dead-letter topic, perhaps
            await self._topics.file.saved()
        answer = request.reply(ResponseCode.SUCCESS)
        if not self._store.settings.group or request.is_oneway:
            return answer
        # Its consumer goes on, and never sees it again but for this copy: that must stay, whoever leads next.
        self._store.acks.hold(end, [(conn, frame.encode(answer))], lambda code: [(conn, _not_kept(request, code))])
        return None

    async def _check_permitted(self, request: Command, header: ConsumerSendMsgBackRequest) -> None:
        """Before anything is made for it: a group's member must not fetch others' messages by sending them back.

        :raises AuthError: the group, or the topic of the message, is not the sender's to use.
        """
        request.demand(use_group(header.group))
        data = await self._store.messages.at(header.offset) if header.offset >= 0 else None
        try:
            source = None if data is None else decode_record(data)
        except ProtocolError:
            return  # it is refused for what it is
        if source is not None:
            waits = source.topic == SCHEDULE_TOPIC
            request.demand(use_topic(source.properties.get("REAL_TOPIC", "") if waits else source.topic))

    def _store_copy(
        self,
        header: ConsumerSendMsgBackRequest,
        version: int,
        group: SubscriptionGroupConfig,
        retry: TopicConfig,
        data: bytes,
    ) -> int:
        """Append it; where the log ends behind it."""
        source = decode_record(data)
        if source.topic != SCHEDULE_TOPIC:  # a retry that waits is its group's all the same
            check_private(source.topic)
        table = dict(source.properties)
        table.setdefault("RETRY_TOPIC", source.topic)
        origin_topic = table["RETRY_TOPIC"]
        store_host = pack_host(*source.store_host)
        if "ORIGIN_MESSAGE_ID" not in table:
            table["ORIGIN_MESSAGE_ID"] = offset_msg_id(*source.store_host, source.physical_offset)
        table["WAIT"] = "false"
        limit = group.retry_max_times
        if version >= RETRY_LIMIT_SINCE and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        queues = self._store.queues
        if source.reconsume_times >= limit or header.delay_level < 0:
            dead = self._topics.create_for_send_back(DLQ_PREFIX + header.group, 1, 6, 0)
            if dead is None:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, f"topic[{DLQ_PREFIX}{header.group}] not exist")
            table["DELAY"] = "0"
            queue = queues.get_or_create(dead.topic_name, 0)
            tag = table.get("TAGS")
            code = string_hash(tag) if tag else 0
        else:
            level = header.delay_level or _FIRST_LEVEL + source.reconsume_times
            target = queues.get_or_create(retry.topic_name, self._random.randrange(group.retry_queue_nums))
            queue, code = self._admission.delay(table, level, target)
        put = self._admission.put(
            queue,
            source.body,
            table,
            source.flag,
            source.sys_flag,
            source.born_timestamp,
            pack_host(*source.born_host),
            store_host,
            min(source.reconsume_times + 1, 0x7FFFFFFF),  # a producer may have claimed any number
            0,
            code,
        )
        end = self._store.append([put]).end
        self._on_sent_back(header.group, origin_topic)
        return end


def _not_kept(request: Command, code: int) -> bytes:
    remark = f"the group has not got the message within its time (code {code}): send it back again"
    return frame.encode(request.reply(ResponseCode.SYSTEM_ERROR, remark))
