"""Brokers and name servers that hang, restart, lose queues or know nothing, while a range is read."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError, TransportError
from rmq.protocol.queue import MessageQueue
from rmq.runtime.dial import Wire
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import Endpoint
from rmq.spark.source.one_range import Pulling, pull_range
from rmq.spark.source.ranges import DataLost, Range
from rmq.spark.source.resolve import offset_at_time
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster, MemoryQueue

QUEUE = MessageQueue("t", "broker-a", 0)
OTHER = "10.0.0.2:9876"


def connected(cluster: MemoryCluster, *name_servers: str) -> Brokers:
    return Brokers(Endpoint(name_servers or (NAMESRV,)), cluster)


def pulled(cluster: MemoryCluster, wanted: Range, **how: Any) -> int:
    """How many messages of a range are read."""
    return sum(len(chunk.starts) for chunk in pull_range(connected(cluster), wanted, Pulling("g", **how)))


def with_slave(cluster: MemoryCluster) -> MemoryBroker:
    slave = MemoryBroker("broker-a", number=1)
    slave.queues = {key: MemoryQueue(queue.records, queue.times) for key, queue in cluster.broker.queues.items()}
    cluster.brokers.append(slave)
    return slave


def test_a_broker_that_is_back_after_long_still_has_its_time_to_get_ready(cluster: MemoryCluster) -> None:
    """How long it was away says nothing about its first answer, which may be that of a store that is still loading."""
    cluster.put("t", count=50)
    queue = cluster.broker.queues["t", 0]
    whole, since = queue.records, cluster.now

    def before(broker: MemoryBroker, request: Command) -> None:
        queue.records = whole if cluster.now >= since + 31 else whole[:20]
        if request.code == RequestCode.PULL_MESSAGE and since < cluster.now < since + 30:
            raise ConnectionResetError
        cluster.now += 0.001

    cluster.before = before
    assert pulled(cluster, Range(QUEUE, 0, 50)) == 50


def test_a_broker_that_hangs_is_an_error_when_the_time_is_over(cluster: MemoryCluster) -> None:
    cluster.put("t", count=50)
    since = cluster.now

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            cluster.now += 30
            raise TimeoutError

    cluster.before = before
    with pytest.raises(TransportError, match="did not answer in time"):
        pulled(cluster, Range(QUEUE, 0, 50), patience=60.0)
    assert 60 <= cluster.now - since < 62


def test_the_time_that_spark_takes_for_rows_is_no_time_without_an_answer(cluster: MemoryCluster) -> None:
    """It takes them when it wants to; the connection may have been closed for that long."""
    cluster.put("t", count=9000)
    cluster.broker.most_a_pull = 1024
    found, cut = 0, False

    def before(broker: MemoryBroker, request: Command) -> None:
        nonlocal cut
        if cut and request.code == RequestCode.PULL_MESSAGE:
            cut = False
            raise ConnectionResetError

    cluster.before = before
    for chunk in pull_range(connected(cluster), Range(QUEUE, 0, 9000), Pulling("g", patience=60.0)):
        found += len(chunk.starts)
        cluster.now += 600
        cut = True
    assert found == 9000


def test_a_slave_that_hangs_is_left_alone(cluster: MemoryCluster) -> None:
    """A busy master sends its readers to it with every answer."""
    cluster.put("t", count=500)
    slave = with_slave(cluster)
    plain = cluster._code_11

    def busy(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        reply = plain(broker, request, ext)
        assert reply.ext is not None
        reply.ext["suggestWhichBrokerId"] = "1"
        return reply

    def before(broker: MemoryBroker, request: Command) -> None:
        if broker is slave and request.code == RequestCode.PULL_MESSAGE:
            cluster.now += 30
            raise TimeoutError

    cluster._code_11 = busy  # type: ignore[method-assign]
    cluster.before = before
    brokers, since = connected(cluster), cluster.now
    for wanted in (Range(QUEUE, 0, 250), Range(QUEUE, 250, 500)):
        assert sum(len(chunk.starts) for chunk in pull_range(brokers, wanted, Pulling("g"))) == 250
    assert cluster.now - since < 32


REFUSALS = {
    "keeps back": (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    "found and kept": (ResponseCode.PULL_RETRY_IMMEDIATELY, "FOUND"),
    "begins": (ResponseCode.SERVICE_NOT_AVAILABLE, "The broker is starting"),
    "is busy": (ResponseCode.SYSTEM_BUSY, "too many requests"),
    "knows no topic": (ResponseCode.TOPIC_NOT_EXIST, "topic[t] not exist"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_who_waits_at_a_follower_finds_the_leader_that_is_elected(
    cluster: MemoryCluster, refusal: tuple[ResponseCode, str]
) -> None:
    """slaveReadEnable=false: who follows hands out nothing, for as long as it follows."""
    cluster.put("t", count=60)
    next_leader = with_slave(cluster)
    follower = MemoryBroker("broker-a", number=2)
    follower.queues = next_leader.queues
    leader, cluster.brokers = cluster.broker, [cluster.broker, follower]
    since, plain = cluster.now, cluster._code_11

    def pull(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        reply = plain(broker, request, ext)
        if broker is follower:
            assert reply.ext is not None
            reply.code, reply.remark, reply.body = *refusal, b""
            reply.ext["nextBeginOffset"] = ext["queueOffset"]
        return reply

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and broker is leader and broker.up:
            broker.up = False
            raise ConnectionResetError
        if cluster.now > since + 5 and next_leader.number:
            next_leader.number = 0
            cluster.brokers = [next_leader, follower]

    cluster._code_11 = pull  # type: ignore[method-assign]
    cluster.before = before
    assert pulled(cluster, Range(QUEUE, 0, 60)) == 60
    assert cluster.now - since < 6


def test_a_leader_that_was_deposed_ends_nothing(cluster: MemoryCluster) -> None:
    """It goes on as a follower, behind the next leader: where its queue ends is no word on what there is."""
    cluster.put("t", count=60)
    leader, next_leader = cluster.broker, with_slave(cluster)
    queue = next_leader.queues["t", 0]
    whole, queue.records = queue.records, queue.records[:20]
    leader.queues["t", 0].records = queue.records
    since = cluster.now

    def before(broker: MemoryBroker, request: Command) -> None:
        if cluster.now > since + 1.5:
            leader.number, next_leader.number = 1, 0
        if cluster.now > since + 3:
            queue.records = whole  # the next one has its time, too, to show what is committed

    cluster.before = before
    assert pulled(cluster, Range(QUEUE, 0, 60)) == 60
    assert cluster.now - since < 4


def test_a_leader_that_stands_still_is_left_for_the_next_one_within_seconds(cluster: MemoryCluster) -> None:
    """Its connections stay, and it may be reading from a slow disk."""
    cluster.put("t", count=60)
    leader, next_leader = cluster.broker, with_slave(cluster)
    brokers, since = connected(cluster), cluster.now
    chunks = pull_range(brokers, Range(QUEUE, 0, 60), Pulling("g"))
    assert brokers.master(QUEUE) == leader.address
    leader.hangs = True
    leader.number, next_leader.number = 1, 0
    assert sum(len(chunk.starts) for chunk in chunks) == 60
    assert cluster.now - since < 6


@pytest.mark.parametrize("dead", [True, False])
def test_a_name_server_that_has_not_heard_of_the_next_leader_is_not_believed(
    cluster: MemoryCluster, dead: bool
) -> None:
    """It is cut off from the group, and names the old one for minutes, which is gone, or follows."""
    cluster.put("t", count=60)
    next_leader, behind = with_slave(cluster), MemoryCluster()
    leader = cluster.broker
    behind.topics = cluster.topics
    behind.brokers = [MemoryBroker("broker-a"), MemoryBroker("broker-a", number=1)]
    leader.up = not dead
    leader.number, next_leader.number = 1, 0
    brokers = connected(cluster, OTHER, NAMESRV)
    plain_connect, plain_pull, since = cluster.connect, cluster._code_11, cluster.now

    def connect(host: str, port: int, timeout: float, *more: Any) -> Wire:
        return behind.connect("10.0.0.1", port, timeout) if host == "10.0.0.2" else plain_connect(host, port, timeout)

    def pull(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        reply = plain_pull(broker, request, ext)
        if broker is leader:
            assert reply.ext is not None
            reply.code, reply.remark, reply.body = ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", b""
            reply.ext["nextBeginOffset"] = ext["queueOffset"]
        return reply

    cluster.connect, cluster._code_11 = connect, pull  # type: ignore[method-assign]
    chunks = pull_range(brokers, Range(QUEUE, 0, 60), Pulling("g"))
    assert sum(len(chunk.starts) for chunk in chunks) == 60
    assert cluster.now - since < 2


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER])
def test_a_queue_that_the_topic_has_no_more_is_a_loss(cluster: MemoryCluster, code: ResponseCode) -> None:
    """readQueueNums made smaller under an open batch: without saying so the batch could never end."""
    cluster.create("t", 4)
    cluster.put("t", 3, 5)
    plain = cluster._code_11

    def pull(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        if int(ext["queueId"] or 0) >= 2:
            return request.reply(code, "queueId[3] is illegal, topic:[t] topicConfig.readQueueNums:[2]")
        return plain(broker, request, ext)

    cluster._code_11 = pull  # type: ignore[method-assign]
    wanted = Range(MessageQueue("t", "broker-a", 3), 0, 5)
    with pytest.raises(ResponseError, match="is illegal"):
        pulled(cluster, wanted)
    cluster.topics["t"] = 2
    with pytest.raises(DataLost, match=r"the messages 0 to 4 are gone, .*readQueueNums.*failOnDataLoss=false"):
        pulled(cluster, wanted)
    assert pulled(cluster, wanted, fail_on_data_loss=False) == 0


def test_a_broker_that_limits_its_readers_is_waited_for(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    plain = cluster._code_11

    def pull(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        return request.reply(ResponseCode.FLOW_CONTROL) if cluster.slept < 5 else plain(broker, request, ext)

    cluster._code_11 = pull  # type: ignore[method-assign]
    assert pulled(cluster, Range(QUEUE, 0, 9)) == 9


def test_an_outage_fills_no_log(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.put("t", count=9)

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and cluster.slept < 50:
            raise ConnectionResetError

    cluster.before = before
    with caplog.at_level(logging.WARNING):
        assert pulled(cluster, Range(QUEUE, 0, 9)) == 9
    assert 1 <= len(caplog.records) <= 3
    assert "was lost: Connection reset" in caplog.text


def test_a_time_is_looked_for_where_the_queue_is_held(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    cluster.now += 60
    moment = cluster.now_ms()
    cluster.put("t", count=5)
    with_slave(cluster)
    brokers = connected(cluster)
    assert offset_at_time(brokers, "g", QUEUE, moment, 0, 10) == 5
    cluster.broker.up = False
    assert offset_at_time(brokers, "g", QUEUE, moment, 0, 10) == 5
    cluster.brokers.pop()
    waits = iter([False] * 20)

    def sleep(seconds: float) -> None:
        cluster.now += seconds
        cluster.broker.up = next(waits, True)

    cluster.sleep = sleep  # type: ignore[method-assign]
    assert offset_at_time(brokers, "g", QUEUE, moment, 0, 10) == 5


# -- name servers -----------------------------------------------------------------------------------------------------


class Two(MemoryCluster):
    """A second name server, which knows nothing yet."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = {NAMESRV: False, OTHER: False}

    def connect(self, host: str, port: int, timeout: float, tls: Any = None, server_name: Any = None) -> Wire:
        address = f"{host}:{port}"
        if not self.empty.get(address, False):
            return super().connect(*((NAMESRV.split(":")[0], 9876) if address == OTHER else (host, port)), timeout, tls)
        made = MemoryCluster()
        return made.connect(NAMESRV.split(":")[0], 9876, timeout, tls)


def test_a_name_server_that_has_just_been_started_is_not_the_only_one_asked() -> None:
    cluster = Two()
    cluster.create("t")
    cluster.empty[NAMESRV] = True
    brokers = connected(cluster, NAMESRV, OTHER)
    assert brokers.route("t", fresh=True) is not None
    assert brokers.route("nowhere", fresh=True) is None


def test_a_name_server_that_was_restarted_is_connected_to_again(cluster: MemoryCluster) -> None:
    """The connection to it is of before: that it has ended does not mean that nobody is there."""
    brokers = connected(cluster)
    assert brokers.route("t", fresh=True) is not None
    plain, cut = cluster._name_server, iter([True])

    def name_server(request: Command) -> Command:
        if next(cut, False):
            raise ConnectionResetError
        return plain(request)

    cluster._name_server = name_server  # type: ignore[method-assign]
    assert brokers.route("t", fresh=True) is not None
