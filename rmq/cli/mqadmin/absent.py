"""Brokers that are missing without a trace: the name server that was asked does not know them.

A broker that has stopped, or was cut off from a name server, is simply not in its answers: what it has would look as if
it were not there. Two places may still name it: other name servers, and the queue counts of ordered topics, which are
kept apart from brokers' registrations.
"""

from __future__ import annotations

import shlex
from collections.abc import Container

from rmq.client.admin import AdminClient
from rmq.client.admin.nameservers import ORDER_TOPIC_CONFIG
from rmq.protocol.bodies.cluster import ClusterInfo

__all__ = ["WHOLE", "known_elsewhere", "ordered_elsewhere"]

#: Commands that tell of a whole cluster: a broker that they do not know of makes them wrong.
WHOLE = frozenset({
    "clusterList", "topicList", "topicStatus", "topicRoute", "statsAll", "consumerProgress", "brokerStatus", "haStatus",
    "getBrokerConfig", "getConsumerConfig", "exportMetadata", "exportConfigs", "exportMetrics", "getAclConfig",
    "clusterAclConfigVersion", "updateTopic", "updateTopicList", "updateTopicPerm", "deleteTopic", "updateSubGroup",
    "updateSubGroupList", "deleteSubGroup", "setConsumeMode", "updateBrokerConfig", "updateAclConfig",
    "deleteAclConfig", "updateGlobalWhiteAddr", "cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic",
    "resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset", "top", "explain",
})  # fmt: skip
#: How long other name servers have to say whom they know.
_SECONDS = 1.0


async def known_elsewhere(admin: AdminClient, info: ClusterInfo | None = None) -> dict[str, str]:
    """Brokers that one name server knows and another one does not, by name: whoever asks that one misses them.

    :param info: what was asked already, of one of them; None: all are compared with each other.
    """
    if len(admin.name_server_addresses) < 2:
        return {}
    views = (await admin.cluster_infos(timeout=_SECONDS)).found
    known = {address: set(view.broker_addr_table) for address, view in views.items()}
    if info is not None:
        known["the one that was asked"] = set(info.broker_addr_table)
    found = {}
    for name in sorted(set().union(*known.values())):
        have = [address for address, names in known.items() if name in names]
        lack = [address for address, names in known.items() if name not in names]
        if lack:
            found[name] = f"the name server {', '.join(have)} knows it, and {', '.join(lack)} does not"
    return found


async def ordered_elsewhere(admin: AdminClient, info: ClusterInfo, but: Container[str] = ()) -> dict[str, str]:
    """Brokers on which ordered topics have queues, and that are not registered, by name.

    :param but: topics that do not count.
    """
    found: dict[str, str] = {}
    for topic, value in sorted((await admin.kv_list(ORDER_TOPIC_CONFIG)).items()):
        remedy = f"mqadmin updateOrderConf -t {shlex.quote(topic)} -m put -v ... takes it out if it is gone for good"
        for part in () if topic in but else value.split(";"):
            name = part.partition(":")[0]
            if name and name not in info.broker_addr_table:
                found.setdefault(name, f"{topic} has ordered queues there, and it is not registered ({remedy})")
    return found
