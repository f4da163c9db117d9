"""Clients that are connected: members of groups, producers, and what clients tell of themselves."""

from __future__ import annotations

from rmq.client.admin.asking import Asking, said
from rmq.client.checks import typed
from rmq.client.results import GroupConnections
from rmq.protocol.bodies.connection import Connection, ConsumerConnection, ProducerConnection, ProducerTableInfo
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.client import (
    ConsumeMessageDirectlyRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetProducerConnectionListRequest,
)

__all__ = ["Connections"]

#: What a broker asks of a client for us is waited for so many times as long as another call, and a listener longer yet.
_CLIENT, _LISTENER = 4, 10


@typed()
class Connections(Asking):
    """Operations on connected clients."""

    async def consumer_connections(self, group: str, broker_addr: str | None = None) -> GroupConnections:
        """The clients of a group and what they subscribe.

        ``missing`` names brokers that did not tell; while there are some, no client is an answer, too.

        :param broker_addr: ask this broker; by default all that have the group's retry topic.
        :raises ResponseError: code 206: no client is connected.
        """
        header = GetConsumerConnectionListRequest(consumer_group=group)
        if broker_addr is not None:
            reply = await self._client.call(broker_addr, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            return _connections([reply])
        answers, failed = await self._ask_group(group, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        merged = _connections(answers)
        merged.missing = said(failed)
        return merged

    async def producer_connections(self, group: str, topic: str) -> GroupConnections:
        """The clients of a producer group, by the brokers of a topic (producerConnection).

        Only clients whose heartbeat names the group are known: a producer sends it to brokers of topics it has sent to.

        :raises ResponseError: code 1: no broker of the topic knows the group.
        """
        header = GetProducerConnectionListRequest(producer_group=group)
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        unknown = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)  # 1: the broker does not know the group
        answers, failed = await self._ask_brokers(topic, code, header, accept=unknown)
        known = [reply for reply in answers.values() if not reply.code]
        if not known and not failed:
            reply = next(iter(answers.values()), None)
            remark = reply.remark if reply is not None else f"no broker of {topic} answers"
            raise ResponseError(ResponseCode.SYSTEM_ERROR, remark)
        clients: dict[str, Connection] = {}
        for reply in known:
            clients.update((one.client_id, one) for one in ProducerConnection.decode(reply.body).connection_set)
        return GroupConnections(list(clients.values()), missing=said(failed))

    async def producers(self, broker_addr: str) -> ProducerTableInfo:
        """Every producer that a broker knows, by group (producer); a client of 4.9 is in CLIENT_INNER_PRODUCER, too."""
        reply = await self._client.call(broker_addr, RequestCode.GET_ALL_PRODUCER_INFO)
        return ProducerTableInfo.decode(reply.body)

    async def consumer_running_info(
        self, group: str, client_id: str, broker_addr: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """What one member of a group tells of itself, through a broker that it is connected to.

        :param jstack: with the stacks of its threads.
        """
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        reply = await self._client.call(
            broker_addr, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout=self._times(_CLIENT)
        )
        return ConsumerRunningInfo.decode(reply.body)

    async def consume_message_directly(
        self, group: str, client_id: str, offset_msg_id: str, broker_addr: str, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Have a member of a group consume a message now, through the broker that holds the message.

        :param offset_msg_id: ``MessageExt.offset_msg_id``. :param broker_name: of the broker at ``broker_addr``.
        """
        header = ConsumeMessageDirectlyRequest(
            consumer_group=group, client_id=client_id, msg_id=offset_msg_id, broker_name=broker_name
        )
        reply = await self._client.call(
            broker_addr, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout=self._times(_LISTENER)
        )
        return ConsumeMessageDirectlyResult.decode(reply.body)


def _connections(replies: list[Command]) -> GroupConnections:
    """What brokers say of a group, each client once; the last one's word counts where they differ."""
    merged = GroupConnections()
    clients: dict[str, Connection] = {}
    for reply in replies:
        one = ConsumerConnection.decode(reply.body)
        clients.update((client.client_id, client) for client in one.connection_set)
        merged.subscription_table.update(one.subscription_table)
        merged.consume_from_where = one.consume_from_where
        merged.consume_type = one.consume_type
        merged.message_model = one.message_model
    merged.connection_set = list(clients.values())
    return merged
