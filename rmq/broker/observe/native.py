"""The broker's metrics in RocketMQ 5's names and labels, as far as they mean something here (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rmq.auth.metrics import acl_families
from rmq.broker.groups.clients import Channel
from rmq.broker.observe.figures import Figures
from rmq.broker.observe.sizes import MessageSizes
from rmq.broker.observe.waiting import WaitingMetrics, on_disk
from rmq.broker.store.log.gate import Gate
from rmq.protocol.codes import Language, version_name
from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group
from rmq.remoting.latency import RPC_LATENCY
from rmq.remoting.metrics import Family, Labels, Sample
from rmq.remoting.server_metrics import closed_connections

__all__ = ["NativeMetrics"]

_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull"}


def _word(value: bool) -> str:
    return "true" if value else "false"


def _client(channel: Channel) -> tuple[str, str]:
    language = "UNKNOWN" if channel.language is None else Language(channel.language).name
    return language.lower(), version_name(channel.version).lower()


class NativeMetrics:
    """Makes the families of one page.

    :param figures: where they come from.
    :param sizes: of messages.
    :param waiting: what was read for the page.
    """

    def __init__(self, figures: Figures, sizes: MessageSizes, waiting: WaitingMetrics) -> None:
        self._of = figures
        self._sizes = sizes
        self._waiting = waiting

    def labels(self) -> Labels:
        """What every sample begins with."""
        settings = self._of.settings
        return (
            ("cluster", settings.broker_cluster_name),
            ("node_type", "broker"),
            ("node_id", settings.broker_name),
        )

    def families(self, query: Mapping[str, str]) -> Iterator[Family]:
        """Every metric.

        :param query: ``queues=true`` tells lags queue by queue, with a label ``queue_id``.
        """
        yield from self._broker()
        yield from self._messages()
        yield Family(
            "rocketmq_consumer_lag_messages",
            "gauge",
            "Messages between a group's committed offset and the end of the topic; absent when not known",
            self._lags(by_queue=query.get("queues", "").lower() in ("1", "true")),
        )
        yield Family(
            "rocketmq_consumer_lag_latency_milliseconds",
            "gauge",
            "How long the oldest message that a group has not consumed has waited, ms; absent when nothing waits",
            [("", self._pair(lag.topic, lag.group), late) for lag, late in self._waiting.latencies()],
        )
        yield Family(
            "rocketmq_producer_connections", "gauge", "Connected producers, by language and version", self._producers()
        )
        yield Family("rocketmq_consumer_connections", "gauge", "Connected consumers of a group", self._consumers())
        if self._of.latency is not None:
            yield Family(
                RPC_LATENCY,
                "histogram",
                "Milliseconds from reading a request to its answer",
                self._of.latency.samples(),
            )
        yield from self._store()
        yield from self._replicas()
        yield from self._elected()
        yield from self._waiting.families()

    def _broker(self) -> Iterator[Family]:
        of = self._of
        yield Family(
            "rocketmq_processor_watermark",
            "gauge",
            "Requests read and not answered yet",
            [("", (("processor", "send"),), of.pressure.waiting())],
        )
        for name, meaning, value in (
            ("rocketmq_broker_permission", "brokerPermission: 4 read, 2 write", of.settings.broker_permission),
            ("rocketmq_topic_number", "Topics, those of the system included", len(of.topics)),
            (
                "rocketmq_consumer_group_number",
                "Subscription groups, those of the system included",
                len(of.groups.all()),
            ),
            ("rmq_connections", "Open connections of clients and tools", of.connections()),
            (
                "rmq_unread_bytes",
                "Bytes of answers that are being made or that peers have not read, 16 KiB and more of a connection",
                of.unread().total,
            ),
            ("rmq_waiting_requests", "Requests that wait until peers have read", of.unread().waiting),
            ("rmq_held_pulls", "Pulls that wait for messages", of.holds()),
            (
                "rmq_send_wait_seconds",
                "How long the oldest unanswered send has waited",
                of.pressure.head_wait_ms() / 1000,
            ),
            (
                "rmq_flush_seconds",
                "How long the running flush of the commit log has lasted",
                of.pressure.flush_ms() / 1000,
            ),
            ("rmq_damaged_bytes", "Bytes of the commit log that are known to be damaged", of.store.damaged.bytes),
            (
                "rmq_unreadable_bytes",
                "Bytes of the commit log that the last check of it, or the start, could not read",
                of.store.scrub.unreadable_bytes,
            ),
            (
                "rmq_index_behind_bytes",
                "Bytes of the commit log whose messages are not found by key yet",
                0 if of.store.indexing.build is None else of.store.indexing.build.behind,
            ),
        ):
            yield _single(name, "gauge", meaning, value)
        yield _single("rmq_sends_refused_total", "counter", "Sends refused as busy", of.pressure.refused)
        yield _single(
            "rmq_sends_failed_total", "counter", "Sends that were not stored, for any reason", of.stats.put_failures
        )

    def _elected(self) -> Iterator[Family]:
        """Of a member of a group that elects its master."""
        group = self._of.group()
        if group is None or group.driver is None:
            return
        seen, driver = group.view.info(), group.driver
        failures = driver.failures.count
        for name, kind, meaning, value in (
            ("rmq_group_leads", "gauge", "1 of the member that leads its group", int(seen.role == "leader")),
            ("rmq_group_has_leader", "gauge", "0 while a member knows nobody who leads", int(seen.leader is not None)),
            ("rmq_group_stopped", "gauge", "1 of a member that takes part in nothing", int(seen.role == "stopped")),
            ("rmq_group_term", "gauge", "The term that a member is in", seen.term),
            ("rmq_group_committed_offset", "gauge", "Up to where a member knows the log committed", seen.committed),
            ("rmq_group_elections_won_total", "counter", "Elections that a member has won", driver.won),
            ("rmq_group_failures_total", "counter", "How often a member has begun anew after failing", failures),
        ):  # fmt: skip
            yield _single(name, kind, meaning, value)
        yield Family(
            "rmq_group_member_connected",
            "gauge",
            "Whether a member has a connection to another one",
            [("", (("member", one.id),), int(one.connected)) for one in seen.members],
        )
        yield Family(
            "rmq_group_member_behind_bytes",
            "gauge",
            "Bytes of the leader's log that another member has not stored; absent before it has said so",
            [("", (("member", one.id),), one.behind) for one in seen.members if one.behind is not None],
        )

    def _replicas(self) -> Iterator[Family]:
        master, slave = self._of.master(), self._of.slave()
        if master is not None:
            end = self._of.store.log.end
            yield Family(
                "rmq_replica_behind_bytes",
                "gauge",
                "Bytes of a master's log that a slave which follows has not acknowledged",
                [("", (("addr", one.address),), max(0, end - one.acked)) for one in master.replication.slaves()],
            )
            yield Family(
                "rmq_replica_behind_seconds",
                "gauge",
                "For how long a master's log has gone further than a slave which follows has acknowledged",
                [("", (("addr", one.address),), one.behind) for one in master.replication.slaves()],
            )
            yield Family(
                "rmq_replica_refused_total",
                "counter",
                "Connections of slaves that a master has closed, by reason",
                [("", (("reason", why.value),), count) for why, count in master.replication.refused.items()],
            )
        if slave is None:
            return
        yield Family(
            "rmq_metadata_age_seconds",
            "gauge",
            "How long ago a slave took a table over from its master; absent before the first time",
            [("", (("table", name),), age) for name, age in slave.metadata.ages()],
        )
        if slave.metadata.behind is not None:
            meaning = "Bytes of its master's log that a slave has not got"
            yield _single("rmq_slave_behind_bytes", "gauge", meaning, slave.metadata.behind)
            meaning = "Age of a slave's newest message while its master has newer ones"
            yield _single("rmq_slave_behind_seconds", "gauge", meaning, slave.metadata.behind_seconds or 0)
        yield _single(
            "rmq_slave_logs_differ_total",
            "counter",
            "Connections to its master that a slave has ended because the two logs are not the same",
            slave.client.status().refused,
        )

    def _messages(self) -> Iterator[Family]:
        of = self._of
        yield Family(
            "rocketmq_messages_in_total",
            "counter",
            "Messages stored in a topic since the broker started",
            self._topics("TOPIC_PUT_NUMS", of.kinds.numbers),
        )
        yield Family(
            "rocketmq_throughput_in_total",
            "counter",
            "Their bytes, as stored",
            self._topics("TOPIC_PUT_SIZE", of.kinds.sizes),
        )
        yield Family(
            "rocketmq_messages_out_total",
            "counter",
            "Messages of a topic handed to a group since the broker started",
            self._groups("GROUP_GET_NUMS"),
        )
        yield Family("rocketmq_throughput_out_total", "counter", "Their bytes", self._groups("GROUP_GET_SIZE"))
        yield Family("rocketmq_message_size", "histogram", "Bytes of a message, as stored", self._message_sizes())
        yield Family(
            "rocketmq_send_to_dlq_messages_total",
            "counter",
            "Messages that became dead letters of a group",
            [
                ("", (("consumer_group", topic[len(DLQ_PREFIX) :]), ("is_system", "false")), value)
                for topic, value in of.by_topic("TOPIC_PUT_NUMS")
                if topic.startswith(DLQ_PREFIX)
            ],
        )

    def _store(self) -> Iterator[Family]:
        store = self._of.store
        log = store.log
        yield on_disk("rocketmq_storage_size_bytes", "Bytes of messages in the commit log", log.end - log.start)
        yield on_disk(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the commit log that are not on disk",
            max(0, log.end - store.durability.flushed),
        )
        yield on_disk(
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the commit log that are in no queue yet",
            store.dispatcher.behind,
        )
        yield from self._alarms()

    def _alarms(self) -> Iterator[Family]:
        """What an operator is to be woken for."""
        yield from acl_families(self._of.access)
        yield closed_connections(self._of.cut_off())
        store = self._of.store
        ratios = (("commitlog", store.retention.log_ratio), ("consumequeue", store.retention.queue_ratio))
        yield Family(
            "rmq_disk_used_ratio",
            "gauge",
            "Used share of the disk, 0 to 1, as messages are refused by",
            [("", (("of", name),), ratio) for name, ratio in ratios if ratio >= 0],
        )
        yield Family(
            "rmq_messages_refused",
            "gauge",
            "1 while the store takes no messages for this reason",
            [("", (("reason", name),), int(bool(store.log.gate & bit))) for name, bit in Gate.ALARMS.items()],
        )
        yield _single(
            "rmq_flush_failures_total", "counter", "Flushes of the commit log that failed", int(store.flusher.failed)
        )
        yield _single(
            "rmq_files_deleted_early_total",
            "counter",
            "Commit-log files deleted before fileReservedTime to make space",
            store.retention.deleted_early,
        )
        yield Family(
            "rmq_wrong_entries_total",
            "counter",
            "Entries that did not lead to their messages, by where they are and what became of them",
            [
                ("", (("of", "consumequeue"), ("became", "right")), store.mending.remade),
                ("", (("of", "consumequeue"), ("became", "blank")), store.mending.blanked),
                ("", (("of", "index"), ("became", "right")), store.index_scrub.mended if store.index_scrub else 0),
            ],
        )

    def _topics(self, statistic: str, by_kind: Callable[[str, float], Iterator[tuple[str, float]]]) -> Iterator[Sample]:
        for topic, total in self._of.by_topic(statistic):
            for kind, value in by_kind(topic, total):
                yield "", (*self._topic(topic), ("message_type", kind)), value

    def _topic(self, topic: str) -> Labels:
        return ("topic", topic), ("is_system", _word(topic in self._of.topics.system))

    def _pair(self, topic: str, group: str) -> Labels:
        return (
            ("topic", topic),
            ("consumer_group", group),
            ("is_retry", _word(topic.startswith(RETRY_PREFIX))),
            ("is_system", _word(topic in self._of.topics.system or is_system_group(group))),
        )

    def _groups(self, statistic: str) -> Iterator[Sample]:
        for topic, group, value in self._of.by_group(statistic):
            yield "", self._pair(topic, group), value

    def _message_sizes(self) -> Iterator[Sample]:
        for topic, histogram in list(self._sizes.by_topic.items()):
            if topic in self._of.topics:
                for kind, of_kind in self._of.kinds.histograms(topic, histogram):
                    yield from of_kind.samples((*self._topic(topic), ("message_type", kind)))

    def _lags(self, *, by_queue: bool) -> Iterator[Sample]:
        for lag in self._of.lags():
            labels = self._pair(lag.topic, lag.group)
            if by_queue:
                for queue_id, messages in lag.queues.items():
                    yield "", (*labels, ("queue_id", str(queue_id))), messages
            elif lag.total is not None:
                yield "", labels, lag.total

    def _producers(self) -> Iterator[Sample]:
        counts = Counter(
            _client(channel)
            for channel in {c.conn: c for channels in self._of.producers.groups().values() for c in channels}.values()
        )
        for (language, version), count in counts.items():
            yield "", (("language", language), ("version", version), ("protocol_type", "remoting")), count

    def _consumers(self) -> Iterator[Sample]:
        for group in self._of.consumers.groups():
            mode = _MODES.get(group.consume_type or "", "pull")
            counts = Counter(_client(channel) for channel in group.channels.values())
            for (language, version), count in counts.items():
                yield (
                    "",
                    (
                        ("consumer_group", group.name),
                        ("language", language),
                        ("version", version),
                        ("consume_mode", mode),
                        ("protocol_type", "remoting"),
                        ("is_system", _word(is_system_group(group.name))),
                    ),
                    count,
                )


def _single(name: str, kind: str, meaning: str, value: float) -> Family:
    return Family(name, kind, meaning, [("", (), value)])
