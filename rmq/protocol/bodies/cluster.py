"""Clusters and members: 106, 901 (protocol.md 4.5, 2.13)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.route import BrokerData

__all__ = ["BrokerMemberGroup", "ClusterInfo", "GetBrokerMemberGroupResponseBody"]


@body
class ClusterInfo(Body):
    """106 GET_BROKER_CLUSTER_INFO: broker name to addresses, cluster to broker names."""

    broker_addr_table: dict[str, BrokerData] = member("brokerAddrTable", factory=dict)
    cluster_addr_table: dict[str, list[str]] = member("clusterAddrTable", factory=dict)


@body
class BrokerMemberGroup(Body):
    """The live brokers of one name (5.x)."""

    broker_addrs: dict[int, str] = member("brokerAddrs", factory=dict)
    broker_name: str = member("brokerName", default="")
    cluster: str = member("cluster", default="")


@body
class GetBrokerMemberGroupResponseBody(Body):
    """901 GET_BROKER_MEMBER_GROUP (5.x)."""

    broker_member_group: BrokerMemberGroup | None = member("brokerMemberGroup", default=None)
