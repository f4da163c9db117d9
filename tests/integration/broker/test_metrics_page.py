"""docs/metrics.md names every metric that there is, and no other."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

from rmq.broker.replication.wire import report
from rmq.testing.cluster import Cluster
from tests.support.http_get import fetch
from tests.support.metric_names import WHEN_SOMETHING_WAITS
from tests.support.raw_peer import RawPeer, pull, send, subscribe

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

#: Only a slave has them.
OF_SLAVES = {
    "rmq_replica_behind_bytes", "rmq_replica_behind_seconds", "rmq_metadata_age_seconds", "rmq_slave_behind_bytes",
    "rmq_slave_behind_seconds", "rmq_slave_logs_differ_total",
}  # fmt: skip


async def names_told(address: tuple[str, int] | None, query: str = "") -> set[str]:
    assert address is not None
    status, text = await fetch(address, f"/metrics{query}")
    assert status == 200
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


async def refused_slave(port: int) -> None:
    """Connect as a slave that has more than the master."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(report(1 << 40))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_every_metric_is_explained(tmp_path: Path) -> None:
    explained = set(re.findall(r"`((?:rocketmq|rmq)_[a-z_0-9]+)`", PAGE.read_text().partition("## Names of")[0]))
    unknown = {"rocketmq_consumer_ready_messages", "rocketmq_consumer_queueing_latency"}
    unknown |= WHEN_SOMETHING_WAITS | OF_SLAVES
    unknown |= {"rmq_acl_refused_total", "rmq_acl_files_in_force"}  # with aclEnable
    unknown |= {name for name in explained if name.startswith("rmq_group_")}  # of members of a group
    observed = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    async with Cluster(tmp_path, settings=observed) as cluster:
        broker = cluster.brokers[0]
        async with RawPeer(*broker.address) as peer:
            for topic in ("T", "%DLQ%G"):
                assert (await peer.ask(send(topic))).code == 0
            assert (await peer.ask(subscribe())).code == 0
            assert (await peer.ask(pull())).code == 0
            for queue in range(16):
                broker.offsets.commit("G", "T", queue, 0)
            await refused_slave(broker.settings.ha_listen_port)
            _, text = await fetch(broker.observer.address, "/metrics")
            assert re.search(r'^rmq_replica_refused_total\{.*reason="ahead".*\} 1$', text, re.MULTILINE)
            told = await names_told(broker.observer.address)
            assert not told - explained
            own = {name for name in explained if not name.startswith("rmq_namesrv_")}
            assert own - unknown - told == set()
            as_exporter = await names_told(broker.observer.address, "?names=exporter")
    page = PAGE.read_text().partition("## Names of")[2]
    missing = {
        name
        for name in as_exporter
        if f"`{name}`" not in page and not name.startswith(("rocketmq_brokeruntime_", "rmq_loop_", "rmq_service_"))
    }
    assert not missing
