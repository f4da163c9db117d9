"""Access control of 4.x: accounts and white lists of brokers (docs/acl.md)."""

from __future__ import annotations

from collections.abc import Iterable

from rmq.client.admin.answers import Answers
from rmq.client.admin.asking import Asking
from rmq.client.checks import typed
from rmq.protocol.bodies.acl import AclConfig, ClusterAclVersionInfo, PlainAccessConfig
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError
from rmq.protocol.headers.admin import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
)

__all__ = ["AccessControl"]


@typed()
class AccessControl(Asking):
    """Operations on accounts."""

    async def acl_config(self, broker_addr: str) -> AclConfig:
        """A broker's accounts and white lists (getAclConfig). Brokers of Java send the secrets along, ours do not."""
        reply = await self._client.call(broker_addr, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return AclConfig.decode(reply.body)

    async def acl_version(self, broker_addrs: Iterable[str]) -> Answers[ClusterAclVersionInfo]:
        """How new the accounts of brokers are (clusterAclConfigVersion)."""
        return await self._ask_each(broker_addrs, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, None, b"", _version)

    async def create_and_update_account(self, broker_addrs: Iterable[str], account: PlainAccessConfig) -> Answers[None]:
        """Create an account on brokers or change it; what is None stays as it is (updateAclConfig).

        :raises ClientError: the account has no access key.
        """
        if not account.access_key:
            raise ClientError("an account has an access key: give one")
        header = CreateAccessConfigRequest(
            access_key=account.access_key,
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=None if account.topic_perms is None else ",".join(account.topic_perms),
            group_perms=None if account.group_perms is None else ",".join(account.group_perms),
        )
        return await self._ask_each(
            broker_addrs, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, b"", lambda reply: None
        )

    async def delete_account(self, broker_addrs: Iterable[str], access_key: str) -> Answers[None]:
        """Delete an account on brokers (deleteAclConfig)."""
        header = DeleteAccessConfigRequest(access_key=access_key)
        return await self._ask_each(broker_addrs, RequestCode.DELETE_ACL_CONFIG, header, b"", lambda reply: None)

    async def update_global_white_addrs(
        self, broker_addrs: Iterable[str], addresses: str, *, acl_file_full_path: str | None = None
    ) -> Answers[None]:
        """Say which addresses need no account (updateGlobalWhiteAddr).

        :param addresses: separated by commas. :param acl_file_full_path: in which of the broker's files.
        """
        header = UpdateGlobalWhiteAddrsConfigRequest(
            global_white_addrs=addresses, acl_file_full_path=acl_file_full_path
        )
        return await self._ask_each(
            broker_addrs, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, b"", lambda reply: None
        )


def _version(reply: Command) -> ClusterAclVersionInfo:
    header = reply.header(GetBrokerAclConfigResponse)
    every = header.all_acl_file_version
    return ClusterAclVersionInfo(
        acl_config_data_version=DataVersion.decode(header.version.encode()),
        all_acl_config_data_version=None if every is None else _versions(every),
        broker_addr=header.broker_addr,
        broker_name=header.broker_name,
        cluster_name=header.cluster_name,
    )


def _versions(text: str) -> dict[str, DataVersion]:
    """By the path of the file."""
    return (
        ClusterAclVersionInfo.decode(b'{"allAclConfigDataVersion":' + text.encode() + b"}").all_acl_config_data_version
        or {}
    )
