"""Access control of 4.x: 52, 54 (protocol.md 4.14)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.keywords import keywords

__all__ = ["AclConfig", "ClusterAclVersionInfo", "PlainAccessConfig"]


@keywords
@body
class PlainAccessConfig(Body):
    """One account of plain_acl.yml."""

    access_key: str | None = member("accessKey", default=None)
    admin: bool = member("admin", default=False)
    default_group_perm: str | None = member("defaultGroupPerm", default=None)
    default_topic_perm: str | None = member("defaultTopicPerm", default=None)
    group_perms: list[str] | None = member("groupPerms", default=None)
    secret_key: str | None = member("secretKey", default=None)
    topic_perms: list[str] | None = member("topicPerms", default=None)
    white_remote_address: str | None = member("whiteRemoteAddress", default=None)


@body
class AclConfig(Body):
    """54 GET_BROKER_CLUSTER_ACL_CONFIG (releases up to 4.9.7)."""

    global_white_addrs: list[str] | None = member("globalWhiteAddrs", default=None)
    plain_access_configs: list[PlainAccessConfig] | None = member("plainAccessConfigs", default=None)


@body
class ClusterAclVersionInfo(Body):
    """What a tool makes of the answer to 52: file path to version."""

    acl_config_data_version: DataVersion | None = member("aclConfigDataVersion", default=None)
    all_acl_config_data_version: dict[str, DataVersion] | None = member("allAclConfigDataVersion", default=None)
    broker_addr: str | None = member("brokerAddr", default=None)
    broker_name: str | None = member("brokerName", default=None)
    cluster_name: str | None = member("clusterName", default=None)
