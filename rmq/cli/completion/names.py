"""Which names an option takes, and those that there are now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import click

from rmq.cli.reach import reach
from rmq.client.admin import AdminClient
from rmq.protocol.errors import RMQError
from rmq.protocol.names import BUILT_IN_GROUPS, is_system_group, is_system_topic, reply_topic
from rmq.runtime import patience
from rmq.runtime.world import World

__all__ = ["kind_of", "live_names", "names_for"]

#: What an option or argument of this name takes. Where Java has an address and a name behind one option, its metavar
#: tells which.
_KINDS = {
    "--topic": "topic", "--topicName": "topic", "--topics": "topic", "topic": "topic",
    "--group": "group", "--groupName": "group", "--consumerGroup": "group", "--srcGroup": "group",
    "--destGroup": "group",
    "--brokerAddr": "address", "--brokerName": "broker", "--broker": "broker",
    "--clusterName": "cluster", "--cluster": "cluster",
    "--context": "context",
}  # fmt: skip
#: Seconds that somebody waits for a tab.
_SECONDS = 1.5
#: Names that are given at most: a shell asks before it lists so many.
_MOST = 2_000


def kind_of(param: click.Parameter) -> str | None:
    """``topic``, ``group``, ``address``, ``broker``, ``cluster``, ``context``, or None."""
    if isinstance(param, click.Option) and param.is_flag:
        return None
    names = [param.name or ""] if isinstance(param, click.Argument) else param.opts
    kind = next((_KINDS[name] for name in names if name in _KINDS), None)
    return "address" if kind == "broker" and param.metavar == "ADDR" else kind


def names_for(ctx: click.Context, param: click.Parameter, begun: str) -> list[str] | None:
    """Names that begin so, sorted; None where the parameter takes none, or nobody says which there are."""
    kind = kind_of(param)
    if kind is None:
        return None
    try:
        names = _contexts() if kind == "context" else asyncio.run(_ask(kind, ctx))
    except (RMQError, OSError, TimeoutError, click.ClickException):
        return None
    # Servers may say anything: a line end would be two words, and an argument with a dash an option.
    found = sorted(
        name
        for name in set(names)
        if name.startswith(begun)
        and (begun or name[:1] != "%")
        and name.isprintable()
        and not (name.startswith("-") and isinstance(param, click.Argument))
    )
    return found[:_MOST]


def _contexts() -> list[str]:
    from rmq.cli.contexts.file import path_of_contexts, read_contexts

    return list(read_contexts(World.around().files, path_of_contexts()).named)


async def _ask(kind: str, ctx: click.Context) -> Iterable[str]:
    typed = ctx.params
    options = reach(typed.get("namesrv"), typed.get("context"), typed.get("credentials"))
    if typed.get("tls") or typed.get("tls_ca_file"):
        options |= {"tls": True, **({"tls_ca_file": typed["tls_ca_file"]} if typed.get("tls_ca_file") else {})}
    async with patience.timeout(_SECONDS), AdminClient(mq_client_api_timeout=_SECONDS, **options) as admin:
        return await live_names(admin, kind)


async def live_names(admin: AdminClient, kind: str) -> Iterable[str]:
    """The names of a kind, as :func:`kind_of` says it. :raises RMQError: no name server answers."""
    info = await admin.cluster_info()
    if kind == "topic":
        # Each cluster and broker has topics of its own, for what brokers do among themselves.
        own = {*info.cluster_addr_table, *info.broker_addr_table, *map(reply_topic, info.cluster_addr_table)}
        topics = (await admin.topic_list()).topic_list
        return [name for name in topics if not is_system_topic(name) and name not in own]
    if kind == "cluster":
        return info.cluster_addr_table
    if kind == "broker":
        return info.broker_addr_table
    brokers = info.broker_addr_table.values()
    if kind == "address":
        return [address for one in brokers for address in one.broker_addrs.values()]
    masters = [one.broker_addrs[0] for one in brokers if 0 in one.broker_addrs]
    tables = await admin.subscription_groups_of(masters)
    names = [name for table in tables.found.values() for name in table.subscription_group_table]
    return [name for name in names if name not in BUILT_IN_GROUPS and not is_system_group(name)]
