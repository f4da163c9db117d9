"""Members are told what a leader has made of its log, if they understand it, and by nobody but their leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from rmq.aio import Message, Producer
from rmq.broker.raft import incoming, links
from rmq.broker.raft.answering import Answering
from rmq.broker.raft.driver import RaftDriver
from rmq.broker.raft.wire import SpanTold, Word
from rmq.broker.replication.wire import header
from rmq.broker.store.told import Told, ToldQueue
from rmq.protocol.errors import StoreError
from rmq.raft.effects import Reset
from rmq.raft.messages import Append, AppendReply, TimeoutNow
from rmq.raft.messages import Message as Said
from rmq.raft.node import RaftNode
from rmq.raft.position import Position
from rmq.testing.simloop import run
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


async def messages(cluster: GroupCluster, topic: str, count: int = 30) -> None:
    async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
        for number in range(count):
            message = Message(topic, b"%d" % number, tags="AB"[number % 2], keys=[f"k{number}", "all"])
            if number % 7 == 3:
                message.delay_level = 1
            await producer.send(message)
    await asyncio.sleep(3)  # delayed ones are delivered


def put_bytes(cluster: GroupCluster, name: str) -> int:
    return cluster.members[name].store.dispatcher.told.put_bytes


async def found(cluster: GroupCluster, name: str, topic: str, key: str) -> int:
    store = cluster.members[name].store
    return len((await store.query_message(topic, key, 64, 0, 1 << 62)).records)


def hears_first(cluster: GroupCluster, kind: type[SpanTold | Append]) -> None:
    """Members hear what is told of spans before the bytes of these come, or behind them; leaders say either."""
    for app in cluster.members.values():
        group = app.group
        assert group is not None
        assert group.member is not None
        links = group.member.links
        if links.heard == group._hear:
            links.heard = partial(_hear_first, group._hear, kind)


def _hear_first(hear: Callable[[Word], None], kind: type[SpanTold | Append], word: Word) -> None:
    other = SpanTold if kind is Append else Append
    if isinstance(word, other) and (not isinstance(word, Append) or word.data):
        if isinstance(word, Append):
            word = replace(word, data=bytes(word.data))
        asyncio.get_running_loop().call_soon(hear, word)
    else:
        hear(word)


@in_virtual_time
@pytest.mark.parametrize("first", [SpanTold, Append])
async def test_followers_put_what_they_are_told(first: type[SpanTold | Append]) -> None:
    async with GroupCluster(seed=2) as cluster:
        leader = await cluster.led_by()
        hears_first(cluster, first)
        await messages(cluster, "Topic")
        await cluster.alike()
        others = [name for name in cluster.names if name != leader]
        for name in others:
            log = cluster.members[name].store.log
            assert put_bytes(cluster, name) > 0.9 * (log.end - log.start)
            assert len(cluster.driver(name)._announced) == 0
            assert (log._tail.size < 1000) == (first is SpanTold), "nobody reads what was told of before it came"
            assert await found(cluster, name, "Topic", "all") == 30
        # Another leads, and the one that comes back is told by it.
        await cluster.kill(leader, power=True)
        await cluster.led_by()
        await messages(cluster, "Topic2")
        await cluster.begin(leader)
        hears_first(cluster, first)
        await eventually(lambda: cluster.driver(leader).leader is not None)
        await messages(cluster, "Topic3")
        await cluster.alike()
        assert put_bytes(cluster, leader) > 0
        for name in cluster.names:
            assert [await found(cluster, name, topic, "all") for topic in ("Topic", "Topic2", "Topic3")] == [30] * 3


@in_virtual_time
async def test_a_member_that_does_not_understand_it_reads_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "listens", lambda: header(0, 0))  # as members of an earlier version
    async with GroupCluster(seed=2) as cluster:
        await cluster.led_by()
        await messages(cluster, "Topic")
        await cluster.alike()
        for name in cluster.names:
            assert put_bytes(cluster, name) == 0
            assert await found(cluster, name, "Topic", "all") == 30


@in_virtual_time
async def test_what_cannot_be_read_of_it_costs_itself_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection stays, with the log that comes on it."""
    encode = Told.encode
    monkeypatch.setattr(Told, "encode", lambda told: encode(told)[:-1] + bytes([encode(told)[-1] ^ 1]))
    async with GroupCluster(seed=2) as cluster:
        leader = await cluster.led_by()
        await messages(cluster, "Topic")
        await cluster.alike()
        assert cluster.leader() == leader
        for name in cluster.names:
            assert put_bytes(cluster, name) == 0
            assert await found(cluster, name, "Topic", "all") == 30
    assert "is closed" not in caplog.text
    assert "its log is read instead: what a leader tells of a span has changed on its way" in caplog.text


@in_virtual_time
async def test_a_member_believes_its_leader_alone() -> None:
    async with GroupCluster(seed=3) as cluster:
        leader = await cluster.led_by()
        one, other = [name for name in cluster.names if name != leader]
        heard: list[SpanTold] = []
        driver = cluster.driver(one)
        node = driver.node
        assert node is not None
        step = driver.step

        def listening(message: object) -> None:
            if isinstance(message, SpanTold):
                heard.append(message)
            else:
                step(message)  # type: ignore[arg-type]

        group = cluster.members[one].group
        assert group is not None
        assert group.member is not None
        group.member.links.heard = listening
        driver._store.dispatcher.limit = driver._store.dispatcher.position
        await messages(cluster, "Topic", 3)
        told = heard[0]
        spans = driver._store.dispatcher.told
        driver._store.dispatcher.position = told.told.start
        for wrong in (
            replace(told, term=told.term - 1),
            replace(told, term=told.term + 1),
            replace(told, source=other),
            replace(told, told=told.told._replace(start=told.told.start - (1 << 40))),
            replace(told, told=told.told._replace(end=driver._commit_log.end + 1)),
        ):
            driver.step(wrong)
            assert spans.next_after(0) == 1 << 62
        # Of what is still to come, too.
        end = driver._commit_log.end
        driver._announced.clear()
        later = replace(told, told=told.told._replace(start=end, end=end + told.told.end - told.told.start))
        for wrong in (replace(later, term=later.term - 1), replace(later, source=other)):
            driver.step(wrong)
        assert len(driver._announced) == 0
        driver.step(later)
        assert len(driver._announced) == 1
        driver.step(told)
        assert spans.next_after(0) == told.told.start


async def alone(cluster: GroupCluster) -> tuple[str, str, RaftDriver, RaftNode]:
    """The leader and a member, and the driver and the node of the third, which has the log and hears nobody."""
    leader = await cluster.led_by()
    await messages(cluster, "Topic", 3)
    await cluster.alike()
    name, other = [name for name in cluster.names if name != leader]
    driver = cluster.driver(name)
    assert driver.node is not None
    cluster.isolate(name)
    return leader, other, driver, driver.node


@in_virtual_time
async def test_what_was_told_before_a_cut_or_a_failure_is_forgotten() -> None:
    async with GroupCluster(seed=3) as cluster:
        leader, other, driver, node = await alone(cluster)
        term, end = node.term, driver._commit_log.end
        data = driver._commit_log.read(0, end) or b""
        told = Told(end + len(data), end + len(data) + 200, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], b"")
        driver.step(Append(term, leader, Position(term, end), Position(term, end + len(data)), node.commit, data))
        driver.step(SpanTold(term, leader, told))
        assert len(driver._announced) == 1
        # Another one leads, and has something else there.
        driver.step(Append(term + 1, other, Position(term, end), Position(term + 1, end), node.commit))
        await eventually(lambda: driver._commit_log.end == end and not driver._effects)
        assert len(driver._announced) == 0
        driver.step(SpanTold(term + 1, other, told))
        assert len(driver._announced) == 1
        anew = driver._carry_out(Reset(Position(term + 1, end)))
        assert anew is not None
        anew.close()
        assert len(driver._announced) == 0
        driver.step(SpanTold(term + 1, other, told))
        assert len(driver._announced) == 1
        driver._fail(StoreError("the disk"))
        assert len(driver._announced) == 0


@in_virtual_time
async def test_a_leader_is_not_believed_about_what_another_has_led() -> None:
    async with GroupCluster(seed=3) as cluster:
        _, other, driver, node = await alone(cluster)
        term, end = node.term, driver._commit_log.end
        data = driver._commit_log.read(0, end) or b""
        behind = end + len(data)
        at = Position(term, end)
        driver.step(Append(term + 1, other, at, at, node.commit))
        await eventually(lambda: not driver._effects and node.leader == other)
        for of, believed in ((term, False), (term + 1, True)):
            told = Told(end, behind, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], b"")
            driver.step(SpanTold(term + 1, other, told))
            assert len(driver._announced) == 1
            driver.step(Append(term + 1, other, at, Position(of, behind), node.commit, data))
            at, end, behind = Position(of, behind), behind, behind + len(data)
            await eventually(lambda end=end: driver._commit_log.end == end and not driver._effects)  # type: ignore[misc]
            assert len(driver._announced) == 0
            assert (driver._store.dispatcher.told.next_after(0) < end) == believed


@in_virtual_time
async def test_a_leader_is_not_heard_about_a_span_that_an_earlier_one_has_led() -> None:
    async with GroupCluster(seed=3) as cluster:
        _, other, driver, node = await alone(cluster)
        term, end, spans = node.term, driver._commit_log.end, driver._store.dispatcher.told
        driver.step(Append(term + 1, other, Position(term, end), Position(term + 1, end), node.commit))
        await eventually(lambda: not driver._effects and node.leader == other)
        driver.step(SpanTold(term + 1, other, Told(0, end, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], b"")))
        assert (len(driver._announced), spans.memory) == (0, 0)


@in_virtual_time
async def test_a_leader_sums_the_bytes_once_that_it_tells_of_and_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with GroupCluster(seed=6) as cluster:
        leader = await cluster.led_by()
        await messages(cluster, "Topic", 3)
        await cluster.alike()
        summed: list[object] = []
        monkeypatch.setattr(links, "sum_of", summed.append)
        await messages(cluster, "Topic", 5)
        await cluster.alike()
        assert (summed, cluster.leader()) == ([], leader)


def test_the_last_of_several_answers_is_sent() -> None:
    async def main() -> None:
        sent: list[tuple[str, Said]] = []
        answering = Answering(lambda to, message: sent.append((to, message)))
        first, second = (AppendReply(3, "b", match=Position(3, end), asked=end) for end in (10, 20))
        rejected = AppendReply(3, "b", rejected=Position(3, 30), nearest=Position(2, 5))
        answering.send("a", first)
        answering.send("a", second)
        assert sent == []
        await eventually(lambda: sent)
        assert sent == [("a", second)]
        # Nothing overtakes one that waits.
        answering.send("a", first)
        answering.send("a", rejected)
        answering.send("a", second)
        answering.send("c", first)
        answering.send("c", TimeoutNow(3, "b"))
        assert sent[1:] == [("a", first), ("a", rejected), ("a", second), ("c", first), ("c", TimeoutNow(3, "b"))]
        # Who is behind hears of the later term at once: nothing that comes after it takes its place.
        answering.send("a", AppendReply(4, "b"))
        assert sent.pop() == ("a", AppendReply(4, "b"))
        answering.send("a", first)
        answering.drop()
        answering.send("c", TimeoutNow(3, "b"))
        await eventually(lambda: len(sent) > 6)
        assert sent[6:] == [("c", TimeoutNow(3, "b"))]

    run(main())
