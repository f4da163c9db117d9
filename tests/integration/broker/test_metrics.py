"""Metrics of a running broker and nameserver, as Prometheus reads them (field case B127)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmq.protocol.command import Command
from rmq.testing.cluster import Cluster
from tests.support.http_get import fetch
from tests.support.raw_peer import RawPeer, pull, send, subscribe

OBSERVED = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, settings=OBSERVED) as cluster:
        yield cluster


def where(cluster: Cluster, number: int = 0) -> tuple[str, int]:
    address = cluster.brokers[number].observer.address
    assert address is not None
    return address


async def scrape(address: tuple[str, int], query: str = "") -> Series:
    status, text = await fetch(address, f"/metrics{query}")
    assert status == 200
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def value(series: Series, name: str, **labels: str) -> float | None:
    """The value of the one series with these labels among its own; None when there is none."""
    hits = [v for (n, have), v in series.items() if n == name and labels.items() <= dict(have).items()]
    assert len(hits) <= 1, f"{name} {labels}: {len(hits)} series"
    return hits[0] if hits else None


def commit(group: str, queue: int, offset: int, topic: str = "T") -> Command:
    return Command(
        15,
        ext={"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)},
    )


async def queues_of(peer: RawPeer, cluster: Cluster, topic: str = "T") -> int:
    config = cluster.brokers[0].topics.get(topic)
    assert config is not None
    return config.read_queue_nums


async def test_lags_by_group(cluster: Cluster) -> None:
    """Field case B127, and B023: a deleted group is in no metric."""
    async with RawPeer(*cluster.brokers[0].address) as peer:
        for _ in range(101):
            assert (await peer.ask(send())).code == 0
        queues = await queues_of(peer, cluster)
        for group in ("ONE", "TWO", "WIDE"):
            model = "BROADCASTING" if group == "WIDE" else "CLUSTERING"
            assert (await peer.ask(subscribe(group, model=model))).code == 0
            assert (await peer.ask(pull(group, offset=0))).code == 0
        series = await scrape(where(cluster))
        lag = "rocketmq_consumer_lag_messages"
        # Nothing is committed yet for the queue with messages: not known, and not zero.
        assert value(series, lag, consumer_group="NEW") is None
        for group in ("ONE", "TWO", "WIDE", "GONE"):
            for queue in range(queues):
                assert (await peer.ask(commit(group, queue, 0))).code == 0
        series = await scrape(where(cluster))
        assert value(series, lag, consumer_group="ONE", topic="T", is_retry="false") == 101
        assert value(series, lag, consumer_group="TWO", topic="T") == 101
        assert value(series, lag, consumer_group="WIDE") is None
        assert value(series, "rocketmq_consumer_connections", consumer_group="WIDE", consume_mode="push") == 1
        # Its offsets are there, but the group was never made, or was deleted.
        assert value(series, lag, consumer_group="GONE") is None

        await peer.ask(commit("ONE", 0, 100))
        series = await scrape(where(cluster))
        assert value(series, lag, consumer_group="ONE") == 1
        assert value(series, lag, consumer_group="TWO") == 101
        by_queue = await scrape(where(cluster), "?queues=true")
        assert value(by_queue, lag, consumer_group="TWO", queue_id="0") == 101
        assert value(by_queue, lag, consumer_group="TWO", queue_id="1") == 0

        assert value(series, "rocketmq_messages_out_total", consumer_group="TWO", topic="T") == 32
        assert (await peer.ask(Command(207, ext={"groupName": "TWO"}))).code == 0
        series = await scrape(where(cluster))
        # Its member is connected all the same.
        left = {name for name, labels in series if ("consumer_group", "TWO") in labels}
        assert left == {"rocketmq_consumer_connections"}
        assert value(series, lag, consumer_group="ONE") == 1


async def test_an_unknown_offset_is_no_zero(cluster: Cluster) -> None:
    """Field case B127."""
    async with RawPeer(*cluster.brokers[0].address) as peer:
        assert (await peer.ask(send())).code == 0
        assert (await peer.ask(pull("G"))).code == 0
        assert (await peer.ask(commit("G", 1, 0))).code == 0
        series = await scrape(where(cluster))
        assert value(series, "rocketmq_consumer_lag_messages", consumer_group="G") is None
        exporter = await scrape(where(cluster), "?names=exporter")
        assert value(exporter, "rocketmq_group_diff", group="G") is None
        assert (await peer.ask(commit("G", 0, 1))).code == 0
        series = await scrape(where(cluster))
        assert value(series, "rocketmq_consumer_lag_messages", consumer_group="G") == 0


async def test_counters_and_gauges(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    async with RawPeer(*broker.address) as peer:
        for _ in range(3):
            assert (await peer.ask(send(body=b"x" * 100))).code == 0
        assert (await peer.ask(subscribe())).code == 0
        series = await scrape(where(cluster))
        common = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-0"}
        assert value(series, "rocketmq_messages_in_total", topic="T", is_system="false", **common) == 3
        size = value(series, "rocketmq_throughput_in_total", topic="T")
        assert size is not None
        assert size > 300
        assert value(series, "rocketmq_message_size_sum", topic="T") == size
        assert value(series, "rocketmq_message_size_count", topic="T") == 3
        assert value(series, "rocketmq_storage_size_bytes") == size
        assert value(series, "rocketmq_broker_permission") == 6
        assert value(series, "rocketmq_topic_number") == len(broker.topics)
        assert value(series, "rocketmq_processor_watermark", processor="send") == 0
        assert value(series, "rocketmq_producer_connections", language="python") == 1
        assert value(series, "rmq_connections") == 1
        assert value(series, "rmq_sends_refused_total") == 0
        broker.settings.update("sendThreadPoolQueueCapacity=0")
        assert (await peer.ask(send())).code == 2
        series = await scrape(where(cluster))
        assert value(series, "rmq_sends_refused_total") == 1
        assert value(series, "rmq_sends_failed_total") == 1


async def test_a_deleted_topic_has_no_series(cluster: Cluster) -> None:
    async with RawPeer(*cluster.brokers[0].address) as peer:
        assert (await peer.ask(send("GOES"))).code == 0
        assert value(await scrape(where(cluster)), "rocketmq_messages_in_total", topic="GOES") == 1
        assert (await peer.ask(Command(215, ext={"topic": "GOES"}))).code == 0
        for query in ("", "?names=exporter"):
            series = await scrape(where(cluster), query)
            assert not [key for key in series if ("topic", "GOES") in key[1]]


async def test_the_exporters_names(cluster: Cluster) -> None:
    async with RawPeer(*cluster.brokers[0].address) as peer:
        for _ in range(2):
            assert (await peer.ask(send())).code == 0
        assert (await peer.ask(subscribe())).code == 0
        assert (await peer.ask(pull("G"))).code == 0
        for queue in range(await queues_of(peer, cluster)):
            await peer.ask(commit("G", queue, 0))
        series = await scrape(where(cluster), "?names=exporter")
        place = {"cluster": "DefaultCluster", "broker": "broker-0"}
        assert value(series, "rocketmq_producer_offset", topic="T", **place) == 2
        assert (
            value(
                series, "rocketmq_group_diff", group="G", topic="T", countOfOnlineConsumers="1", msgModel="CLUSTERING"
            )
            == 2
        )
        assert value(series, "rocketmq_consumer_offset", group="G", topic="T", **place) == 0
        late = value(series, "rocketmq_group_get_latency_by_storetime", group="G", topic="T", **place)
        assert late is not None
        assert 0 <= late < 60_000
        assert value(series, "rocketmq_brokeruntime_msg_put_total_today_now", brokerHost="broker-0") == 2
        # Not enough samples yet: left out, not zero.
        assert value(series, "rocketmq_brokeruntime_put_tps600") is None
        assert not [name for name, _ in series if name.startswith("rocketmq_messages_in")]
    status, text = await fetch(where(cluster), "/metrics?names=other")
    assert (status, text) == (400, "the query cannot be read\n")


async def test_a_broker_less_does_not_stop_the_other(tmp_path: Path) -> None:
    """Field case B127."""
    async with Cluster(tmp_path, brokers=2, settings=OBSERVED) as cluster:
        other = where(cluster, 1)
        assert value(await scrape(other), "rocketmq_broker_permission", node_id="broker-1") == 6
        await cluster.brokers[0].stop()
        assert cluster.brokers[0].observer.address is None
        assert value(await scrape(other), "rocketmq_broker_permission", node_id="broker-1") == 6


async def test_health(cluster: Cluster) -> None:
    """Field case B141."""
    broker = cluster.brokers[0]
    assert await fetch(where(cluster), "/health/live") == (200, "alive\n")
    assert await fetch(where(cluster), "/health/ready") == (200, "ready\n")
    link = next(iter(broker._registration._links.values()))
    link.registered = False
    status, text = await fetch(where(cluster), "/health/ready")
    assert status == 503
    assert text == f"not ready: registered with none of {cluster.namesrv_addr}\n"
    assert (await fetch(where(cluster), "/health/live"))[0] == 200
    assert (await fetch(where(cluster), "/"))[0] == 404


async def test_off_by_default(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        assert cluster.brokers[0].observer.address is None
        assert cluster.namesrvs[0].observer.address is None
