"""updateTopic, updateTopicList, updateTopicPerm, deleteTopic, updateOrderConf (mqadmin.md B.1)."""

from __future__ import annotations

import re

import click

from rmq.cli.given_file import GivenFile, GivenFileType
from rmq.cli.mqadmin.failures import NotFound, undone
from rmq.cli.mqadmin.hidden import warn_of_hidden
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
from rmq.cli.mqadmin.topics import topic as _topic
from rmq.client.admin.nameservers import ORDER_TOPIC_CONFIG
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError

__all__ = ["delete_topic", "update_order_conf", "update_topic", "update_topic_list", "update_topic_perm"]

FLAG_UNIT = 1
FLAG_UNIT_SUB = 2
_perm = click.option("-p", "--perm", "perm", type=click.Choice(["2", "4", "6"]), required=True, help="2 W, 4 R, 6 RW.")


@admin_command(
    "updateTopic",
    broker_or_cluster,
    _topic,
    click.option(
        "-r", "--readQueueNums", "reads", type=click.IntRange(1, 65_536), metavar="N", default=8, help="Queues to read."
    ),
    click.option(
        "-w",
        "--writeQueueNums",
        "writes",
        type=click.IntRange(1, 65_536),
        metavar="N",
        default=8,
        help="Queues to write.",
    ),
    click.option("-p", "--perm", "perm", type=click.Choice(["2", "4", "6"]), default="6", help="2 W, 4 R, 6 RW."),
    click.option(
        "-o", "--order", "order", type=bool, metavar="BOOL", default="false", help="Ordered topic (true|false)."
    ),
    click.option("-u", "--unit", "unit", type=bool, metavar="BOOL", default="false", help="Unit topic (true|false)."),
    click.option(
        "-s",
        "--hasUnitSub",
        "unit_sub",
        type=bool,
        metavar="BOOL",
        default="false",
        help="Unit subscription (true|false).",
    ),
)
async def update_topic(
    admin: AdminClient,
    out: Output,
    broker: str | None,
    cluster: str | None,
    topic: str,
    reads: int,
    writes: int,
    perm: str,
    order: bool,
    unit: bool,
    unit_sub: bool,
) -> int:
    """Create a topic or change it, on a broker or every master of a cluster."""
    addrs = await masters_of(admin, out, broker, cluster)
    if writes > reads:
        complain(
            f"queues {reads} to {writes - 1} will be written and not read: nobody gets what is sent there (-w over -r)"
        )
    await warn_of_hidden(admin, topic, addrs, reads if int(perm) & 4 else 0)
    flag = (FLAG_UNIT if unit else 0) | (FLAG_UNIT_SUB if unit_sub else 0)
    lines = await _update_order(admin, topic, addrs, writes, whole=cluster is not None) if order else []
    done = await at_each(
        f"create topic {topic}",
        addrs,
        lambda addr: admin.create_and_update_topic(
            addr,
            topic,
            read_queue_nums=reads,
            write_queue_nums=writes,
            perm=int(perm),
            topic_sys_flag=flag,
            order=order,
        ),
    )
    lines += [f"create topic to {addr} success." for addr in done]
    config = TopicConfig(topic, reads, writes, int(perm), topic_sys_flag=flag, order=order)
    return out.done({"topic": topic, "brokers": [*done]}, [*lines, config_text(config)])


def config_text(config: TopicConfig) -> str:
    """As Java prints it."""
    letters = ("R" if config.perm & 4 else "-") + ("W" if config.perm & 2 else "-") + "-"
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={letters}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={str(config.order).lower()}]"
    )


async def _update_order(admin: AdminClient, topic: str, addrs: list[str], queues: int, *, whole: bool) -> list[str]:
    """Tell every name server how many queues the ordered topic has on each broker.

    :param whole: these brokers are all there are; otherwise they are added to those known.
    """
    names = _names(await admin.cluster_info())
    unknown = [addr for addr in addrs if addr not in names]
    if unknown:
        raise NotFound(f"no name server knows a broker at {', '.join(unknown)}: an ordered topic needs its name")
    known: dict[str, str] = {}
    if not whole:
        entry = await admin.kv_config(ORDER_TOPIC_CONFIG, topic) or ""
        known = dict(item.split(":", 1) for item in entry.split(";") if ":" in item)
    known.update({names[addr]: str(queues) for addr in addrs})
    value = ";".join(f"{name}:{count}" for name, count in known.items())
    (await admin.put_kv_config(ORDER_TOPIC_CONFIG, topic, value)).whole()
    return [f"set {'cluster' if whole else 'broker'} orderConf. isOrder=true, orderConf=[{value}]"]


def _names(info: ClusterInfo) -> dict[str, str]:
    """Address -> broker name."""
    return {addr: name for name, broker in info.broker_addr_table.items() for addr in broker.broker_addrs.values()}


@admin_command(
    "updateTopicList",
    broker_or_cluster,
    click.option("-f", "--filename", "file", required=True, type=GivenFileType(MOST_LISTED), metavar="FILE",
                 help='JSON: [{"topicName": "T", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}, ...]'),
)  # fmt: skip
async def update_topic_list(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, file: GivenFile
) -> int:
    """Create or change the topics of a JSON file, on a broker or every master of a cluster (brokers of 5.x)."""
    configs = listed(file, TopicConfig, "topicName")
    addrs = await masters_of(admin, out, broker, cluster)
    done = await at_each("submit the topics", addrs, lambda addr: admin.create_and_update_topics(addr, configs))
    lines = [f"submit batch of topic config to {addr} success, please check the result later." for addr in done]
    return out.done({"topics": [one.topic_name for one in configs], "brokers": [*done]}, lines)


@admin_command("updateTopicPerm", broker_or_cluster, _topic, _perm)
async def update_topic_perm(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, topic: str, perm: str
) -> int:
    """Change a topic's permission, and nothing else of it, on a broker or every master of a cluster that has it."""
    addrs = await masters_of(admin, out, broker, cluster)
    route = await admin.topic_route(topic)
    having = {address for one in route.broker_datas for address in one.broker_addrs.values()}
    there = [addr for addr in addrs if addr in having]
    if not there:
        raise NotFound(f"{', '.join(addrs)} has no topic {topic}: mqadmin topicRoute -t {topic} shows where it is")
    lines: list[str] = []
    what = f"update the permission of {topic}"
    done = await at_each(what, there, lambda addr: admin.update_topic_perm(addr, topic, int(perm)))
    for addr in done:
        if broker is not None and done[addr] == int(perm):
            lines.append("new perm equals to the old one!")
            continue
        lines.append(f"update topic perm from {done[addr]} to {perm} in {addr} success.")
        if broker is not None and (config := await admin.topic_config(addr, topic)) is not None:
            lines.append(f"{config_text(config)}.")
    return out.done({"topic": topic, "perm": int(perm), "was": done}, lines)


@admin_command(
    "deleteTopic",
    _topic,
    click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="The cluster."),
)
async def delete_topic(admin: AdminClient, out: Output, topic: str, cluster: str) -> int:
    """Delete a topic and its messages from every master of a cluster, and from the name servers."""
    masters = await masters_of(admin, out, None, cluster)
    try:
        clusters = await admin.topic_clusters(topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise NotFound(f"there is no topic {topic}: nothing was deleted") from error
    if cluster not in clusters:
        raise NotFound(f"the cluster {cluster} has no topic {topic} ({', '.join(clusters)} has): nothing was deleted")
    return out.done({"topic": topic, "cluster": cluster}, await forget_topic(admin, topic, cluster, masters))


async def forget_topic(admin: AdminClient, topic: str, cluster: str, masters: list[str]) -> list[str]:
    """Delete a topic at brokers, then at the name servers. :returns: what Java's tool says."""
    answers = await admin.delete_topic_in_broker(masters, topic)
    if answers.failed:
        raise undone(f"delete topic {topic}", answers.found, answers.failed)
    told = await admin.delete_topic_in_name_servers(topic, cluster)
    if told.failed:
        raise undone(f"delete topic {topic}", [*masters, *told.found], told.failed)
    return [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]


@admin_command(
    "updateOrderConf",
    _topic,
    click.option("-v", "--orderConf", "value", metavar="LIST", help="For put: broker-a:4;broker-b:4"),
    click.option(
        "-m",
        "--method",
        "method",
        required=True,
        type=click.Choice(["get", "put", "delete"]),
        help="What to do with it.",
    ),
)
async def update_order_conf(admin: AdminClient, out: Output, topic: str, value: str | None, method: str) -> int:
    """Show, set or delete how many queues an ordered topic has on each broker (a name server's key-value entry)."""
    told = topic.strip()
    if method == "put":
        if value is None or not re.fullmatch(r"[^:;]+:\d+(;[^:;]+:\d+)*;?", value):
            raise click.BadParameter("give broker-a:4;broker-b:4", param_hint="'-v' / '--orderConf'")
        (await admin.put_kv_config(ORDER_TOPIC_CONFIG, told, value)).whole()
        line = f"update orderConf success. topic=[{told}], orderConf=[{value}]"
    else:
        value = await admin.kv_config(ORDER_TOPIC_CONFIG, told)
        if value is None:
            raise NotFound(f"no name server has an order configuration of {told}")
        line = f"get orderConf success. topic=[{told}], orderConf=[{value}] "
        if method == "delete":
            (await admin.delete_kv_config(ORDER_TOPIC_CONFIG, told)).whole()
            line = f"delete orderConf success. topic=[{told}]"
    return out.done({"topic": told, "method": method, "orderConf": value}, [line])
