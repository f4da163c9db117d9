"""The admin client (Java: DefaultMQAdminExt): what operators ask of name servers and brokers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from rmq.client.checks import typed
from rmq.client.instance import ClientInstance, connect_instance
from rmq.client.lookup import Lookups
from rmq.client.reset import OffsetReset, reset_queue, reset_to_time
from rmq.client.results import GroupConnections, GroupStats, TopicStats
from rmq.client.settings import AdminOptions, AdminSettings, lists_options
from rmq.client.topics import create_topic_on
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.connection import Connection, ConsumerConnection
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.kv import GroupList, KVTable, TopicList
from rmq.protocol.bodies.pop import REQUEST_MODES, SetMessageRequestModeRequestBody
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.stats import ConsumeStats, TopicStatsTable
from rmq.protocol.bodies.topic import TopicConfig, TopicConfigTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ResponseError, RMQError, TransportError
from rmq.protocol.header import Header
from rmq.protocol.headers.client import GetConsumerConnectionListRequest, GetConsumerRunningInfoRequest
from rmq.protocol.headers.group import DeleteSubscriptionGroupRequest, GetConsumeStatsRequest
from rmq.protocol.headers.namesrv import GetTopicsByClusterRequest
from rmq.protocol.headers.topic import GetTopicStatsInfoRequest, QueryTopicConsumeByWhoRequest
from rmq.protocol.names import group_of_retry_topic, is_retry_topic, retry_topic
from rmq.protocol.queue import MessageQueue
from rmq.runtime.world import World

__all__ = ["AdminClient"]

#: For what a broker gathers over all its queues.
_BROKER_SECONDS = 5.0
#: Who took so many seconds to fail is not asked again for so many: a look at every topic must not wait each time.
_SLOW_SECONDS = 1.0
_NOT_AGAIN_SECONDS = 10.0
#: Answers about a group: 206, and 213 of 5.x, say that there is nobody, or no offset.
_NOTHING_THERE = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE, 213)


@lists_options(AdminSettings)
@typed()
class AdminClient(Lookups):
    """Asks and changes a cluster; coroutines of one loop may share it.

    :param options: see :class:`~rmq.client.settings.AdminOptions`.

    ::

        async with AdminClient(namesrv="127.0.0.1:9876") as admin:
            print((await admin.topic_list()).topic_list)

    Every call raises ResponseError when the other side refuses, TransportError when it does not answer.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[AdminOptions]) -> None:
        self.settings: AdminSettings = AdminSettings.of(options)
        self.world: World = world or World.around()
        self._instance: ClientInstance | None = None
        self._options = options
        #: Brokers that did not answer in time, by address: until when they are left alone, and what was said.
        self._silent: dict[str, tuple[float, TransportError]] = {}

    def _renew(self) -> AdminClient:
        """The same client, not started: for a forked child."""
        return AdminClient(**self._options)

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> ClientInstance:
        """:raises ClientError: the client is not started."""
        if self._instance is None:
            raise ClientError("the admin client is not started: use it with 'with', or call start()")
        return self._instance

    async def start(self) -> None:
        """:raises ClientError: no name server is known."""
        if self._instance is None:
            instance = connect_instance(self.world, self.settings)
            await instance.acquire()
            self._instance = instance

    async def shutdown(self) -> None:
        """Close the connections."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _ask_namesrv(self, code: RequestCode, header: Header | None = None) -> Command:
        instance = self._client
        reply = await instance.name_servers.request(
            Command.request(code, header), instance.settings.mq_client_api_timeout
        )
        if reply.code != ResponseCode.SUCCESS:
            raise ResponseError(reply.code, reply.remark)
        return reply

    # -- cluster ------------------------------------------------------------------------------------------------------

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers asked."""
        return self._client.name_servers.addresses

    async def cluster_info(self) -> ClusterInfo:
        """Clusters, broker names and addresses (clusterList)."""
        return await self._client.name_servers.cluster_info(self.settings.mq_client_api_timeout)

    async def masters(self, cluster: str) -> dict[str, str]:
        """Broker name to master address of one cluster. :raises ClientError: there is no such cluster."""
        info = await self.cluster_info()
        if cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ClientError(f"there is no cluster {cluster} at this name server (known: {known})")
        found = {}
        for name in sorted(info.cluster_addr_table[cluster]):
            broker = info.broker_addr_table.get(name)
            if broker is not None and 0 in broker.broker_addrs:
                found[name] = broker.broker_addrs[0]
        return found

    async def broker_runtime_stats(self, broker_addr: str) -> dict[str, str]:
        """A broker's figures by name (brokerStatus; protocol.md 4.12)."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(reply.body).table

    async def broker_ha_status(self, broker_addr: str) -> HARuntimeInfo:
        """A master's slaves and how far each is, or how far a slave is (haStatus; Java: HARuntimeInfo)."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(reply.body)

    async def broker_config(self, broker_addr: str) -> str:
        """A broker's settings as properties text."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_CONFIG)
        return reply.body.decode()

    # -- topics -------------------------------------------------------------------------------------------------------

    async def topic_list(self) -> TopicList:
        """Every topic the name servers know."""
        return TopicList.decode((await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)

    async def topics_by_cluster(self, cluster: str) -> TopicList:
        """The topics of one cluster; empty for an unknown one."""
        header = GetTopicsByClusterRequest(cluster=cluster)
        return TopicList.decode((await self._ask_namesrv(RequestCode.GET_TOPICS_BY_CLUSTER, header)).body)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Which brokers and queues serve a topic. :raises ResponseError: code 17: none does."""
        route = await self._client.name_servers.route(topic, self.settings.mq_client_api_timeout)
        if route is None:
            what = f"no broker serves the topic {topic}"
            if is_retry_topic(topic):
                what = f"no broker knows the group {group_of_retry_topic(topic)}: none has a topic {topic}"
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, what)
        return route

    async def _ask_brokers(
        self, topic: str, code: RequestCode, header: Header, *, accept: tuple[int, ...] = (ResponseCode.SUCCESS,)
    ) -> tuple[dict[str, Command], dict[str, RMQError]]:
        """Ask every broker of a topic at once: the answers, and what went wrong, by broker name.

        :raises RMQError: the one of the first of them, when none has answered.
        """
        route = await self.topic_route(topic)
        addresses = {
            one.broker_name: one.broker_addrs[min(one.broker_addrs)] for one in route.broker_datas if one.broker_addrs
        }

        async def ask(address: str) -> Command | RMQError:
            began = self.world.clock.monotonic()
            until, said = self._silent.get(address, (began, None))
            if said is not None and began < until:
                return said
            try:
                return await self._client.call(address, code, header, timeout=_BROKER_SECONDS, accept=accept)
            except TransportError as error:
                now = self.world.clock.monotonic()
                if now - began >= _SLOW_SECONDS:
                    self._silent[address] = now + _NOT_AGAIN_SECONDS, error
                return error
            except RMQError as error:
                return error

        outcomes = dict(zip(addresses, await asyncio.gather(*map(ask, addresses.values())), strict=True))
        failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, RMQError)}
        if failed and len(failed) == len(outcomes):
            raise next(iter(failed.values()))
        return {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Command)}, failed

    async def topic_stats(self, topic: str) -> TopicStats:
        """Lowest and highest offset and last store time of each queue (topicStatus)."""
        header = GetTopicStatsInfoRequest(topic=topic)
        answers, failed = await self._ask_brokers(topic, RequestCode.GET_TOPIC_STATS_INFO, header)
        table = TopicStats(missing=_said(failed))
        for reply in answers.values():
            table.offset_table.update(TopicStatsTable.decode(reply.body).offset_table)
        return table

    async def create_and_update_topic(
        self,
        broker_addr: str,
        topic: str,
        *,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = 6,
        topic_sys_flag: int = 0,
        order: bool = False,
    ) -> None:
        """Create or change a topic on one broker (updateTopic -b)."""
        await create_topic_on(
            self._client,
            broker_addr,
            topic,
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            topic_sys_flag=topic_sys_flag,
            order=order,
        )

    async def topic_configs(self, broker_addr: str) -> TopicConfigTable:
        """Every topic configuration of a broker."""
        reply = await self._client.call(broker_addr, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigTable.decode(reply.body)

    async def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """One topic's configuration on a broker; None when it does not have it."""
        return (await self.topic_configs(broker_addr)).topic_config_table.get(topic)

    async def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """The groups that have offsets or connections for a topic.

        :raises RMQError: one of its brokers does not tell.
        """
        header = QueryTopicConsumeByWhoRequest(topic=topic)
        answers, failed = await self._ask_brokers(topic, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        for error in failed.values():
            raise error
        return sorted({group for reply in answers.values() for group in GroupList.decode(reply.body).group_list})

    # -- groups -------------------------------------------------------------------------------------------------------

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
            raise ClientError(f"the mode is {mode!r:.40}: give {' or '.join(REQUEST_MODES)}")
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
        merged = GroupStats(missing=_said(failed))
        for reply in answers:
            one = ConsumeStats.decode(reply.body)
            merged.offset_table.update(one.offset_table)
            merged.consume_tps += one.consume_tps
        return merged

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
        merged.missing = _said(failed)
        return merged

    async def _ask_group(
        self, group: str, code: RequestCode, header: Header
    ) -> tuple[list[Command], dict[str, RMQError]]:
        """Ask every broker that has a group's retry topic; one that knows nothing of the group has nothing to add.

        :raises ResponseError: code 206: none of them does. :raises RMQError: none of them answers.
        """
        answers, failed = await self._ask_brokers(retry_topic(group), code, header, accept=_NOTHING_THERE)
        found = [reply for reply in answers.values() if reply.code == ResponseCode.SUCCESS]
        if not found and not failed:
            code_, remark = next(
                ((reply.code, reply.remark) for reply in answers.values()),
                (ResponseCode.CONSUMER_NOT_ONLINE, f"no broker has the group {group}"),
            )
            raise ResponseError(code_, remark)
        return found, failed

    async def delete_subscription_group(self, broker_addr: str, group: str, *, remove_offset: bool = False) -> None:
        """Delete a subscription group on one broker; an unknown one is no error (deleteSubGroup).

        :param remove_offset: its offsets go as well; otherwise a new group of this name goes on where it stood.
        """
        header = DeleteSubscriptionGroupRequest(group_name=group, remove_offset=remove_offset)
        await self._client.call(broker_addr, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def consumer_running_info(
        self, group: str, client_id: str, broker_addr: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """What one member of a group tells of itself, through a broker that it is connected to.

        :param jstack: with the stacks of its threads.
        """
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        reply = await self._client.call(broker_addr, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout=10.0)
        return ConsumerRunningInfo.decode(reply.body)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp: int | datetime, *, force: bool = True
    ) -> list[OffsetReset]:
        """Move a group on a topic to a time (resetOffsetByTime): its members go there, or its stored offsets do.

        :param timestamp: a datetime, or milliseconds since the epoch; -1: the end of each queue.
        :param force: forward as well; False: never beyond where the group stands.
        :raises ClientError: the group has no offset on the topic.
        """
        return await reset_to_time(self._client, group, topic, timestamp, force=force)

    async def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> OffsetReset:
        """Move a group on one queue to an offset, whether members are online or not.

        :raises ClientError: the queue does not have that offset; nothing is changed.
        """
        return await reset_queue(self._client, group, queue, offset)


def _said(failed: dict[str, RMQError]) -> dict[str, str]:
    return {name: str(error) for name, error in sorted(failed.items())}


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
