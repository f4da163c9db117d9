"""The command: asks servers and members side by side, and prints what the judges find."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from rmq.cli.doctor.cluster import Broker, Cluster, of_cluster
from rmq.cli.doctor.group import Group, of_group
from rmq.cli.mqadmin.absent import departed
from rmq.cli.mqadmin.failures import REFUSED, NotFound, Partial
from rmq.cli.mqadmin.members import differences
from rmq.cli.mqadmin.progress import members_of, progress_of
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.client.admin.asking import address_of
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.errors import RMQError
from rmq.protocol.names import dlq_topic, is_retry_topic
from rmq.runtime.world import World

__all__ = ["doctor", "group_of"]


@admin_command(
    "doctor", click.option("-g", "--group", metavar="NAME", help="A consumer group, in place of the cluster.")
)
async def doctor(admin: AdminClient, out: Output, group: str | None) -> int:
    """Say what is wrong with the cluster, or with a group, why, and what to do.

    Lines that begin with WRONG are of messages that are lost, refused or stay where they are: the exit code is 1 then.
    """
    if group is None:
        findings = list(of_cluster(await _cluster(admin)))
        subject = "the cluster"
    else:
        findings = list(of_group(await group_of(admin, group, out)))
        subject = group

    def classic() -> Iterator[str]:
        for one in sorted(findings, key=lambda one: not one.wrong):
            yield one.line()
        if not findings:
            yield f"nothing is wrong with {subject}, as far as its servers tell"

    if out.form == "table":  # sentences: a table of them is wider than any terminal
        out.form = "classic"
    code = out.rows([one.table() for one in findings], classic)
    return REFUSED if any(one.wrong for one in findings) else code


async def _cluster(admin: AdminClient) -> Cluster:
    views = await admin.cluster_infos()
    name_servers: dict[str, ClusterInfo | str] = {
        **views.found,
        **{address: str(error) for address, error in views.failed.items()},
    }
    places: dict[tuple[str, int], str] = {}
    for view in views.found.values():
        for name, data in view.broker_addr_table.items():
            places.update(((name, id_), address) for id_, address in data.broker_addrs.items())
    brokers = [Broker(name, id_, address) for (name, id_), address in sorted(places.items())]
    addresses = [one.address for one in brokers]
    figures, settings, replicas = await asyncio.gather(
        admin.broker_runtime_stats_of(addresses), admin.broker_settings(addresses), admin.broker_ha_status_of(addresses)
    )
    for one in brokers:
        one.figures = figures.found.get(one.address)
        one.error = str(figures.failed.get(one.address, ""))
        one.settings = settings.found.get(one.address, {})
        one.replicas = replicas.found.get(one.address)
    lost = await departed(admin, on_purpose=False)
    left = await departed(admin, on_purpose=True)
    return Cluster(name_servers, brokers, lost, {name: why for name, why in left.items() if name not in lost})


async def group_of(admin: AdminClient, name: str, out: Output) -> Group:
    """What is known of a group. :param out: gets who does not answer. :raises NotFound: nobody knows it."""
    progress = await progress_of(admin, name)
    out.lacks(progress.connection, progress.stats)
    out.missing.update(await departed(admin, on_purpose=False))
    unused = progress.connection is None and not progress.stats.offset_table
    if unused and not await _is_configured(admin, name, out):
        if out.missing:
            away = "; ".join(f"{one} does not say: {why}" for one, why in sorted(out.missing.items()))
            raise Partial(f"no broker that answers knows the group {name}; {away}")
        raise NotFound(f"no broker knows the group {name}, and nobody of it was ever connected")
    online: dict[str, ConsumerRunningInfo | str] = {}
    if progress.connection is not None:
        online = await members_of(admin, name, progress.connection)
    found = Group(
        name,
        online,
        progress.state,
        progress.connection is not None and progress.connection.message_model == "BROADCASTING",
        progress.stats,
        World.around().clock.now_ms(),
    )
    found.differences = differences(found.infos)
    for topic in sorted({queue.topic for queue in progress.stats.offset_table}):
        await _topic(admin, topic, found)
    await _subscription(admin, name, found)
    found.missing = dict(sorted(out.missing.items()))
    return found


async def _is_configured(admin: AdminClient, name: str, out: Output) -> bool:
    """Whether a broker has the group, though nobody used it. :param out: gets brokers that do not say."""
    brokers = (await admin.cluster_info()).broker_addr_table
    tables = await admin.subscription_groups_of(
        one.broker_addrs[0] for one in brokers.values() if 0 in one.broker_addrs
    )
    out.lacks(tables)
    for broker, data in brokers.items():
        if 0 not in data.broker_addrs:
            out.failed(broker, "it has no master now")
    return any(name in table.subscription_group_table for table in tables.found.values())


async def _topic(admin: AdminClient, topic: str, found: Group) -> None:
    """How much comes into a topic, and how far back it goes; a broker that does not say leaves a gap."""
    try:
        stats = await admin.topic_stats(topic)
        found.least = {**found.least, **{queue: one.min_offset for queue, one in stats.offset_table.items()}}
        if is_retry_topic(topic):
            return
        route = await admin.topic_route(topic)
        addresses = [address_of(data.broker_addrs) for data in route.broker_datas if data.broker_addrs]
        rates = (await admin.view_broker_stats_of(addresses, "TOPIC_PUT_NUMS", topic)).whole().values()
    except RMQError:
        return
    found.arriving = {**found.arriving, topic: sum(one.stats_minute.tps for one in rates if one is not None)}


async def _subscription(admin: AdminClient, name: str, found: Group) -> None:
    """Brokers that are closed for the group, and its dead letters."""
    masters = {
        broker: data.broker_addrs[0]
        for broker, data in (await admin.cluster_info()).broker_addr_table.items()
        if 0 in data.broker_addrs
    }
    tables = await admin.subscription_groups_of(masters.values())
    for broker, address in sorted(masters.items()):
        table = tables.found.get(address)
        config = None if table is None else table.subscription_group_table.get(name)
        if config is not None and not config.consume_enable:
            found.closed.append(broker)
    try:
        dead = await admin.topic_stats(dlq_topic(name))
    except RMQError:
        return  # nothing was given up yet
    found.dead = sum(one.max_offset - one.min_offset for one in dead.offset_table.values())
