"""updateSubGroup, deleteSubGroup, consumerProgress (mqadmin.md B.1; field cases B023, B119)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import click

from rmq.cli.mqadmin.session import (
    admin_command,
    broker_or_cluster,
    complain_of,
    cut,
    masters_of,
    missing_from,
    print_json,
    seconds,
)
from rmq.client.admin import AdminClient
from rmq.protocol.bodies.connection import ConsumerConnection
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.stats import ConsumeStats
from rmq.protocol.codes import ResponseCode, version_name
from rmq.protocol.errors import ClientError, ResponseError, RMQError, TransportError
from rmq.protocol.queue import MessageQueue

__all__ = ["consumer_progress", "delete_sub_group", "update_sub_group"]

RETRY = "%RETRY%"
#: A group that is offline or has no offsets: 206 in 4.9, 213 in 5.x (mqadmin.md).
NOT_ONLINE = (ResponseCode.CONSUMER_NOT_ONLINE, 213)
#: Groups looked at at the same time.
_AT_ONCE = 16


@admin_command(
    "updateSubGroup",
    broker_or_cluster,
    click.option("-g", "--groupName", "group", required=True, metavar="NAME", help="The group."),
    click.option(
        "-s", "--consumeEnable", "enable", type=bool, metavar="BOOL", default=True, help="May consume (true|false)."
    ),
    click.option(
        "-m",
        "--consumeFromMinEnable",
        "from_min",
        type=bool,
        metavar="BOOL",
        default=False,
        help="From the lowest offset.",
    ),
    click.option(
        "-d", "--consumeBroadcastEnable", "broadcast", type=bool, metavar="BOOL", default=False, help="May broadcast."
    ),
    click.option(
        "-q", "--retryQueueNums", "queues", type=click.IntRange(0, 65_536), metavar="N", default=1, help="Retry queues."
    ),
    click.option(
        "-r", "--retryMaxTimes", "times", type=click.IntRange(-1), metavar="N", default=16, help="Retries per message."
    ),
    click.option(
        "-i", "--brokerId", "broker_id", type=click.IntRange(0), metavar="N", default=0, help="Consume from this id."
    ),
    click.option(
        "-w",
        "--whichBrokerWhenConsumeSlowly",
        "slowly",
        type=click.IntRange(0),
        metavar="N",
        default=1,
        help="When slow.",
    ),
    click.option(
        "-a",
        "--notifyConsumerIdsChanged",
        "notify",
        type=bool,
        metavar="BOOL",
        default=True,
        help="Tell members at once.",
    ),
)
async def update_sub_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    enable: bool,
    from_min: bool,
    broadcast: bool,
    queues: int,
    times: int,
    broker_id: int,
    slowly: int,
    notify: bool,
    json: bool,
) -> None:
    """Create a subscription group or change it, on a broker or every master of a cluster."""
    addrs = await masters_of(admin, broker, cluster)
    if not addrs:
        raise ClientError(f"the cluster {cluster} has no master: nothing was created")
    config = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=enable,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        retry_queue_nums=queues,
        retry_max_times=times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slowly,
        notify_consumer_ids_changed_enable=notify,
    )
    for addr in addrs:
        await admin.create_and_update_subscription_group(addr, config)
        if not json:
            click.echo(f"create subscription group to {addr} success.")
    if json:
        print_json({"group": group, "brokers": addrs})
        return
    flags = {
        name: str(value).lower() for name, value in (("e", enable), ("m", from_min), ("b", broadcast), ("n", notify))
    }
    click.echo(
        f"SubscriptionGroupConfig [groupName={group}, consumeEnable={flags['e']}, consumeFromMinEnable={flags['m']}, "
        f"consumeBroadcastEnable={flags['b']}, retryQueueNums={queues}, retryMaxTimes={times}, brokerId={broker_id}, "
        f"whichBrokerWhenConsumeSlowly={slowly}, notifyConsumerIdsChangedEnable={flags['n']}]"
    )


@admin_command(
    "deleteSubGroup",
    broker_or_cluster,
    click.option("-g", "--groupName", "group", required=True, metavar="NAME", help="The group."),
    click.option(
        "-r",
        "--removeOffset",
        "remove_offset",
        type=bool,
        metavar="BOOL",
        default=False,
        help="Its offsets as well (true|false).",
    ),
    click.option("-f", "--force", "force", is_flag=True, help="Even while members are online."),
)
async def delete_sub_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    remove_offset: bool,
    force: bool,
    json: bool,
) -> None:
    """Delete a subscription group on a broker or every master of a cluster; refused while members are online."""
    addrs = await masters_of(admin, broker, cluster)
    for addr in [] if force else addrs:
        members = await _members(admin, group, addr)
        if members:
            raise ClientError(
                f"the group {group} has {len(members)} members online at {addr} ({', '.join(members[:3])}): "
                "stop them, or use --force; nothing was deleted"
            )
    for addr in addrs:
        await admin.delete_subscription_group(addr, group, remove_offset=remove_offset)
        if not json:
            click.echo(f"delete subscription group [{group}] from broker [{addr}] success.")
    if json:
        print_json({"group": group, "brokers": addrs, "removeOffset": remove_offset})
    elif not remove_offset:
        click.echo(f"Its offsets stay: a new group {group} goes on where this one stood (-r true removes them).")


async def _members(admin: AdminClient, group: str, addr: str) -> list[str]:
    try:
        return sorted(one.client_id for one in (await admin.consumer_connections(group, addr)).connection_set)
    except ResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return []


@admin_command(
    "consumerProgress",
    click.option("-g", "--groupName", "group", metavar="NAME", help="The group; without it every group."),
    click.option(
        "-s", "--showClientIP", "show_ip", type=bool, metavar="BOOL", default=False, help="Which client has each queue."
    ),
)
async def consumer_progress(admin: AdminClient, group: str | None, show_ip: bool, json: bool) -> int:
    """How far a group is in each queue; without -g, a line for every group."""
    if group is None:
        return await _every_group(admin, json)
    progress = await _progress(admin, group)
    owners = await _owners(admin, progress) if show_ip else None
    if json:
        print_json(_as_json(progress, owners))
    elif not progress.stats.offset_table:
        click.echo(f"{group}: {progress.state}")
    else:
        _print_progress(progress, owners)
    return missing_from(progress.connection, progress.stats)


@dataclass(frozen=True, slots=True)
class Progress:
    """A group's offsets and clients, and a word for what it is when there are none."""

    group: str
    stats: ConsumeStats
    connection: ConsumerConnection | None
    state: str

    @property
    def diff(self) -> int:
        """Messages not consumed yet; queues whose offset is unknown (-1) are left out."""
        table = self.stats.offset_table.values()
        return sum(one.broker_offset - one.consumer_offset for one in table if one.consumer_offset >= 0)


async def _progress(admin: AdminClient, group: str) -> Progress:
    """What is known of a group: never used, offline and broadcasting are states, not errors."""
    connection: ConsumerConnection | None = None
    try:
        connection = await admin.consumer_connections(group)
    except ResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return Progress(group, ConsumeStats(), None, "never connected")
        if error.code not in NOT_ONLINE:
            raise
    stats = ConsumeStats()
    try:
        stats = await admin.consume_stats(group)
    except ResponseError as error:
        if error.code not in (*NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
            raise
    if connection is not None and connection.message_model == "BROADCASTING":
        state = "broadcast (offsets are local)"
    else:
        members = connection is not None and connection.connection_set
        state = "connected, no offsets yet" if members else "offline, no offsets"
    return Progress(group, stats, connection, state)


async def _owners(admin: AdminClient, progress: Progress) -> dict[MessageQueue, str]:
    """Queue -> address of the client that has it, as far as the clients tell."""
    owners: dict[MessageQueue, str] = {}
    if progress.connection is None:
        return owners
    brokers = await brokers_of(admin, progress.group, progress.connection)
    for client in progress.connection.connection_set:
        for addr in brokers:
            try:
                info = await admin.consumer_running_info(progress.group, client.client_id, addr)
            except (ResponseError, TransportError):
                continue  # perhaps it is connected to another one
            owners.update(dict.fromkeys(info.mq_table, client.client_id.partition("@")[0]))
            break
    return owners


async def brokers_of(admin: AdminClient, group: str, connection: ConsumerConnection) -> list[str]:
    """Addresses of the brokers through which members of a group can be asked: those that told of them."""
    missing = getattr(connection, "missing", {})
    route = await admin.topic_route(RETRY + group)
    return [
        one.broker_addrs[min(one.broker_addrs)]
        for one in route.broker_datas
        if one.broker_addrs and one.broker_name not in missing
    ]


def _print_progress(progress: Progress, owners: dict[MessageQueue, str] | None) -> None:
    columns = ("{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  " + ("" if owners is None else "{:<20} ") + "{:<20}  {}").format
    ip_title = [] if owners is None else ["#Client IP"]
    titles = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", *ip_title, "#Diff", "#LastTime"]
    click.echo(columns(*titles))
    for queue, one in sorted(progress.stats.offset_table.items()):
        unknown = one.consumer_offset < 0
        click.echo(
            columns(
                cut(queue.topic, 64),
                cut(queue.broker_name, 32),
                queue.queue_id,
                one.broker_offset,
                "unknown" if unknown else one.consumer_offset,
                *([] if owners is None else [owners.get(queue, "N/A")]),
                "unknown" if unknown else one.broker_offset - one.consumer_offset,
                seconds(one.last_timestamp),
            )
        )
    click.echo()
    click.echo(f"Consume TPS: {progress.stats.consume_tps:.2f}")
    click.echo(f"Diff Total: {progress.diff}")


def _as_json(progress: Progress, owners: dict[MessageQueue, str] | None) -> dict[str, object]:
    return {
        "group": progress.group,
        "state": progress.state if not progress.stats.offset_table else "known",
        "consumeTps": progress.stats.consume_tps,
        "diffTotal": progress.diff,
        "queues": [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "brokerOffset": one.broker_offset,
                "consumerOffset": one.consumer_offset,
                "lastTimestamp": one.last_timestamp,
                **({} if owners is None else {"clientIP": owners.get(queue)}),
            }
            for queue, one in sorted(progress.stats.offset_table.items())
        ],
    }


async def _every_group(admin: AdminClient, json: bool) -> int:
    names = sorted(t.removeprefix(RETRY) for t in (await admin.topic_list()).topic_list if t.startswith(RETRY))
    gate = asyncio.Semaphore(_AT_ONCE)
    failed: dict[str, RMQError] = {}

    async def look(name: str) -> Progress | None:
        async with gate:
            try:
                return await _progress(admin, name)
            except RMQError as error:
                failed[name] = error
                return None

    found = [one for one in await asyncio.gather(*map(look, names)) if one is not None]
    missing = missing_from(*(part for one in found for part in (one.connection, one.stats)))
    code = max(missing, complain_of("groups", failed))
    found.sort(key=lambda one: (-one.diff, one.group))
    if json:
        print_json(
            [
                {
                    "group": one.group,
                    "clients": len(one.connection.connection_set) if one.connection else 0,
                    "version": _version(one),
                    "type": _type(one),
                    "model": _model(one),
                    "consumeTps": one.stats.consume_tps,
                    "diffTotal": one.diff,
                }
                for one in found
            ]
        )
        return code
    columns = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}".format
    click.echo(columns("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    for one in found:
        count = len(one.connection.connection_set) if one.connection else 0
        tps = int(one.stats.consume_tps)
        click.echo(columns(cut(one.group, 64), count, _version(one), _type(one), _model(one), tps, one.diff))
    return code


def _version(one: Progress) -> str:
    if one.connection is None or not one.connection.connection_set:
        return "OFFLINE"
    return version_name(min(client.version for client in one.connection.connection_set))


def _type(one: Progress) -> str:
    kind = one.connection.consume_type if one.connection else None
    return {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(kind or "", "")


def _model(one: Progress) -> str:
    return (one.connection.message_model or "") if one.connection else ""
