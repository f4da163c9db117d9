"""TopicRouteData, the answer to 105, in both JSON forms (protocol.md 4.4)."""

from __future__ import annotations

from rmq.protocol import fastjson
from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.static_topic import TopicQueueMappingInfo

__all__ = ["BrokerData", "QueueData", "TopicRouteData"]


@body
class QueueData(Body):
    """How many queues a topic has on one broker. Releases before 4.9.0 named the flag ``topicSynFlag``."""

    broker_name: str = member("brokerName", default="")
    perm: int = member("perm", default=0)
    read_queue_nums: int = member("readQueueNums", default=0)
    topic_sys_flag: int = member("topicSysFlag", default=0, also=("topicSynFlag",))
    write_queue_nums: int = member("writeQueueNums", default=0)


@body
class BrokerData(Body):
    """The addresses of one broker name: id to ``host:port``, 0 = master. The last two members are 5.x's."""

    broker_addrs: dict[int, str] = member("brokerAddrs", factory=dict)
    broker_name: str = member("brokerName", default="")
    cluster: str = member("cluster", default="")
    enable_acting_master: bool | None = member("enableActingMaster", default=None)
    zone_name: str | None = member("zoneName", default=None)


@body
class TopicRouteData(Body):
    """Where a topic is. ``order_topic_conf`` is ``broker:queueNum;broker:queueNum`` when the topic is ordered."""

    broker_datas: list[BrokerData] = member("brokerDatas", factory=list)
    filter_server_table: dict[str, list[str]] = member("filterServerTable", factory=dict)
    order_topic_conf: str | None = member("orderTopicConf", default=None)
    queue_datas: list[QueueData] = member("queueDatas", factory=list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = member(
        "topicQueueMappingByBroker", default=None
    )

    def encode(self, standard: bool = False) -> bytes:
        """The route as JSON.

        :param standard: strict JSON (quoted and sorted keys, ASCII only), for requesters from 4.9.4 (version 401) and
            those that ask for it; otherwise broker ids are unquoted.
        """
        return fastjson.standard(self.to_object()) if standard else fastjson.dumps(self.to_object())
