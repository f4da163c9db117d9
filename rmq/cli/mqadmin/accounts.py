"""getAclConfig, updateAclConfig, deleteAclConfig, clusterAclConfigVersion, updateGlobalWhiteAddr (mqadmin.md B.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.name_servers import whole
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, broker_or_cluster, masters_of
from rmq.cli.mqadmin.text import plain, seconds
from rmq.client.admin.answers import side_by_side
from rmq.protocol.bodies.acl import PlainAccessConfig
from rmq.protocol.bodies.topic import DataVersion

__all__ = [
    "cluster_acl_config_version",
    "delete_acl_config",
    "get_acl_config",
    "update_acl_config",
    "update_global_white_addr",
]

_account = click.option("-a", "--accessKey", "access_key", required=True, metavar="NAME", help="The account.")
#: What Java takes; a broker refuses shorter ones.
_SHORTEST = 7
_PERMISSION = re.compile(r"(DENY|PUB|SUB|PUB\|SUB|SUB\|PUB)")
_PERMISSIONS = re.compile(r"[^=,;]+=(DENY|PUB|SUB|PUB\|SUB|SUB\|PUB)")


def _permission(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _PERMISSION.fullmatch(text):
        raise click.BadParameter(f"{text}: give DENY, PUB, SUB or PUB|SUB", ctx, param)
    return text


def _permissions(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    found = [one for each in text.split(",") if (one := each.strip())]
    for one in found:
        if not _PERMISSIONS.fullmatch(one):
            raise click.BadParameter(
                f"{one}: give name=DENY, name=PUB, name=SUB or name=PUB|SUB, and so on", ctx, param
            )
    return found


def _key(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is not None and len(text) < _SHORTEST:
        raise click.BadParameter(f"it has {len(text)} characters: {_SHORTEST} at least", ctx, param)
    return text


@admin_command("getAclConfig", broker_or_cluster)
async def get_acl_config(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """The accounts and white lists of brokers. Secrets are never printed, whatever the broker sends."""
    answers = await side_by_side(await masters_of(admin, out, broker, cluster), admin.acl_config)
    if not answers.found:
        answers.whole()
    out.lacks(answers)
    found = answers.found

    def classic() -> Iterator[str]:
        for config in found.values():
            yield f"globalWhiteRemoteAddresses: {_list(config.global_white_addrs)}"
            yield ""
            yield "accounts:"
            for one in config.plain_access_configs or ():
                for name, value in _shown(one).items():
                    yield f"\t{name}: {value if isinstance(value, str) else _list(value)}"
                yield ""

    return out.value(
        {
            address: {
                "globalWhiteRemoteAddresses": config.global_white_addrs or [],
                "accounts": [_shown(one) for one in config.plain_access_configs or ()],
            }
            for address, config in found.items()
        },
        classic,
    )


def _shown(one: PlainAccessConfig) -> dict[str, object]:
    """An account without its secret."""
    return {
        "accessKey": plain(one.access_key or ""),
        "whiteRemoteAddress": one.white_remote_address or "",
        "admin": "true" if one.admin else "false",
        "defaultTopicPerm": one.default_topic_perm or "",
        "defaultGroupPerm": one.default_group_perm or "",
        "topicPerms": one.topic_perms or [],
        "groupPerms": one.group_perms or [],
    }


def _list(texts: object) -> str:
    return f"[{', '.join(map(str, texts))}]" if isinstance(texts, list) else "[]"


@admin_command(
    "updateAclConfig",
    broker_or_cluster,
    click.option("-a", "--accessKey", "access_key", required=True, callback=_key, metavar="NAME", help="The account."),
    click.option("-s", "--secretKey", "secret_key", callback=_key, metavar="SECRET",
                 help="Its secret; an account that is there may keep the one that it has."),
    click.option("-w", "--whiteRemoteAddress", "white", metavar="PATTERN", help="From where it needs no secret."),
    click.option("-i", "--defaultTopicPerm", "topic_perm", callback=_permission, metavar="PERM",
                 help="What it may on other topics: DENY, PUB, SUB or PUB|SUB."),
    click.option("-u", "--defaultGroupPerm", "group_perm", callback=_permission, metavar="PERM",
                 help="What it may with other groups."),
    click.option("-t", "--topicPerms", "topics", callback=_permissions, metavar="LIST",
                 help="topicA=DENY,topicB=PUB|SUB"),
    click.option("-g", "--groupPerms", "groups", callback=_permissions, metavar="LIST", help="groupA=DENY,groupB=SUB"),
    click.option("-m", "--admin", "is_admin", type=bool, default="false", metavar="BOOL",
                 help="It may administrate (true|false)."),
)  # fmt: skip
async def update_acl_config(
    admin: AdminClient,
    out: Output,
    broker: str | None,
    cluster: str | None,
    access_key: str,
    secret_key: str | None,
    white: str | None,
    topic_perm: str | None,
    group_perm: str | None,
    topics: list[str] | None,
    groups: list[str] | None,
    is_admin: bool,
) -> int:
    """Create an account or change it, on a broker or every master of a cluster."""
    account = PlainAccessConfig(
        access_key=access_key,
        admin=is_admin,
        default_group_perm=group_perm,
        default_topic_perm=topic_perm,
        group_perms=groups,
        secret_key=secret_key,
        topic_perms=topics,
        white_remote_address=white,
    )
    targets = await masters_of(admin, out, broker, cluster)
    whole(await admin.create_and_update_account(targets, account), f"create or change the account {access_key}")
    return out.done(
        {"brokers": targets, **_shown(account)},
        [f"create or update plain access config to {address} success." for address in targets],
    )


@admin_command("deleteAclConfig", broker_or_cluster, _account)
async def delete_acl_config(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, access_key: str
) -> int:
    """Delete an account, on a broker or every master of a cluster."""
    targets = await masters_of(admin, out, broker, cluster)
    known = (await side_by_side(targets, admin.acl_config)).whole()
    if not any(one.access_key == access_key for config in known.values() for one in config.plain_access_configs or ()):
        raise NotFound(f"{', '.join(targets)} has no account {access_key}: nothing was deleted")
    whole(await admin.delete_account(targets, access_key), f"delete the account {access_key}")
    return out.done(
        {"accessKey": access_key, "brokers": targets},
        [
            *(f"delete plain access config account from {address} success." for address in targets),
            f"account's accesskey is:{access_key}",
        ],
    )


@admin_command("clusterAclConfigVersion", broker_or_cluster)
async def cluster_acl_config_version(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """How new the accounts of brokers are, file by file."""
    answers = await admin.acl_version(await masters_of(admin, out, broker, cluster))
    if not answers.found:
        answers.whole()
    out.lacks(answers)
    rows: list[tuple[str, str, str, str, DataVersion]] = []
    for address, one in answers.found.items():
        named = (one.cluster_name or "", one.broker_name or "", one.broker_addr or address)
        files = one.all_acl_config_data_version or {}
        if not files and one.acl_config_data_version is not None:
            files = {"": one.acl_config_data_version}
        rows += [(*named, path, version) for path, version in files.items()]

    of_broker = broker is not None  # Java's tool prints the titles for a cluster alone

    def classic() -> Iterator[str]:
        columns = "{:<16}  {:<22}  {:<22}  {:<20}  {:<22}  {:<22}".format
        if not of_broker:
            yield columns(*("#Cluster Name", "#Broker Name", "#Broker Addr"),
                          *("#AclFilePath", "#AclConfigVersionNum", "#AclLastUpdateTime"))  # fmt: skip
        for cluster, name, address, path, version in rows:
            yield columns(cluster, name, address, path, version.counter, seconds(version.timestamp))
        yield f"get {'broker' if of_broker else 'cluster'}'s plain access config version success."

    return out.rows(
        [{"cluster": one, "brokerName": name, "brokerAddr": address, "file": path, "version": version.counter,
          "timestamp": version.timestamp} for one, name, address, path, version in rows],
        classic,
    )  # fmt: skip


@admin_command(
    "updateGlobalWhiteAddr",
    broker_or_cluster,
    click.option("-g", "--globalWhiteRemoteAddresses", "addresses", required=True, metavar="LIST",
                 help="Addresses that need no account, separated by commas: 10.0.0.*,192.168.0.1"),
    click.option("-p", "--aclFileFullPath", "path", metavar="PATH", help="In which of the broker's files."),
)  # fmt: skip
async def update_global_white_addr(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, addresses: str, path: str | None
) -> int:
    """Say which addresses need no account, on a broker or every master of a cluster."""
    targets = await masters_of(admin, out, broker, cluster)
    whole(await admin.update_global_white_addrs(targets, addresses, acl_file_full_path=path), "set the white list")
    return out.done(
        {"brokers": targets, "globalWhiteRemoteAddresses": addresses.split(",")},
        [f"update global white remote addresses to {address} success." for address in targets],
    )
