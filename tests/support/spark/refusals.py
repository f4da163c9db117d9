"""Rows that a broker does not take: what the sink says of them, whoever made the broker."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

import rmq
from rmq.protocol.codes import RequestCode
from rmq.protocol.sysflags import PERM_WRITE
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import Endpoint
from tests.support.peers.cluster import Cluster
from tests.support.spark.topics import create, numbers

__all__ = ["LARGEST", "check_refusals"]

#: ``maxMessageSize`` of the clusters, bytes: more than Java's brokers and clients take by default.
LARGEST = 5 << 20
#: And that default.
_USUAL = 4 << 20


def check_refusals(spark: Any, cluster: Cluster) -> None:
    """Bodies that are too large for the options or the broker, a topic and then a broker that may only be read."""
    given = {"nameServer": cluster.namesrv, "topic": "Refusing", "retries": "1"}

    def write(rows: str, **options: int) -> None:
        spark.sql(rows).write.format("rocketmq").options(**given, **options).mode("append").save()

    def refused(rows: str, **options: int) -> str:
        with pytest.raises(Exception, match="RowRefused") as error:
            write(rows, **options)
        (said,) = set(re.findall(r"RowRefused: (.*)", str(error.value)))
        return str(said)

    brokers = Brokers(Endpoint((cluster.namesrv,)))

    def until_written_to(wanted: bool) -> None:
        """Wait until the name server says so."""
        while brokers.route("Refusing", fresh=True) and bool(brokers.queues("Refusing", PERM_WRITE)) is not wanted:
            time.sleep(0.05)

    create(cluster.namesrv, cluster.broker_addr, "Refusing")

    def large(size: int) -> str:
        return f"select if(id = 3, repeat('x', {size}), 'x') as value from range(0, 5, 1, 1)"

    said = refused(large(_USUAL + 1))
    begin = f"batch 0, partition 0, row 3 has a value of {_USUAL + 1} bytes, above maxMessageSize ({_USUAL}): raise"
    assert said.startswith(begin), said
    write(large(LARGEST), maxMessageSize=LARGEST)
    said = refused(large(LARGEST + 1), maxMessageSize=2 * LARGEST)
    begin = f"batch 0, partition 0, row 3 is refused by broker-a: code 13 from {cluster.broker_addr}: "
    assert said.startswith(begin), said
    assert "illegal" in said
    assert said.endswith(f"has {LARGEST + 1} bytes, within the option maxMessageSize ({2 * LARGEST})."), said
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
    assert rows.selectExpr("max(length(value)) as size").first()["size"] == LARGEST
