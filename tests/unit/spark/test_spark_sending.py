"""What the sink does with connections that end and answers that come late: every message is stored, or an error."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.protocol.codes import Language, RequestCode
from rmq.protocol.command import Command
from rmq.protocol.message import decode_record
from rmq.spark.brokers import Brokers
from rmq.spark.options import SinkOptions
from rmq.spark.rows import RowRefused, Rows
from rmq.spark.sending import Sender
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster

SENDS = (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("t", 4)
    return made


class Task:
    """The tasks of one worker, one after the other: they share its connections."""

    def __init__(self, cluster: MemoryCluster, **options: str) -> None:
        self._options = SinkOptions.of({"nameServer": NAMESRV, "topic": "t", **options})
        self._brokers = Brokers(self._options.endpoint, cluster)

    def write(self, columns: dict[str, list[Any]]) -> int:
        numbers = iter(range(10**6))
        rows = Rows({name: name for name in columns}, "t", lambda: f"ID{next(numbers)}", "", None, 100)
        sender = Sender(self._brokers, self._options)
        for message in rows.messages(columns):
            sender.add(message)
        sender.flush()
        return sender.sent


def bodies(cluster: MemoryCluster) -> list[str]:
    queues = [queue for broker in cluster.brokers for queue in broker.queues.values()]
    return sorted(decode_record(record).body.decode() for queue in queues for record in queue.records if record)


def test_a_connection_that_ends_between_two_requests_loses_neither(cluster: MemoryCluster) -> None:
    """What went over the old one is not taken for answered by the new one, whose requests have the same numbers."""
    task = Task(cluster)
    assert task.write({"value": ["a"], "queueId": [0]}) == 1
    cut = iter([True])

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code in SENDS and next(cut, False):
            raise ConnectionResetError

    cluster.before = before
    values = [f"{n}" for n in range(8)]
    assert task.write({"value": values, "queueId": [n % 4 for n in range(8)]}) == 8
    assert bodies(cluster) == sorted([*values, "a"])


def test_looking_at_a_broker_for_one_row_drops_no_answer_of_another(cluster: MemoryCluster) -> None:
    """A row for a time of its own makes the task ask its broker first; other rows are not under way then."""
    soon = [None, None, None, cluster.now_ms() + 9000]
    task = Task(cluster)
    assert task.write({"value": ["a", "b", "c", "d"], "queueId": [0, 1, 2, 3], "deliverTimestamp": soon}) == 4
    assert bodies(cluster) == ["a", "b", "c", "d"], "none of them twice"


def test_a_broker_that_knows_no_times_is_not_asked_behind_the_back_of_the_check(cluster: MemoryCluster) -> None:
    """The connection ends while it is asked what it is: it is asked again before the row is sent."""
    cut = iter([True])
    plain = cluster._code_30

    def of_old(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        reply = plain(broker, request, ext)
        reply.language, reply.version = Language.JAVA, 399
        return reply

    def before(broker: MemoryBroker, request: Command) -> None:
        if next(cut, False):
            raise ConnectionResetError

    cluster.before = before
    cluster._code_30 = of_old  # type: ignore[method-assign]
    with pytest.raises(RowRefused, match="has a deliverTimestamp, which broker-a does not know"):
        Task(cluster).write({"value": ["a"], "deliverTimestamp": [cluster.now_ms() + 9000]})
    assert bodies(cluster) == []
