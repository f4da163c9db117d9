"""exportMetadata, exportConfigs, exportMetrics: what a cluster is and does, as JSON files (mqadmin.md B.1)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from typing import Any, TypeVar

import click

from rmq.cli.mqadmin.absent import miss_absent
from rmq.cli.mqadmin.failures import NotFound
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, broker_or_cluster, masters_of
from rmq.client.admin.answers import Answers, side_by_side
from rmq.protocol import fastjson
from rmq.protocol.bodies.body import Body
from rmq.protocol.bodies.group import SubscriptionGroupTable
from rmq.protocol.bodies.topic import TopicConfigTable
from rmq.protocol.codes import ResponseCode, version_name
from rmq.protocol.errors import ClientError, ResponseError
from rmq.protocol.names import (
    BUILT_IN_GROUPS,
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPICS,
    is_system_group,
)

__all__ = ["export_configs", "export_metadata", "export_metrics"]

T = TypeVar("T")

#: Groups of a broker that are asked for at the same time.
_AT_ONCE = 16
_cluster = click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="The cluster.")
_folder = click.option("-f", "--filePath", "folder", metavar="DIR",
                       help="Where the file goes; rocketmq/export under that of temporary files without.")  # fmt: skip
#: Java's tool calls this setting the number of cores: its default is that.
_CORES = "clientCallbackExecutorThreads"
#: What Java's tool tells of a broker's settings.
_CONFIGS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip


def _write(out: Output, folder: str | None, name: str, value: dict[str, Any]) -> int:
    """Write the file whole, or leave what is there."""
    if out.missing:
        value["missing"] = dict(sorted(out.missing.items()))
    folder = folder or os.path.join(tempfile.gettempdir(), "rocketmq", "export")
    path = os.path.join(folder, name)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=folder, prefix=name, delete=False) as file:
            try:
                file.write(fastjson.pretty(value))
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {error.strerror or error}") from None
    return out.done({"path": path}, [f"export {path} success"])


@admin_command(
    "exportMetadata",
    broker_or_cluster,
    _folder,
    click.option("-t", "--topic", "topics", is_flag=True, help="Topics alone."),
    click.option("-g", "--subscriptionGroup", "groups", is_flag=True, help="Groups alone."),
    click.option("-s", "--specialTopic", "special", is_flag=True, help="With retry and dead-letter topics."),
)
async def export_metadata(
    admin: AdminClient,
    out: Output,
    broker: str | None,
    cluster: str | None,
    folder: str | None,
    topics: bool,
    groups: bool,
    special: bool,
) -> int:
    """Write topics and groups to a JSON file; of a cluster those that any of its masters has."""
    both = topics == groups
    found: dict[str, Any] = {}
    topic_table: dict[str, Any] = {}
    group_table: dict[str, Any] = {}
    versions: list[Body] = []
    masters = await masters_of(admin, out, broker, cluster)

    async def tell(address: str) -> tuple[TopicConfigTable | None, set[str], SubscriptionGroupTable | None]:
        table = await admin.topic_configs(address) if topics or both else None
        own = set((await admin.system_topics(address)).topic_list) if topics or both else set()
        return table, own, await admin.subscription_groups(address) if groups or both else None

    for table, system, known in _told(out, await side_by_side(masters, tell)).values():
        if table is not None:
            own = system | SYSTEM_TOPICS
            for name, config in sorted(table.topic_config_table.items()):
                if name not in own and (special or _own(name)):
                    before = topic_table.setdefault(name, config.to_object())
                    if before != config.to_object():
                        for key in ("readQueueNums", "writeQueueNums"):
                            before[key] += config.to_object()[key]
            versions += [table.data_version] if table.data_version is not None else []
        if known is not None:
            for name, one in sorted(known.subscription_group_table.items()):
                if not _built_in(name):
                    group_table.setdefault(name, one.to_object())
            versions += [known.data_version] if known.data_version is not None else []
    if cluster is not None:
        found["exportTime"] = admin.world.clock.now_ms()
    elif not both and versions:
        found["dataVersion"] = versions[0].to_object()
    if topics or both:
        found["topicConfigTable"] = topic_table
    if groups or both:
        found["subscriptionGroupTable"] = group_table
    return _write(out, folder, "metadata.json" if both else "topic.json" if topics else "subscriptionGroup.json", found)


@admin_command("exportConfigs", _cluster, _folder)
async def export_configs(admin: AdminClient, out: Output, cluster: str, folder: str | None) -> int:
    """Write how the brokers of a cluster are configured to a JSON file."""
    masters = await admin.masters(cluster)
    brokers = await admin.brokers(cluster)
    await miss_absent(admin, out)
    settings = _told(out, await admin.broker_settings(masters))
    value = {
        "clusterScale": {
            "namesrvSize": len(admin.name_server_addresses),
            "masterBrokerSize": len(masters),
            "slaveBrokerSize": len(brokers) - len(masters),
        },
        "brokerConfigs": {
            name: {key: known[key] for key in _CONFIGS if key in known} for name, known in settings.items()
        },
    }
    return _write(out, folder, "configs.json", value)


@admin_command("exportMetrics", _cluster, _folder)
async def export_metrics(admin: AdminClient, out: Output, cluster: str, folder: str | None) -> int:
    """Write the figures of a cluster to a JSON file: what goes through, how much there is, which clients it has."""
    masters = await admin.masters(cluster)
    if not masters:
        raise NotFound(f"the cluster {cluster} has no master")
    await miss_absent(admin, out)
    reports = await side_by_side(masters, lambda name: _report(admin, masters[name]))
    totals = {"normalInTps": 0.0, "normalOutTps": 0.0, "transInTps": 0.0, "scheduleInTps": 0.0}
    day = {"normalOneDayInNum": 0, "normalOneDayOutNum": 0, "transOneDayInNum": 0, "scheduleOneDayInNum": 0}
    report = _told(out, reports)
    for one in report.values():
        quota = one["runtimeQuota"]
        totals = {key: value + quota["tps"][key] for key, value in totals.items()}
        day = {key: value + quota["oneDayNum"][key] for key, value in day.items()}
    total = {
        "totalTps": {f"total{key[0].upper()}{key[1:]}": value for key, value in totals.items()},
        "totalOneDayNum": day,
    }
    return _write(out, folder, "metrics.json", {"evaluateReport": report, "totalData": total})


def _told(out: Output, answers: Answers[T]) -> dict[str, T]:
    """What brokers told; those that did not are named beside the file, and in it.

    :raises RMQError: none of them did.
    """
    if not answers.found:
        answers.whole()
    out.lacks(answers)
    return answers.found


async def _report(admin: AdminClient, address: str) -> dict[str, Any]:
    """What one broker does and has."""
    broker, settings, topics, system, groups = await asyncio.gather(
        admin.broker_runtime_stats(address),
        admin.broker_settings([address]),
        admin.topic_configs(address),
        admin.system_topics(address),
        admin.subscription_groups(address),
    )
    known = settings.whole()[address]
    own = set(system.topic_list) | SYSTEM_TOPICS
    return {
        "runtimeEnv": {"cpuNum": known[_CORES]} if _CORES in known else {},
        "runtimeQuota": {
            "diskRatio": {
                "commitLogDiskRatio": broker.get("commitLogDiskRatio", ""),
                "consumeQueueDiskRatio": broker.get("consumeQueueDiskRatio", ""),
            },
            "tps": {
                "normalInTps": _average(broker, "putTps"),
                "normalOutTps": _average(broker, "getTransferredTps", "getTransferedTps"),
                "transInTps": await _rate(admin, address, HALF_TOPIC),
                "scheduleInTps": await _rate(admin, address, SCHEDULE_TOPIC),
            },
            "oneDayNum": {
                "normalOneDayInNum": _yesterday(broker, "msgPutTotal"),
                "normalOneDayOutNum": _yesterday(broker, "msgGetTotal"),
                "transOneDayInNum": await _day(admin, address, HALF_TOPIC),
                "scheduleOneDayInNum": await _day(admin, address, SCHEDULE_TOPIC),
            },
            "messageAverageSize": broker.get("putMessageAverageSize", ""),
            "topicSize": sum(topic not in own and _own(topic) for topic in topics.topic_config_table),
            "groupSize": sum(not _built_in(group) for group in groups.subscription_group_table),
        },
        "runtimeVersion": {
            "rocketmqVersion": broker.get("brokerVersionDesc", ""),
            "clientInfo": await _clients(admin, address, sorted(groups.subscription_group_table)),
        },
    }


def _own(topic: str) -> bool:
    """An application's own topic."""
    return not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _built_in(group: str) -> bool:
    """A group that every broker has, or a broker itself."""
    return group in BUILT_IN_GROUPS or is_system_group(group)


def _average(figures: Mapping[str, str], *names: str) -> float:
    """The first of the averages in a figure; releases spell one of the names differently."""
    for name in names:
        for word in figures.get(name, "").split()[:1]:
            try:
                return float(word)
            except ValueError:
                return 0.0
    return 0.0


def _yesterday(figures: Mapping[str, str], what: str) -> int:
    """What was counted between yesterday's morning and today's."""
    morning, before = (figures.get(f"{what}{when}Morning", "0") for when in ("Today", "Yesterday"))
    return int(morning) - int(before) if morning.isdecimal() and before.isdecimal() else 0


async def _rate(admin: AdminClient, address: str, topic: str) -> float:
    found = await admin.view_broker_stats(address, "TOPIC_PUT_NUMS", topic)
    return 0.0 if found is None else found.stats_minute.tps


async def _day(admin: AdminClient, address: str, topic: str) -> int:
    found = await admin.view_broker_stats(address, "TOPIC_PUT_NUMS", topic)
    return 0 if found is None else found.stats_day.sum


async def _clients(admin: AdminClient, address: str, groups: list[str]) -> list[str]:
    """Language and version of every client that consumes, each pair once: ``JAVA%V4_9_8``."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def members(group: str) -> set[str]:
        async with gate:
            try:
                connection = await admin.consumer_connections(group, address)
            except ResponseError as error:
                if error.code not in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                    raise
                return set()
        return {f"{one.language}%{version_name(one.version)}" for one in connection.connection_set}

    return sorted(set().union(*(await asyncio.gather(*map(members, groups)))))
