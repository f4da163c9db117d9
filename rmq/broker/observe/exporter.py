"""The same figures in the names and labels of rocketmq-exporter, so that its dashboards and alerts work unchanged.

Given on ``/metrics?names=exporter``. What the exporter asks of clients one by one (their running information) is not
here; a broker tells only what it knows itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rmq.broker.observe.figures import Figures
from rmq.broker.observe.waiting import WaitingMetrics
from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.remoting.metrics import Family, Labels, Sample

__all__ = ["ExporterMetrics"]

#: Runtime information told as it is: (key, metric, which of its blank-separated numbers). The metrics are spelt as the
#: exporter spells them: ``threadpool_queue`` twice, ``threadpoolqueue`` elsewhere.
_RUNTIME = (
    ("msgPutTotalTodayNow", "msg_put_total_today_now", 0),
    ("msgPutTotalTodayMorning", "msg_puttotal_todaymorning", 0),
    ("msgPutTotalYesterdayMorning", "msg_puttotal_yesterdaymorning", 0),
    ("msgGetTotalTodayNow", "msg_gettotal_today_now", 0),
    ("msgGetTotalTodayMorning", "msg_gettotal_todaymorning", 0),
    ("msgGetTotalYesterdayMorning", "msg_gettotal_yesterdaymorning", 0),
    ("dispatchBehindBytes", "dispatch_behind_bytes", 0),
    ("dispatchMaxBuffer", "dispatch_maxbuffer", 0),
    ("putMessageSizeTotal", "put_message_size_total", 0),
    ("putMessageAverageSize", "put_message_average_size", 0),
    ("putMessageTimesTotal", "putmessage_times_total", 0),
    ("putMessageEntireTimeMax", "putmessage_entire_time_max", 0),
    ("getMessageEntireTimeMax", "getmessage_entire_time_max", 0),
    ("putLatency99", "put_latency_99", 0),
    ("putLatency999", "put_latency_999", 0),
    ("pageCacheLockTimeMills", "pagecache_lock_time_mills", 0),
    ("remainTransientStoreBufferNumbs", "remain_transientstore_buffer_numbs", 0),
    ("earliestMessageTimeStamp", "earliest_message_timestamp", 0),
    ("commitLogMaxOffset", "commitlog_maxoffset", 0),
    ("commitLogMinOffset", "commitlog_minoffset", 0),
    ("commitLogDiskRatio", "commitlog_disk_ratio", 0),
    ("consumeQueueDiskRatio", "consumequeue_disk_ratio", 0),
    ("sendThreadPoolQueueSize", "send_threadpool_queue_size", 0),
    ("sendThreadPoolQueueCapacity", "send_threadpoolqueue_capacity", 0),
    ("sendThreadPoolQueueHeadWaitTimeMills", "send_threadpoolqueue_headwait_timemills", 0),
    ("pullThreadPoolQueueSize", "pull_threadpoolqueue_size", 0),
    ("pullThreadPoolQueueCapacity", "pull_threadpoolqueue_capacity", 0),
    ("pullThreadPoolQueueHeadWaitTimeMills", "pull_threadpoolqueue_headwait_timemills", 0),
    ("queryThreadPoolQueueSize", "query_threadpoolqueue_size", 0),
    ("queryThreadPoolQueueCapacity", "query_threadpool_queue_capacity", 0),
    ("queryThreadPoolQueueHeadWaitTimeMills", "query_threadpoolqueue_headwait_timemills", 0),
    ("startAcceptSendRequestTimeStamp", "start_accept_sendrequest_time", 0),
    ("putTps", "put_tps10", 0),
    ("putTps", "put_tps60", 1),
    ("putTps", "put_tps600", 2),
    ("getFoundTps", "getfound_tps10", 0),
    ("getFoundTps", "getfound_tps60", 1),
    ("getFoundTps", "getfound_tps600", 2),
    ("getMissTps", "getmiss_tps10", 0),
    ("getMissTps", "getmiss_tps60", 1),
    ("getMissTps", "getmiss_tps600", 2),
    ("getTotalTps", "gettotal_tps10", 0),
    ("getTotalTps", "gettotal_tps60", 1),
    ("getTotalTps", "gettotal_tps600", 2),
    ("getTransferedTps", "gettransfered_tps10", 0),
    ("getTransferedTps", "gettransfered_tps60", 1),
    ("getTransferedTps", "gettransfered_tps600", 2),
)


#: What the exporter calls the buckets of put times.
_PUT_TIMES = {
    "<=0ms": "0ms", "0~10ms": "0to10ms", "10~50ms": "10to50ms", "50~100ms": "50to100ms", "100~200ms": "100to200ms",
    "200~500ms": "200to500ms", "500ms~1s": "500to1s", "1~2s": "1to2s", "2~3s": "2to3s", "3~4s": "3to4s",
    "4~5s": "4to5s", "5~10s": "5to10s", "10s~": "10stomore",
}  # fmt: skip
_put_time = re.compile(r"\[([^\]]+)\]:(\d+)")
_capacity = re.compile(r"(Total|Free) : ([\d.]+) (\w+)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class ExporterMetrics:
    """Makes the families of one page.

    :param figures: where they come from.
    :param waiting: what was read for the page.
    """

    def __init__(self, figures: Figures, waiting: WaitingMetrics) -> None:
        self._of = figures
        self._waiting = waiting

    def families(self, runtime: Mapping[str, str]) -> Iterator[Family]:
        """Every metric.

        :param runtime: the broker's runtime information (code 28), taken just before.
        """
        of = self._of
        stats = of.stats
        settings = of.settings
        cluster, broker = ("cluster", settings.broker_cluster_name), ("broker", settings.broker_name)
        address = ("brokerIP", f"{settings.broker_ip1}:{settings.listen_port}")
        whole: Labels = (cluster, address, broker)
        cluster_key = settings.broker_cluster_name
        yield _one("rocketmq_broker_tps", "Messages stored a second", whole, stats.tps("BROKER_PUT_NUMS", cluster_key))
        yield _one(
            "rocketmq_broker_qps", "Messages handed out a second", whole, stats.tps("BROKER_GET_NUMS", cluster_key)
        )

        def topics(name: str, meaning: str, statistic: str) -> Family:
            return Family(
                name,
                "gauge",
                meaning,
                [
                    ("", (cluster, broker, ("topic", topic)), stats.tps(statistic, topic))
                    for topic, _ in of.by_topic(statistic)
                ],
            )

        yield topics("rocketmq_producer_tps", "Messages stored a second, by topic", "TOPIC_PUT_NUMS")
        yield topics("rocketmq_producer_message_size", "Bytes stored a second, by topic", "TOPIC_PUT_SIZE")
        yield from self._ends(cluster, broker)

        def groups(name: str, meaning: str, statistic: str) -> Family:
            return Family(
                name,
                "gauge",
                meaning,
                [
                    (
                        "",
                        (cluster, broker, ("topic", topic), ("group", group)),
                        stats.tps(statistic, f"{topic}@{group}"),
                    )
                    for topic, group, _ in of.by_group(statistic)
                ],
            )

        yield groups("rocketmq_consumer_tps", "Messages handed to a group a second", "GROUP_GET_NUMS")
        yield groups("rocketmq_group_consume_tps", "The same", "GROUP_GET_NUMS")
        yield groups("rocketmq_consumer_message_size", "Bytes handed to a group a second", "GROUP_GET_SIZE")
        yield groups("rocketmq_send_back_nums", "Messages given back a second", "SNDBCK_PUT_NUMS")
        yield from self._lags(cluster, broker)
        yield Family(
            "rocketmq_group_count",
            "gauge",
            "A connected consumer",
            [
                ("", (("caddr", channel.conn.peer), ("localaddr", channel.client_id), ("group", group.name)), 1)
                for group in of.consumers.groups()
                for channel in list(group.channels.values())
            ],
        )
        yield Family(
            "rocketmq_producer_count",
            "gauge",
            "Connected producers of a group",
            [("", (cluster, broker, ("group", name)), len(found)) for name, found in of.producers.groups().items()],
        )
        yield from self._runtime(runtime, cluster)

    def _ends(self, cluster: tuple[str, str], broker: tuple[str, str]) -> Iterator[Family]:
        """Sums of the queues' ends; retry and dead-letter topics have metrics of their own."""
        plain: list[Sample] = []
        retry: list[Sample] = []
        dead: list[Sample] = []
        queues = self._of.store.queues
        for config in self._of.topics.all():
            topic = config.topic_name
            end = sum(queue.visible for queue in queues.all(topic))
            into, labels = plain, (("topic", topic),)
            if topic.startswith(RETRY_PREFIX):
                into = retry
            elif topic.startswith(DLQ_PREFIX):
                into, labels = dead, (("group", topic[len(DLQ_PREFIX) :]),)
            into.append(("", (cluster, broker, *labels), end))
        yield Family("rocketmq_producer_offset", "gauge", "Sum of the ends of a topic's queues", plain)
        yield Family("rocketmq_topic_retry_offset", "gauge", "The same of a group's retries", retry)
        yield Family("rocketmq_topic_dlq_offset", "gauge", "The same of a group's dead letters", dead)

    def _lags(self, cluster: tuple[str, str], broker: tuple[str, str]) -> Iterator[Family]:
        behind: list[Sample] = []
        retries: list[Sample] = []
        dead: list[Sample] = []
        latencies: list[Sample] = []
        late = {(lag.topic, lag.group): ms for lag, ms in self._waiting.latencies()}
        offsets: list[Sample] = []
        totals: list[Sample] = []
        for lag in self._of.lags():
            online = self._of.consumers.group(lag.group)
            count = len(online.channels) if online is not None else 0
            place = (cluster, broker, ("topic", lag.topic), ("group", lag.group))
            offsets.append(("", place, lag.offset))
            totals.append(("", place, lag.offset))
            if lag.total is None:
                continue
            labels: Labels = (
                ("group", lag.group),
                ("topic", lag.topic),
                ("countOfOnlineConsumers", str(count)),
                ("msgModel", (online.message_model if online is not None else None) or "CLUSTERING"),
            )
            into = behind
            if lag.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                into = retries if lag.topic.startswith(RETRY_PREFIX) else dead
            into.append(("", labels, lag.total))
            latency = 0 if lag.total == 0 else late.get((lag.topic, lag.group))
            if latency is not None:
                latencies.append(("", place, latency))
        yield Family("rocketmq_group_diff", "gauge", "Messages a group is behind", behind)
        yield Family("rocketmq_group_retrydiff", "gauge", "Retries a group is behind", retries)
        yield Family("rocketmq_group_dlqdiff", "gauge", "Dead letters a group that reads them is behind", dead)
        yield Family(
            "rocketmq_group_get_latency_by_storetime",
            "gauge",
            "How long the oldest message that a group has not consumed has waited, ms",
            latencies,
        )
        yield Family("rocketmq_consumer_offset", "gauge", "Sum of a group's offsets on a topic", offsets)
        yield Family("rocketmq_group_consume_total_offset", "gauge", "The same", totals)

    def _runtime(self, table: Mapping[str, str], cluster: tuple[str, str]) -> Iterator[Family]:
        settings = self._of.settings
        address = f"{settings.broker_ip1}:{settings.listen_port}"
        labels: Labels = (
            cluster,
            ("brokerIP", address),
            ("brokerHost", settings.broker_name),
            ("des", table.get("brokerVersionDesc", "")),
            ("boottime", table.get("bootTimestamp", "")),
            ("broker_version", table.get("brokerVersion", "")),
        )
        for key, name, number in _RUNTIME:
            words = table.get(key, "").split(" ")
            try:
                value = float(words[number])
            except (IndexError, ValueError):
                continue  # not enough samples yet: not known is not zero
            yield _one(f"rocketmq_brokeruntime_{name}", f"{key} of the runtime information", labels, value)
        log = self._of.store.log
        yield _one(
            "rocketmq_brokeruntime_remain_howmanydata_toflush",
            "Bytes of the commit log that are not on disk",
            labels,
            max(0, log.end - self._of.store.durability.flushed),
        )
        for what, size, unit in _capacity.findall(table.get("commitLogDirCapacity", "")):
            yield _one(
                f"rocketmq_brokeruntime_commitlogdir_capacity_{what.lower()}",
                f"Bytes of the commit log's disk: {what.lower()}",
                labels,
                float(size) * 1024 ** _UNITS.index(unit),
            )
        for bucket, count in _put_time.findall(table.get("putMessageDistributeTime", "")):
            name = f"rocketmq_brokeruntime_pmdt_{_PUT_TIMES[bucket]}"
            yield _one(name, f"Messages of the last minute whose append took {bucket}", labels, int(count))


def _one(name: str, meaning: str, labels: Labels, value: float) -> Family:
    return Family(name, "gauge", meaning, [("", labels, value)])
