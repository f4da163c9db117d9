"""Topics: what there is, where, and how they are made, changed and deleted."""

from __future__ import annotations

from collections.abc import Iterable

from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking, said
from rmq.client.checks import check_number, typed
from rmq.client.results import TopicStats
from rmq.client.topics import create_topic_on
from rmq.protocol.bodies.kv import GroupList, TopicList
from rmq.protocol.bodies.stats import TopicStatsTable
from rmq.protocol.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicConfigTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ClientError, NotFound
from rmq.protocol.headers.namesrv import DeleteTopicInNamesrvRequest, GetTopicsByClusterRequest
from rmq.protocol.headers.topic import DeleteTopicRequest, GetTopicStatsInfoRequest, QueryTopicConsumeByWhoRequest

__all__ = ["PERMISSIONS", "Topics"]

#: What a topic's permission may be: to write, to read, both.
PERMISSIONS = (2, 4, 6)


@typed()
class Topics(Asking):
    """Operations on topics."""

    async def topic_list(self) -> TopicList:
        """Every topic the name servers know."""
        return TopicList.decode((await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)

    async def topics_by_cluster(self, cluster: str) -> TopicList:
        """The topics of one cluster; empty for an unknown one."""
        header = GetTopicsByClusterRequest(cluster=cluster)
        return TopicList.decode((await self._ask_namesrv(RequestCode.GET_TOPICS_BY_CLUSTER, header)).body)

    async def topic_clusters(self, topic: str) -> list[str]:
        """The clusters that have a topic (topicClusterList). :raises ResponseError: code 17: none has."""
        return sorted({broker.cluster for broker in (await self.topic_route(topic)).broker_datas})

    async def topic_stats(self, topic: str) -> TopicStats:
        """Lowest and highest offset and last store time of each queue (topicStatus)."""
        header = GetTopicStatsInfoRequest(topic=topic)
        answers, failed = await self._ask_brokers(topic, RequestCode.GET_TOPIC_STATS_INFO, header)
        table = TopicStats(missing=said(failed))
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

    async def system_topics(self, broker_addr: str) -> TopicList:
        """The topics that a broker has for itself, and for everybody's tools."""
        reply = await self._client.call(broker_addr, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return TopicList.decode(reply.body)

    async def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """One topic's configuration on a broker; None when it does not have it."""
        return (await self.topic_configs(broker_addr)).topic_config_table.get(topic)

    async def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """The groups that have offsets or connections for a topic.

        :raises RMQError: one of its brokers does not tell.
        """
        answers = await self.topic_groups(topic)
        return sorted({group for groups in answers.whole().values() for group in groups})

    async def topic_groups(self, topic: str) -> Answers[list[str]]:
        """The same from each broker of the topic, by broker name: one that does not tell costs its part alone.

        :raises RMQError: none of them tells.
        """
        header = QueryTopicConsumeByWhoRequest(topic=topic)
        answers, failed = await self._ask_brokers(topic, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return Answers({name: GroupList.decode(reply.body).group_list for name, reply in answers.items()}, failed)

    async def create_and_update_topics(self, broker_addr: str, configs: Iterable[TopicConfig]) -> None:
        """Create or change several topics on one broker with one request, or none of them (5.x: updateTopicList)."""
        found = list(configs)
        for config in found:
            _check_permission(config.perm)
        body = CreateTopicListRequestBody(topic_config_list=found).encode()
        await self._client.call(broker_addr, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

    async def update_topic_perm(self, broker_addr: str, topic: str, perm: int) -> int:
        """Change a topic's permission on one broker, and nothing else of it (updateTopicPerm).

        :param perm: 2 to write, 4 to read, 6 both. :returns: what it was.
        :raises NotFound: the broker does not have the topic. :raises ClientError: it is no such permission.
        """
        _check_permission(perm)
        config = await self.topic_config(broker_addr, topic)
        if config is None:
            raise NotFound(f"the broker {broker_addr} has no topic {topic}")
        await create_topic_on(
            self._client,
            broker_addr,
            topic,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=perm,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
        )
        return config.perm

    async def delete_topic_in_broker(self, broker_addrs: Iterable[str], topic: str) -> Answers[None]:
        """Delete a topic and its messages on brokers; one that does not have it says nothing (deleteTopic)."""
        header = DeleteTopicRequest(topic=topic)
        return await self._ask_each(broker_addrs, RequestCode.DELETE_TOPIC_IN_BROKER, header, b"", lambda reply: None)

    async def delete_topic_in_name_servers(self, topic: str, cluster: str | None = None) -> Answers[None]:
        """Have every name server forget a topic (deleteTopic).

        :param cluster: of the brokers of this cluster alone; only name servers of 5.x and ours look at it.
        """
        header = DeleteTopicInNamesrvRequest(topic=topic, cluster_name=cluster)
        return await self._ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header, b"", lambda reply: None)


def _check_permission(perm: int) -> None:
    """:raises ClientError: a topic that has it could be neither written nor read, or it means nothing."""
    check_number(perm, "perm")
    if perm not in PERMISSIONS:
        raise ClientError(f"the permission {perm} means nothing: give 2 (write), 4 (read) or 6 (both)")
