"""The name server's calls: 100 to 106, 205, 216, 219, 224, 322, 327 and 5.x ones (protocol.md 2.1, 2.13)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "AddWritePermOfBrokerRequest",
    "AddWritePermOfBrokerResponse",
    "BrokerHeartbeatRequest",
    "DeleteKVConfigRequest",
    "DeleteTopicInNamesrvRequest",
    "GetBrokerMemberGroupRequest",
    "GetKVConfigRequest",
    "GetKVConfigResponse",
    "GetKVListByNamespaceRequest",
    "GetRouteInfoRequest",
    "GetTopicsByClusterRequest",
    "PutKVConfigRequest",
    "QueryDataVersionRequest",
    "QueryDataVersionResponse",
    "RegisterBrokerRequest",
    "RegisterBrokerResponse",
    "RegisterTopicRequest",
    "UnRegisterBrokerRequest",
    "WipeWritePermOfBrokerRequest",
    "WipeWritePermOfBrokerResponse",
]


@wire_header
class PutKVConfigRequest(Header):
    """100 PUT_KV_CONFIG."""

    namespace: str = wire("namespace")
    key: str = wire("key")
    value: str = wire("value")


@wire_header
class GetKVConfigRequest(Header):
    """101 GET_KV_CONFIG."""

    namespace: str = wire("namespace")
    key: str = wire("key")


@wire_header
class GetKVConfigResponse(Header):
    value: str | None = wire("value", default=None)


@wire_header
class DeleteKVConfigRequest(Header):
    """102 DELETE_KV_CONFIG."""

    namespace: str = wire("namespace")
    key: str = wire("key")


@wire_header
class RegisterBrokerRequest(Header):
    """103 REGISTER_BROKER; ``body_crc32`` covers the body as sent, 0 = not checked.

    ``increment_of`` is ours: the DataVersion, as JSON text, that the topics of the body are the changes since.
    """

    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")
    ha_server_addr: str | None = wire("haServerAddr", default=None)
    broker_id: int = wire("brokerId", long=True)
    heartbeat_timeout_millis: int | None = wire("heartbeatTimeoutMillis", default=None, long=True)
    enable_acting_master: bool | None = wire("enableActingMaster", default=None)
    compressed: bool = wire("compressed", default=False)
    body_crc32: int = wire("bodyCrc32", default=0)
    increment_of: str | None = wire("incrementOf", default=None)


@wire_header
class RegisterBrokerResponse(Header):
    """The addresses are filled only for a slave whose master is alive.

    ``takes_increments`` is ours: the name server holds all of what was registered, and takes changes of it alone.
    """

    ha_server_addr: str | None = wire("haServerAddr", default=None)
    master_addr: str | None = wire("masterAddr", default=None)
    takes_increments: bool | None = wire("takesIncrements", default=None)


@wire_header
class UnRegisterBrokerRequest(Header):
    """104 UNREGISTER_BROKER."""

    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")
    broker_id: int = wire("brokerId", long=True)


@wire_header
class GetRouteInfoRequest(Header):
    """105 GET_ROUTEINFO_BY_TOPIC."""

    topic: str = wire("topic")
    accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", default=None)


@wire_header
class WipeWritePermOfBrokerRequest(Header):
    """205 WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str = wire("brokerName")


@wire_header
class WipeWritePermOfBrokerResponse(Header):
    wipe_topic_count: int = wire("wipeTopicCount")


@wire_header
class AddWritePermOfBrokerRequest(Header):
    """327 ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str = wire("brokerName")


@wire_header
class AddWritePermOfBrokerResponse(Header):
    add_topic_count: int = wire("addTopicCount")


@wire_header
class DeleteTopicInNamesrvRequest(Header):
    """216 DELETE_TOPIC_IN_NAMESRV; with a cluster only that cluster's brokers are taken off the topic."""

    topic: str = wire("topic")
    cluster_name: str | None = wire("clusterName", default=None)


@wire_header
class GetKVListByNamespaceRequest(Header):
    """219 GET_KVLIST_BY_NAMESPACE."""

    namespace: str = wire("namespace")


@wire_header
class GetTopicsByClusterRequest(Header):
    """224 GET_TOPICS_BY_CLUSTER."""

    cluster: str = wire("cluster")


@wire_header
class QueryDataVersionRequest(Header):
    """322 QUERY_DATA_VERSION."""

    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")
    broker_id: int = wire("brokerId", long=True)


@wire_header
class QueryDataVersionResponse(Header):
    changed: bool = wire("changed")


@wire_header
class RegisterTopicRequest(Header):
    """217 REGISTER_TOPIC_IN_NAMESRV (5.x); the body is a TopicRouteData."""

    topic: str = wire("topic")


@wire_header
class GetBrokerMemberGroupRequest(Header):
    """901 GET_BROKER_MEMBER_GROUP (5.x)."""

    cluster_name: str = wire("clusterName")
    broker_name: str = wire("brokerName")


@wire_header
class BrokerHeartbeatRequest(Header):
    """904 BROKER_HEARTBEAT (5.x)."""

    cluster_name: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str = wire("brokerName")
    broker_id: int | None = wire("brokerId", default=None, long=True)
    epoch: int | None = wire("epoch", default=None)
    max_offset: int | None = wire("maxOffset", default=None, long=True)
    confirm_offset: int | None = wire("confirmOffset", default=None, long=True)
    heartbeat_timeout_mills: int | None = wire("heartbeatTimeoutMills", default=None, long=True)
    election_priority: int | None = wire("electionPriority", default=None)
