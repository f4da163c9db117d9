"""topicList, topicClusterList, topicRoute, topicStatus, allocateMQ (mqadmin.md B.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click
import orjson

from rmq.cli.mqadmin.absent import miss_absent, nobody
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.cli.mqadmin.text import cut, stamp
from rmq.protocol import fastjson
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.queue import MessageQueue

__all__ = ["allocate_mq", "topic", "topic_cluster_list", "topic_list", "topic_route", "topic_status"]

#: Topics looked at at the same time.
_AT_ONCE = 32
topic = click.option("-t", "--topic", "topic", required=True, metavar="NAME", help="The topic.")


@admin_command(
    "topicList", click.option("-c", "--clusterModel", "clusters", is_flag=True, help="With cluster and groups.")
)
async def topic_list(admin: AdminClient, out: Output, clusters: bool) -> int:
    """Every topic; with -c its cluster and groups, too."""
    await miss_absent(admin, out)
    if not clusters:
        names = sorted((await admin.topic_list()).topic_list)
        code = out.names(names)
        return code if names else nobody(await admin.cluster_info()) or code
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(cluster: str, topic: str) -> tuple[str, str, list[str]] | None:
        async with gate:
            try:
                answers = await admin.topic_groups(topic)
                out.lacks(answers)
                return cluster, topic, sorted({group for groups in answers.found.values() for group in groups})
            except RMQError as error:
                if isinstance(error, ResponseError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None  # it went meanwhile
                out.failed(f"groups of {topic}", error)
                return cluster, topic, []

    wanted = [
        look(cluster, topic)
        for cluster in sorted((await admin.cluster_info()).cluster_addr_table)
        for topic in sorted((await admin.topics_by_cluster(cluster)).topic_list)
        if not topic.startswith(("%RETRY%", "%DLQ%"))
    ]
    rows = [one for one in await asyncio.gather(*wanted) if one is not None]

    def classic() -> Iterator[str]:
        yield f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}"
        for cluster, topic, groups in rows:
            for group in groups or [""]:
                yield f"{cut(cluster, 20):<20}  {cut(topic, 64):<64}  {cut(group, 64):<64}"

    return out.rows(
        [{"cluster": cluster, "topic": topic, "groups": groups} for cluster, topic, groups in rows], classic
    )


@admin_command("topicClusterList", topic)
async def topic_cluster_list(admin: AdminClient, out: Output, topic: str) -> int:
    """The clusters that have a topic."""
    return out.names(await admin.topic_clusters(topic))


@admin_command("topicRoute", topic, click.option("-l", "--list", "table", is_flag=True, help="As a table."))
async def topic_route(admin: AdminClient, out: Output, topic: str, table: bool) -> int:
    """Which brokers and queues serve a topic."""
    route = await admin.topic_route(topic)

    def classic() -> Iterator[str]:
        if table:
            yield from _route_lines(route)
        else:
            yield fastjson.pretty(route.to_object()).decode()

    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    rows = [
        {
            "cluster": broker.cluster if (broker := brokers.get(one.broker_name)) is not None else None,
            "broker": one.broker_name,
            "addresses": [f"{id_}={addr}" for id_, addr in sorted(broker.broker_addrs.items())] if broker else [],
            "read": one.read_queue_nums,
            "write": one.write_queue_nums,
            "perm": one.perm,
        }
        for one in sorted(route.queue_datas, key=lambda one: one.broker_name)
    ]
    return out.value(orjson.loads(route.encode(True)), classic, key="queueDatas", table=rows)


def _route_lines(route: TopicRouteData) -> Iterator[str]:
    columns = ("{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}").format
    yield (columns("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for queues in sorted(route.queue_datas, key=lambda one: one.broker_name):
        broker = brokers.get(queues.broker_name)
        addrs = "" if broker is None else ", ".join(f"{i}={addr}" for i, addr in sorted(broker.broker_addrs.items()))
        yield (
            columns(
                "" if broker is None else broker.cluster,
                queues.broker_name,
                f"{{{addrs}}}",
                queues.read_queue_nums,
                queues.write_queue_nums,
                queues.perm,
            )
        )
    yield "-" * 158
    reads = sum(queues.read_queue_nums for queues in route.queue_datas)
    writes = sum(queues.write_queue_nums for queues in route.queue_datas)
    yield (columns("Total:", len(brokers), "", reads, writes, ""))


@admin_command(
    "topicStatus",
    topic,
    click.option("-c", "--cluster", "cluster", metavar="NAME", help="Brokers of this cluster alone."),
)
async def topic_status(admin: AdminClient, out: Output, topic: str, cluster: str | None) -> int:
    """Lowest and highest offset and last store time of each queue."""
    stats = await admin.topic_stats(topic)
    await miss_absent(admin, out)
    only = None if cluster is None else set(await admin.masters(cluster))
    stats.missing = {name: why for name, why in stats.missing.items() if only is None or name in only}
    out.lacks(stats)
    rows = [
        (queue, one) for queue, one in sorted(stats.offset_table.items()) if only is None or queue.broker_name in only
    ]

    def classic() -> Iterator[str]:
        yield f"{'#Broker Name':<32}  {'#QID':<4}  {'#Min Offset':<20}  {'#Max Offset':<20}    #Last Updated"
        for queue, one in rows:
            last = stamp(one.last_update_timestamp) if one.last_update_timestamp > 0 else ""
            name = cut(queue.broker_name, 32)
            yield f"{name:<32}  {queue.queue_id:<4}  {one.min_offset:<20}  {one.max_offset:<20}    {last}"

    return out.rows(
        [
            {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "minOffset": one.min_offset,
                "maxOffset": one.max_offset,
                "lastUpdateTimestamp": one.last_update_timestamp,
            }
            for queue, one in rows
        ],
        classic,
    )


@admin_command(
    "allocateMQ",
    topic,
    click.option("-i", "--ipList", "ips", required=True, metavar="LIST", help="Members of a group: ip,ip,ip"),
)
async def allocate_mq(admin: AdminClient, out: Output, topic: str, ips: str) -> int:
    """How the queues of a topic would be shared among members of a group, by the averaging strategy of 4.x's tool."""
    members = list(dict.fromkeys(ip for one in ips.split(",") if (ip := one.strip())))
    if not members:
        raise click.BadParameter("it names no member: give ip,ip", param_hint="'-i' / '--ipList'")
    shares = _average(sorted(await admin.fetch_subscribe_message_queues(topic)), members)
    result = {
        member: [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic} for one in queues]
        for member, queues in shares.items()
    }

    def classic() -> Iterator[str]:
        yield fastjson.dumps({"result": result}).decode()

    return out.value({"result": result}, classic)


def _average(queues: list[MessageQueue], members: list[str]) -> dict[str, list[MessageQueue]]:
    """In a row, the first members one more than the others where it does not come out even."""
    least, more = divmod(len(queues), len(members))
    shares: dict[str, list[MessageQueue]] = {}
    at = 0
    for number, member in enumerate(members):
        count = least + (number < more)
        shares[member] = queues[at : at + count]
        at += count
    return shares
