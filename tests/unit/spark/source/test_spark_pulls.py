# ruff: noqa: E402 - what follows the check for pyarrow needs it
"""Pulling a range through everything a broker may do meanwhile: each message once, or an error, or a warning."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.compression import compress
from rmq.protocol.errors import ProtocolError, ResponseError, TransportError
from rmq.protocol.message import MessageRecord, encode_record
from rmq.protocol.queue import MessageQueue
from rmq.protocol.sysflags import COMPRESSED
from rmq.runtime.dial import Wire
from rmq.spark.arrow import decode
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import Endpoint, SourceOptions
from rmq.spark.source.one_range import Pulling
from rmq.spark.source.ranges import DataLost, Range
from rmq.spark.source.resolve import offset_at_time
from rmq.spark.source.task import Reading
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster, MemoryQueue

QUEUE = MessageQueue("t", "broker-a", 0)
SCHEMA = pa.schema([pa.field("offset", pa.int64())])
BOTH = pa.schema([pa.field("queueId", pa.int32()), pa.field("offset", pa.int64())])


def read(cluster: MemoryCluster, *ranges: Range, tags: frozenset[str] = frozenset(), **how: Any) -> list[int]:
    reading = Reading(SCHEMA, Pulling("g", **how), tags)
    brokers = Brokers(Endpoint((NAMESRV,)), cluster)
    return [offset for batch in reading.batches(brokers, ranges) for offset in batch.column(0).to_pylist()]


def pulls(cluster: MemoryCluster) -> list[int]:
    return [
        int((each.ext or {})["queueOffset"] or 0)
        for each in cluster.broker.seen
        if each.code == RequestCode.PULL_MESSAGE
    ]


def test_exactly_the_range(cluster: MemoryCluster) -> None:
    cluster.put("t", count=100)
    assert read(cluster, Range(QUEUE, 5, 95)) == list(range(5, 95))
    assert pulls(cluster) == [5, 37, 69], "three pulls of at most 32, none beyond the end"


def test_small_ranges_make_one_batch_and_each_is_asked_for_once(cluster: MemoryCluster) -> None:
    cluster.create("t", 20)
    for number in range(20):
        cluster.put("t", number, count=40)
    reading = Reading(BOTH, Pulling("g"), frozenset())
    wanted = [Range(MessageQueue("t", "broker-a", number), 3, 3 + number) for number in range(1, 20)]
    brokers = Brokers(Endpoint((NAMESRV,)), cluster)
    (batch,) = reading.batches(brokers, wanted)
    assert batch.column(0).to_pylist() == [each.queue.queue_id for each in wanted for _ in range(each.records)]
    assert batch.column(1).to_pylist() == [offset for each in wanted for offset in range(each.start, each.end)]
    assert len(pulls(cluster)) == 19, "no range is asked for twice"


def test_small_ranges_go_on_where_one_pull_ends(cluster: MemoryCluster) -> None:
    cluster.create("t", 3)
    for number in range(3):
        cluster.put("t", number, count=100)
    ranges = [Range(MessageQueue("t", "broker-a", number), 10, 10 + 31 * number) for number in range(1, 3)]
    assert read(cluster, *ranges) == [*range(10, 41), *range(10, 72)]
    assert pulls(cluster) == [10, 10, 42], "the first of each, then the rest of the second"


def test_small_ranges_survive_what_happens_to_their_first_pulls(cluster: MemoryCluster) -> None:
    cluster.create("t", 3)
    for number in range(3):
        cluster.put("t", number, count=10)
    cut = iter([False, True])

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and next(cut, False):
            raise ConnectionResetError

    cluster.before = before
    ranges = [Range(MessageQueue("t", "broker-a", number), 0, 10) for number in range(3)]
    assert read(cluster, *ranges) == [*range(10)] * 3
    cluster.broker.queues["t", 1].least = 5
    with pytest.raises(DataLost, match="the messages 0 to 4 are gone, they have expired"):
        read(cluster, *ranges)
    assert read(cluster, *ranges, fail_on_data_loss=False) == [*range(10), *range(5, 10), *range(10)]
    cluster.broker.up = False
    with pytest.raises(TransportError, match="no broker named broker-a serves t"):
        read(cluster, *ranges, patience=3.0)


def test_a_cut_connection_repeats_and_loses_nothing(cluster: MemoryCluster) -> None:
    cluster.put("t", count=200)
    cut = iter([False, True, False, False, True, True])

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and next(cut, False):
            raise ConnectionResetError

    cluster.before = before
    assert read(cluster, Range(QUEUE, 0, 200)) == list(range(200))
    assert len(pulls(cluster)) == 7 + 3


def test_a_broker_that_stays_away_is_an_error_after_the_patience(cluster: MemoryCluster) -> None:
    cluster.put("t", count=10)
    cluster.broker.up = False
    with pytest.raises(TransportError, match="no broker named broker-a serves t"):
        read(cluster, Range(QUEUE, 0, 10), patience=30.0)
    assert 30 <= cluster.slept < 31


def test_a_name_server_that_is_away_does_not_stop_a_read(cluster: MemoryCluster) -> None:
    cluster.put("t", count=100)

    def before(broker: MemoryBroker, request: Command) -> None:
        cluster.namesrv_up = False
        cluster.now += 10

    cluster.before = before
    assert read(cluster, Range(QUEUE, 0, 100)) == list(range(100))


def test_a_dead_name_server_is_asked_once(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case B088."""
    cluster.put("t", count=3)
    dialled: list[str] = []
    connect = cluster.connect

    def counted(host: str, *more: Any) -> Wire:
        dialled.append(host)
        return connect(host, *more)

    monkeypatch.setattr(cluster, "connect", counted)
    brokers = Brokers(Endpoint(("10.0.0.9:9876", NAMESRV)), cluster)
    for _ in range(3):
        assert brokers.route("t", fresh=True) is not None
    assert dialled == ["10.0.0.9", "10.0.0.1"]


@pytest.mark.parametrize("fresh", [False, True])
def test_expired_messages_are_a_loss_unless_the_queue_is_new(cluster: MemoryCluster, fresh: bool) -> None:
    cluster.put("t", count=50)
    cluster.broker.queues["t", 0].least = 20
    wanted = Range(QUEUE, 10, 50, fresh)
    if fresh:
        assert read(cluster, wanted) == list(range(20, 50))
    else:
        with pytest.raises(DataLost, match=r"the messages 10 to 19 are gone, they have expired \(failOnDataLoss=false"):
            read(cluster, wanted)


def test_a_loss_may_be_only_a_warning(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.put("t", count=50)
    cluster.broker.queues["t", 0].least = 20
    with caplog.at_level(logging.WARNING):
        assert read(cluster, Range(QUEUE, 10, 50), fail_on_data_loss=False) == list(range(20, 50))
    assert "the messages 10 to 19 are gone" in caplog.text
    cluster.broker.queues["t", 0].least = 50
    assert read(cluster, Range(QUEUE, 10, 50), fail_on_data_loss=False) == []


def test_a_queue_that_ends_too_early_on_its_master_is_a_loss(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    with pytest.raises(DataLost, match="the messages 5 to 9 are gone, the queue ends at 5"):
        read(cluster, Range(QUEUE, 0, 10))
    assert read(cluster, Range(QUEUE, 0, 10), fail_on_data_loss=False) == list(range(5))


def test_a_topic_that_is_deleted_is_a_loss_unless_it_is_there_again_at_once(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    answer, since = cluster._code_11, cluster.now

    def deleted(until: float) -> None:
        def pull(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
            return answer(broker, request, ext) if cluster.now >= until else request.reply(17, "topic[t] not exist")

        cluster._code_11 = pull  # type: ignore[method-assign]

    deleted(since + 1)
    assert read(cluster, Range(QUEUE, 0, 5)) == list(range(5))
    deleted(float("inf"))
    with pytest.raises(DataLost, match="the messages 0 to 4 are gone, their topic was deleted"):
        read(cluster, Range(QUEUE, 0, 5))
    assert read(cluster, Range(QUEUE, 0, 5), fail_on_data_loss=False) == []


def test_a_slave_that_is_behind_is_waited_for(cluster: MemoryCluster) -> None:
    cluster.put("t", count=60)
    master = cluster.broker
    slave = MemoryBroker("broker-a", number=1)
    slave.queues["t", 0] = behind = MemoryQueue(master.queues["t", 0].records[:40], master.queues["t", 0].times[:40])
    cluster.brokers.append(slave)
    master.up = False

    def before(broker: MemoryBroker, request: Command) -> None:
        if cluster.slept > 20:
            behind.records = master.queues["t", 0].records

    cluster.before = before
    assert read(cluster, Range(QUEUE, 0, 60)) == list(range(60))
    assert cluster.slept > 20


@pytest.mark.parametrize("expression", ["*", "A"])
def test_a_slave_that_keeps_messages_back_skips_none(cluster: MemoryCluster, expression: str) -> None:
    """Java's slaves say where to go on even when they hand out nothing (slaveReadEnable=false)."""
    cluster.put("t", count=60, tags="A")
    plain = cluster._code_11

    def keeps_back(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        reply = plain(broker, request, ext)
        if cluster.slept < 20:
            reply.code, reply.remark, reply.body = 20, "FOUND", b""
        return reply

    cluster._code_11 = keeps_back  # type: ignore[method-assign]
    assert read(cluster, Range(QUEUE, 0, 60), expression=expression) == list(range(60))
    assert cluster.slept > 20


def test_a_hole_is_a_loss(cluster: MemoryCluster) -> None:
    cluster.put("t", count=50)
    cluster.broker.queues["t", 0].records[30] = None
    with pytest.raises(DataLost, match="messages from 0 to 49 are missing"):
        read(cluster, Range(QUEUE, 0, 50))
    assert len(read(cluster, Range(QUEUE, 0, 50), fail_on_data_loss=False)) == 49
    cluster.broker.queues["t", 0].records[30:] = [None] * 20
    with pytest.raises(DataLost, match="the messages 30 to 49 are gone, their records are removed"):
        read(cluster, Range(QUEUE, 30, 50))
    with pytest.raises(DataLost, match="messages from 30 to 49 are missing"):
        read(cluster, Range(QUEUE, 28, 50))


def test_tags_do_not_change_the_range(cluster: MemoryCluster) -> None:
    for number in range(100):
        cluster.put("t", tags="A" if number % 10 == 0 else "AB")
    got = read(cluster, Range(QUEUE, 5, 95), tags=frozenset({"A"}), expression="A")
    assert got == list(range(10, 95, 10))


@pytest.mark.parametrize("tags", [frozenset(), frozenset({"A"})])
def test_bodies_that_grow_when_they_are_decompressed_come_in_more_batches(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, tags: frozenset[str]
) -> None:
    monkeypatch.setattr(decode, "MOST_PLAIN", 2500)
    queue = cluster.broker.queues["t", 0]
    sizes = [1000] * 10 + [9000] + [1000] * 10
    for number, size in enumerate(sizes):
        body = compress(b"0" * size)
        told = MessageRecord("t", queue_offset=number, body=body, sys_flag=COMPRESSED, properties={"TAGS": "A"})
        queue.records.append(encode_record(told))
        queue.times.append(1)
    schema = pa.schema([pa.field("offset", pa.int64()), pa.field("value", pa.binary())])
    batches = list(
        Reading(schema, Pulling("g"), tags).batches(Brokers(Endpoint((NAMESRV,)), cluster), [Range(QUEUE, 0, 21)])
    )
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(21))
    assert [len(body) for batch in batches for body in batch.column(1).to_pylist()] == sizes
    assert all(batch.num_rows == 1 or batch.num_rows * 1000 <= 2500 for batch in batches)


def test_the_same_messages_again_are_an_error(cluster: MemoryCluster) -> None:
    cluster.put("t", count=40)
    records = cluster.broker.queues["t", 0].records
    records[35] = records[3]
    with pytest.raises(ProtocolError, match="again or out of order"):
        read(cluster, Range(QUEUE, 0, 40))


def test_a_refusal_is_one_line(cluster: MemoryCluster) -> None:
    cluster.put("t")
    cluster._code_11 = lambda broker, request, ext: request.reply(26, "subscription group [g] does not exist")  # type: ignore[method-assign]
    with pytest.raises(ResponseError, match=r"code 26 .*does not exist .make the group g with mqadmin updateSubGroup"):
        read(cluster, Range(QUEUE, 0, 1))


def test_reading_stops_when_nobody_wants_more(cluster: MemoryCluster) -> None:
    """A query with a LIMIT: the answer under way must not be taken for that to the next question."""
    cluster.put("t", count=9000)
    cluster.broker.most_a_pull = 1000
    brokers = Brokers(Endpoint((NAMESRV,)), cluster)
    reading = Reading(SCHEMA, Pulling("g"), frozenset())
    batches = reading.batches(brokers, [Range(QUEUE, 0, 9000)])
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    found = [each for batch in reading.batches(brokers, [Range(QUEUE, 50, 52)]) for each in batch.column(0).to_pylist()]
    assert found == [50, 51]


def test_the_first_message_of_a_time_is_found_exactly(cluster: MemoryCluster) -> None:
    for _ in range(20):
        cluster.put("t", count=3)
        cluster.now += 1
    brokers = Brokers(Endpoint((NAMESRV,)), cluster)
    assert offset_at_time(brokers, "g", QUEUE, 1_005_000, 0, 60) == 15
    assert offset_at_time(brokers, "g", QUEUE, 1_005_001, 0, 60) == 18
    assert offset_at_time(brokers, "g", QUEUE, 0, 0, 60) == 0
    assert offset_at_time(brokers, "g", QUEUE, 9_999_999, 0, 60) == 60


def test_every_request_is_signed(cluster: MemoryCluster) -> None:
    cluster.put("t", count=3)
    options = SourceOptions.of({"nameServer": NAMESRV, "topic": "t", "accessKey": "who", "secretKey": "s"})
    brokers = Brokers(options.endpoint, cluster)
    assert sum(batch.num_rows for batch in Reading.of(options, SCHEMA).batches(brokers, [Range(QUEUE, 0, 3)])) == 3
    assert cluster.broker.seen
    assert all(
        (each.ext or {}).get("AccessKey") == "who" and (each.ext or {})["Signature"] for each in cluster.broker.seen
    )


def test_a_namespace_is_put_before_names_and_never_shown(cluster: MemoryCluster) -> None:
    cluster.create("ns%t")
    cluster.put("ns%t", count=3)
    brokers = Brokers(Endpoint((NAMESRV,), namespace="ns"), cluster)
    assert brokers.topics(".*") == ["t"]
    schema = pa.schema([pa.field("topic", pa.string())])
    (batch,) = Reading(schema, Pulling("g"), frozenset()).batches(brokers, [Range(QUEUE, 0, 3)])
    assert batch.column(0).to_pylist() == ["t"] * 3
    assert (cluster.broker.seen[-1].ext or {})["consumerGroup"] == "ns%g"
