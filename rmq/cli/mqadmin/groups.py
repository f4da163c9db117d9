"""updateSubGroup, updateSubGroupList, deleteSubGroup, getConsumerConfig, setConsumeMode (mqadmin.md B.1)."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rmq.cli.given_file import GivenFile, GivenFileType
from rmq.cli.mqadmin.absent import miss_absent
from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.output import complain
from rmq.cli.mqadmin.session import (
    MOST_LISTED,
    AdminClient,
    Output,
    admin_command,
    at_each,
    broker_or_cluster,
    listed,
    masters_of,
)
from rmq.cli.mqadmin.topic_changes import forget_topic
from rmq.client.admin.answers import side_by_side
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ClientError, ResponseError
from rmq.protocol.names import dlq_topic, retry_topic

__all__ = ["delete_sub_group", "get_consumer_config", "set_consume_mode", "update_sub_group", "update_sub_group_list"]


@admin_command(
    "updateSubGroup",
    broker_or_cluster,
    click.option("-g", "--groupName", "group", required=True, metavar="NAME", help="The group."),
    click.option(
        "-s", "--consumeEnable", "enable", type=bool, metavar="BOOL", default="true", help="May consume (true|false)."
    ),
    click.option(
        "-m",
        "--consumeFromMinEnable",
        "from_min",
        type=bool,
        metavar="BOOL",
        default="false",
        help="Taken for Java's sake: where a member begins is its own setting.",
    ),
    click.option(
        "-d", "--consumeBroadcastEnable", "broadcast", type=bool, metavar="BOOL", default="false", help="May broadcast."
    ),
    click.option(
        "-q",
        "--retryQueueNums",
        "queues",
        type=click.IntRange(0, 65_536),
        metavar="N",
        default=1,
        help="Queues of its retry topic.",
    ),
    click.option(
        "-r",
        "--retryMaxTimes",
        "times",
        type=click.IntRange(-1),
        metavar="N",
        default=16,
        help="How often a message is tried again.",
    ),
    click.option(
        "-i",
        "--brokerId",
        "broker_id",
        type=click.IntRange(0),
        metavar="N",
        default=0,
        help="Members read from the broker with this id.",
    ),
    click.option(
        "-w",
        "--whichBrokerWhenConsumeSlowly",
        "slowly",
        type=click.IntRange(0),
        metavar="N",
        default=1,
        help="Of which id they read when they are slow.",
    ),
    click.option(
        "-a",
        "--notifyConsumerIdsChanged",
        "notify",
        type=bool,
        metavar="BOOL",
        default="true",
        help="Tell members at once.",
    ),
)
async def update_sub_group(
    admin: AdminClient,
    out: Output,
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
) -> int:
    """Create a subscription group or change it, on a broker or every master of a cluster."""
    addrs = await masters_of(admin, out, broker, cluster)
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
    what = f"create the group {group}"
    done = await at_each(what, addrs, lambda addr: admin.create_and_update_subscription_group(addr, config))
    lines = [f"create subscription group to {addr} success." for addr in done]
    flags = {
        name: str(value).lower() for name, value in (("e", enable), ("m", from_min), ("b", broadcast), ("n", notify))
    }
    lines.append(
        f"SubscriptionGroupConfig [groupName={group}, consumeEnable={flags['e']}, consumeFromMinEnable={flags['m']}, "
        f"consumeBroadcastEnable={flags['b']}, retryQueueNums={queues}, retryMaxTimes={times}, brokerId={broker_id}, "
        f"whichBrokerWhenConsumeSlowly={slowly}, notifyConsumerIdsChangedEnable={flags['n']}]"
    )
    return out.done({"group": group, "brokers": [*done]}, lines)


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
        default="false",
        help="Its offsets as well (true|false).",
    ),
    click.option("-f", "--force", "force", is_flag=True, help="Even while members are online."),
)
async def delete_sub_group(
    admin: AdminClient,
    out: Output,
    broker: str | None,
    cluster: str | None,
    group: str,
    remove_offset: bool,
    force: bool,
) -> int:
    """Delete a subscription group on a broker or every master of a cluster; refused while members are online."""
    addrs = await masters_of(admin, out, broker, cluster)
    known = (await admin.subscription_groups_of(addrs)).whole()
    if not any(group in table.subscription_group_table for table in known.values()):
        if not remove_offset:
            raise NotFound(f"{', '.join(addrs)} has no group {group}: nothing was deleted")
        complain(f"{', '.join(addrs)} has no group {group}: offsets that it left were deleted, if there were any")
    found = await side_by_side([] if force else addrs, lambda addr: _members(admin, group, addr))
    for addr, members in found.whole().items():
        if members:
            online = "member" if len(members) == 1 else "members"
            raise ClientError(
                f"the group {group} has {len(members)} {online} online at {addr} ({', '.join(members[:3])}): "
                "stop them, or use --force; nothing was deleted"
            )
    done = await at_each(
        f"delete the group {group}",
        addrs,
        lambda addr: admin.delete_subscription_group(addr, group, remove_offset=remove_offset),
    )
    where = "" if cluster is None else f" in cluster [{cluster}]"
    lines = [f"delete subscription group [{group}] from broker [{addr}]{where} success." for addr in done]
    topics = [retry_topic(group), dlq_topic(group)] if cluster is not None else []
    for name in topics:
        lines += await forget_topic(admin, name, cluster or "", addrs)
    if not remove_offset:
        complain(f"its offsets stay: a new group {group} goes on where this one stood (-r true removes them)")
    return out.done({"group": group, "brokers": [*done], "topics": topics, "removeOffset": remove_offset}, lines)


async def _members(admin: AdminClient, group: str, addr: str) -> list[str]:
    try:
        return sorted(one.client_id for one in (await admin.consumer_connections(group, addr)).connection_set)
    except ResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return []


@admin_command(
    "updateSubGroupList",
    broker_or_cluster,
    click.option("-f", "--filename", "file", required=True, type=GivenFileType(MOST_LISTED), metavar="FILE",
                 help='JSON: [{"groupName": "G", "retryMaxTimes": 16}, ...]'),
)  # fmt: skip
async def update_sub_group_list(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, file: GivenFile
) -> int:
    """Create or change the groups of a JSON file, on a broker or every master of a cluster (brokers of 5.x)."""
    configs = listed(file, SubscriptionGroupConfig, "groupName")
    addrs = await masters_of(admin, out, broker, cluster)
    done = await at_each(
        "submit the groups", addrs, lambda addr: admin.create_and_update_subscription_groups(addr, configs)
    )
    lines = [
        f"submit batch of subscription group config to {addr} success, please check the result later." for addr in done
    ]
    return out.done({"groups": [one.group_name for one in configs], "brokers": [*done]}, lines)


@admin_command(
    "getConsumerConfig",
    click.option("-g", "--groupName", "group", required=True, metavar="NAME", help="The group."),
)
async def get_consumer_config(admin: AdminClient, out: Output, group: str) -> int:
    """How a group is configured, on every broker that has it."""
    info = await admin.cluster_info()
    await miss_absent(admin, out)
    places = {
        addr: (cluster, name)
        for cluster, names in sorted(info.cluster_addr_table.items())
        for name in sorted(names)
        if (one := info.broker_addr_table.get(name)) is not None and (addr := one.broker_addrs.get(0)) is not None
    }
    answers = await admin.subscription_groups_of(list(places))
    out.lacks(answers)
    rows = []
    for addr, table in answers.found.items():
        config = table.subscription_group_table.get(group)
        if config is not None:
            cluster, name = places[addr]
            rows.append({"cluster": cluster, "brokerName": name, **config.to_object()})
    if not rows and not out.missing:
        raise NotFound(f"no broker has a group {group}")

    def classic() -> Iterator[str]:
        for row in rows:
            yield f"============================={row['cluster']}:{row['brokerName']}============================="
            for key in _SHOWN:
                value = row.get(key)
                yield f"{key:<40}=  {str(value).lower() if isinstance(value, bool) else value}"

    return out.rows(rows, classic)


#: In Java's order.
_SHOWN = (
    "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "retryQueueNums", "retryMaxTimes",
    "brokerId", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable",
)  # fmt: skip


@admin_command(
    "setConsumeMode",
    broker_or_cluster,
    click.option("-t", "--topicName", "topic", required=True, metavar="NAME", help="The topic."),
    click.option("-g", "--groupName", "group", required=True, metavar="NAME", help="The group."),
    click.option("-m", "--mode", "mode", required=True, type=click.Choice(["PULL", "POP"], case_sensitive=False),
                 help="How its members get messages."),
    click.option("-q", "--popShareQueueNum", "share", type=click.IntRange(-1), default=0, metavar="N",
                 help="With how many others a member shares its queues; 0: all pop from all."),
)  # fmt: skip
async def set_consume_mode(
    admin: AdminClient,
    out: Output,
    broker: str | None,
    cluster: str | None,
    topic: str,
    group: str,
    mode: str,
    share: int,
) -> int:
    """Have a group pop from a topic, or pull again, on a broker or every master of a cluster (5.x)."""
    addrs = await masters_of(admin, out, broker, cluster)
    done = await at_each(
        f"set the mode of {group}",
        addrs,
        lambda addr: admin.set_message_request_mode(addr, topic, group, mode, share),
    )
    lines = [f"set consume mode to {addr} success." for addr in done]
    lines.append(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")
    told = {"topic": topic, "group": group, "mode": mode, "popShareQueueNum": share, "brokers": [*done]}
    return out.done(told, lines)
