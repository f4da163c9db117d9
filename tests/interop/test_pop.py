"""POP with Apache's own 5.3.3 push consumer, which lets the broker divide the queues (clientRebalance=false)."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmq import ConsumeFromWhere, MessageExt, PushConsumer
from tests.support.interop import fresh, until
from tests.support.peers import JAVA_OPENS, Client, Cluster, ToolMissing, java_classpath, require, skip_or_fail
from tests.support.peers import start_cluster as start
from tests.support.peers.cache import cached, content_key
from tests.support.peers.jars import pom, run_tool
from tests.support.peers.process import PATIENCE
from tests.support.peers.programs import PROGRAMS

COUNT = 1000
#: Numbers from here on are no messages of a test.
WARM = 1_000_000
VERSION = "5.3.3"
#: An invisible time that can be waited for, seconds.
SHORT = 5


def program() -> str:
    """The class path of the Java program."""
    source = PROGRAMS / "java" / "pop"
    shared = [PROGRAMS / "java" / "core" / "peer" / name for name in ("History.java", "Patience.java")]

    def build(folder: Path) -> None:
        require("javac")
        files = [str(file) for file in [*sorted(source.rglob("*.java")), *shared]]
        options = ["-nowarn", "-encoding", "UTF-8", "-d", str(folder), "-cp", java_classpath(VERSION)]
        run_tool(["javac", *options, *files], folder)

    require("java")
    return java_classpath(VERSION, cached(f"{VERSION}/pop-{content_key(pom(VERSION), source, *shared)}", build))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        running = start("ours", brokers=1)
    except ToolMissing as missing:
        skip_or_fail(missing)
    with running:
        yield running


@pytest.fixture(scope="module")
def java() -> Iterator[Client]:
    folder = Path(tempfile.mkdtemp(prefix="rmq-client-pop-"))
    try:
        command = [
            "java", "-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Drocketmq.client.rebalance.waitInterval=1000", *JAVA_OPENS, f"-Duser.home={folder}",
            "-cp", program(), "peer.Popping",
        ]  # fmt: skip
    except ToolMissing as missing:
        shutil.rmtree(folder, ignore_errors=True)
        skip_or_fail(missing)
    with Client("java-5.3.3-pop", command, folder) as client:
        yield client


class Group:
    """A group of popping consumers on a topic of its own."""

    def __init__(self, java: Client, cluster: Cluster, share: int = 0, mode: str = "POP") -> None:
        self.java = java
        self.cluster = cluster
        self.topic = fresh("pop")
        self.name = fresh("g-pop")
        self.members: list[str] = []
        java.call(
            "topic", namesrv=cluster.namesrv, brokers=[broker.addr for broker in cluster.brokers], topic=self.topic,
            group=self.name, queues=4, mode=mode, share=share,
        )  # fmt: skip

    def produce(self, count: int = COUNT, first: int = 0) -> None:
        self.java.call("produce", namesrv=self.cluster.namesrv, topic=self.topic, count=count, first=first)

    def join(self, **how: Any) -> str:
        member = fresh("member")
        self.java.call(
            "subscribe", namesrv=self.cluster.namesrv, topic=self.topic, group=self.name, handle=member,
            **{"expression": "*", "invisible": 60_000, "failEvery": 0, "pause": 0, **how},
        )  # fmt: skip
        self.members.append(member)
        return member

    def rows(self, member: str) -> list[tuple[int, int, str, str]]:
        """(number, reconsume times, topic, handle) of everything a member was given, but of warming messages."""
        rows = [(int(row[0]), *row[1:]) for row in self.java.call("received", handle=member)["rows"]]
        return [row for row in rows if row[0] < WARM]

    def all_rows(self) -> list[tuple[int, int, str, str]]:
        return [row for member in self.members for row in self.rows(member)]

    def settle(self) -> None:
        """Return when every member is given messages."""
        numbers = itertools.count(WARM, 20)

        def given() -> list[int]:
            self.produce(20, first=next(numbers))
            return [len(self.java.call("received", handle=member)["rows"]) for member in self.members]

        assert all(until(given, all, pause=0.5))

    def until(self, done: Callable[[list[tuple[int, int, str, str]]], bool], within: float = PATIENCE) -> Any:
        """Everything given, as soon as ``done`` says that it is enough."""
        deadline = time.monotonic() + within
        while not done(rows := self.all_rows()):
            assert time.monotonic() < deadline, (
                f"not within {within} s: {len(rows)} given, {len({row[0] for row in rows})} different\n"
                + self.java.tail(20)
                + self.cluster.logs(15)
            )
            time.sleep(0.2)
        return rows

    def leave(self) -> None:
        for member in self.members:
            self.java.call("unsubscribe", handle=member)


def numbers(rows: list[tuple[int, int, str, str]]) -> Counter[int]:
    return Counter(row[0] for row in rows)


def complete(rows: list[tuple[int, int, str, str]]) -> bool:
    return len({row[0] for row in rows}) == COUNT


class Begun(NamedTuple):
    """Groups whose members have to be waited for: that goes by while other tests run.

    :param failing: fails at every tenth message, which comes again after ten seconds.
    :param short: has been given everything, and acknowledges it within :data:`SHORT`.
    :param since: when it had it, by the monotonic clock.
    """

    failing: Group
    short: Group
    since: float


@pytest.fixture(scope="module")
def begun(java: Client, cluster: Cluster) -> Begun:
    failing, short = Group(java, cluster), Group(java, cluster)
    failing.produce()
    failing.join(failEvery=10)
    short.produce()
    short.join(invisible=SHORT * 1000)
    short.until(complete)
    return Begun(failing, short, time.monotonic())


@pytest.mark.usefixtures("begun")
def test_every_message_once(java: Client, cluster: Cluster) -> None:
    group = Group(java, cluster)
    group.produce()
    group.join()
    rows = group.until(complete)
    assert numbers(rows) == Counter(range(COUNT))
    assert {row[2] for row in rows} == {group.topic}
    assert all(row[3] and row[3].split(" ")[5] == "broker-a" for row in rows), "they were not popped"
    group.leave()
    offsets = json.loads((cluster.brokers[0].store / "config" / "messageRequestMode.json").read_text())
    assert offsets["messageRequestModeMap"][group.topic][group.name]["mode"] == "POP"


@pytest.mark.parametrize("share", [0, 1], ids=["every queue", "shared queues"])
def test_two_members_share(java: Client, cluster: Cluster, share: int) -> None:
    group = Group(java, cluster, share=share)
    for _ in range(2):
        group.join(pause=5)
    group.settle()
    group.produce()
    rows = group.until(complete)
    shares = [len(group.rows(member)) for member in group.members]
    assert numbers(rows) == Counter(range(COUNT))
    assert all(shares), shares
    group.leave()


@pytest.mark.parametrize("leaving", ["java", "python"])
def test_java_s_consumer_and_ours_share_and_one_leaves(java: Client, cluster: Cluster, leaving: str) -> None:
    """What either fails at comes again to whoever asks, and what the one that leaves had comes to the other."""
    group = Group(java, cluster)
    member = group.join(failEvery=10, invisible=5_000, pause=2)
    group.settle()
    ours: list[int] = []
    consumer = PushConsumer(
        group.name, namesrv=cluster.namesrv, client_rebalance=False, pop_invisible_time=5, consume_thread_max=4,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )  # fmt: skip

    @consumer.on(group.topic)
    def handle(message: MessageExt) -> None:
        if int(message.keys or -1) < WARM:
            ours.append(int(message.keys or -1))
        time.sleep(0.01)  # so that there is enough left for the other
        if message.keys == "5" and not message.reconsume_times:
            raise ValueError("later")

    with consumer:
        group.produce()
        until(lambda: len(ours), lambda count: count > 200)
        if leaving == "python":
            consumer.shutdown(timeout=0)
        else:
            group.leave()
        group.until(lambda rows: {row[0] for row in rows} | set(ours) >= set(range(COUNT)))
        theirs = group.rows(member)
        assert len(theirs) > 100
        assert sum(Counter(ours).values()) + len(theirs) < COUNT * 5 // 4
    if leaving == "python":
        group.leave()


def test_acknowledged_messages_stay_away(begun: Begun) -> None:
    # Longer than the invisible time: what was not acknowledged would be here again.
    time.sleep(max(0.0, begun.since + SHORT + 2 - time.monotonic()))
    # Some come again where the machine stood still for the invisible time.
    assert len(begun.short.all_rows()) < COUNT + COUNT * 3 // 4
    begun.short.leave()


def test_failures_come_again(begun: Begun) -> None:
    group = begun.failing
    rows = group.until(lambda rows: complete(rows) and sum(row[1] == 1 for row in rows) >= COUNT // 10)
    assert numbers(rows) == Counter(range(COUNT)) + Counter(range(0, COUNT, 10))
    assert {row[0] for row in rows if row[1] == 1} == set(range(0, COUNT, 10))
    assert {row[2] for row in rows} == {group.topic}
    group.leave()


@pytest.mark.parametrize("how", [{"expression": "even"}, {"sql": "number < 500"}], ids=["tags", "sql"])
def test_filters(java: Client, cluster: Cluster, how: dict[str, str]) -> None:
    group = Group(java, cluster)
    group.produce()
    group.join(**how)
    wanted = set(range(0, COUNT, 2)) if "expression" in how else set(range(500))
    rows = group.until(lambda rows: {row[0] for row in rows} >= wanted)
    assert numbers(rows) == Counter(wanted)
    group.leave()


def test_a_killed_broker_loses_nothing(java: Client, cluster: Cluster, say: Callable[[str], None]) -> None:
    group = Group(java, cluster)
    group.produce()
    group.join(invisible=5_000, pause=40)
    rows = group.until(lambda rows: len(rows) > COUNT // 4)
    daemon = cluster.brokers[0].daemon
    daemon.kill()
    daemon.start()
    group.until(complete)
    time.sleep(6)  # longer than the invisible time: what was not acknowledged before the kill comes again
    given = numbers(group.all_rows())
    # The first ones were acknowledged long before.
    assert sum(given[row[0]] == 1 for row in rows[:100]) > 50, "pops began anew"
    say(f"{sum(given.values()) - COUNT} of {COUNT} messages came again after the kill")
    group.leave()


def test_a_group_that_pulls_by_assignment(java: Client, cluster: Cluster) -> None:
    group = Group(java, cluster, mode="PULL")
    group.produce()
    group.join()
    group.join()
    rows = group.until(complete)
    assert {row[0] for row in rows} == set(range(COUNT))
    assert {row[3] for row in rows} == {None}
    group.leave()


def test_a_java_broker_opens_the_store_between(java: Client) -> None:
    """What is popped and not acknowledged survives a turn of a 4.9.4 broker on the same directory."""
    folder = Path(tempfile.mkdtemp(prefix="rmq-pop-store-"))
    paths = {"storePathRootDir": str(folder / "store"), "storePathCommitLog": str(folder / "store" / "commitlog")}
    try:
        with start("ours", properties=paths) as ours:
            group = Group(java, ours)
            group.produce()
            group.join(invisible=10_000, failEvery=1, pause=1)
            group.until(lambda rows: len(rows) > COUNT // 2)
            ours.brokers[0].daemon.stop()
            group.leave()
        with start("java-4.9.4", properties=paths, our_namesrv=True) as theirs:
            java.call("produce", namesrv=theirs.namesrv, topic=group.topic, count=10)
            theirs.brokers[0].daemon.stop()
        with start("ours", properties=paths) as ours:
            group.cluster = ours
            group.members.clear()
            group.join()
            rows = group.until(complete)
            assert set(numbers(rows)) == set(range(COUNT))
            group.leave()
    except ToolMissing as missing:
        skip_or_fail(missing)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
