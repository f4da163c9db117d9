# ruff: noqa: E402 - what follows the checks for pyarrow and pyspark needs them
"""The sink from Spark's Arrow batches to the broker: large rows, and text that is none."""

from __future__ import annotations

import pickle
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructField, StructType

from rmq.protocol.message import decode_record
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.sink import writers as sink
from rmq.spark.sink.rows import IDENTITY, RowRefused
from tests.support.spark.memory import NAMESRV, MemoryCluster

ODD = b"\xff\xfe and more"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster()
    made.create("t")
    monkeypatch.setattr(sink, "connect", lambda endpoint: Brokers(endpoint, made))
    return made


def write(schema: dict[str, DataType], *batches: Any) -> int:
    fields = [StructField(name, kind) for name, kind in schema.items()]
    writer = sink.BatchWriter({"nameServer": NAMESRV, "topic": "t"}, StructType(fields), False)
    return writer.write(iter(batches)).messages


def text(values: list[bytes]) -> Any:
    """A column that says it is text, as Spark makes it of any bytes: CAST(... AS STRING)."""
    return pa.array(values, pa.binary()).view(pa.string())


def bodies(cluster: MemoryCluster) -> list[bytes]:
    return [decode_record(each).body for queue in cluster.broker.queues.values() for each in queue.records if each]


def test_a_value_may_be_any_bytes_whatever_its_type(cluster: MemoryCluster) -> None:
    assert write({"value": StringType()}, pa.record_batch({"value": text([b"a", ODD])})) == 2
    assert bodies(cluster) == [b"a", ODD]


@pytest.mark.parametrize("name", ["keys", "tags", "topic", "properties"])
def test_a_row_whose_text_is_none_is_named(cluster: MemoryCluster, name: str) -> None:
    """Bytes that are no UTF-8 would otherwise be an error of pyarrow's that names no row and no column."""
    good, odd = text([b"t"] * 2400), text([b"t"] * 2300 + [ODD] + [b"t"] * 99)
    if name == "properties":
        offsets = pa.array(range(2401), pa.int32())
        good, odd = (pa.MapArray.from_arrays(offsets, text([b"k"] * 2400), each) for each in (good, odd))
    value = pa.array(["x"] * 2400)
    schema = {
        "value": StringType(),
        name: MapType(StringType(), StringType()) if name == "properties" else StringType(),
    }
    with pytest.raises(RowRefused, match=f"^batch 0, partition 0, row 4700: the column {name} holds bytes .* UTF-8"):
        write(schema, *(pa.record_batch({"value": value, name: each}) for each in (good, odd)))


def test_large_rows_are_made_messages_a_few_at_a_time(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark hands over thousands of rows at once, however large: their copies are not all made together."""
    largest, plain = 0, sink.Rows.messages

    def messages(rows: Any, columns: Any) -> Any:
        nonlocal largest
        largest = max(largest, sum(map(len, columns["value"])))
        return plain(rows, columns)

    monkeypatch.setattr(sink.Rows, "messages", messages)
    assert write({"value": BinaryType()}, pa.record_batch({"value": pa.array([bytes(200_000)] * 150)})) == 150
    assert largest <= 8 << 20


def test_two_attempts_of_a_task_beside_each_other_send_the_same_identities(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speculation: the copy of a slow task runs on another machine, while the first one goes on."""
    places = iter([(0, "first"), (0, "copy"), (1, "another task")])

    def context() -> Any:
        partition, machine = next(places)
        return SimpleNamespace(
            partitionId=lambda: partition,
            attemptNumber=lambda: int(machine == "copy"),
            taskAttemptId=lambda: hash(machine),
            getLocalProperty=lambda name: None,
        )

    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=context))
    schema = StructType([StructField("value", StringType())])
    writer = sink.BatchWriter({"nameServer": NAMESRV, "topic": "t", "batchSize": "1"}, schema, False)
    rows = pa.record_batch([text([b"a", b"b", b"a"])], ["value"])
    copy = pickle.loads(pickle.dumps(writer))

    def slow() -> Any:
        yield rows
        copy.write(iter([rows]))  # overtakes it

    writer.write(slow())
    writer.write(iter([rows]))
    records = [decode_record(record or b"") for record in cluster.broker.queues["t", 0].records]
    sent = Counter(record.properties[IDENTITY] for record in records)
    assert sorted(sent.values()) == [1, 1, 1, 2, 2, 2]


def test_writes_of_one_batch_are_told_apart_by_their_names(cluster: MemoryCluster) -> None:
    """Spark makes the writers of a batch that is tried again anew."""
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}

    class Task:
        @staticmethod
        def get() -> Any:
            return Task

        partitionId = staticmethod(lambda: 0)
        getLocalProperty = staticmethod(properties.get)

    schema = StructType([StructField("value", StringType())])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink, "TaskContext", Task)
        for name in ("totals", "alerts", "totals"):
            options = {"nameServer": NAMESRV, "topic": "t", "writeName": name}
            sink.BatchWriter(options, schema, False).write(iter([pa.record_batch([text([b"a"])], ["value"])]))
    records = [decode_record(record or b"") for record in cluster.broker.queues["t", 0].records]
    first, other, again = (record.properties[IDENTITY] for record in records)
    assert first == again != other
    assert first.startswith("q/7/totals/0/")
