"""How a stream goes forward, without Spark: Spark's calls are made here, and the checkpoint is a dict."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ConnectFailed, TransportError
from rmq.protocol.queue import MessageQueue
from rmq.protocol.sysflags import PERM_WRITE
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.progress import lag
from rmq.spark.source.advance import AS_OF, Advance, read_offsets
from rmq.spark.source.ranges import DataLost, Range
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster, MemoryQueue

QUEUE = MessageQueue("t", "broker-a", 0)


def stream(cluster: MemoryCluster, **options: str) -> Advance:
    made = SourceOptions.of({"nameServer": NAMESRV, **({} if "topicPattern" in options else {"topic": "t"}), **options})
    return Advance(made, Brokers(made.endpoint, cluster))


def places(offsets: dict[str, Any]) -> list[int]:
    return [read_offsets(offsets)[queue] for queue in sorted(read_offsets(offsets))]


def test_begin_read_and_stand_still(cluster: MemoryCluster) -> None:
    """Field case B129."""
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="earliest")
    start = one.initial()
    assert places(start) == [0]
    end = one.latest(start)
    assert one.ranges(start, end) == [Range(QUEUE, 0, 5)]
    assert json.loads(json.dumps(end)) == end
    assert one.latest(end) is end, "the very same offsets: Spark compares texts"
    cluster.now += 1
    cluster.put("t")
    assert places(one.latest(end)) == [6]


def test_the_default_begins_at_the_end(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    assert places(stream(cluster).initial()) == [5]


def test_a_group_or_offsets_say_where_to_begin(cluster: MemoryCluster) -> None:
    cluster.create("t", 3)
    for queue in range(3):
        cluster.put("t", queue, 10)
    cluster.broker.offsets["g", "t", 1] = 7
    assert places(stream(cluster, startingOffsets="group", groupId="g").initial()) == [0, 7, 0]
    given = '{"t":{"broker-a":{"0":4,"1":-2}}, "@asOf": 1}'
    assert places(stream(cluster, startingOffsets=given).initial()) == [4, 0, 10], "as a stream begins where not named"
    for word, place in (("earliest", 0), ("latest", 10)):
        given = json.dumps({"t": {"broker-a": {"0": 4}}, "@others": word})
        assert places(stream(cluster, startingOffsets=given).initial()) == [4, place, place]
    with pytest.raises(ConfigError, match="queue 9 of t on broker-a: it does not exist"):
        stream(cluster, startingOffsets='{"t":{"broker-a":{"9":4}}}').initial()


def test_a_topic_that_does_not_exist_is_named_at_once(cluster: MemoryCluster) -> None:
    """Field case B131."""
    with pytest.raises(ConfigError, match=r"the topic nowhere does not exist.*option topic"):
        stream(cluster, topic="t,nowhere").initial()
    with pytest.raises(ConfigError, match=r"topicPattern 'x\.\*' matches no topic"):
        stream(cluster, topicPattern="x.*").initial()
    cluster.namesrv_up = False
    with pytest.raises(ConnectFailed, match=r"no name server answers \(10\.0\.0\.1:9876, option nameServer"):
        stream(cluster).initial()
    assert cluster.slept == 0


def test_a_checkpoint_that_was_changed_by_hand_is_named(cluster: MemoryCluster) -> None:
    one = stream(cluster, startingOffsets="earliest")
    for wrong in ({"t": {"broker-a": {"zero": 1}}}, {"t": {"broker-a": {"0": "5"}}}, {"t": {"0": 5}}, [1], None):
        with pytest.raises(
            ConfigError, match=r"the checkpoint holds offsets that are not of rocketmq, or were changed"
        ):
            one.ranges({}, wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="an offset for queue 0 of t on broker-a, not -7"):
        one.ranges({}, {"t": {"broker-a": {"0": -7}}})


def test_a_topic_that_may_not_be_read_is_an_error(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.broker.perm = PERM_WRITE
    with pytest.raises(ConfigError, match="the topic t may not be read on broker-a: its permission there, or the brok"):
        stream(cluster, failOnDataLoss="false").initial()
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t")
    with pytest.raises(ConfigError, match=r"not be read on broker-a: .*failOnDataLoss=false reads the others"):
        stream(cluster).initial()
    with caplog.at_level(logging.WARNING):
        begin = stream(cluster, failOnDataLoss="false").initial()
    assert [queue.broker_name for queue in read_offsets(begin)] == ["broker-b"]
    assert "the topic t may not be read on broker-a" in caplog.text


def test_queues_that_are_taken_away_under_a_stream_are_told_once(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("t", 4)
    for number in range(4):
        cluster.put("t", number, 5)
    one = stream(cluster, startingOffsets="earliest")
    start = one.initial()
    end = one.latest(start)
    cluster.topics["t"] = 2
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cluster.now += 6
            cluster.put("t")
            end = one.latest(end)
    assert places(end) == [8, 5, 5, 5]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("2 queues of the query may not be read now, such as MessageQueue [topic=t, ")


def test_ranges_depend_on_nothing_but_the_offsets(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="earliest")
    start = one.initial()
    end = one.latest(start)
    cluster.put("t", count=50)
    cluster.broker.queues["t", 0].least = 3
    restarted = stream(cluster, startingOffsets="latest")
    assert restarted.ranges(start, end) == [Range(QUEUE, 0, 5)]
    assert places(restarted.latest(end)) == [55], "the checkpoint goes before the options"


def test_new_queues_and_new_topics_are_read_from_their_beginning(cluster: MemoryCluster) -> None:
    one = stream(cluster, topicPattern="t.*", startingOffsets="latest")
    start = one.initial()
    cluster.create("t", 2)
    cluster.create("t2")
    cluster.put("t", 1, 3)
    cluster.put("t2", 0, 2)
    cluster.now += 10
    end = one.latest(start)
    assert one.ranges(start, end) == [
        Range(MessageQueue("t", "broker-a", 1), 0, 3),
        Range(MessageQueue("t2", "broker-a", 0), 0, 2),
    ]


def test_a_slave_that_is_behind_is_no_step_back(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    one = stream(cluster, startingOffsets="earliest")
    end = one.latest(one.initial())
    slave = MemoryBroker("broker-a", number=1)
    slave.queues["t", 0] = MemoryQueue(cluster.broker.queues["t", 0].records[:4], [1] * 4)
    cluster.brokers.append(slave)
    cluster.broker.up = False
    cluster.now += 10
    assert one.latest(end) is end


def test_brokers_that_are_away_stand_still_and_errors_end_a_query_late(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    one = stream(cluster, startingOffsets="earliest", pullTimeoutMs="5000")
    end = one.latest(one.initial())
    cluster.broker.up = False
    cluster.now += 10
    assert one.latest(end) is end
    restarted = stream(cluster, pullTimeoutMs="5000")
    cluster.namesrv_up = False
    assert restarted.latest(end) is end
    cluster.now += 6
    with pytest.raises(TransportError, match="no name server answers"):
        restarted.latest(end)


def shrink(cluster: MemoryCluster, count: int) -> None:
    queue = cluster.broker.queues["t", 0]
    queue.records, queue.times = queue.records[:count], queue.times[:count]


def test_a_topic_made_anew_is_an_error_or_read_from_its_beginning(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put("t", count=9)
    end = stream(cluster).initial()
    cluster.now += 60
    shrink(cluster, 0)
    cluster.put("t", count=4)
    with pytest.raises(DataLost, match="the query is at 9, the queue ends at 4: its topic was made anew"):
        stream(cluster).latest(end)
    one = stream(cluster, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        back = one.latest(end)
    assert "going on from 0" in caplog.text
    assert one.ranges(end, back) == []
    assert one.ranges(back, one.latest(back)) == [Range(QUEUE, 0, 4)]


def test_a_topic_made_anew_is_seen_even_when_it_has_more_than_before(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    end = stream(cluster).initial()
    cluster.now += 60
    shrink(cluster, 0)
    cluster.put("t", count=40)
    with pytest.raises(DataLost, match="made anew"):
        stream(cluster).latest(end)
    one = stream(cluster, failOnDataLoss="false")
    back = one.latest(end)
    assert one.ranges(back, one.latest(back)) == [Range(QUEUE, 0, 40)]


def test_lost_newest_messages_are_not_read_again(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    cluster.now += 60
    end = stream(cluster).initial()
    shrink(cluster, 7)
    with pytest.raises(DataLost, match="lost its newest messages"):
        stream(cluster).latest(end)
    one = stream(cluster, failOnDataLoss="false")
    back = one.latest(end)
    cluster.put("t", count=5)
    assert one.ranges(back, one.latest(back)) == [Range(QUEUE, 7, 12)]


def test_portions(cluster: MemoryCluster) -> None:
    cluster.put("t", count=25)
    one = stream(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="3")
    start = one.initial()
    got = []
    while (end := one.latest(start)) is not start:
        got += [each.records for each in one.ranges(start, end)]
        start = end
    assert got == [10, 10, 5]
    cluster.put("t", count=2)
    cluster.now += 10
    assert one.latest(start) is start, "two are fewer than three"
    assert places(one.latest(start, limited=False)) == [27], "Spark asked for everything"
    cluster.now += 900
    assert places(one.latest(start)) == [27], "its time has come"


def test_available_now_ends_where_it_was_when_it_began(cluster: MemoryCluster) -> None:
    cluster.put("t", count=25)
    limits = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "9"}
    one = stream(cluster, startingOffsets="earliest", groupId="g", **limits)
    one.prepare_available_now()
    start = one.initial()
    ends = []
    while (end := one.latest(start)) is not start:
        cluster.put("t", count=7)
        cluster.create("t", 2)
        cluster.now += 10
        ends.append(places(end))
        start = end
    assert ends == [[10], [20], [25]]
    assert cluster.broker.offsets == {("g", "t", 0): 25}, "the group is told of the last batch as well"


def test_a_target_behind_the_checkpoint_ends_at_once(cluster: MemoryCluster) -> None:
    cluster.put("t", count=9)
    end = stream(cluster).initial()
    one = stream(cluster)
    one.prepare_available_now()
    assert one.latest(end) is end


def test_the_group_is_told_and_shown_but_never_in_the_way(cluster: MemoryCluster) -> None:
    """Field case B129."""
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="earliest", groupId="g")
    start = one.initial()
    end = one.latest(start)
    one.report(end)
    assert cluster.broker.offsets == {("g", "t", 0): 5}
    codes = [each.code for each in cluster.broker.seen]
    assert codes.index(RequestCode.HEART_BEAT) + 1 == codes.index(RequestCode.UNREGISTER_CLIENT)
    assert codes.count(RequestCode.HEART_BEAT) == 1
    one.report(end)
    assert [each.code for each in cluster.broker.seen] == codes, "nothing new: nobody is told anything"

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            raise ConnectionResetError

    cluster.before = before
    cluster.put("t")
    cluster.now += 1
    further = one.latest(end)
    one.report(further)
    assert places(further) == [6]


def test_the_first_offset_of_a_topic_is_told_alone(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java broker loses of first ones that come at once."""
    told: list[list[tuple[str | None, str | None]]] = []
    ask = Brokers.ask

    def asked(brokers: Brokers, address: str, commands: Sequence[Command]) -> list[Command]:
        offsets = [each.ext or {} for each in commands if each.code == RequestCode.UPDATE_CONSUMER_OFFSET]
        told.append([(each["topic"], each["queueId"]) for each in offsets])
        return ask(brokers, address, commands)

    monkeypatch.setattr(Brokers, "ask", asked)
    cluster.create("t", 3)
    cluster.create("u", 1)
    one = stream(cluster, topic="t,u", groupId="g")
    one.report(one.initial())
    first, others = (sorted(each) for each in told if each)
    assert (first, others) == ([("t", "0"), ("u", "0")], [("t", "1"), ("t", "2")])


def test_without_a_group_nothing_is_told(cluster: MemoryCluster) -> None:
    one = stream(cluster)
    one.report(one.initial())
    assert cluster.broker.offsets == {}


def test_an_idle_stream_does_not_ask_each_time(cluster: MemoryCluster) -> None:
    one = stream(cluster)
    start = one.initial()
    one.latest(start)
    asked = len(cluster.broker.seen)
    for _ in range(50):
        assert one.latest(start) is start
    assert len(cluster.broker.seen) == asked
    cluster.now += 0.3
    one.latest(start)
    assert len(cluster.broker.seen) > asked


def untold(one: Advance) -> dict[str, Any]:
    """Spark before 4.2 asks where a batch ends, and says nothing."""
    return one.latest(None, limited=False)


def test_spark_before_4_2_does_not_say_where_it_is(cluster: MemoryCluster) -> None:
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="earliest")
    end = untold(one)
    assert one.ranges(one.initial(), end) == [Range(QUEUE, 0, 5)]
    slave = MemoryBroker("broker-a", number=1)
    slave.queues["t", 0] = MemoryQueue(cluster.broker.queues["t", 0].records[:2], [1] * 2)
    cluster.brokers.append(slave)
    cluster.broker.up = False
    cluster.now += 10
    assert places(untold(one)) == [5]


def test_spark_before_4_2_asks_where_to_begin_when_the_first_batch_is_planned(cluster: MemoryCluster) -> None:
    """What the options say counts all the same, once and for all."""
    cluster.put("t", count=5)
    one = stream(cluster, startingOffsets="latest")
    end = untold(one)
    cluster.put("t", count=2)
    assert one.ranges(one.initial(), end) == []
    assert places(one.initial()) == [5]
    cluster.now += 1
    second = untold(one)
    assert one.ranges(end, second) == [Range(QUEUE, 5, 7)]
    cluster.put("t", count=1)
    cluster.now += 1
    assert one.ranges(second, untold(one)) == [Range(QUEUE, 7, 8)], "not from where it began"


def test_started_again_spark_before_4_2_says_where_it_is_by_an_empty_batch(cluster: MemoryCluster) -> None:
    cluster.brokers.append(MemoryBroker("broker-b"))
    cluster.create("t")
    cluster.put("t", count=3)
    cluster.put("t", count=5, broker=1)
    one = stream(cluster, startingOffsets="earliest")
    end = untold(one)
    cluster.brokers[1].up = False
    cluster.put("t")
    one = stream(cluster)
    assert one.ranges(end, end) == []
    assert places(untold(one)) == [4, 5], "a broker that is away keeps its place"
    cluster.brokers[1].up = True
    cluster.now += 60
    shrink(cluster, 0)
    cluster.put("t", count=2)
    one = stream(cluster)
    assert one.ranges(end, end) == []
    with pytest.raises(DataLost, match="the query is at 3, the queue ends at 2: its topic was made anew"):
        untold(one)


def test_an_open_batch_that_spark_before_4_2_tells_of_first_is_looked_at(cluster: MemoryCluster) -> None:
    """Its end comes twice, first without a beginning: that is no plan of this run."""
    cluster.put("t", count=3)
    one = stream(cluster, startingOffsets="earliest")
    end = untold(one)
    cluster.now += 60
    shrink(cluster, 0)
    cluster.put("t", count=4)
    for given in ({}, {"failOnDataLoss": "false"}):
        one = stream(cluster, startingOffsets="earliest", **given)
        assert one.ranges(end, end) == []
        start = one.initial()
        if not given:
            with pytest.raises(DataLost, match="an open batch ends at 3: its topic was made anew"):
                one.ranges(start, end)
    assert one.ranges(start, end) == []
    back = untold(one)
    cluster.now += 1
    assert one.ranges(back, untold(one)) == [Range(QUEUE, 0, 4)], "all of the new topic"


def test_brokers_that_are_away_are_waited_for_where_a_run_may_be_one_batch(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark before 4.2 does not tell that a run has an end, so that the first question may be the last."""
    cluster.put("t", count=3)
    end = untold(stream(cluster, startingOffsets="earliest"))
    cluster.put("t")
    sleep = cluster.sleep

    def back_at(moment: float) -> None:
        def slept(seconds: float) -> None:
            sleep(seconds)
            if cluster.now >= moment:
                cluster.broker.up = cluster.namesrv_up = True

        cluster.sleep = slept  # type: ignore[method-assign]

    for away in ("broker", "name server"):
        if away == "broker":
            cluster.broker.up = False
        else:
            cluster.namesrv_up = False
        back_at(cluster.now + 9)
        one = stream(cluster)
        assert one.ranges(end, end) == []
        assert places(untold(one)) == [4]
        cluster.now += 1
        cluster.broker.up = False
        before = cluster.now
        assert places(untold(one)) == [4]
        assert cluster.now - before < 9, "later questions do not wait: the run goes on"
        cluster.broker.up = True
    cluster.broker.up = False
    back_at(float("inf"))
    one = stream(cluster)
    one.ranges(end, end)
    before = cluster.now
    with caplog.at_level(logging.WARNING):
        assert untold(one) is end
    assert 20 <= cluster.now - before < 30
    assert "the topic t has no broker now" in caplog.text


def test_lag_out_of_a_progress(cluster: MemoryCluster) -> None:
    cluster.put("t", count=25)
    one = stream(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    end = one.latest(one.initial())
    progress = {"sources": [{"endOffset": end, "latestOffset": one.report_latest()}, {"endOffset": "5"}]}
    assert lag(progress) == {"t": 15}
    assert lag({"sources": [{"endOffset": json.dumps(end), "latestOffset": None}]}) == {}
    assert AS_OF in end
