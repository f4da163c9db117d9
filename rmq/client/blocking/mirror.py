"""The plain methods of the blocking clients: each is one call of the asyncio client.

Written by ``make mirror`` from the asyncio classes, which are the place to change; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from rmq.client.admin.answers import Answers
from rmq.client.admin.client import AdminClient as AioAdminClient
from rmq.client.admin.replication import Elected, GroupLeader
from rmq.client.admin.reset import OffsetReset
from rmq.client.blocking.crossing import crosses
from rmq.client.blocking.life import A, Blocking, C
from rmq.client.consumer.listeners import BatchListener, OneListener
from rmq.client.consumer.lite import LitePullConsumer as AioLitePullConsumer
from rmq.client.consumer.pull import PullConsumer as AioPullConsumer
from rmq.client.consumer.push import PushConsumer as AioPushConsumer
from rmq.client.lookup import FOREVER
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.producer import Producer as AioProducer
from rmq.client.results import GroupConnections, GroupStats, PullResult, QueryResult, SendResult, TopicStats
from rmq.client.selectors import MessageQueueSelector
from rmq.client.settings import Duration
from rmq.protocol.bodies.acl import AclConfig, ClusterAclVersionInfo, PlainAccessConfig
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.connection import ProducerTableInfo
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.replica import HARuntimeInfo
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq.protocol.bodies.stats import BrokerStatsData, ConsumeStatsList, QueryConsumeQueueResponseBody
from rmq.protocol.bodies.topic import TopicConfig, TopicConfigTable

__all__ = [
    "AdminClientMirror",
    "Consumer",
    "LitePullConsumerMirror",
    "Lookups",
    "ProducerMirror",
    "PullConsumerMirror",
    "PushConsumerMirror",
]


@crosses
class Lookups(Blocking[A]):
    """What :class:`rmq.client.lookup.Lookups` has, blocking."""

    @property
    def client_id(self) -> str:
        """Who this client is for brokers."""
        return self._on_loop(lambda client: client.client_id)

    def update_name_server_address(self, namesrv: str) -> None:
        """Ask other name servers from now on: ``host:port`` list separated by ``;``."""
        self._on_loop(lambda client: client.update_name_server_address(namesrv))

    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a producer sends to. :raises ClientError: the topic does not exist."""
        return self._run(self._alive().fetch_publish_message_queues(topic))

    def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues consumers read. :raises ClientError: the topic does not exist."""
        return self._run(self._alive().fetch_subscribe_message_queues(topic))

    def search_offset(self, queue: MessageQueue, timestamp: int | datetime) -> int:
        """The offset of the first message stored at a time (a datetime, or milliseconds since the epoch) or later."""
        return self._run(self._alive().search_offset(queue, timestamp))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of a queue will get. :raises ClientError: there is no such queue."""
        return self._run(self._alive().max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue. :raises ClientError: there is no such queue."""
        return self._run(self._alive().min_offset(queue))

    def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message of a queue was stored (milliseconds since the epoch; -1 = none)."""
        return self._run(self._alive().earliest_msg_store_time(queue))

    def view_message(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """A stored message by its offset id, or with ``topic`` by its unique id, too.

        :raises ResponseError: there is none.
        """
        return self._run(self._alive().view_message(msg_id, topic))

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int | datetime = 0, end: int | datetime = FOREVER
    ) -> QueryResult:
        """Messages of a topic with a key, none where there is none; the result's remark says what is to be known.

        :param max_num: most messages a broker is asked for.
        :param begin: from this store time on, a datetime or milliseconds since the epoch. :param end: up to this one.
        """
        return self._run(self._alive().query_message(topic, key, max_num, begin, end))


@crosses
class ProducerMirror(Lookups[AioProducer]):
    """What :class:`rmq.client.producer.Producer` has, blocking."""

    def request(
        self,
        message: Message | MessageExt,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
        timeout: Duration | None = None,
    ) -> MessageExt:
        """Send a message, and wait for the message that a consumer of it answers with: see :meth:`reply`.

        :param queue: see :meth:`send`, and so for ``selector`` and ``arg``.
        :param timeout: for the whole of it, from when its turn has come; ``send_msg_timeout`` by default.
        :raises ReplyTimeout: the message was stored, and no reply came in that time. It may be answered yet, to nobody.
        :raises ClientError: the message cannot be sent as it is, or the producer was shut down meanwhile.
        :raises RMQError: it was not stored, as with :meth:`send`.
        """
        return self._run(self._alive().request(message, queue=queue, selector=selector, arg=arg, timeout=timeout))

    def reply(
        self,
        request: MessageExt,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Answer a message that was sent by :meth:`request`; consumers have this, too.

        :param request: as a consumer got it.
        :param body: of the answer, and ``tags``, ``keys`` and ``properties`` as of any message.
        :param timeout: ``send_msg_timeout`` by default.
        :raises ClientError: the message is no request, or the answer cannot be sent as it is.
        :raises ResponseError: who asked is not there any more. :raises TransportError: no broker answered.
        """
        return self._run(
            self._alive().reply(request, body, tags=tags, keys=keys, properties=properties, timeout=timeout)
        )

    def recall_message(self, topic: str, recall_handle: str) -> str:
        """Take back a message that waits for its delivery time (``delay`` or ``deliver_at``).

        :param recall_handle: of the result of its send.
        :returns: its ``msg_id``.
        :raises ClientError: that is no handle. :raises ResponseError: it is not waiting any more, or never was.
        """
        return self._run(self._alive().recall_message(topic, recall_handle))

    def create_topic(self, key: str, new_topic: str, queue_num: int, topic_sys_flag: int = 0) -> None:
        """Create a topic on every master that serves the topic ``key`` (TBW102, or the cluster's name).

        :raises ClientError: nobody serves ``key``. :raises ResponseError: a broker refused.
        """
        self._run(self._alive().create_topic(key, new_topic, queue_num, topic_sys_flag))


@crosses
class Consumer(Lookups[C]):
    """What :class:`rmq.client.consumer.consumer.Consumer` has, blocking."""

    def persist_offsets(self) -> None:
        """Keep the offsets now."""
        self._run(self._alive().persist_offsets())

    def reply(
        self,
        request: MessageExt,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Answer a message that a producer sent by ``request()``.

        :param request: as the consumer got it.
        :param body: of the answer, and ``tags``, ``keys`` and ``properties`` as of any message.
        :param timeout: for all tries, 3 s by default.
        :raises ClientError: the message is no request, or the answer cannot be sent as it is.
        :raises ResponseError: who asked is not there any more. :raises TransportError: no broker answered.
        """
        return self._run(
            self._alive().reply(request, body, tags=tags, keys=keys, properties=properties, timeout=timeout)
        )


@crosses
class PushConsumerMirror(Consumer[AioPushConsumer]):
    """What :class:`rmq.client.consumer.push.PushConsumer` has, blocking."""

    def register_message_listener(self, listener: OneListener | BatchListener, *, batch: bool = False) -> None:
        """The listener of topics that have none of their own; see :meth:`on`.

        :raises ClientError: the listener cannot be used.
        """
        self._on_loop(lambda client: client.register_message_listener(listener, batch=batch))

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Receive a topic's messages; takes effect at once on a started consumer.

        :raises ClientError: the expression cannot be used.
        """
        self._on_loop(lambda client: client.subscribe(topic, expression, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Receive a topic's messages no more; its queues are given up at once.

        What failed before and is still to be tried again goes to the listener that it had.
        """
        self._on_loop(lambda client: client.unsubscribe(topic))

    def send_message_back(self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None) -> None:
        """Have a message delivered to this group again, later.

        :param delay_level: -1 dead letters, 0 the broker decides, over 0 that level.
        :raises RMQError: neither the broker that holds it nor the retry topic took it.
        """
        self._run(self._alive().send_message_back(message, delay_level, broker_name))

    def change_invisible_time(self, message: MessageExt, invisible_time: Duration) -> None:
        """Keep a popped message for another time, from now on: for a listener that needs longer for it.

        :param message: one that this consumer popped (``client_rebalance=False``) and has not settled yet.
        :param invisible_time: until others may get it; seconds or a ``timedelta``.
        :raises ClientError: it is no such message, or its time is over.
        :raises RMQError: the broker does not say yes: it may be given to others when its time is over.
        """
        self._run(self._alive().change_invisible_time(message, invisible_time))

    def suspend(self) -> None:
        """Pull nothing more until :meth:`resume`; what is held is still consumed."""
        self._on_loop(lambda client: client.suspend())

    def resume(self) -> None:
        """Pull again."""
        self._on_loop(lambda client: client.resume())

    def update_core_pool_size(self, count: int) -> None:
        """Another number of listener threads (and of coroutine listeners at a time), from now on."""
        self._on_loop(lambda client: client.update_core_pool_size(count))

    def persist_offsets(self) -> None:
        """Keep the offsets now; done every ``persist_consumer_offset_interval`` anyway."""
        self._run(self._alive().persist_offsets())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now; with the queue id -1 we pop from a broker, which chooses the queue."""
        return self._on_loop(lambda client: client.assignment)

    @property
    def missing(self) -> str | None:
        """Why nothing comes to it now, in one line: it is not started, or nobody answers who would have to.

        None while messages come, and while no queue is for it: the group has more members than there are queues, or
        nobody has sent to the topic yet.
        """
        return self._on_loop(lambda client: client.missing)

    def lag(self) -> dict[MessageQueue, int]:
        """By queue that is ours: the messages not consumed yet, of those its broker had when it last answered.

        A quiet queue is answered every ``broker_suspend_max_time``, one that gets messages at once.
        """
        return self._on_loop(lambda client: client.lag())


@crosses
class PullConsumerMirror(Consumer[AioPullConsumer]):
    """What :class:`rmq.client.consumer.pull.PullConsumer` has, blocking."""

    def pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = 32,
        *,
        sql: bool = False,
        timeout: Duration | None = None,
    ) -> PullResult:
        """Ask a queue for messages from ``offset`` on; answered at once.

        :param expression: tags, ``TagA || TagB``, or ``*``; with ``sql=True`` a SQL92 condition.
        :param max_nums: messages at most; brokers give 32 at most by default.
        :param timeout: ``consumer_pull_timeout`` by default.
        :raises ClientError: an argument that cannot be used. :raises ResponseError: the broker refused.
        """
        return self._run(self._alive().pull(queue, expression, offset, max_nums, sql=sql, timeout=timeout))

    def pull_block_if_not_found(
        self, queue: MessageQueue, expression: str, offset: int, max_nums: int = 32, *, sql: bool = False
    ) -> PullResult:
        """The same, but waits up to ``broker_suspend_max_time`` for a message to come."""
        return self._run(self._alive().pull_block_if_not_found(queue, expression, offset, max_nums, sql=sql))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note where to go on; kept every ``persist_consumer_offset_interval`` and at :meth:`shutdown`."""
        self._on_loop(lambda client: client.update_consume_offset(queue, offset))

    def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int:
        """Where the group goes on in a queue; -1 = it has no offset yet.

        :param from_store: ask the broker (or the file) even when an offset is noted here.
        """
        return self._run(self._alive().fetch_consume_offset(queue, from_store=from_store))

    def persist_offsets(self) -> None:
        """Keep the noted offsets now."""
        self._run(self._alive().persist_offsets())

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """This member's share of a topic's queues (broadcasting: all of them)."""
        return self._run(self._alive().fetch_message_queues_in_balance(topic))

    def send_message_back(self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None) -> None:
        """Have a message delivered to this group again, later; see ``PushConsumer.send_message_back``."""
        self._run(self._alive().send_message_back(message, delay_level, broker_name))


@crosses
class LitePullConsumerMirror(Consumer[AioLitePullConsumer]):
    """What :class:`rmq.client.consumer.lite.LitePullConsumer` has, blocking."""

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Share a topic's queues with the group; takes effect at once on a started consumer.

        :param expression: tags, ``TagA || TagB``, or ``*``; with ``sql=True`` a SQL92 condition.
        :raises ClientError: it cannot be used, or queues were assigned: a consumer does one or the other.
        """
        self._on_loop(lambda client: client.subscribe(topic, expression, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; its queues are given up at once."""
        self._on_loop(lambda client: client.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read these queues and no others, whatever others in the group read; takes effect at once.

        :raises ClientError: they are no queues, or the consumer subscribes: a consumer does one or the other.
        """
        self._on_loop(lambda client: client.assign(queues))

    @property
    def is_running(self) -> bool:
        """Whether it is started and not shut down."""
        return self._on_loop(lambda client: client.is_running)

    def poll(self, timeout: Duration | None = None) -> list[MessageExt]:
        """Messages of one queue, ``pull_batch_size`` at most, once there are some; those of earlier polls are consumed.

        :param timeout: after which there are none; ``poll_timeout`` by default, 0 = only what is here.
        """
        return self._run(self._alive().poll(timeout))

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Pull nothing from these queues, and give out nothing of them, until :meth:`resume`."""
        self._on_loop(lambda client: client.pause(queues))

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Go on with these queues."""
        self._on_loop(lambda client: client.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of a queue that is ours. It is committed like what is consumed.

        :raises ClientError: the queue is not ours now, or has no such offset.
        """
        self._run(self._alive().seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of a queue that is ours. :raises ClientError: it is not."""
        self._run(self._alive().seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on in a queue that is ours. :raises ClientError: it is not."""
        self._run(self._alive().seek_to_end(queue))

    def commit(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Commit what was handed out of these queues (of all by default), the last of it included, and wait for it.

        :raises RMQError: it could not be kept.
        """
        self._run(self._alive().commit(queues))

    def commit_async(self, queues: Collection[MessageQueue] | None = None) -> None:
        """The same without waiting; what could not be kept is tried again every
        ``persist_consumer_offset_interval``.
        """
        self._on_loop(lambda client: client.commit_async(queues))

    def committed(self, queue: MessageQueue) -> int:
        """The offset that is committed of a queue; -1 = none."""
        return self._run(self._alive().committed(queue))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, to choose from for :meth:`assign`. :raises ClientError: it does not exist."""
        return self._run(self._alive().fetch_message_queues(topic))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp: int | datetime) -> int:
        """The offset of the first message stored at a time (a datetime, or milliseconds since the epoch) or later."""
        return self._run(self._alive().offset_for_timestamp(queue, timestamp))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._on_loop(lambda client: client.assignment)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: Callable[[str, list[MessageQueue]], object]
    ) -> None:
        """Have a function told when a topic has other queues than before; looked at every
        ``topic_metadata_check_interval``.

        :param listener: told the topic and all its queues; a plain function runs on a thread.
        """
        self._on_loop(lambda client: client.register_topic_message_queue_change_listener(topic, listener))

    def persist_offsets(self) -> None:
        """Keep what was committed; done every ``persist_consumer_offset_interval`` anyway."""
        self._run(self._alive().persist_offsets())


@crosses
class AdminClientMirror(Lookups[AioAdminClient]):
    """What :class:`rmq.client.admin.client.AdminClient` has, blocking."""

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers asked."""
        return self._on_loop(lambda client: client.name_server_addresses)

    def cluster_info(self) -> ClusterInfo:
        """Clusters, broker names and addresses (clusterList)."""
        return self._run(self._alive().cluster_info())

    def topic_route(self, topic: str) -> TopicRouteData:
        """Which brokers and queues serve a topic. :raises ResponseError: code 17: none does."""
        return self._run(self._alive().topic_route(topic))

    def topic_list(self) -> TopicList:
        """Every topic the name servers know."""
        return self._run(self._alive().topic_list())

    def topics_by_cluster(self, cluster: str) -> TopicList:
        """The topics of one cluster; empty for an unknown one."""
        return self._run(self._alive().topics_by_cluster(cluster))

    def topic_clusters(self, topic: str) -> list[str]:
        """The clusters that have a topic (topicClusterList). :raises ResponseError: code 17: none has."""
        return self._run(self._alive().topic_clusters(topic))

    def topic_stats(self, topic: str) -> TopicStats:
        """Lowest and highest offset and last store time of each queue (topicStatus)."""
        return self._run(self._alive().topic_stats(topic))

    def create_and_update_topic(
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
        self._run(
            self._alive().create_and_update_topic(
                broker_addr,
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
                order=order,
            )
        )

    def topic_configs(self, broker_addr: str) -> TopicConfigTable:
        """Every topic configuration of a broker."""
        return self._run(self._alive().topic_configs(broker_addr))

    def system_topics(self, broker_addr: str) -> TopicList:
        """The topics that a broker has for itself, and for everybody's tools."""
        return self._run(self._alive().system_topics(broker_addr))

    def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """One topic's configuration on a broker; None when it does not have it."""
        return self._run(self._alive().topic_config(broker_addr, topic))

    def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """The groups that have offsets or connections for a topic.

        :raises RMQError: one of its brokers does not tell.
        """
        return self._run(self._alive().query_topic_consume_by_who(topic))

    def topic_groups(self, topic: str) -> Answers[list[str]]:
        """The same from each broker of the topic, by broker name: one that does not tell costs its part alone.

        :raises RMQError: none of them tells.
        """
        return self._run(self._alive().topic_groups(topic))

    def create_and_update_topics(self, broker_addr: str, configs: Iterable[TopicConfig]) -> None:
        """Create or change several topics on one broker with one request, or none of them (5.x: updateTopicList)."""
        self._run(self._alive().create_and_update_topics(broker_addr, configs))

    def update_topic_perm(self, broker_addr: str, topic: str, perm: int) -> int:
        """Change a topic's permission on one broker, and nothing else of it (updateTopicPerm).

        :param perm: 2 to write, 4 to read, 6 both. :returns: what it was.
        :raises NotFound: the broker does not have the topic. :raises ClientError: it is no such permission.
        """
        return self._run(self._alive().update_topic_perm(broker_addr, topic, perm))

    def delete_topic_in_broker(self, broker_addrs: Iterable[str], topic: str) -> Answers[None]:
        """Delete a topic and its messages on brokers; one that does not have it says nothing (deleteTopic)."""
        return self._run(self._alive().delete_topic_in_broker(broker_addrs, topic))

    def delete_topic_in_name_servers(self, topic: str, cluster: str | None = None) -> Answers[None]:
        """Have every name server forget a topic (deleteTopic).

        :param cluster: of the brokers of this cluster alone; only name servers of 5.x and ours look at it.
        """
        return self._run(self._alive().delete_topic_in_name_servers(topic, cluster))

    def create_and_update_subscription_group(self, broker_addr: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a subscription group on one broker (updateSubGroup)."""
        self._run(self._alive().create_and_update_subscription_group(broker_addr, config))

    def set_message_request_mode(
        self, broker_addr: str, topic: str, group: str, mode: str = "POP", pop_share_queue_num: int = 0
    ) -> None:
        """Have a group pop from a topic, or pull again; its members ask with their next rebalance.

        They are consumers with ``client_rebalance=False``; others pull whatever the mode is. To be set at every master
        that the topic is on.

        :param mode: POP or PULL.
        :param pop_share_queue_num: with how many others a member shares its queues; 0 = all pop from all queues.
        """
        self._run(self._alive().set_message_request_mode(broker_addr, topic, group, mode, pop_share_queue_num))

    def subscription_groups(self, broker_addr: str) -> SubscriptionGroupTable:
        """Every subscription group of a broker."""
        return self._run(self._alive().subscription_groups(broker_addr))

    def consume_stats(self, group: str, topic: str | None = None) -> GroupStats:
        """Where a group stands in each queue, over all brokers of its retry topic (consumerProgress -g).

        ``missing`` names brokers that did not tell.

        :param topic: only this topic.
        :raises ResponseError: code 17: the group never connected; another code: no broker has figures.
        """
        return self._run(self._alive().consume_stats(group, topic))

    def consume_stats_in_broker(
        self, broker_addr: str, *, is_order: bool = False, timeout: float = 50.0
    ) -> ConsumeStatsList:
        """Where every group stands on one broker (brokerConsumeStats).

        :param is_order: ordered topics alone. :param timeout: seconds.
        """
        return self._run(self._alive().consume_stats_in_broker(broker_addr, is_order=is_order, timeout=timeout))

    def subscription_groups_of(self, broker_addrs: Iterable[str]) -> Answers[SubscriptionGroupTable]:
        """Every subscription group of several brokers, asked side by side."""
        return self._run(self._alive().subscription_groups_of(broker_addrs))

    def create_and_update_subscription_groups(
        self, broker_addr: str, configs: Iterable[SubscriptionGroupConfig]
    ) -> None:
        """Create or change several groups on one broker with one request, or none (5.x: updateSubGroupList)."""
        self._run(self._alive().create_and_update_subscription_groups(broker_addr, configs))

    def delete_subscription_group(self, broker_addr: str, group: str, *, remove_offset: bool = False) -> None:
        """Delete a subscription group on one broker; an unknown one is no error (deleteSubGroup).

        :param remove_offset: its offsets go as well; otherwise a new group of this name goes on where it stood.
        """
        self._run(self._alive().delete_subscription_group(broker_addr, group, remove_offset=remove_offset))

    def consumer_offsets(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Where a group stands on a topic, as the masters have it; queues without an offset are absent.

        Unlike :meth:`consume_stats` it needs no retry topic of the group: a group that nobody subscribed has none.

        :raises ClientError: there is no such topic. :raises RMQError: the broker of a queue does not say.
        """
        return self._run(self._alive().consumer_offsets(group, topic))

    def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp: int | datetime, *, force: bool = True
    ) -> list[OffsetReset]:
        """Move a group on a topic to a time (resetOffsetByTime): its members go there, or its stored offsets do.

        :param timestamp: a datetime, or milliseconds since the epoch; -1: the end of each queue.
        :param force: forward as well; False: never beyond where the group stands.
        :raises NotFound: the group has no offset on the topic.
        """
        return self._run(self._alive().reset_offset_by_timestamp(topic, group, timestamp, force=force))

    def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> OffsetReset:
        """Move a group on one queue to an offset, whether members are online or not.

        :raises ClientError: the queue does not have that offset; nothing is changed.
        """
        return self._run(self._alive().reset_offset(group, queue, offset))

    def clone_group_offset(self, source: str, destination: str, topic: str) -> dict[MessageQueue, int]:
        """Give a group the offsets that another has on a topic (cloneGroupOffset); every queue's, and what they are.

        :raises NotFound: the source has no offset on the topic; nothing is changed.
        """
        return self._run(self._alive().clone_group_offset(source, destination, topic))

    def pull(self, queue: MessageQueue, offset: int, max_nums: int = 32, *, expression: str = "*") -> PullResult:
        """Messages of a queue from an offset on; answered at once, and nobody's offset moves.

        :param max_nums: at most; brokers give 32 at most by default.
        :param expression: tags, ``TagA || TagB``, or ``*``.
        """
        return self._run(self._alive().pull(queue, offset, max_nums, expression=expression))

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int | datetime = 0, end: int | datetime = FOREVER
    ) -> QueryResult:
        """Messages of a topic with a key, none where there is none (queryMsgByKey); ``missing`` names brokers that did
        not answer within ``mq_client_api_timeout``, the remark says what else is to be known.

        :param max_num: most messages a broker is asked for.
        :param begin: from this store time on, a datetime or milliseconds since the epoch. :param end: up to this one.
        """
        return self._run(self._alive().query_message(topic, key, max_num, begin, end))

    def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """The message at an offset of a queue (queryMsgByOffset); None when there is none."""
        return self._run(self._alive().message_at(queue, offset))

    def query_consume_queue(
        self, broker_addr: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a queue, and whether a group's filter lets each through (queryCq).

        :param index: the first entry's offset. :param count: entries at most.
        """
        return self._run(self._alive().query_consume_queue(broker_addr, topic, queue_id, index, count, group))

    def consumer_connections(self, group: str, broker_addr: str | None = None) -> GroupConnections:
        """The clients of a group and what they subscribe.

        ``missing`` names brokers that did not tell; while there are some, no client is an answer, too.

        :param broker_addr: ask this broker; by default all that have the group's retry topic.
        :raises ResponseError: code 206: no client is connected.
        """
        return self._run(self._alive().consumer_connections(group, broker_addr))

    def producer_connections(self, group: str, topic: str) -> GroupConnections:
        """The clients of a producer group, by the brokers of a topic (producerConnection).

        Only clients whose heartbeat names the group are known: a producer sends it to brokers of topics it has sent to.

        :raises ResponseError: code 1: no broker of the topic knows the group.
        """
        return self._run(self._alive().producer_connections(group, topic))

    def producers(self, broker_addr: str) -> ProducerTableInfo:
        """Every producer that a broker knows, by group (producer); a client of 4.9 is in CLIENT_INNER_PRODUCER, too."""
        return self._run(self._alive().producers(broker_addr))

    def consumer_running_info(
        self, group: str, client_id: str, broker_addr: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """What one member of a group tells of itself, through a broker that it is connected to.

        :param jstack: with the stacks of its threads.
        """
        return self._run(self._alive().consumer_running_info(group, client_id, broker_addr, jstack=jstack))

    def consume_message_directly(
        self, group: str, client_id: str, offset_msg_id: str, broker_addr: str, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Have a member of a group consume a message now, through the broker that holds the message.

        :param offset_msg_id: ``MessageExt.offset_msg_id``. :param broker_name: of the broker at ``broker_addr``.
        """
        return self._run(
            self._alive().consume_message_directly(group, client_id, offset_msg_id, broker_addr, broker_name)
        )

    def masters(self, cluster: str) -> dict[str, str]:
        """Broker name to master address of one cluster. :raises NotFound: there is no such cluster."""
        return self._run(self._alive().masters(cluster))

    def brokers(self, cluster: str) -> list[str]:
        """The addresses of a cluster's brokers, masters and slaves, by name and id.

        :raises NotFound: there is no such cluster, or it has no broker now.
        """
        return self._run(self._alive().brokers(cluster))

    def broker_runtime_stats(self, broker_addr: str) -> dict[str, str]:
        """A broker's figures by name (brokerStatus; protocol.md 4.12)."""
        return self._run(self._alive().broker_runtime_stats(broker_addr))

    def broker_runtime_stats_of(self, broker_addrs: Iterable[str]) -> Answers[dict[str, str]]:
        """The same of several brokers, asked side by side."""
        return self._run(self._alive().broker_runtime_stats_of(broker_addrs))

    def view_broker_stats(self, broker_addr: str, name: str, key: str) -> BrokerStatsData | None:
        """One figure of a broker over the last minute, hour and day (statsAll); None: it has counted nothing.

        :param name: TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, ...
        :param key: the topic; for a figure of a group topic@group.
        """
        return self._run(self._alive().view_broker_stats(broker_addr, name, key))

    def view_broker_stats_of(self, broker_addrs: Iterable[str], name: str, key: str) -> Answers[BrokerStatsData | None]:
        """The same of several brokers, asked side by side."""
        return self._run(self._alive().view_broker_stats_of(broker_addrs, name, key))

    def broker_config(self, broker_addr: str) -> str:
        """A broker's settings as properties text."""
        return self._run(self._alive().broker_config(broker_addr))

    def broker_settings(self, broker_addrs: Iterable[str]) -> Answers[dict[str, str]]:
        """The settings of brokers, key by key (getBrokerConfig)."""
        return self._run(self._alive().broker_settings(broker_addrs))

    def update_broker_config(self, broker_addrs: Iterable[str], values: Mapping[str, str]) -> Answers[None]:
        """Change settings of brokers while they run; they write them to their files, too (updateBrokerConfig).

        A broker of ours refuses what it does not know or cannot take; Java's says that all is well.

        :raises ClientError: nothing is to be changed.
        """
        return self._run(self._alive().update_broker_config(broker_addrs, values))

    def clean_expired_consume_queue(self, broker_addr: str) -> None:
        """Delete queue files of which every message has expired (cleanExpiredCQ)."""
        self._run(self._alive().clean_expired_consume_queue(broker_addr))

    def delete_expired_commit_log(self, broker_addr: str) -> None:
        """Delete commit log files that have expired, whatever the hour is (deleteExpiredCommitLog)."""
        self._run(self._alive().delete_expired_commit_log(broker_addr))

    def clean_unused_topic(self, broker_addr: str) -> None:
        """Delete the queues of topics that the broker does not have any more (cleanUnusedTopic)."""
        self._run(self._alive().clean_unused_topic(broker_addr))

    def kv_config(self, namespace: str, key: str) -> str | None:
        """One entry; None when there is none."""
        return self._run(self._alive().kv_config(namespace, key))

    def kv_list(self, namespace: str) -> dict[str, str]:
        """All entries of a namespace; empty for one that is not there."""
        return self._run(self._alive().kv_list(namespace))

    def put_kv_config(self, namespace: str, key: str, value: str) -> Answers[None]:
        """Set an entry on every name server (updateKvConfig)."""
        return self._run(self._alive().put_kv_config(namespace, key, value))

    def delete_kv_config(self, namespace: str, key: str) -> Answers[None]:
        """Take an entry away on every name server; where it is not there, nothing is said (deleteKvConfig)."""
        return self._run(self._alive().delete_kv_config(namespace, key))

    def wipe_write_perm_of_broker(self, broker_name: str) -> Answers[int]:
        """Take the right to write from every topic of a broker: producers leave it, consumers read on (wipeWritePerm).

        :returns: of how many topics, by name server.
        """
        return self._run(self._alive().wipe_write_perm_of_broker(broker_name))

    def add_write_perm_of_broker(self, broker_name: str) -> Answers[int]:
        """Give the right to write back (addWritePerm). :returns: to how many topics, by name server."""
        return self._run(self._alive().add_write_perm_of_broker(broker_name))

    def name_server_config(self) -> Answers[dict[str, str]]:
        """The settings of every name server, key by key (getNamesrvConfig)."""
        return self._run(self._alive().name_server_config())

    def cluster_infos(self, *, timeout: float = 5.0) -> Answers[ClusterInfo]:
        """What each name server knows of the cluster; where they differ, a broker registers with some of them only.

        :param timeout: seconds that each has, at most ``mq_client_api_timeout``.
        """
        return self._run(self._alive().cluster_infos(timeout=timeout))

    def update_name_server_config(self, values: Mapping[str, str]) -> Answers[None]:
        """Change settings of every name server while it runs (updateNamesrvConfig)."""
        return self._run(self._alive().update_name_server_config(values))

    def acl_config(self, broker_addr: str) -> AclConfig:
        """A broker's accounts and white lists (getAclConfig). Brokers of Java send the secrets along, ours do not."""
        return self._run(self._alive().acl_config(broker_addr))

    def acl_version(self, broker_addrs: Iterable[str]) -> Answers[ClusterAclVersionInfo]:
        """How new the accounts of brokers are (clusterAclConfigVersion)."""
        return self._run(self._alive().acl_version(broker_addrs))

    def create_and_update_account(self, broker_addrs: Iterable[str], account: PlainAccessConfig) -> Answers[None]:
        """Create an account on brokers or change it; what is None stays as it is (updateAclConfig).

        :raises ClientError: the account has no access key.
        """
        return self._run(self._alive().create_and_update_account(broker_addrs, account))

    def delete_account(self, broker_addrs: Iterable[str], access_key: str) -> Answers[None]:
        """Delete an account on brokers (deleteAclConfig)."""
        return self._run(self._alive().delete_account(broker_addrs, access_key))

    def update_global_white_addrs(
        self, broker_addrs: Iterable[str], addresses: str, *, acl_file_full_path: str | None = None
    ) -> Answers[None]:
        """Say which addresses need no account (updateGlobalWhiteAddr).

        :param addresses: separated by commas. :param acl_file_full_path: in which of the broker's files.
        """
        return self._run(
            self._alive().update_global_white_addrs(broker_addrs, addresses, acl_file_full_path=acl_file_full_path)
        )

    def broker_ha_status(self, broker_addr: str) -> HARuntimeInfo:
        """A master's slaves and how far each is, or how far a slave is (haStatus; Java: HARuntimeInfo)."""
        return self._run(self._alive().broker_ha_status(broker_addr))

    def broker_ha_status_of(self, broker_addrs: Iterable[str]) -> Answers[HARuntimeInfo]:
        """The same of several brokers, asked side by side."""
        return self._run(self._alive().broker_ha_status_of(broker_addrs))

    def elect_master(
        self,
        broker_name: str,
        broker_id: int,
        cluster: str | None = None,
        controller_addr: str | None = None,
        *,
        timeout: float = 15.0,
    ) -> Elected:
        """Have a member of a group lead it, instead of the one that does (electMaster of 5.x).

        :param broker_id: the one that the member has while it follows: the number of its ``dLegerSelfId`` and one.
        :param cluster: refused where the group is of another one.
        :param controller_addr: a member to ask who leads; else those that the name server knows.
        :param timeout: seconds; the group itself gives up after three times ``raftElectionTimeout``.
        :raises NotFound: there is no such group, or nobody in it knows who leads.
        :raises ResponseError: the member cannot lead, or has not taken the lead.
        """
        return self._run(self._alive().elect_master(broker_name, broker_id, cluster, controller_addr, timeout=timeout))

    def group_leader(self, broker_name: str, controller_addr: str | None = None) -> GroupLeader:
        """Whom the members of a group call their leader.

        :param controller_addr: a member to ask; else those that the name server knows.
        :raises NotFound: there is no such group, or nobody in it knows who leads.
        """
        return self._run(self._alive().group_leader(broker_name, controller_addr))
