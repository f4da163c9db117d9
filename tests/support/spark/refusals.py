"""Rows that a broker does not take: what the sink says of them, whoever made the broker."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

import rmq
from rmq.protocol.codes import RequestCode
from rmq.protocol.sysflags import PERM_WRITE
from rmq.spark.brokers import Brokers
from rmq.spark.options import Endpoint
from tests.support.peers.cluster import Cluster
from tests.support.spark.topics import create, numbers

__all__ = ["LARGEST", "check_refusals"]

#: ``maxMessageSize`` of the clusters, bytes.
LARGEST = 2 << 20


def check_refusals(spark: Any, cluster: Cluster) -> None:
    """A body that is too large for the broker, a topic and then a broker that may only be read."""
    given = {"nameServer": cluster.namesrv, "topic": "Refusing", "retries": "1"}

    def write(rows: str) -> None:
        spark.sql(rows).write.format("rocketmq").options(**given).mode("append").save()

    def refused(rows: str) -> str:
        with pytest.raises(Exception, match="RowRefused") as error:
            write(rows)
        (said,) = set(re.findall(r"RowRefused: (.*)", str(error.value)))
        return str(said)

    brokers = Brokers(Endpoint((cluster.namesrv,)))

    def until_written_to(wanted: bool) -> None:
        """Wait until the name server says so."""
        while brokers.route("Refusing", fresh=True) and bool(brokers.queues("Refusing", PERM_WRITE)) is not wanted:
            time.sleep(0.05)

    create(cluster.namesrv, cluster.broker_addr, "Refusing")
    said = refused(f"select if(id = 3, repeat('x', {LARGEST + 1}), 'x') as value from range(0, 5, 1, 1)")
    begin = f"batch 0, partition 0, row 3 is refused by broker-a: code 13 from {cluster.broker_addr}: "
    assert said.startswith(begin), said
    assert "illegal" in said
    readonly = "batch 0, partition 0, row 0: the topic Refusing takes no messages: neither it nor its brokers may be "
    one = "select '1' as value from range(0, 1, 1, 1)"
    with rmq.AdminClient(namesrv=cluster.namesrv) as admin:
        for perm in (4, 6):
            admin.create_and_update_topic(
                cluster.broker_addr, "Refusing", read_queue_nums=2, write_queue_nums=2, perm=perm
            )
            until_written_to(perm == 6)
            if perm == 4:
                assert refused(one).startswith(readonly)
    for perm in (4, 6):
        brokers.call(cluster.broker_addr, RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=%d\n" % perm)
        until_written_to(perm == 6)
        if perm == 4:
            assert refused(one).startswith(readonly)
    brokers.close()
    write(one)
    rows = spark.read.format("rocketmq").options(nameServer=cluster.namesrv, topic="Refusing").load()
    assert 1 in set(numbers(rows.where("value = cast('1' as binary)").collect()))
