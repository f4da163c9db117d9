"""Configuration, statistics, access control and replication of a broker (protocol.md 2.10 to 2.13)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "AddBrokerRequest",
    "CheckRocksdbCqWriteProgressRequest",
    "ControllerMetaDataResponse",
    "CreateAccessConfigRequest",
    "DeleteAccessConfigRequest",
    "ElectMasterRequest",
    "ElectMasterResponse",
    "ExchangeHAInfoRequest",
    "ExchangeHAInfoResponse",
    "ExportRocksDBConfigToJsonRequest",
    "GetBrokerAclConfigResponse",
    "GetBrokerConfigResponse",
    "NotifyMinBrokerIdChangeRequest",
    "RegisterFilterServerRequest",
    "RegisterFilterServerResponse",
    "RegisterMessageFilterClassRequest",
    "RemoveBrokerRequest",
    "ResetMasterFlushOffsetRequest",
    "UpdateGlobalWhiteAddrsConfigRequest",
    "ViewBrokerStatsDataRequest",
]


@wire_header
class GetBrokerConfigResponse(Header):
    """26 GET_BROKER_CONFIG: the DataVersion as JSON text."""

    version: str = wire("version")


@wire_header
class ViewBrokerStatsDataRequest(Header):
    """315 VIEW_BROKER_STATS_DATA."""

    stats_name: str = wire("statsName")
    stats_key: str = wire("statsKey")


@wire_header
class CreateAccessConfigRequest(Header):
    """50 UPDATE_AND_CREATE_ACL_CONFIG; lists are joined by ","."""

    access_key: str = wire("accessKey")
    secret_key: str | None = wire("secretKey", default=None)
    white_remote_address: str | None = wire("whiteRemoteAddress", default=None)
    admin: bool = wire("admin", default=False)
    default_topic_perm: str | None = wire("defaultTopicPerm", default=None)
    default_group_perm: str | None = wire("defaultGroupPerm", default=None)
    topic_perms: str | None = wire("topicPerms", default=None)
    group_perms: str | None = wire("groupPerms", default=None)


@wire_header
class DeleteAccessConfigRequest(Header):
    """51 DELETE_ACL_CONFIG."""

    access_key: str = wire("accessKey")


@wire_header
class GetBrokerAclConfigResponse(Header):
    """52 GET_BROKER_CLUSTER_ACL_INFO."""

    version: str = wire("version")
    all_acl_file_version: str | None = wire("allAclFileVersion", default=None)
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")


@wire_header
class UpdateGlobalWhiteAddrsConfigRequest(Header):
    """53 UPDATE_GLOBAL_WHITE_ADDRS_CONFIG; releases before 4.9.4 send no file path."""

    global_white_addrs: str = wire("globalWhiteAddrs")
    acl_file_full_path: str | None = wire("aclFileFullPath", default=None)


@wire_header
class RegisterFilterServerRequest(Header):
    """301 REGISTER_FILTER_SERVER (served until 4.9.4)."""

    filter_server_addr: str = wire("filterServerAddr")


@wire_header
class RegisterFilterServerResponse(Header):
    broker_name: str = wire("brokerName")
    broker_id: int = wire("brokerId", long=True)


@wire_header
class RegisterMessageFilterClassRequest(Header):
    """302 REGISTER_MESSAGE_FILTER_CLASS."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    class_name: str = wire("className")
    class_crc: int = wire("classCRC")


@wire_header
class CheckRocksdbCqWriteProgressRequest(Header):
    """354 CHECK_ROCKSDB_CQ_WRITE_PROGRESS (5.x)."""

    topic: str | None = wire("topic", default=None)
    check_store_time: int = wire("checkStoreTime", default=0, long=True)


@wire_header
class ExportRocksDBConfigToJsonRequest(Header):
    """355 EXPORT_ROCKSDB_CONFIG_TO_JSON (5.x)."""

    config_type: str = wire("configType")


@wire_header
class AddBrokerRequest(Header):
    """902 ADD_BROKER (5.x container)."""

    config_path: str | None = wire("configPath", default=None)


@wire_header
class RemoveBrokerRequest(Header):
    """903 REMOVE_BROKER (5.x container)."""

    broker_name: str = wire("brokerName")
    broker_cluster_name: str = wire("brokerClusterName")
    broker_id: int = wire("brokerId", long=True)


@wire_header
class NotifyMinBrokerIdChangeRequest(Header):
    """905 NOTIFY_MIN_BROKER_ID_CHANGE (5.x), from name server to broker."""

    min_broker_id: int | None = wire("minBrokerId", default=None, long=True)
    broker_name: str | None = wire("brokerName", default=None)
    min_broker_addr: str | None = wire("minBrokerAddr", default=None)
    offline_broker_addr: str | None = wire("offlineBrokerAddr", default=None)
    ha_broker_addr: str | None = wire("haBrokerAddr", default=None)


@wire_header
class ExchangeHAInfoRequest(Header):
    """906 EXCHANGE_BROKER_HA_INFO (5.x)."""

    master_ha_address: str | None = wire("masterHaAddress", default=None)
    master_flush_offset: int | None = wire("masterFlushOffset", default=None, long=True)
    master_address: str | None = wire("masterAddress", default=None)


@wire_header
class ExchangeHAInfoResponse(Header):
    master_ha_address: str | None = wire("masterHaAddress", default=None)
    master_flush_offset: int | None = wire("masterFlushOffset", default=None, long=True)
    master_address: str | None = wire("masterAddress", default=None)


@wire_header
class ElectMasterRequest(Header):
    """1002 CONTROLLER_ELECT_MASTER (5.x)."""

    broker_id: int = wire("brokerId", long=True)
    cluster_name: str | None = wire("clusterName", default=None)
    broker_name: str | None = wire("brokerName", default=None)
    designate_elect: bool | None = wire("designateElect", default=None)
    invoke_time: int | None = wire("invokeTime", default=None, long=True)


@wire_header
class ElectMasterResponse(Header):
    master_broker_id: int | None = wire("masterBrokerId", default=None, long=True)
    master_address: str | None = wire("masterAddress", default=None)
    master_epoch: int | None = wire("masterEpoch", default=None)
    sync_state_set_epoch: int | None = wire("syncStateSetEpoch", default=None)


@wire_header
class ControllerMetaDataResponse(Header):
    """1005 CONTROLLER_GET_METADATA_INFO (5.x)."""

    group: str | None = wire("group", default=None)
    controller_leader_id: str | None = wire("controllerLeaderId", default=None)
    controller_leader_address: str | None = wire("controllerLeaderAddress", default=None)
    is_leader: bool | None = wire("isLeader", default=None)
    peers: str | None = wire("peers", default=None)


@wire_header
class ResetMasterFlushOffsetRequest(Header):
    """908 RESET_MASTER_FLUSH_OFFSET (5.x)."""

    master_flush_offset: int = wire("masterFlushOffset", long=True)
