"""What brokers ask of a client: 39, 40, 220, 221, 307, 309, 326 (protocol.md 2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.decode import pushed, received
from rmq.client.message import MessageQueue
from rmq.protocol.bodies.reset import GetConsumerStatusBody, ResetOffsetBody, ResetOffsetBodyForC
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError
from rmq.protocol.headers.client import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
)
from rmq.protocol.headers.offset import ResetOffsetRequest
from rmq.protocol.headers.reply import ReplyMessageRequest
from rmq.protocol.headers.transaction import CheckTransactionStateRequest
from rmq.protocol.message import decode_record
from rmq.protocol.properties import CORRELATION_ID, PRODUCER_GROUP
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles
from rmq.runtime.aside import logger

if TYPE_CHECKING:
    from rmq.client.instance import ClientInstance

__all__ = ["Answers"]

log = logger(__name__)


class Answers:
    """Answers for every client of one instance."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    @handles(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header=NotifyConsumerIdsChangedRequest)
    def consumer_ids_changed(self, conn: Conn, request: Command, header: NotifyConsumerIdsChangedRequest) -> None:
        log.debug("the members of group %s changed: rebalancing", header.consumer_group)
        self._instance.spawn_rebalance()

    @handles(RequestCode.CHECK_TRANSACTION_STATE, header=CheckTransactionStateRequest)
    def check_transaction(self, conn: Conn, request: Command, header: CheckTransactionStateRequest) -> None:
        message = received(decode_record(request.body), header.bname or "")
        group = message.properties.get(PRODUCER_GROUP, "")
        producer = self._instance.transactions.get(group)
        if producer is None:
            log.warning("asked about a transaction of group %s, which has no transaction producer here", group)
        else:
            producer._asked(conn, header, message)

    @handles(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header=ReplyMessageRequest)
    def reply(self, conn: Conn, request: Command, header: ReplyMessageRequest) -> Command:
        instance = self._instance
        message = pushed(header, request.body, instance.world.clock.now_ms())
        if not instance.answered(message.properties.get(CORRELATION_ID, ""), message):
            log.info("a reply for which nobody waits, or not any more: %r", message)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header=ResetOffsetRequest)
    async def reset_offset(self, conn: Conn, request: Command, header: ResetOffsetRequest) -> None:
        try:
            offsets = ResetOffsetBody.decode(request.body).offset_table
        except ProtocolError:
            # The form for C++ clients: a list.
            listed = ResetOffsetBodyForC.decode(request.body).offset_table
            offsets = {MessageQueue(q.topic, q.broker_name, q.queue_id): q.offset for q in listed}
        consumer = self._instance.consumers.get(header.group)
        if consumer is not None:
            await consumer.reset_offsets(header.topic, offsets)
        else:
            log.warning("asked to reset group %s, which does not consume here", header.group)

    @handles(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header=GetConsumerStatusRequest)
    def consumer_status(self, conn: Conn, request: Command, header: GetConsumerStatusRequest) -> Command:
        consumer = self._instance.consumers.get(header.group)
        offsets = {} if consumer is None else dict(consumer.offsets(header.topic))
        return request.reply(ResponseCode.SUCCESS, body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, header=GetConsumerRunningInfoRequest)
    def running_info(self, conn: Conn, request: Command, header: GetConsumerRunningInfoRequest) -> Command:
        consumer = self._instance.consumers.get(header.consumer_group)
        if consumer is None:
            return self._not_here(request, header.consumer_group)
        info = consumer.running_info(stacks=header.jstack_enable)
        return request.reply(ResponseCode.SUCCESS, body=info.encode())

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, header=ConsumeMessageDirectlyRequest)
    async def consume_directly(self, conn: Conn, request: Command, header: ConsumeMessageDirectlyRequest) -> Command:
        consumer = self._instance.consumers.get(header.consumer_group)
        if consumer is None:
            return self._not_here(request, header.consumer_group)
        message = received(decode_record(request.body), header.broker_name or "")
        result = await consumer.consume_directly(message)
        return request.reply(ResponseCode.SUCCESS, body=result.encode())

    def _not_here(self, request: Command, group: str) -> Command:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
