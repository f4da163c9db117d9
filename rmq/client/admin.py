"""The admin client (Java: DefaultMQAdminExt): what operators ask of name servers and brokers."""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from rmq.client.checks import typed
from rmq.client.instance import ClientInstance, connect_instance
from rmq.client.lookup import Lookups
from rmq.client.reset import OffsetReset, reset_queue, reset_to_time
from rmq.client.settings import AdminOptions, AdminSettings
from rmq.client.topics import create_topic_on
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.connection import ConsumerConnection
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.kv import GroupList, KVTable, TopicList
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.bodies.stats import ConsumeStats, TopicStatsTable
from rmq.protocol.bodies.topic import TopicConfig, TopicConfigTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ResponseError, RMQError
from rmq.protocol.header import Header
from rmq.protocol.headers.client import GetConsumerConnectionListRequest, GetConsumerRunningInfoRequest
from rmq.protocol.headers.group import DeleteSubscriptionGroupRequest, GetConsumeStatsRequest
from rmq.protocol.headers.namesrv import GetTopicsByClusterRequest
from rmq.protocol.headers.topic import GetTopicStatsInfoRequest, QueryTopicConsumeByWhoRequest
from rmq.protocol.names import group_of_retry_topic, is_retry_topic, retry_topic
from rmq.protocol.queue import MessageQueue
from rmq.runtime.world import World

__all__ = ["AdminClient"]


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
        self.settings = AdminSettings.of(options)
        self.world = world or World.real()
        self._instance: ClientInstance | None = None
        self._options = options

    def _renew(self) -> AdminClient:
        """The same client, not started: for a forked child."""
        return AdminClient(**self._options)

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def instance(self) -> ClientInstance:
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
        instance = self.instance
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
        return self.instance.name_servers.addresses

    async def cluster_info(self) -> ClusterInfo:
        """Clusters, broker names and addresses (clusterList)."""
        return ClusterInfo.decode((await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

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
        reply = await self.instance.call(broker_addr, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(reply.body).table

    async def broker_config(self, broker_addr: str) -> str:
        """A broker's settings as properties text."""
        reply = await self.instance.call(broker_addr, RequestCode.GET_BROKER_CONFIG)
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
        route = await self.instance.name_servers.route(topic, self.settings.mq_client_api_timeout)
        if route is None:
            what = f"no broker serves the topic {topic}"
            if is_retry_topic(topic):
                what = f"no broker knows the group {group_of_retry_topic(topic)}: none has a topic {topic}"
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, what)
        return route

    async def topic_stats(self, topic: str) -> TopicStatsTable:
        """Lowest and highest offset and last store time of each queue (topicStatus)."""
        route = await self.topic_route(topic)
        table = TopicStatsTable()
        for broker in route.broker_datas:
            if not broker.broker_addrs:
                continue
            reply = await self.instance.call(
                broker.broker_addrs[min(broker.broker_addrs)],
                RequestCode.GET_TOPIC_STATS_INFO,
                GetTopicStatsInfoRequest(topic=topic),
            )
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
            self.instance,
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
        reply = await self.instance.call(broker_addr, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigTable.decode(reply.body)

    async def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """One topic's configuration on a broker; None when it does not have it."""
        return (await self.topic_configs(broker_addr)).topic_config_table.get(topic)

    async def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """The groups that have offsets or connections for a topic."""
        groups: set[str] = set()
        for broker in (await self.topic_route(topic)).broker_datas:
            if broker.broker_addrs:
                reply = await self.instance.call(
                    broker.broker_addrs[min(broker.broker_addrs)],
                    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                    QueryTopicConsumeByWhoRequest(topic=topic),
                )
                groups.update(GroupList.decode(reply.body).group_list)
        return sorted(groups)

    # -- groups -------------------------------------------------------------------------------------------------------

    async def create_and_update_subscription_group(self, broker_addr: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a subscription group on one broker (updateSubGroup)."""
        await self.instance.call(broker_addr, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())

    async def subscription_groups(self, broker_addr: str) -> SubscriptionGroupTable:
        """Every subscription group of a broker."""
        reply = await self.instance.call(broker_addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupTable.decode(reply.body)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Where a group stands in each queue, over all brokers of its retry topic (consumerProgress -g).

        :param topic: only this topic.
        :raises ResponseError: code 17: the group never connected; another code: no broker has figures.
        """
        route = await self.topic_route(retry_topic(group))
        merged = ConsumeStats()
        failed: RMQError | None = None
        answered = False
        for broker in route.broker_datas:
            if not broker.broker_addrs:
                continue
            header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
            address = broker.broker_addrs[min(broker.broker_addrs)]
            try:
                reply = await self.instance.call(address, RequestCode.GET_CONSUME_STATS, header, timeout=15.0)
            except RMQError as error:
                failed = error
                continue
            answered = True
            one = ConsumeStats.decode(reply.body)
            merged.offset_table.update(one.offset_table)
            merged.consume_tps += one.consume_tps
        if not answered and failed is not None:
            raise failed
        return merged

    async def consumer_connections(self, group: str, broker_addr: str | None = None) -> ConsumerConnection:
        """The clients of a group and what they subscribe.

        :param broker_addr: ask this broker; by default one that has the group's retry topic.
        :raises ResponseError: code 206: no client is connected.
        """
        if broker_addr is None:
            route = await self.topic_route(retry_topic(group))
            addresses = [data.broker_addrs[min(data.broker_addrs)] for data in route.broker_datas if data.broker_addrs]
            if not addresses:
                raise ResponseError(ResponseCode.CONSUMER_NOT_ONLINE, f"no broker has the group {group}")
            broker_addr = self.world.random.choice(addresses)
        header = GetConsumerConnectionListRequest(consumer_group=group)
        reply = await self.instance.call(broker_addr, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return ConsumerConnection.decode(reply.body)

    async def delete_subscription_group(self, broker_addr: str, group: str, *, remove_offset: bool = False) -> None:
        """Delete a subscription group on one broker; an unknown one is no error (deleteSubGroup).

        :param remove_offset: its offsets go as well; otherwise a new group of this name goes on where it stood.
        """
        header = DeleteSubscriptionGroupRequest(group_name=group, remove_offset=remove_offset)
        await self.instance.call(broker_addr, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def consumer_running_info(
        self, group: str, client_id: str, broker_addr: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """What one member of a group tells of itself, through a broker that it is connected to.

        :param jstack: with the stacks of its threads.
        """
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        reply = await self.instance.call(broker_addr, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout=10.0)
        return ConsumerRunningInfo.decode(reply.body)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp: int, *, force: bool = True
    ) -> list[OffsetReset]:
        """Move a group on a topic to a time (resetOffsetByTime): its members go there, or its stored offsets do.

        :param timestamp: milliseconds since the epoch; -1: the end of each queue.
        :param force: forward as well; False: never beyond where the group stands.
        :raises ClientError: the group has no offset on the topic.
        """
        return await reset_to_time(self.instance, group, topic, timestamp, force=force)

    async def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> OffsetReset:
        """Move a group on one queue to an offset, whether members are online or not.

        :raises ClientError: the queue does not have that offset; nothing is changed.
        """
        return await reset_queue(self.instance, group, queue, offset)
