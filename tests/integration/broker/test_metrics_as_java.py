"""The metrics of a 5.3.3 broker: names and labels as it tells them, kinds of messages, latencies of requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.integration.broker.test_metrics import OBSERVED, scrape, value, where
from tests.support.raw_peer import RawPeer, pull, send, subscribe
from tests.support.scenes.client import scene
from tests.support.virtual import in_virtual_time

EXPORTER = Path(__file__).parents[2] / "golden" / "broker" / "exporter-names.txt"
GOLDEN = Path(__file__).parents[2] / "golden" / "broker" / "metrics-5.3.3.txt"
#: What a 5.3.3 broker tells and ours does not (docs/metrics.md says why).
NOT_TOLD = {
    "rocketmq_consumer_queueing_latency_milliseconds",
    "rocketmq_consumer_ready_messages",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds",
    "rocketmq_timer_enqueue_latency_milliseconds",
    "rocketmq_topic_create_execution_time_milliseconds",
}
LATENCY = "rocketmq_rpc_latency_milliseconds"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, settings=OBSERVED) as cluster:
        yield cluster


def pop(topic: str = "T", poll_ms: int = 0) -> Command:
    ext = {"consumerGroup": "G", "topic": topic, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000"}
    ext |= {"pollTime": str(poll_ms), "bornTime": str(int(time.time() * 1000)), "initMode": "0"}
    return Command(200050, ext={**ext, "exp": "*", "expType": "TAG", "order": "false"})


def delayed(level: int) -> Command:
    return send(props=f"DELAY\x01{level}")


async def test_names_and_labels_are_those_of_java(cluster: Cluster) -> None:
    """Field case B127: dashboards of RocketMQ 5 find what they look for."""
    golden: dict[str, set[str]] = {}
    for line in GOLDEN.read_text().splitlines():
        name, *labels = line.split()
        if name != "#":
            golden[name] = set(labels)
    broker = cluster.brokers[0]
    async with RawPeer(*broker.address) as peer:
        for command in (send(), subscribe(), pull(), delayed(1)):
            assert (await peer.ask(command)).code == 0
        for queue in range(16):
            broker.offsets.commit("G", "T", queue, 0)
        await peer.ask(pop())
        series = await scrape(where(cluster))
    told: dict[str, set[str]] = {}
    for name, found in series:
        told.setdefault(name, set()).update(label for label, _ in found)
    for name, expected in golden.items():
        if name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") in NOT_TOLD:
            assert name not in told
        else:
            assert told[name] - {"is_retry"} == expected - {"is_retry"}, name


async def test_messages_by_kind(cluster: Cluster) -> None:
    async with RawPeer(*cluster.brokers[0].address) as peer:
        for command in (send(), send(), send(props="__SHARDINGKEY\x01a\x02TAGS\x01A"), delayed(1)):
            assert (await peer.ask(command)).code == 0
        for _ in range(100):
            series = await scrape(where(cluster))
            if value(series, "rocketmq_messages_in_total", topic="T", message_type="delay"):
                break
            await asyncio.sleep(0.05)
        numbers = "rocketmq_messages_in_total"
        for kind, count in (("normal", 2), ("fifo", 1), ("delay", 1)):
            assert value(series, numbers, topic="T", message_type=kind) == count
            size = value(series, "rocketmq_throughput_in_total", topic="T", message_type=kind)
            assert size == value(series, "rocketmq_message_size_sum", topic="T", message_type=kind)
            assert value(series, "rocketmq_message_size_count", topic="T", message_type=kind) == count
        assert value(series, numbers, topic="SCHEDULE_TOPIC_XXXX") == 1
        assert value(series, numbers, topic="SCHEDULE_TOPIC_XXXX", message_type="delay") == 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_every_answer_is_timed(tmp_path: Path, flush: str) -> None:
    settings = OBSERVED | {"flushDiskType": flush}
    async with Cluster(tmp_path, settings=settings) as cluster, RawPeer(*cluster.brokers[0].address) as peer:
        for _ in range(3):
            assert (await peer.ask(send())).code == 0
        peer.submit(send(oneway=True)).cancel()
        for command, code in (
            (delayed(5), 0),
            (send(topic="a.b"), 1),
            (subscribe(), 0),
            (pull(), 0),
            (pull(offset=99), 21),
            (pull(topic="NONE"), 17),
            (pull(offset=4, hold_ms=50), 19),
            (pop(), 0),
            (send(topic="Empty"), 0),
            (pop("Empty"), 0),
            (pop("Empty", poll_ms=50), 210),
            (Command(29_999), 3),
            (Command(17, ext={}), 1),
        ):
            assert (await peer.ask(command)).code == code
        parked = peer.submit(pull(offset=4, hold_ms=30_000))
        # Behind it on the same connection: served later in the same tick, or in a later one.
        assert (await peer.ask(subscribe())).code == 0
        assert (await peer.ask(send())).code == 0
        assert (await parked).code == 0
        series = await scrape(where(cluster))
    counts = {
        (have["request_code"], have["response_code"], have["result"], have["is_long_polling"]): number
        for (name, labels), number in series.items()
        if name == f"{LATENCY}_count" and (have := dict(labels))["request_code"] != "register_broker"
    }
    assert counts == {
        ("send_message_v2", "success", "success", "false"): 6,
        ("send_message_v2", "success", "oneway", "false"): 1,
        ("send_message_v2", "system_error", "success", "false"): 1,
        ("heart_beat", "success", "success", "false"): 2,
        ("pull_message", "success", "success", "false"): 1,
        ("pull_message", "pull_offset_moved", "success", "false"): 1,
        ("pull_message", "topic_not_exist", "success", "false"): 1,
        ("pull_message", "pull_not_found", "success", "true"): 1,
        ("pull_message", "success", "success", "true"): 1,
        ("pop_message", "success", "success", "false"): 2,
        ("pop_message", "polling_timeout", "success", "true"): 1,
        ("unknown", "request_code_not_supported", "success", "false"): 1,
        ("update_and_create_topic", "system_error", "success", "false"): 1,
    }
    for (name, labels), number in series.items():
        if name == f"{LATENCY}_sum":
            assert 0 <= number < 60_000, labels


@in_virtual_time
async def test_names_and_labels_of_the_exporter() -> None:
    """Dashboards and alerts of rocketmq-exporter find what they look for."""
    golden = {name: set(labels) for name, *labels in map(str.split, EXPORTER.read_text().splitlines()[1:])}
    async with scene() as s:
        broker = s.cluster.brokers[0]
        await s.topic("%DLQ%g", 1)
        consumer = s.consumer()
        consumer.on("T")(lambda message: None)
        async with consumer:
            await s.send(3)
            broker.stats.sent_back("g", "T")
            for topic in ("T", "%RETRY%g", "%DLQ%g"):
                for queue in range(4):
                    broker.offsets.commit("g", topic, queue, 0)
            await asyncio.sleep(700)
            _, families = await broker.metrics.page({"names": "exporter"})
            told = {
                family.name: [{label for label, _ in labels} for _, labels, _ in family.samples] for family in families
            }
    for name, expected in golden.items():
        if name.startswith("rocketmq_client_") or name == "rocketmq_broker_commitlog_diff":
            assert name not in told
        else:
            assert told[name], name
            assert all(labels == expected for labels in told[name]), name
    assert not {name for name in told if name.startswith("rocketmq_")} - set(golden)
