"""Subscription groups: how they are made, changed and deleted, and where they stand."""

from __future__ import annotations

from collections.abc import Iterable

from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking, said
from rmq.client.checks import typed
from rmq.client.results import GroupStats
from rmq.client.shown import shown
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupTable
from rmq.protocol.bodies.pop import REQUEST_MODES, SetMessageRequestModeRequestBody
from rmq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ClientError
from rmq.protocol.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetConsumeStatsInBrokerRequest,
    GetConsumeStatsRequest,
)

__all__ = ["Groups"]


@typed()
class Groups(Asking):
    """Operations on subscription groups."""

    async def create_and_update_subscription_group(self, broker_addr: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a subscription group on one broker (updateSubGroup)."""
        await self._client.call(broker_addr, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())

    async def set_message_request_mode(
        self, broker_addr: str, topic: str, group: str, mode: str = "POP", pop_share_queue_num: int = 0
    ) -> None:
        """Have a group pop from a topic, or pull again; its members ask with their next rebalance.

        They are consumers with ``client_rebalance=False``; others pull whatever the mode is. To be set at every master
        that the topic is on.

        :param mode: POP or PULL.
        :param pop_share_queue_num: with how many others a member shares its queues; 0 = all pop from all queues.
        """
        if mode not in REQUEST_MODES:
            raise ClientError(f"the mode is {shown(mode, 40)}: give {' or '.join(REQUEST_MODES)}")
        body = SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=pop_share_queue_num
        )
        await self._client.call(broker_addr, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body.encode())

    async def subscription_groups(self, broker_addr: str) -> SubscriptionGroupTable:
        """Every subscription group of a broker."""
        reply = await self._client.call(broker_addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupTable.decode(reply.body)

    async def consume_stats(self, group: str, topic: str | None = None) -> GroupStats:
        """Where a group stands in each queue, over all brokers of its retry topic (consumerProgress -g).

        ``missing`` names brokers that did not tell.

        :param topic: only this topic.
        :raises ResponseError: code 17: the group never connected; another code: no broker has figures.
        """
        header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
        answers, failed = await self._ask_group(group, RequestCode.GET_CONSUME_STATS, header)
        merged = GroupStats(missing=said(failed))
        for reply in answers:
            one = ConsumeStats.decode(reply.body)
            merged.offset_table.update(one.offset_table)
            merged.consume_tps += one.consume_tps
        return merged

    async def consume_stats_in_broker(
        self, broker_addr: str, *, is_order: bool = False, timeout: float = 50.0
    ) -> ConsumeStatsList:
        """Where every group stands on one broker (brokerConsumeStats).

        :param is_order: ordered topics alone. :param timeout: seconds.
        """
        header = GetConsumeStatsInBrokerRequest(is_order=is_order)
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout=timeout)
        return ConsumeStatsList.decode(reply.body)

    async def subscription_groups_of(self, broker_addrs: Iterable[str]) -> Answers[SubscriptionGroupTable]:
        """Every subscription group of several brokers, asked side by side."""
        return await self._ask_each(
            broker_addrs,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            None,
            b"",
            lambda reply: SubscriptionGroupTable.decode(reply.body),
        )

    async def create_and_update_subscription_groups(
        self, broker_addr: str, configs: Iterable[SubscriptionGroupConfig]
    ) -> None:
        """Create or change several groups on one broker with one request, or none (5.x: updateSubGroupList)."""
        body = SubscriptionGroupList(group_config_list=list(configs)).encode()
        await self._client.call(broker_addr, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    async def delete_subscription_group(self, broker_addr: str, group: str, *, remove_offset: bool = False) -> None:
        """Delete a subscription group on one broker; an unknown one is no error (deleteSubGroup).

        :param remove_offset: its offsets go as well; otherwise a new group of this name goes on where it stood.
        """
        header = DeleteSubscriptionGroupRequest(group_name=group, remove_offset=remove_offset)
        await self._client.call(broker_addr, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
