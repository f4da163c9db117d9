"""Topics made anew, shrunk or widened under a stream: what random histories found, each as short as it can be."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

import pyarrow as pa

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.queue import MessageQueue
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.source.advance import Advance, read_offsets
from rmq.spark.source.ranges import DataLost, Range, ReadAgain
from rmq.spark.source.task import Reading
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster

QUEUE = MessageQueue("t", "broker-a", 0)


def options(**given: str) -> SourceOptions:
    return SourceOptions.of({"nameServer": NAMESRV, "topic": "t", "startingOffsets": "earliest", **given})


def stream(cluster: MemoryCluster, **given: str) -> Advance:
    made = options(**given)
    return Advance(made, Brokers(made.endpoint, cluster))


def loose(cluster: MemoryCluster) -> Advance:
    return stream(cluster, failOnDataLoss="false")


def rows(cluster: MemoryCluster, ranges: list[Range], **given: str) -> list[int]:
    made = options(**given)
    reading = Reading.of(made, pa.schema([pa.field("offset", pa.int64(), nullable=False)]))
    return [
        row for batch in reading.batches(Brokers(made.endpoint, cluster), ranges) for row in batch["offset"].to_pylist()
    ]


def places(offsets: dict[str, Any]) -> list[int]:
    return [read_offsets(offsets)[queue] for queue in sorted(read_offsets(offsets))]


def kept(offsets: dict[str, Any]) -> Any:
    return json.loads(json.dumps(offsets))


def make_anew(cluster: MemoryCluster, count: int, queues: int = 1) -> None:
    cluster.now += 60
    cluster.broker.queues.clear()
    cluster.topics.clear()
    cluster.create("t", queues)
    cluster.put("t", count=count)


def test_a_topic_made_anew_and_empty_is_told_once(cluster: MemoryCluster) -> None:
    """What comes into it later is of the same topic."""
    cluster.put("t", count=4)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 0)
    with pytest.raises(DataLost, match="the query is at 4, the queue ends at 0"):
        stream(cluster).latest(end)
    back = kept(loose(cluster).latest(end))
    cluster.put("t", count=2)
    again = stream(cluster)
    assert again.ranges(back, again.latest(back)) == [Range(QUEUE, 0, 2)]


def test_what_was_not_read_of_a_topic_made_anew_and_empty_is_lost(cluster: MemoryCluster) -> None:
    cluster.put("t", count=4)
    start = kept(stream(cluster).initial())
    make_anew(cluster, 0)
    with pytest.raises(DataLost, match="the query is at 0, the queue ends at 0"):
        stream(cluster).latest(start)
    back = kept(loose(cluster).latest(start))
    assert stream(cluster).latest(back) is back, "and told once"


def test_a_topic_made_anew_with_fewer_queues_is_told_once(cluster: MemoryCluster) -> None:
    cluster.create("t", 3)
    cluster.put("t", 2, 4)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 1, queues=2)
    with pytest.raises(DataLost, match=r"queueId=2.*the query is at 4, and the topic has fewer queues now"):
        stream(cluster).latest(end)
    back = kept(loose(cluster).latest(end))
    assert places(stream(cluster).latest(back)) == [1, 0, 0]
    cluster.create("t", 3)
    cluster.put("t", 2, 1)
    cluster.now += 10
    again = stream(cluster)
    assert MessageQueue("t", "broker-a", 2) in [each.queue for each in again.ranges(back, again.latest(back))]


def test_a_queue_that_is_not_offered_may_be_another_one(cluster: MemoryCluster) -> None:
    cluster.create("t", 2)
    cluster.put("t", 1, 4)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 0, queues=2)
    cluster.put("t", 1, 4)
    cluster.topics["t"] = 1
    with pytest.raises(DataLost, match=r"queueId=1.*the query is at 4: its topic was made anew"):
        stream(cluster).latest(end)


def test_a_topic_that_was_widened_since_its_route_was_asked_for_has_lost_nothing(cluster: MemoryCluster) -> None:
    cluster.create("t", 2)
    one = stream(cluster)
    end = one.latest(one.initial())
    cluster.topics["t"] = 1
    cluster.now += 10
    assert one.latest(end) is end
    cluster.topics["t"] = 2
    cluster.put("t", 1, 3)
    cluster.now += 1
    assert one.latest(end) is end, "the route is a few seconds old"
    cluster.now += 10
    assert places(one.latest(end)) == [0, 3]


def test_a_topic_made_anew_with_as_many_messages_is_seen_by_a_running_query(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 5)
    with pytest.raises(DataLost, match="the query is at 5, the queue ends at 5: its topic was made anew"):
        one.latest(end)


def test_a_broker_that_goes_while_it_is_asked_does_not_hide_a_new_topic(cluster: MemoryCluster) -> None:
    """It told where the queue ends, and no more: whether its newest messages are lost is not known."""
    cluster.put("t", count=5)
    one = loose(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 3)

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            raise ConnectionResetError

    cluster.before = before
    assert one.latest(end) is end
    cluster.before = lambda broker, request: None
    cluster.now += 1
    assert places(back := one.latest(end)) == [0]
    assert one.ranges(back, one.latest(back)) == [Range(QUEUE, 0, 3)]


def test_the_first_batch_read_again_does_not_hide_a_new_topic(cluster: MemoryCluster) -> None:
    """Spark asks again where the query begins: what the queues are then is not what they were."""
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="latest")
    first = kept(one.latest(one.initial()))
    make_anew(cluster, 7)
    again = stream(cluster, startingOffsets="latest")
    assert again.ranges(again.initial(), first) == []
    with pytest.raises(DataLost, match="the query is at 5, the queue ends at 7: its topic was made anew"):
        again.latest(first)


def test_a_batch_of_new_queues_is_the_same_when_it_is_read_again(cluster: MemoryCluster) -> None:
    one = stream(cluster)
    start = kept(one.latest(one.initial()))
    cluster.create("t", 2)
    cluster.put("t", 1, 5)
    cluster.broker.queues["t", 1].least = 2
    cluster.now += 10
    end = kept(one.latest(start))
    new = MessageQueue("t", "broker-a", 1)
    assert one.ranges(start, end) == [Range(new, 2, 5)], "what is left when they are seen first"
    assert stream(cluster).ranges(end, end) == []
    cluster.broker.queues["t", 1].least = 4
    again = stream(cluster).ranges(start, end)
    assert again == [Range(new, 2, 5)]
    with pytest.raises(DataLost, match="the messages 2 to 3 are gone"):
        rows(cluster, again)
    cluster.topics["t"] = 1
    with pytest.raises(DataLost, match="the topic has fewer queues than it had"):
        rows(cluster, [Range(new, 4, 5)])


def test_a_topic_made_anew_while_a_task_reads_it_is_noticed(cluster: MemoryCluster) -> None:
    """Its offsets fit: nothing but the oldest message tells."""
    cluster.put("t", count=5)
    one = stream(cluster)
    begin = one.initial()
    ranges = one.ranges(begin, one.latest(begin))
    assert rows(cluster, ranges) == [0, 1, 2, 3, 4]
    make_anew(cluster, 9)
    with pytest.raises(DataLost, match="its topic was made anew while a batch of it was read"):
        rows(cluster, ranges)
    assert rows(cluster, ranges, failOnDataLoss="false") == [], "the next try leaves it out"

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            cluster.before = lambda broker, request: None
            make_anew(cluster, 9)

    two = stream(cluster)
    ranges = two.ranges(begin := two.initial(), two.latest(begin))
    cluster.before = before
    with pytest.raises(ReadAgain, match="the batch is to be read again, which leaves the queue out"):
        rows(cluster, ranges, failOnDataLoss="false")


def test_an_offset_and_a_time_are_of_one_message(cluster: MemoryCluster) -> None:
    """Retention between two questions: a low offset beside a late time is no topic made anew."""
    cluster.put("t", count=5)
    one = stream(cluster)
    begin = one.latest(one.initial())
    queue = cluster.broker.queues["t", 0]
    cluster.now += 10
    cluster.put("t", count=5)
    queue.least = 2
    queue.times[2:] = [cluster.now_ms() - 5000 + at for at in range(2, 10)]
    asked = []

    def before(broker: MemoryBroker, request: Command) -> None:
        asked.append(request.code)
        if request.code == RequestCode.GET_EARLIEST_MSG_STORETIME and asked.count(RequestCode.GET_MIN_OFFSET) == 1:
            queue.least = 4

    cluster.before = before
    oldest = one.latest(begin)["@oldest"]
    assert oldest == {"t": {"broker-a": {"0": [4, queue.times[4]]}}}


def between_end_and_oldest(cluster: MemoryCluster, count: int) -> None:
    """The topic is made anew between the first questions for an end and for an oldest message, whichever is first."""
    wanted = {RequestCode.GET_MAX_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME}
    asked: set[int] = set()

    def before(broker: MemoryBroker, request: Command) -> None:
        asked.add(request.code)
        if wanted <= asked:
            cluster.before = lambda broker, request: None
            make_anew(cluster, count)

    cluster.before = before


def test_an_end_and_an_oldest_message_are_of_one_topic(cluster: MemoryCluster) -> None:
    """Kept together those of two topics would hide for good what the new one gets up to the end of the old one."""
    one = loose(cluster)
    start = one.latest(one.initial())
    cluster.put("t", count=5)
    cluster.now += 1
    between_end_and_oldest(cluster, 3)
    end = one.latest(start)
    assert one.ranges(start, end) == [Range(QUEUE, 0, 3)]
    cluster.put("t", count=4)
    cluster.now += 1
    assert one.ranges(end, one.latest(end)) == [Range(QUEUE, 3, 7)]


def test_a_start_and_an_oldest_message_are_of_one_topic(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="latest")
    between_end_and_oldest(cluster, 9)
    start = one.initial()
    cluster.put("t")
    cluster.now += 1
    with pytest.raises(DataLost, match="the query is at 9, the queue ends at 10: its topic was made anew"):
        one.latest(start)


def test_a_plan_that_fails_does_not_hide_what_was_made_anew(cluster: MemoryCluster) -> None:
    """One queue was seen to be another one, then the next did not hold still: nobody was told of the first."""
    cluster.create("t", 2)
    cluster.put("t", 0, 5)
    cluster.put("t", 1, 5)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 7, 2)
    cluster.put("t", 1, 7)

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.GET_MIN_OFFSET and (request.ext or {})["queueId"] == "1":
            broker.queues["t", 1].least = 7

    cluster.before = before
    assert one.latest(end) is end
    cluster.before = lambda broker, request: None
    cluster.now += 1
    with pytest.raises(DataLost, match=r"queueId=0\]: the query is at 5, the queue ends at 7: its topic was made anew"):
        one.latest(end)


def test_a_task_notices_a_new_topic_where_no_oldest_message_is_known(cluster: MemoryCluster) -> None:
    """The queue was empty when it was looked at: when the batch was planned tells."""
    one = stream(cluster)
    start = one.latest(one.initial())
    cluster.put("t", count=5)
    cluster.now += 1

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            make_anew(cluster, 0)

    cluster.before = before
    ranges = one.ranges(start, one.latest(start))
    assert ranges == [Range(QUEUE, 0, 5)]
    assert ranges[0].oldest is None
    cluster.before = lambda broker, request: None
    cluster.now += 1
    cluster.put("t", count=9)
    with pytest.raises(DataLost, match="its topic was made anew while a batch of it was read"):
        rows(cluster, ranges)
    assert rows(cluster, ranges, failOnDataLoss="false") == []


def test_the_oldest_message_of_a_queue_that_lost_its_newest_is_still_known(cluster: MemoryCluster) -> None:
    """Without it a topic made anew in this moment would be told by clocks alone."""
    cluster.put("t", count=5)
    one = loose(cluster)
    end = one.latest(one.initial())
    del cluster.broker.queues["t", 0].records[2:]
    cluster.now += 1
    back = one.latest(end)
    assert places(back) == [2]
    assert back["@oldest"] == end["@oldest"] != {}
