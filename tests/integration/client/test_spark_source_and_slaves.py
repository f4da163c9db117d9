# ruff: noqa: E402 - what follows the check for pyarrow needs it
"""The reading half of the Spark source, without Spark: a range is read from a slave while its master is away."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

from rmq import AdminClient, Message, Producer
from rmq.protocol.queue import MessageQueue
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import Endpoint
from rmq.spark.source.one_range import Pulling
from rmq.spark.source.ranges import Range
from rmq.spark.source.task import Reading
from rmq.testing.cluster import BlockingCluster, Cluster
from tests.support.virtual import eventually

QUEUE = MessageQueue("T", "broker-0", 0)
SCHEMA = pa.schema([pa.field("offset", pa.int64())])


async def _replicated(cluster: Cluster) -> None:
    """The slave has messages and topics; its master goes."""
    master, slave = cluster.brokers
    master.groups.find("g")
    await eventually(lambda: slave.store.log.end == master.store.log.end and not slave.store.dispatcher.behind)
    assert slave.roles.slave is not None
    await slave.roles.slave.metadata.round(slave.roles.slave.metadata._plain)
    await cluster.stop_broker(master)


def read(brokers: Brokers, first: int, end: int) -> list[int]:
    reading = Reading(SCHEMA, Pulling("g"), frozenset())
    return [
        offset
        for batch in reading.batches(brokers, [Range(QUEUE, first, end)])
        for offset in batch.column(0).to_pylist()
    ]


def test_a_range_is_read_from_the_slave(tmp_path: Path) -> None:
    with BlockingCluster(tmp_path, slaves=1) as cluster:
        with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            admin.create_and_update_topic(cluster.broker_addr, "T", read_queue_nums=1, write_queue_nums=1)
        with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            for number in range(50):
                producer.send(Message("T", b"%d" % number))
        with closing(Brokers(Endpoint((cluster.namesrv_addr,)))) as brokers:
            assert read(brokers, 0, 20) == list(range(20))
            cluster.call(_replicated)
            assert read(brokers, 20, 50) == list(range(20, 50))
        with closing(Brokers(Endpoint((cluster.namesrv_addr,)))) as fresh:
            assert read(fresh, 0, 50) == list(range(50))
