"""What the sink does with connections that end and answers that come late: every message is stored, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmq.protocol.codes import Language, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ConnectFailed
from rmq.protocol.message import decode_record
from rmq.runtime.dial import Wire
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SinkOptions
from rmq.spark.sink.rows import RowRefused, Rows
from rmq.spark.sink.sending import Sender
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


def full(cluster: MemoryCluster, broker: MemoryBroker) -> None:
    plain = cluster._store

    def store(which: MemoryBroker, request: Command, *more: Any) -> Command:
        if which is broker:
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker's disk is full")
        return plain(which, request, *more)

    cluster._store = store  # type: ignore[method-assign]


def dead(cluster: MemoryCluster, broker: MemoryBroker) -> None:
    broker.up = False
    route = cluster._name_server

    def name_server(request: Command) -> Command:
        broker.up = True  # name servers notice it late
        try:
            return route(request)
        finally:
            broker.up = False

    cluster._name_server = name_server  # type: ignore[method-assign]


@pytest.mark.parametrize("happens", [full, dead])
def test_a_broker_that_takes_nothing_is_left_alone_for_the_rest_of_a_task(
    cluster: MemoryCluster, happens: Callable[[MemoryCluster, MemoryBroker], None]
) -> None:
    """Rows without an order; to try it again with every batch would take hours for a large task."""
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t", 4)
    task = Task(cluster)
    happens(cluster, cluster.broker)
    values = [str(n) for n in range(20_000)]
    assert task.write({"value": values}) == 20_000
    assert bodies(cluster) == sorted(values)
    assert cluster.slept < 10
    assert sum(each.code in SENDS for each in cluster.broker.seen) < 20


@pytest.mark.parametrize("columns", [{}, {"shardingKey": ["s", "s"]}], ids=["any queue", "in order"])
def test_where_no_broker_takes_a_row_the_write_fails_and_says_why(
    cluster: MemoryCluster, columns: dict[str, list[str]]
) -> None:
    plain = cluster._store
    full(cluster, cluster.broker)
    task = Task(cluster)
    with pytest.raises(ClientError, match=r"^row 0 and 1 more could not be sent to t, .* the broker's disk is full"):
        task.write({"value": ["a", "b"], **columns})
    assert bodies(cluster) == []
    cluster._store = plain  # type: ignore[method-assign]
    assert task.write({"value": ["a", "b"], **columns}) == 2
    assert bodies(cluster) == ["a", "b"]


def test_when_the_other_broker_dies_the_first_one_is_tried_again(cluster: MemoryCluster) -> None:
    """Brokers are restarted one after the other."""
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t", 4)
    begun: list[MemoryBroker] = []

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code in SENDS:
            sends = len(begun)
            begun.append(broker)
            if broker is cluster.brokers[0 if sends < 60 else 1]:
                raise ConnectionResetError

    cluster.before = before
    values = [str(n) for n in range(8000)]
    assert Task(cluster).write({"value": values}) == 8000
    assert set(bodies(cluster)) == set(values)


def test_a_name_server_that_is_away_for_a_moment_ends_no_task(cluster: MemoryCluster) -> None:
    cluster.namesrv_up = False

    def sleep(seconds: float) -> None:
        cluster.slept += seconds
        cluster.namesrv_up = True

    cluster.sleep = sleep  # type: ignore[method-assign]
    assert Task(cluster).write({"value": ["a"]}) == 1
    cluster.namesrv_up, cluster.sleep = False, lambda seconds: None  # type: ignore[method-assign]
    with pytest.raises(ConnectFailed, match="no name server answers"):
        Task(cluster).write({"value": ["a"]})


def test_a_broker_that_limits_its_senders_is_tried_again(cluster: MemoryCluster) -> None:
    plain, busy = cluster._store, iter([True])

    def store(which: MemoryBroker, request: Command, *more: Any) -> Command:
        return request.reply(ResponseCode.FLOW_CONTROL) if next(busy, False) else plain(which, request, *more)

    cluster._store = store  # type: ignore[method-assign]
    assert Task(cluster).write({"value": ["a"]}) == 1


@pytest.mark.parametrize("dead", [True, False])
def test_a_name_server_that_has_not_heard_of_the_next_leader_fails_no_write(cluster: MemoryCluster, dead: bool) -> None:
    """It is cut off from the group, and names the old one for minutes, which is gone, or follows."""
    leader, next_leader, behind = cluster.broker, MemoryBroker("broker-a", number=1), MemoryCluster()
    next_leader.queues = leader.queues
    behind.topics, behind.brokers = cluster.topics, [MemoryBroker("broker-a"), MemoryBroker("broker-a", number=1)]
    leader.up = not dead
    leader.number, next_leader.number = 1, 0
    cluster.brokers = [next_leader, leader]
    plain_connect, plain_store = cluster.connect, cluster._store

    def connect(host: str, port: int, timeout: float, *more: Any) -> Wire:
        return behind.connect("10.0.0.1", port, timeout) if host == "10.0.0.2" else plain_connect(host, port, timeout)

    def store(broker: MemoryBroker, request: Command, *more: Any) -> Command:
        if broker is leader:
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave takes no messages")
        return plain_store(broker, request, *more)

    cluster.connect, cluster._store = connect, store  # type: ignore[method-assign]
    since = cluster.now
    assert Task(cluster, nameServer=f"10.0.0.2:9876;{NAMESRV}").write({"value": ["a", "b"]}) == 2
    assert cluster.now - since < 2
    assert len([record for queue in next_leader.queues.values() for record in queue.records]) == 2
