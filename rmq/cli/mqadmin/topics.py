"""topicList, topicRoute, topicStatus, updateTopic (mqadmin.md B.1)."""

from __future__ import annotations

import click

from rmq.cli.mqadmin.hidden import warn_of_hidden
from rmq.cli.mqadmin.session import (
    admin_command,
    broker_or_cluster,
    complain_of,
    cut,
    masters_of,
    missing_from,
    print_json,
    stamp,
)
from rmq.client.admin import AdminClient
from rmq.protocol import fastjson
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.errors import ClientError, ResponseError, RMQError
from rmq.protocol.headers.namesrv import GetKVConfigRequest, GetKVConfigResponse, PutKVConfigRequest

__all__ = ["topic_list", "topic_route", "topic_status", "update_topic"]

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2
_topic = click.option("-t", "--topic", "topic", required=True, metavar="NAME", help="The topic.")


@admin_command(
    "topicList", click.option("-c", "--clusterModel", "clusters", is_flag=True, help="With cluster and groups.")
)
async def topic_list(admin: AdminClient, clusters: bool, json: bool) -> int:
    """Every topic; with -c its cluster and groups, too."""
    if not clusters:
        topics = sorted((await admin.topic_list()).topic_list)
        if json:
            print_json(topics)
        else:
            for topic in topics:
                click.echo(topic)
        return 0
    rows = []
    failed: dict[str, RMQError] = {}
    for cluster in sorted((await admin.cluster_info()).cluster_addr_table):
        for topic in sorted((await admin.topics_by_cluster(cluster)).topic_list):
            if topic.startswith(("%RETRY%", "%DLQ%")):
                continue
            groups: list[str] = []
            try:
                groups = sorted(await admin.query_topic_consume_by_who(topic))
            except RMQError as error:
                if isinstance(error, ResponseError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue  # it went meanwhile
                failed[topic] = error
            rows.append((cluster, topic, groups))
    code = complain_of("groups of topics", failed)
    if json:
        print_json([{"cluster": cluster, "topic": topic, "groups": groups} for cluster, topic, groups in rows])
        return code
    click.echo(f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}")
    for cluster, topic, groups in rows:
        for group in groups or [""]:
            click.echo(f"{cut(cluster, 20):<20}  {cut(topic, 64):<64}  {cut(group, 64):<64}")
    return code


@admin_command("topicRoute", _topic, click.option("-l", "--list", "table", is_flag=True, help="As a table."))
async def topic_route(admin: AdminClient, topic: str, table: bool, json: bool) -> None:
    """Which brokers and queues serve a topic."""
    route = await admin.topic_route(topic)
    if json:
        click.echo(route.encode(True))
    elif table:
        _print_route(route)
    else:
        click.echo(fastjson.pretty(route.to_object()))


def _print_route(route: TopicRouteData) -> None:
    columns = ("{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}").format
    click.echo(columns("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for queues in sorted(route.queue_datas, key=lambda one: one.broker_name):
        broker = brokers.get(queues.broker_name)
        addrs = "" if broker is None else ", ".join(f"{i}={addr}" for i, addr in sorted(broker.broker_addrs.items()))
        click.echo(
            columns(
                "" if broker is None else broker.cluster,
                queues.broker_name,
                f"{{{addrs}}}",
                queues.read_queue_nums,
                queues.write_queue_nums,
                queues.perm,
            )
        )
    click.echo("-" * 158)
    reads = sum(queues.read_queue_nums for queues in route.queue_datas)
    writes = sum(queues.write_queue_nums for queues in route.queue_datas)
    click.echo(columns("Total:", len(brokers), "", reads, writes, ""))


@admin_command("topicStatus", _topic)
async def topic_status(admin: AdminClient, topic: str, json: bool) -> int:
    """Lowest and highest offset and last store time of each queue."""
    stats = await admin.topic_stats(topic)
    code = missing_from(stats)
    rows = sorted(stats.offset_table.items())
    if json:
        print_json(
            [
                {
                    "brokerName": queue.broker_name,
                    "queueId": queue.queue_id,
                    "minOffset": one.min_offset,
                    "maxOffset": one.max_offset,
                    "lastUpdateTimestamp": one.last_update_timestamp,
                }
                for queue, one in rows
            ]
        )
        return code
    click.echo(f"{'#Broker Name':<32}  {'#QID':<4}  {'#Min Offset':<20}  {'#Max Offset':<20}    #Last Updated")
    for queue, one in rows:
        last = stamp(one.last_update_timestamp) if one.last_update_timestamp > 0 else ""
        name = cut(queue.broker_name, 32)
        click.echo(f"{name:<32}  {queue.queue_id:<4}  {one.min_offset:<20}  {one.max_offset:<20}    {last}")
    return code


@admin_command(
    "updateTopic",
    broker_or_cluster,
    _topic,
    click.option(
        "-r", "--readQueueNums", "reads", type=click.IntRange(1, 65_536), metavar="N", default=8, help="Queues to read."
    ),
    click.option(
        "-w", "--writeQueueNums", "writes", type=click.IntRange(1, 65_536), metavar="N", default=8, help="To write."
    ),
    click.option("-p", "--perm", "perm", type=click.Choice(["2", "4", "6"]), default="6", help="2 W, 4 R, 6 RW."),
    click.option(
        "-o", "--order", "order", type=bool, metavar="BOOL", default=False, help="Ordered topic (true|false)."
    ),
    click.option("-u", "--unit", "unit", type=bool, metavar="BOOL", default=False, help="Unit topic (true|false)."),
    click.option(
        "-s",
        "--hasUnitSub",
        "unit_sub",
        type=bool,
        metavar="BOOL",
        default=False,
        help="Unit subscription (true|false).",
    ),
)
async def update_topic(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    topic: str,
    reads: int,
    writes: int,
    perm: str,
    order: bool,
    unit: bool,
    unit_sub: bool,
    json: bool,
) -> None:
    """Create a topic or change it, on a broker or every master of a cluster."""
    addrs = await masters_of(admin, broker, cluster)
    if not addrs:
        raise ClientError(f"the cluster {cluster} has no master: nothing was created")
    await warn_of_hidden(admin, topic, addrs, reads if int(perm) & 4 else 0)
    flag = (FLAG_UNIT if unit else 0) | (FLAG_UNIT_SUB if unit_sub else 0)
    if order:
        await _update_order(admin, topic, addrs, writes, whole=cluster is not None, quiet=json)
    for addr in addrs:
        await admin.create_and_update_topic(
            addr,
            topic,
            read_queue_nums=reads,
            write_queue_nums=writes,
            perm=int(perm),
            topic_sys_flag=flag,
            order=order,
        )
        if not json:
            click.echo(f"create topic to {addr} success.")
    if json:
        print_json({"topic": topic, "brokers": addrs})
        return
    letters = ("R" if int(perm) & 4 else "-") + ("W" if int(perm) & 2 else "-") + "-"
    click.echo(
        f"TopicConfig [topicName={topic}, readQueueNums={reads}, writeQueueNums={writes}, perm={letters}, "
        f"topicFilterType=SINGLE_TAG, topicSysFlag={flag}, order={str(order).lower()}]"
    )


async def _update_order(
    admin: AdminClient, topic: str, addrs: list[str], queues: int, *, whole: bool, quiet: bool
) -> None:
    """Tell every name server how many queues the ordered topic has on each broker.

    :param whole: these brokers are all there are; otherwise they are added to those known.
    """
    names = _names(await admin.cluster_info())
    unknown = [addr for addr in addrs if addr not in names]
    if unknown:
        raise ClientError(f"no name server knows a broker at {', '.join(unknown)}: an ordered topic needs its name")
    known: dict[str, str] = {}
    if not whole:
        known = dict(item.split(":", 1) for item in (await _order(admin, topic)).split(";") if ":" in item)
    known.update({names[addr]: str(queues) for addr in addrs})
    value = ";".join(f"{name}:{count}" for name, count in known.items())
    header = PutKVConfigRequest(namespace=ORDER_TOPIC_CONFIG, key=topic, value=value)
    for namesrv in admin.name_server_addresses:
        await admin._client.call(namesrv, RequestCode.PUT_KV_CONFIG, header)
    if not quiet:
        click.echo(f"set {'cluster' if whole else 'broker'} orderConf. isOrder=true, orderConf=[{value}]")


async def _order(admin: AdminClient, topic: str) -> str:
    header = GetKVConfigRequest(namespace=ORDER_TOPIC_CONFIG, key=topic)
    try:
        reply = await admin._client.call(admin.name_server_addresses[0], RequestCode.GET_KV_CONFIG, header)
    except ResponseError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return ""
        raise
    return reply.header(GetKVConfigResponse).value or ""


def _names(info: ClusterInfo) -> dict[str, str]:
    """Address -> broker name."""
    return {addr: name for name, broker in info.broker_addr_table.items() for addr in broker.broker_addrs.values()}
