"""What a batch reads: from where to where, and what is no range."""

from __future__ import annotations

import json
import logging

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ConfigError
from rmq.protocol.queue import MessageQueue
from rmq.spark.arrow.columns import check
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.source.ranges import DataLost, Range
from rmq.spark.source.resolve import ranges_of_batch
from tests.support.spark.memory import NAMESRV, MemoryCluster

QUEUE = MessageQueue("t", "broker-a", 0)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("t")
    made.put("t", count=10)
    return made


def ranges(cluster: MemoryCluster, **options: str) -> list[Range]:
    made = SourceOptions.of({"nameServer": NAMESRV, "topic": "t", **options})
    return ranges_of_batch(Brokers(made.endpoint, cluster), made)


def at(offset: int) -> str:
    return json.dumps({"t": {"broker-a": {"0": offset}}})


def test_from_where_to_where(cluster: MemoryCluster) -> None:
    assert ranges(cluster) == [Range(QUEUE, 0, 10)]
    assert ranges(cluster, startingOffsets=at(3), endingOffsets=at(5)) == [Range(QUEUE, 3, 5)]
    assert ranges(cluster, startingOffsets=at(10)) == []
    assert ranges(cluster, startingTimestamp="2100-01-01") == []


def test_a_start_beyond_the_end_is_a_loss(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Of a topic that was made anew all would be skipped in silence."""
    with pytest.raises(DataLost, match=r"the read is to begin at 11, the queue ends at 10: its topic was made anew"):
        ranges(cluster, startingOffsets=at(11))
    with caplog.at_level(logging.WARNING):
        assert ranges(cluster, startingOffsets=at(11), failOnDataLoss="false") == []
    assert "the read is to begin at 11, the queue ends at 10; going on without it" in caplog.text
    cluster.broker.offsets["g", "t", 0] = 12
    with pytest.raises(DataLost, match="the read is to begin at 12, the queue ends at 10"):
        ranges(cluster, startingOffsets="group", groupId="g")


def test_an_end_before_the_start_is_a_mistake(cluster: MemoryCluster) -> None:
    for more in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(ConfigError, match="the read is to begin at 7 and to end before, at 5"):
            ranges(cluster, startingOffsets=at(7), endingOffsets=at(5), **more)


def test_who_answers_may_be_no_name_server(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_name_server", lambda request: request.reply(3, "request type not supported"))
    said = r"10\.0\.0\.1:9876 is no name server \(option nameServer\)"
    with pytest.raises(ConfigError, match=said):
        ranges(cluster)
    assert not any(each.code == RequestCode.PULL_MESSAGE for each in cluster.broker.seen)


def test_a_topic_of_a_namespace_is_named_as_the_cluster_knows_it(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match=r"the topic t does not exist: .*\(as shop%t; options topic and namespace; "):
        ranges(cluster, namespace="shop")


def test_a_schema_cannot_promise_what_messages_need_not_have() -> None:
    check([("offset", "bigint", False), ("keys", "string", True)])
    with pytest.raises(ConfigError, match="the column keys is null where a message has none: declare it without NOT"):
        check([("keys", "string", False)])
