"""What the sink makes of rows and how it sends them: order, routing, repeats, and errors that name the row."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from rmq.protocol.codes import Language, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ConfigError
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.sysflags import PERM_READ, PERM_WRITE
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SinkOptions
from rmq.spark.sink.rows import Outgoing, RowRefused, Rows, check_columns
from rmq.spark.sink.sending import Sender
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("t", 4)
    return made


def messages(
    columns: dict[str, list[Any]], identity: str | None = "q/1/0", topic: str | None = "t", most: int = 4 << 20
) -> Iterator[Outgoing]:
    numbers = iter(range(10**6))
    found = {name: name for name in columns}
    rows = Rows(found, topic, lambda: f"ID{next(numbers)}", "batch 1, partition 0, ", identity, most)
    return rows.messages(columns)


def send(cluster: MemoryCluster, columns: dict[str, list[Any]], **options: str) -> Sender:
    made = SinkOptions.of({"nameServer": NAMESRV, "topic": "t", **options})
    sender = Sender(Brokers(made.endpoint, cluster), made)
    for message in messages(columns, most=made.max_body):
        sender.add(message)
    sender.flush()
    return sender


def stored(cluster: MemoryCluster, topic: str = "t") -> dict[int, list[MessageRecord]]:
    queues = {number: queue for (name, number), queue in sorted(cluster.broker.queues.items()) if name == topic}
    return {number: [decode_record(record) for record in queue.records if record] for number, queue in queues.items()}


def test_every_column_finds_its_place() -> None:
    moment = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    (made,) = messages(
        {
            "value": ["text"],
            "topic": ["other"],
            "tags": ["A"],
            "keys": [["k1", None, "k2"]],
            "properties": [[("own", "1"), ("UNIQ_KEY", "of another"), ("TAGS", "B"), ("empty", None)]],
            "shardingKey": ["s"],
            "deliverTimestamp": [moment],
        }
    )
    assert (made.topic, made.body, made.sharding_key, made.delayed) == ("other", b"text", "s", True)
    found = dict(item.split("\x01") for item in made.properties.decode().split("\x02"))
    # Of what the row holds, and the same from release to release: a batch may be sent again by a newer one.
    assert found.pop("RMQ_SPARK_ID") == "q/1/0/fcc5f1b390e7b3b2ce92ee47.0"
    assert found == {
        "own": "1",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "s",
        "TIMER_DELIVER_MS": "1769817600000",
        "UNIQ_KEY": "ID0",
    }


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": ["a", None]}, "batch 1, partition 0, row 1 has no value"),
        ({"value": [b""]}, "row 0 has no value"),
        (
            {"value": [b"x" * (4 << 20), b"x" * ((4 << 20) + 1)]},
            r"row 1 has a value of 4194305 bytes, above maxMessageSize \(4194304\): raise this option and the broker's",
        ),
        ({"value": ["a"], "topic": ["a b"]}, "row 0: The specified topic.*illegal characters"),
        ({"value": ["a"], "topic": ["SCHEDULE_TOPIC_XXXX"]}, "row 0: SCHEDULE_TOPIC_XXXX is a topic of the broker"),
        ({"value": ["a"], "delayLevel": [19]}, "row 0: delayLevel is 19: give 0 .none. or 1 to 18"),
        ({"value": ["a"], "delayLevel": [1], "deliverTimestamp": [5]}, "row 0 has a delayLevel and a deliverTimestamp"),
        (
            {"value": ["a", "b"], "brokerName": ["x", "x"], "queueId": [1, None]},
            "row 1 has a brokerName and no queueId: give both, or neither",
        ),
        ({"value": ["a"], "tags": ["a\x02b"]}, "row 0: the property 'TAGS' holds a control character"),
        ({"value": ["a"], "keys": ["k" * 40_000]}, "row 0: keys, tags and properties have .* bytes, at most 32767"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(RowRefused, match=said):
        list(messages(columns))


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ([("x", "string")], "t", "the sink has no column 'x': drop it or rename it"),
        ([("topic", "string")], "t", "the column value is missing"),
        ([("value", "int")], "t", "the column value is int: the sink takes binary or string"),
        ([("value", "string"), ("body", "string")], "t", "value and body are the same"),
        ([("value", "string")], None, "no topic to write to"),
        ([("value", "string"), ("brokerName", "string")], "t", "the column brokerName names a queue together with"),
        ([("value", "string"), ("keys", "array<int>")], "t", "the column keys is array<int>"),
    ],
)
def test_columns_are_checked_before_anything_is_sent(
    columns: list[tuple[str, str]], topic: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_columns(columns, topic)
    assert check_columns([("Body", "varchar(9)"), ("TOPIC", "string")], None) == {"body": "Body", "topic": "TOPIC"}


def test_rows_of_one_key_stay_in_order_in_one_queue(cluster: MemoryCluster) -> None:
    count = 1000
    columns = {"value": [str(n) for n in range(count)], "shardingKey": [f"k{n % 7}" for n in range(count)]}
    assert send(cluster, columns, batchSize="16").sent == count
    homes: dict[str, set[int]] = {}
    for number, records in stored(cluster).items():
        seen: dict[str, int] = {}
        for record in records:
            key = record.properties["__SHARDINGKEY"]
            homes.setdefault(key, set()).add(number)
            assert seen.get(key, -1) < int(record.body)
            seen[key] = int(record.body)
    assert {len(each) for each in homes.values()} == {1}
    assert sum(map(len, stored(cluster).values())) == count


def test_batches_go_round_the_queues_and_delayed_rows_go_alone(cluster: MemoryCluster) -> None:
    send(
        cluster,
        {"value": [str(n) for n in range(400)], "delayLevel": [3 if n % 100 == 50 else None for n in range(400)]},
    )
    assert all(len(records) > 50 for records in stored(cluster).values())
    codes = [each.code for each in cluster.broker.seen]
    assert codes.count(RequestCode.SEND_MESSAGE_V2) >= 4
    assert codes.count(RequestCode.SEND_BATCH_MESSAGE) >= 6
    delayed = [record for records in stored(cluster).values() for record in records if "DELAY" in record.properties]
    assert len(delayed) == 4


def test_a_queue_may_be_chosen(cluster: MemoryCluster) -> None:
    send(cluster, {"value": ["a", "b"], "queueId": [2, 3]})
    assert {number: len(records) for number, records in stored(cluster).items()} == {0: 0, 1: 0, 2: 1, 3: 1}
    with pytest.raises(RowRefused, match="row 0: the topic t has no queue 9"):
        send(cluster, {"value": ["a"], "queueId": [9]})
    cluster.brokers.append(MemoryBroker("broker-b"))
    with pytest.raises(RowRefused, match="several brokers have a queue 1 of t: name one in a column brokerName"):
        send(cluster, {"value": ["a"], "queueId": [1]})
    send(cluster, {"value": ["a"], "queueId": [1], "brokerName": ["broker-b"]})
    assert len(cluster.brokers[1].queues["t", 1].records) == 1


def test_what_failed_is_sent_again_as_often_as_allowed(cluster: MemoryCluster) -> None:
    failures = iter([True, False, True, False])

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2) and next(failures, False):
            raise ConnectionResetError

    def cut(request: Command) -> None:
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            raise ConnectionResetError

    cluster.before = before
    assert send(cluster, {"value": [str(n) for n in range(100)]}).sent == 100
    assert sum(map(len, stored(cluster).values())) == 100
    cluster.before = lambda broker, request: cut(request)
    with pytest.raises(ClientError, match="partition 0, row 0 and 9 more could not be sent to t, retries included"):
        send(cluster, {"value": [str(n) for n in range(10)]})


def test_a_refused_batch_names_the_row_that_is_meant(cluster: MemoryCluster) -> None:
    plain = cluster._store

    def picky(broker: Any, request: Command, ext: Any, items: Any) -> Command:
        if any(b"17" in body for _, body, _ in items):
            return request.reply(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal")
        return plain(broker, request, ext, items)

    cluster._store = picky  # type: ignore[method-assign]
    said = r"row 17 is refused by broker-a: code 13 .*illegal.* The value has 2 bytes, within .* maxMessageSize \(99\)"
    with pytest.raises(RowRefused, match=said):
        send(cluster, {"value": [str(n) for n in range(40)]}, maxMessageSize="99")
    with pytest.raises(RowRefused, match=r"row 0 is refused by broker-a: code 13 .*illegal$"):
        send(cluster, {"value": ["17"], "deliverTimestamp": [1 << 42]})  # a time too far ahead has the same code


@pytest.mark.parametrize(("most", "requests"), [(1000, 20), (5 << 20, 1)])
def test_a_batch_is_no_larger_than_a_message_may_be(cluster: MemoryCluster, most: int, requests: int) -> None:
    """Brokers that take less than Java's do by default would refuse it."""
    cluster.create("t", 1)
    send(cluster, {"value": ["x" * 300] * 40}, maxMessageSize=str(most))
    sends = [each for each in cluster.broker.seen if each.code == RequestCode.SEND_BATCH_MESSAGE]
    assert len(sends) == requests
    assert max(len(each.body or b"") for each in sends) <= most
    assert len(stored(cluster)[0]) == 40


def test_a_row_that_a_batch_has_no_room_for_goes_alone(cluster: MemoryCluster) -> None:
    cluster.create("t", 1)
    send(cluster, {"value": ["x" * n for n in (1, 5_000_000, 1)]}, maxMessageSize=str(6 << 20))
    assert [len(record.body) for record in stored(cluster)[0]] == [1, 5_000_000, 1]


def test_a_route_that_is_old_when_the_only_broker_has_become_read_only(cluster: MemoryCluster) -> None:
    """Code 16: tried again as often as the options say, then the rows are named."""
    cluster.broker.allows = PERM_READ
    said = r"row 0 and 9 more could not be sent to t, retries included: code 16 from .* sending message is forbidden"
    with pytest.raises(ClientError, match=said):
        send(cluster, {"value": [str(n) for n in range(10)]})
    with pytest.raises(ClientError, match="row 0 could not be sent to t, retries included: code 16"):
        send(cluster, {"value": ["a"], "shardingKey": ["k"]}, retries="0")
    assert not any(stored(cluster).values())


def test_rows_go_to_the_other_brokers_once_one_has_become_read_only(cluster: MemoryCluster) -> None:
    """As it is made before it is stopped: told by its first answer, it is not asked again."""
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t", 4)
    closing = cluster.broker

    def before(broker: MemoryBroker, request: Command) -> None:
        if broker is closing and request.code == RequestCode.SEND_BATCH_MESSAGE:
            closing.perm = closing.allows = PERM_READ

    cluster.before = before
    count = 4000
    assert send(cluster, {"value": [str(n) for n in range(count)]}, retries="1").sent == count
    asked = [each for each in closing.seen if each.code == RequestCode.SEND_BATCH_MESSAGE]
    assert 0 < len(asked) <= 8, "what was under way when it was made read-only"
    bodies = [
        decode_record(record).body for queue in cluster.brokers[1].queues.values() for record in queue.records if record
    ]
    assert sorted(map(int, bodies)) == list(range(count))


def test_keys_keep_their_queue_when_another_broker_becomes_read_only(cluster: MemoryCluster) -> None:
    """Half a key's rows in another queue would be out of order; what has no key moves away."""
    cluster.brokers += [MemoryBroker("broker-b"), MemoryBroker("broker-c")]
    cluster.create("t", 4)
    closing, *others = cluster.brokers
    names = [f"k{n}" for n in range(48)]

    def of_others() -> Iterator[tuple[str, int, MessageRecord]]:
        for broker in others:
            for (_, number), queue in broker.queues.items():
                yield from ((broker.name, number, decode_record(record)) for record in queue.records if record)

    send(cluster, {"value": names, "shardingKey": names})
    there = [record.body.decode() for _, _, record in of_others()]
    assert 16 < len(there) < 48

    def before(broker: MemoryBroker, request: Command) -> None:
        if broker is closing and request.code == RequestCode.SEND_BATCH_MESSAGE:
            closing.perm = closing.allows = PERM_READ

    cluster.before = before
    keys = [there[n // 2 % len(there)] if n % 2 else None for n in range(4000)]
    assert send(cluster, {"value": ["x"] * 4000, "shardingKey": keys}).sent == 4000
    homes: dict[str, set[tuple[str, int]]] = {}
    for name, number, record in of_others():
        homes.setdefault(record.properties.get("__SHARDINGKEY", ""), set()).add((name, number))
    assert len(homes.pop("")) == 8
    assert {len(each) for each in homes.values()} == {1}
    closing.perm = PERM_READ | PERM_WRITE  # says its old route
    with pytest.raises(ClientError, match="could not be sent to t, retries included: code 16"):
        send(cluster, {"value": names, "shardingKey": names})


def test_a_topic_that_does_not_exist_or_takes_nothing(cluster: MemoryCluster) -> None:
    with pytest.raises(
        RowRefused, match=r"row 0: the topic nowhere does not exist \(make it with mqadmin updateTopic\)"
    ):
        send(cluster, {"value": ["a"], "topic": ["nowhere"]})
    cluster.topics["t"] = 0
    with pytest.raises(RowRefused, match="row 0: the topic t takes no messages: neither it nor its brokers may be"):
        send(cluster, {"value": ["a"]})


def test_a_broker_that_knows_no_times_is_not_asked_to_keep_one(cluster: MemoryCluster) -> None:
    plain = cluster._code_30

    def java(broker: Any, request: Command, ext: Any) -> Command:
        reply = plain(broker, request, ext)
        reply.language, reply.version = int(Language.JAVA), 401
        return reply

    cluster._code_30 = java  # type: ignore[method-assign]
    with pytest.raises(RowRefused, match="deliverTimestamp, which broker-a does not know"):
        send(cluster, {"value": ["a"], "deliverTimestamp": [5]})
    assert not any(stored(cluster).values())


def test_a_topic_that_is_not_there_is_named(cluster: MemoryCluster) -> None:
    with pytest.raises(RowRefused, match="row 0: the topic u does not exist"):
        send(cluster, {"value": ["a"], "topic": ["u"]})
    cluster.create("TBW102", 8)
    send(cluster, {"value": ["a"], "topic": ["u"]})
    assert sum(map(len, stored(cluster, "u").values())) == 1
