"""What may happen to brokers and topics under a stream: nothing skipped, nothing read twice, no loss that is none."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ConnectFailed, FrameError, TransportError
from rmq.protocol.queue import MessageQueue
from rmq.runtime.dial import Wire
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.progress import lag
from rmq.spark.source.advance import OLDEST, Advance, read_offsets
from rmq.spark.source.ranges import DataLost, Range
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster, MemoryQueue

QUEUE = MessageQueue("t", "broker-a", 0)


def stream(cluster: MemoryCluster, **options: str) -> Advance:
    given = {"nameServer": NAMESRV, "startingOffsets": "earliest", **options}
    made = SourceOptions.of(given if "topicPattern" in options else {"topic": "t", **given})
    return Advance(made, Brokers(made.endpoint, cluster))


def places(offsets: dict[str, Any]) -> list[int]:
    return [read_offsets(offsets)[queue] for queue in sorted(read_offsets(offsets))]


def make_anew(cluster: MemoryCluster, count: int) -> None:
    cluster.now += 60
    cluster.broker.queues["t", 0] = MemoryQueue()
    cluster.put("t", count=count)


# -- is it still the same topic? --------------------------------------------------------------------------------------


def test_what_has_expired_behind_a_query_that_was_stopped_is_no_loss(cluster: MemoryCluster) -> None:
    """Everything read, then a long pause: the oldest message left is newer than the checkpoint, and it is the next."""
    cluster.put("t", count=9)
    one = stream(cluster)
    end = one.latest(one.initial())
    cluster.now += 86_400 * 4
    cluster.put("t", count=5)
    cluster.broker.queues["t", 0].least = 9
    again = stream(cluster)
    further = again.latest(end)
    assert again.ranges(end, further) == [Range(QUEUE, 9, 14)]
    cluster.broker.queues["t", 0].least = 11
    again = stream(cluster)
    assert again.ranges(end, again.latest(end)) == [Range(QUEUE, 9, 14)], "their task says that some have expired"


def test_a_topic_made_anew_under_a_running_query_is_seen_at_the_next_batch(cluster: MemoryCluster) -> None:
    """It has more than before already: nothing else would tell."""
    cluster.put("t", count=9)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 40)
    with pytest.raises(DataLost, match="the query is at 9, the queue ends at 40: its topic was made anew"):
        one.latest(end)
    two = stream(cluster, failOnDataLoss="false")
    two.latest(two.initial())
    make_anew(cluster, 60)
    back = two.latest(end)
    assert two.ranges(end, back) == []
    assert two.ranges(back, two.latest(back)) == [Range(QUEUE, 0, 60)]
    cluster.put("t", count=3)
    cluster.now += 1
    assert places(two.latest(back)) == [63], "and said once"


def test_clocks_that_differ_do_not_matter_to_a_running_query(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    queue = cluster.broker.queues["t", 0]
    queue.times = [time + 3_600_000 for time in queue.times]
    one = stream(cluster)
    end = one.latest(one.initial())
    for number in range(1, 9):
        cluster.put("t")
        queue.times[-1] += 3_600_000
        queue.least = number
        cluster.now += 1
        end = one.latest(end)
        assert places(end) == [9 + number]


def test_a_slave_that_keeps_messages_longer_is_no_other_topic(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    master = cluster.broker
    slave = MemoryBroker("broker-a", number=1)
    slave.queues["t", 0] = MemoryQueue(master.queues["t", 0].records, master.queues["t", 0].times)
    cluster.brokers.append(slave)
    cluster.now += 5
    cluster.put("t", count=9)
    master.queues["t", 0].least = 12
    one = stream(cluster)
    end = one.latest(one.initial())
    cluster.put("t", count=9)
    master.up = False
    cluster.now += 10
    assert places(one.latest(end)) == [27]


@pytest.mark.parametrize("kept", [0, 12])
@pytest.mark.parametrize("noticed", [True, False])
def test_a_leader_that_has_come_back_behind_the_next_one_has_lost_nothing(
    cluster: MemoryCluster, kept: int, noticed: bool
) -> None:
    """Killed and started again within the seconds that a route is kept: without its disk, or behind what it had."""
    cluster.put("t", count=20)
    leader, next_leader = cluster.broker, MemoryBroker("broker-a", number=1)
    queue = next_leader.queues["t", 0] = leader.queues["t", 0]
    cluster.brokers.append(next_leader)
    one = stream(cluster)
    end = one.latest(one.initial())
    assert places(end) == [20]
    was_open = [True] if noticed else []

    def before(broker: MemoryBroker, request: Command) -> None:
        if broker is leader and was_open:
            was_open.clear()
            raise ConnectionResetError

    cluster.before = before
    leader.queues["t", 0] = MemoryQueue(queue.records[:kept], queue.times[:kept])
    leader.number, next_leader.number = 1, 0
    cluster.brokers.reverse()
    cluster.put("t", count=3)
    cluster.now += 1
    if not noticed:
        assert one.latest(end) is end
    assert places(one.latest(end)) == [23]


# -- Trigger.AvailableNow reads what was there when it began ----------------------------------------------------------


def available_now(one: Advance) -> list[list[int]]:
    one.prepare_available_now()
    start = one.initial()
    found = []
    while (end := one.latest(start)) is not start:
        found.append(places(end))
        start = end
    return found


@pytest.mark.parametrize("away", ["broker", "route", "slave"])
def test_a_run_does_not_end_before_its_end_because_a_broker_is_away(cluster: MemoryCluster, away: str) -> None:
    """Between two batches; who reads the next one waits for it, and says so when it stays away."""
    cluster.put("t", count=25)
    if away == "slave":
        slave = MemoryBroker("broker-a", number=1)
        slave.queues["t", 0] = MemoryQueue(cluster.broker.queues["t", 0].records[:10], [1] * 10)
        cluster.brokers.append(slave)
    one = stream(cluster, maxOffsetsPerTrigger="10")
    one.prepare_available_now()
    start = one.initial()
    first = one.latest(start)
    cluster.broker.up = False
    cluster.now += 10 if away == "route" else 0
    second = one.latest(first)
    assert one.ranges(first, second) == [Range(QUEUE, 10, 20)]
    assert one.ranges(second, third := one.latest(second)) == [Range(QUEUE, 20, 25)]
    assert one.latest(third) is third


def test_a_run_waits_for_brokers_and_topics_that_are_away_at_its_start(cluster: MemoryCluster) -> None:
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t")
    cluster.put("t", count=3)
    cluster.put("t", count=5, broker=1)
    one = stream(cluster)
    start = one.initial()
    back_at, plain = cluster.now + 5, cluster.connect

    def later(host: str, port: int, timeout: float, tls: Any = None) -> Wire:
        if f"{host}:{port}" == cluster.brokers[1].address and cluster.now < back_at:
            raise ConnectionRefusedError(111, "Connection refused")
        return plain(host, port, timeout, tls)

    cluster.connect = later  # type: ignore[method-assign]
    again = stream(cluster)
    again.prepare_available_now()
    assert places(again.latest(start)) == [3, 5]
    back_at = float("inf")
    with pytest.raises(ConnectFailed, match="the broker broker-b of t does not answer"):
        stream(cluster).prepare_available_now()
    cluster.topics.clear()
    with pytest.raises(ConfigError, match="the topic t does not exist"):
        stream(cluster).prepare_available_now()
    assert cluster.slept < 60
    left = stream(cluster, failOnDataLoss="false")
    left.prepare_available_now()
    assert left.latest(start) is start


def test_a_run_waits_for_a_broker_that_no_name_server_knows_for_a_moment(cluster: MemoryCluster) -> None:
    """It is in the checkpoint; one that stays away is left for the next run."""
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t")
    cluster.put("t", count=3)
    cluster.put("t", count=5, broker=1)
    start = stream(cluster).initial()
    cluster.brokers[1].up = False
    waits = iter([False] * 20)

    def sleep(seconds: float) -> None:
        cluster.now += seconds
        cluster.brokers[1].up = next(waits, True)

    cluster.sleep = sleep  # type: ignore[method-assign]
    one = stream(cluster)
    one.prepare_available_now()
    assert places(one.latest(start)) == [3, 5]
    waits = iter([False] * 10_000)
    cluster.brokers[1].up = False
    one = stream(cluster)
    one.prepare_available_now()
    end = one.latest(start)
    assert places(end) == [3, 0]
    since = cluster.now
    assert one.latest(end) is end
    assert cluster.now == since, "it was waited for once"


def test_a_run_does_not_end_well_because_nobody_knows_the_topics(cluster: MemoryCluster) -> None:
    cluster.put("t", count=25)
    one = stream(cluster, topicPattern="t.*", maxOffsetsPerTrigger="10", pullTimeoutMs="5000")
    one.prepare_available_now()
    first = one.latest(one.initial())
    cluster.namesrv_up = False
    with pytest.raises(TransportError, match="no name server answers"):
        one.latest(first)
    cluster.namesrv_up = True
    assert places(one.latest(first)) == [20]


def test_a_broker_that_hangs_holds_up_the_others_now_and_then_only(cluster: MemoryCluster) -> None:
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t")
    one = stream(cluster)
    end = one.latest(one.initial())

    def before(broker: MemoryBroker, request: Command) -> None:
        if broker is cluster.brokers[1]:
            cluster.now += 5
            raise TimeoutError

    cluster.before = before
    since = cluster.now
    for number in range(1, 9):
        cluster.put("t")
        cluster.now += 0.5
        end = one.latest(end)
        assert places(end) == [number, 0]
    assert cluster.now - since < 4 + 6
    cluster.before = lambda broker, request: None
    cluster.put("t", broker=1)
    cluster.now += 10
    assert places(one.latest(end)) == [8, 1]


# -- what others are told ---------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_keeps_no_other_from_being_told(cluster: MemoryCluster) -> None:
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t")
    cluster.put("t", count=3)
    cluster.put("t", count=5, broker=1)
    one = stream(cluster, groupId="g")
    end = one.latest(one.initial())
    cluster.broker.up = False
    one.report(end)
    assert cluster.brokers[1].offsets == {("g", "t", 0): 5}


def test_the_lag_of_a_broker_that_is_away_is_not_nothing(cluster: MemoryCluster) -> None:
    """Field case B127."""
    cluster.put("t", count=25)
    one = stream(cluster, maxOffsetsPerTrigger="10")
    end = one.latest(one.initial())
    cluster.broker.up = False
    cluster.now += 1
    assert one.latest(end) is end
    assert lag({"sources": [{"endOffset": end, "latestOffset": one.report_latest()}]}) == {"t": 15}


def test_a_name_server_that_is_busy_does_not_end_a_query(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster)
    start = one.initial()
    plain, busy = cluster._name_server, True

    def name_server(request: Command) -> Command:
        return request.reply(ResponseCode.SYSTEM_BUSY, "too many requests") if busy else plain(request)

    cluster._name_server = name_server  # type: ignore[method-assign]
    cluster.now += 10
    assert one.latest(start) is start
    busy = False
    cluster.now += 10
    assert places(one.latest(start)) == [5]


def test_a_group_that_cannot_be_asked_for_does_not_begin_at_the_beginning(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    cluster.broker.offsets["g", "t", 0] = 7
    answers = iter([ConnectionResetError, None])

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET and (error := next(answers, None)):
            raise error

    cluster.before = before
    assert places(stream(cluster, startingOffsets="group", groupId="g").initial()) == [7]
    plain = cluster._code_14

    def busy(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        return request.reply(ResponseCode.SYSTEM_BUSY) if cluster.slept < 3 else plain(broker, request, ext)

    cluster.slept = 0
    cluster._code_14 = busy  # type: ignore[method-assign]
    assert places(stream(cluster, startingOffsets="group", groupId="g").initial()) == [7]


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.NO_PERMISSION, "signature failed"),
        (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: [10015:signature-failed]"),
    ],
)
@pytest.mark.parametrize("asked", [RequestCode.GET_MAX_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET])
def test_a_wrong_secret_key_is_told_at_once(
    cluster: MemoryCluster, code: ResponseCode, remark: str, asked: RequestCode
) -> None:
    refused: Any = lambda broker, request, ext: request.reply(code, remark)  # noqa: E731
    one = stream(cluster, startingOffsets="group", groupId="g")
    start = one.initial()
    setattr(cluster, f"_code_{asked.value}", refused)
    with pytest.raises(ConfigError, match=rf"code {code.value}\b.*signature.failed.*options accessKey and"):
        stream(cluster, startingOffsets="group", groupId="g").initial()
    if asked == RequestCode.GET_MAX_OFFSET:
        cluster.now += 10
        with pytest.raises(ConfigError, match="options accessKey"):
            one.latest(start)
    assert cluster.slept == 0


def test_what_a_broker_says_is_told_when_it_never_answers(cluster: MemoryCluster) -> None:
    cluster._code_30 = lambda broker, request, ext: request.reply(2, "too many requests")  # type: ignore[method-assign]
    with pytest.raises(ConnectFailed, match=r"the broker broker-a of t tells no offsets: code 2 .*too many requests"):
        stream(cluster).initial()
    assert cluster.slept > 19


class _Spoilt:
    """A wire on which a header of no known kind comes."""

    def __init__(self) -> None:
        self._left = struct.pack(">iI", 5, 9 << 24 | 1) + b"x"

    def send(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def read(self, into: memoryview, timeout: float) -> None:
        into[:], self._left = self._left[: len(into)], self._left[len(into) :]

    def close(self) -> None:
        pass


def test_a_link_whose_answer_cannot_be_decoded_is_not_used_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = stream(cluster)._brokers
    with monkeypatch.context() as spoilt:
        spoilt.setattr(cluster, "connect", lambda *args: _Spoilt())
        with pytest.raises(FrameError, match="the serialize type 9 is unknown"):
            brokers.call(cluster.broker.address, RequestCode.UNREGISTER_CLIENT)
    assert brokers.call(cluster.broker.address, RequestCode.UNREGISTER_CLIENT).code == ResponseCode.SUCCESS


# -- a batch that an earlier run planned ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["earliest", "latest"])
def test_the_first_batch_read_again_begins_where_it_did(cluster: MemoryCluster, first: str) -> None:
    """Spark does not keep where a query began."""
    cluster.create("t", 4)
    for number in range(4):
        cluster.put("t", number, 5)
    one = stream(cluster, startingOffsets=first)
    start = one.initial()
    for number in range(4):
        cluster.put("t", number, 2)
    cluster.now += 10
    end = one.latest(start)
    wanted = one.ranges(start, end)
    assert [each.records for each in wanted] == [7 if first == "earliest" else 2] * 4
    cluster.topics["t"] = 2
    for number in range(4):
        cluster.put("t", number, 9)
    again = stream(cluster, startingOffsets=first)
    assert again.ranges(again.initial(), end) == wanted
    assert not any(each.fresh for each in wanted), "what is gone of them is a loss"
    # The batches after it begin where the one before ended.
    cluster.topics["t"] = 4
    cluster.now += 10
    following = again.latest(end)
    assert [each.records for each in again.ranges(end, following)] == [9] * 4
    assert again.ranges(following, again.latest(following)) == []


def test_a_first_batch_without_messages_begins_the_next_one(cluster: MemoryCluster) -> None:
    one = stream(cluster, startingOffsets="latest")
    start = one.initial()
    assert one.ranges(start, start) == []
    cluster.put("t", count=3)
    cluster.now += 10
    end = one.latest(start)
    assert stream(cluster).ranges(start, end) == [Range(QUEUE, 0, 3)]


def test_an_open_batch_is_not_read_out_of_a_topic_made_anew(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster)
    begin = one.latest(one.initial())
    cluster.put("t", count=2)
    cluster.now += 10
    end = one.latest(begin)
    same = stream(cluster)
    assert same.ranges(begin, end) == [Range(QUEUE, 5, 7)]
    make_anew(cluster, 10)
    with pytest.raises(DataLost, match="an open batch ends at 7: its topic was made anew since the batch was planned"):
        stream(cluster).ranges(begin, end)
    loose = stream(cluster, failOnDataLoss="false")
    assert loose.ranges(begin, end) == []
    anew = loose.latest(end)
    assert (places(anew), loose.ranges(end, anew)) == ([0], []), "a queue that begins anew"
    assert loose.ranges(anew, loose.latest(anew)) == [Range(QUEUE, 0, 10)]


@pytest.mark.parametrize("apart", [-600_000, 600_000], ids=["behind", "ahead"])
def test_clocks_that_differ_do_not_matter_after_a_restart(cluster: MemoryCluster, apart: int) -> None:
    """The broker's clock is ten minutes from the driver's: the oldest message that the checkpoint knows decides."""
    queue = cluster.broker.queues["t", 0] = MemoryQueue()
    cluster.put("t", count=5)
    queue.times = [time + apart for time in queue.times]
    one = stream(cluster)
    begin = one.latest(one.initial())
    cluster.now += 10
    cluster.put("t", count=2)
    queue.times[5:] = [time + apart for time in queue.times[5:]]
    end = one.latest(begin)
    end = json.loads(json.dumps(end))
    assert stream(cluster).ranges(begin, end) == [Range(QUEUE, 5, 7)]
    assert stream(cluster).latest(end) is end
    # What expires leaves later messages: that is no other topic.
    queue.least = 3
    assert stream(cluster).ranges(begin, end) == [Range(QUEUE, 5, 7)]
    assert stream(cluster).latest(end) is end
    make_anew(cluster, 40)
    anew = cluster.broker.queues["t", 0]
    anew.times = [time + apart for time in anew.times]
    with pytest.raises(DataLost, match="made anew since the batch was planned"):
        stream(cluster).ranges(begin, end)
    with pytest.raises(DataLost, match="the query is at 7, the queue ends at 40: its topic was made anew"):
        stream(cluster).latest(end)
    loose = stream(cluster, failOnDataLoss="false")
    back = loose.latest(end)
    assert loose.ranges(back, loose.latest(back)) == [Range(QUEUE, 0, 40)]
    assert stream(cluster).ranges(back, loose.latest(back)) == [Range(QUEUE, 0, 40)], "and not told again"


def test_a_topic_made_anew_with_as_many_messages_is_seen_at_a_restart(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 5)
    with pytest.raises(DataLost, match="the query is at 5, the queue ends at 5: its topic was made anew"):
        stream(cluster).latest(end)


def test_what_was_not_read_of_a_topic_made_anew_is_lost(cluster: MemoryCluster) -> None:
    """The checkpoint is at 0: messages were there, and none was read."""
    cluster.put("t", count=5)
    start = stream(cluster).initial()
    make_anew(cluster, 3)
    with pytest.raises(DataLost, match="the query is at 0, the queue ends at 3: its topic was made anew"):
        stream(cluster).latest(start)
    loose = stream(cluster, failOnDataLoss="false")
    back = loose.latest(start)
    cluster.now += 1
    assert loose.ranges(back, loose.latest(back)) == [Range(QUEUE, 0, 3)]


def test_a_checkpoint_of_an_older_version_goes_on(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster)
    end = one.latest(one.initial())
    old = {name: value for name, value in end.items() if name != OLDEST}
    assert OLDEST in end
    assert stream(cluster).latest(old) is old
    cluster.put("t", count=2)
    cluster.now += 1
    further = stream(cluster).latest(old)
    assert (places(further), OLDEST in further) == ([7], True)
    for wrong in ([1], {"t": {"broker-a": {"0": 1}}}, {"t": {"broker-a": {"0": [1, -1]}}}):
        with pytest.raises(ConfigError, match="the checkpoint holds offsets that are not of rocketmq, or were changed"):
            stream(cluster).latest({**end, OLDEST: wrong})


@pytest.mark.parametrize("back", [True, False])
def test_an_open_batch_waits_for_the_broker_that_tells_whether_its_topic_was_made_anew(
    cluster: MemoryCluster, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put("t", count=5)
    one = stream(cluster)
    begin = one.initial()
    end = one.latest(begin)
    make_anew(cluster, 10)
    cluster.broker.up = False
    sleep = cluster.sleep

    def comes_back(seconds: float) -> None:
        sleep(seconds)
        cluster.broker.up = back

    monkeypatch.setattr(cluster, "sleep", comes_back)
    expected = DataLost if back else ConnectFailed
    with pytest.raises(expected, match="made anew since" if back else "of t does not answer"):
        stream(cluster).ranges(begin, end)


def test_a_topic_made_anew_under_an_open_first_batch_is_read_from_its_beginning(cluster: MemoryCluster) -> None:
    """Spark asks for the beginning again: the new queues are then known, and not those of the batch."""
    cluster.put("t", count=5)
    one = stream(cluster)
    end = one.latest(one.initial())
    make_anew(cluster, 3)
    loose = stream(cluster, failOnDataLoss="false")
    assert loose.ranges(loose.initial(), end) == []
    anew = loose.latest(end)
    assert loose.ranges(anew, loose.latest(anew)) == [Range(QUEUE, 0, 3)]


def test_a_first_run_waits_for_topics_of_a_pattern(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    name_server, away = cluster._name_server, 3.0

    def starting(request: Command) -> Command:
        if cluster.slept < away and request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return request.reply(0, body=TopicList(topic_list=[]).encode())
        return name_server(request)

    cluster._name_server = starting  # type: ignore[method-assign]
    one = stream(cluster, topicPattern="t.*")
    one.prepare_available_now()
    assert places(one.latest(one.initial())) == [5]
    away = 100.0
    never = stream(cluster, topicPattern="t.*")
    never.prepare_available_now()
    assert cluster.slept > 19
    with pytest.raises(ConfigError, match="matches no topic"):
        never.initial()


def test_unread_messages_of_queues_that_a_topic_has_no_more_are_an_error(cluster: MemoryCluster) -> None:
    cluster.create("t", 4)
    for number in range(4):
        cluster.put("t", number, 5)
    one = stream(cluster)
    end = one.latest(one.initial())
    cluster.put("t", 3, 2)
    cluster.topics["t"] = 2
    for made in (one, stream(cluster)):
        cluster.now += 10
        with pytest.raises(DataLost, match=r"queueId=3.*: the query is at 5, .* what is unread of 1 queues is lost"):
            made.latest(end)
    assert places(stream(cluster, failOnDataLoss="false").latest(end)) == [5, 5, 5, 5]
    cluster.topics["t"] = 4
    cluster.now += 10
    assert places(one.latest(end)) == [5, 5, 5, 7]
    # A broker that is away, or lets nobody read, is waited for.
    cluster.broker.perm = 2
    cluster.now += 10
    assert one.latest(end) is end
