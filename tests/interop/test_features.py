"""What a broker does for Apache's clients beside sending and reading: SQL92, order with failures, requests, resets.

Broadcasting, plain order and retries are cells of the matrix; POP, delays and transactions have files of their own.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.interop import COUNT, Clusters, Row, Scene, assert_same, fresh, until
from tests.support.interop.scene import Member
from tests.support.peers import Client, ClientError, Cluster, ToolMissing, skip_or_fail, start_cluster

JAVA = ("java-4.9.8", "java-5.3.3")
EVERYBODY = (*JAVA, "go", "node")
Scenes = Callable[[str, str], Scene]


def quick(client: str) -> str:
    """The fastest way of sending that a client has."""
    return "sync" if client == "node" else "async"


#: For transactions whose end is on its way: a busy machine takes longer than the second after which they are checked.
UNCHECKED = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "300"}


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("client", EVERYBODY)
def test_sql92(scene: Scenes, client: str) -> None:
    where = scene(Clusters.tested(), client)
    topic, group = where.topic("sql"), where.group("sql")
    member = where.subscribe(topic, group, expression="a BETWEEN 501 AND 600 AND TAGS = 'A' OR a = 7", sql=True)
    sent = where.produce(topic, quick(client), tags=("A", "B"), number="a")
    wanted = [row for i, row in enumerate(sent) if (501 <= i <= 600 and row.tag == "A") or i == 7]
    assert_same(wanted, member.received(len(wanted)))
    assert len(member.received(COUNT, 1)) == len(wanted) == 51
    member.stop()


@pytest.mark.parametrize("client", JAVA)
def test_sql92_that_does_not_compile_is_refused_at_the_start(scene: Scenes, client: str) -> None:
    where = scene(Clusters.tested(), client)
    with pytest.raises(ClientError, match="at character 5"):
        where.subscribe(where.topic("sql-bad"), where.group("sql-bad"), expression="a > 'x'", sql=True)


@pytest.mark.parametrize("client", [*JAVA, "go"])
def test_a_queue_waits_for_its_message_and_keeps_its_order(scene: Scenes, client: str) -> None:
    """Every message fails once; what is behind it in its queue comes after it has succeeded."""
    where = scene(Clusters.tested(), client)
    topic, group = where.topic("suspended"), where.group("suspended")
    count = 40 if client == "go" else 200  # the Go client's pause is a second
    member = where.subscribe(topic, group, orderly=True, failures=1, suspend=20)
    sent = where.produce(topic, "ordered", count=count)
    deliveries = member.received(2 * count)
    queues: dict[int | None, list[tuple[int | None, int]]] = defaultdict(list)
    for row in deliveries:
        queues[row.queue].append((row.offset, row.reconsume_times))
    for order in queues.values():
        assert order == [(offset, tries) for offset in range(len(order) // 2) for tries in (0, 1)]
    assert_same(sent, [row for row in deliveries if row.reconsume_times == 1])
    member.stop()


@pytest.mark.parametrize("answering", [*JAVA, "go"])
@pytest.mark.parametrize("asking", [*JAVA, "go"])
def test_requests_are_answered(
    clusters: Clusters, clients: Callable[[str, str], Client], asking: str, answering: str
) -> None:
    reader = clients("java-4.9.8", "reader")
    where = Scene(clusters.get(), clients(asking, "tested"), reader)
    responder = clients(answering, "responder")
    topic, handle = where.topic("rpc"), fresh("responder")
    namesrv = where.cluster.namesrv
    responder.call("respond", handle=handle, namesrv=namesrv, group=where.group("rpc"), topic=topic)

    def ask(key: str, timeout: float) -> dict[str, Any]:
        return where.client.call("request", namesrv=namesrv, topic=topic, key=key, timeout=timeout)

    # Until the broker knows the one who asks: a reply without it is lost.
    until(lambda: ask("warm", 3), lambda answer: "reply" in answer)
    for key in ("first", "second", "订单"):
        answer = ask(key, 60)
        assert answer.get("reply") == f"re:{key}"
    assert "timeout" in ask("silent", 1)
    responder.call("unrespond", handle=handle)


class Resets:
    """Java's mqadmin moves the offsets of a group."""

    def __init__(self, where: Scene, topic: str, group: str) -> None:
        self.where = where
        self.topic = topic
        self.group = group

    def mqadmin(self, *words: str) -> str:
        output = self.where.mqadmin(*words)
        assert "Exception" not in output, output
        return output

    def to(self, when: str) -> None:
        output = self.mqadmin("resetOffsetByTime", "-g", self.group, "-t", self.topic, "-s", when)
        rows = [line for line in output.splitlines() if "broker-a" in line]
        assert len(rows) == 4, output

    def left(self) -> int:
        output = self.mqadmin("consumerProgress", "-g", self.group)
        return sum(int(line.split()[5]) for line in output.splitlines() if line.startswith(self.topic[:32]))


#: Not Node: its client does not know the request.
RESET = (*JAVA, "go")


class Online(NamedTuple):
    """A member that has consumed everything when its group is reset."""

    where: Scene
    group: str
    member: Member
    sent: list[Row]


@pytest.fixture(scope="module")
def online(clusters: Clusters, clients: Callable[[str, str], Client]) -> dict[str, Online]:
    """By client: each goes back ten seconds after it is told, which pass while other tests run."""
    begun = {}
    for client in RESET:
        with contextlib.suppress(pytest.skip.Exception):  # a tool is missing
            where = Scene(clusters.get(), clients(client, "tested"), clients("java-4.9.8", "reader"))
            topic, group = where.topic("reset"), where.group("reset")
            member = where.subscribe(topic, group)
            sent = where.produce(topic, "async")
            assert len(member.received(COUNT)) == COUNT
            where.consumed(member, group)
            Resets(where, topic, group).to("0")
            begun[client] = Online(where, group, member, sent)
    return begun


@pytest.mark.parametrize("client", EVERYBODY)
def test_mqadmin_resets_a_group_that_is_offline(scene: Scenes, client: str) -> None:
    """Field cases B015, B018."""
    where = scene(Clusters.tested(), client)
    topic, group = where.topic("reset-offline"), where.group("reset-offline")
    resets = Resets(where, topic, group)
    member = where.subscribe(topic, group)
    where.produce(topic, quick(client), count=100)
    assert len(member.received(100)) == 100
    where.consumed(member, group)
    member.stop()

    more = where.produce(topic, quick(client), prefix=f"{topic}-more", count=200)
    assert until(resets.left, lambda left: left == len(more)) == len(more)
    resets.to("now")
    assert resets.left() == 0
    member = where.subscribe(topic, group)
    last = where.produce(topic, quick(client), prefix=f"{topic}-last", count=20)
    assert_same(last, member.received(20))
    assert len(member.received(COUNT, 2)) == 20
    member.stop()


@pytest.fixture(scope="module")
def checking() -> Iterator[Cluster]:
    try:
        cluster = start_cluster("ours", properties={"transactionTimeOut": "1000", "transactionCheckInterval": "1000"})
    except ToolMissing as missing:
        skip_or_fail(missing)
    with cluster:
        yield cluster


def test_transactions_of_go(checking: Cluster, clients: Callable[[str, str], Client]) -> None:
    where = Scene(checking, clients("go", "tested"), clients("java-4.9.8", "reader"))
    topic, handle = where.topic("tx"), fresh("tx")
    member = where.subscribe(topic, where.group("tx"), by=where.reader)
    go, namesrv = where.client, checking.namesrv
    go.call("txstart", handle=handle, namesrv=namesrv, group=where.group("txp"), answer="COMMIT_MESSAGE")
    for key, state in (("committed", "COMMIT_MESSAGE"), ("rolled", "ROLLBACK_MESSAGE"), ("unknown", "UNKNOW")):
        answer = go.call(
            "txsend",
            handle=handle,
            topic=topic,
            key=key,
            state=state,
            properties=UNCHECKED if state != "UNKNOW" else {},
        )
        assert answer["status"] == "SEND_OK"
    assert sorted(row.key for row in member.received(2)) == ["committed", "unknown"]
    assert sorted(row.key for row in member.received(3, 3)) == ["committed", "unknown"]
    checks = go.call("txchecks", handle=handle)["rows"]
    assert checks[0] == ["unknown", "unknown", topic, answer["uniqueId"], "1", "A"]
    assert {check[0] for check in checks} == {"unknown"}
    go.call("txstop", handle=handle)
    member.stop()


@pytest.mark.parametrize("client", ["go", "node"])
def test_delays_of_other_clients(scene: Scenes, client: str) -> None:
    where = scene(Clusters.tested(), client)
    topic = where.topic("delay")
    member = where.subscribe(topic, where.group("delay"))
    sent = {}
    for key, how in (("level", {"level": 2}), ("timed", {"properties": {"TIMER_DELAY_MS": "1500"}})):
        began = time.monotonic()
        answer = where.client.call("delayed", namesrv=where.cluster.namesrv, topic=topic, key=key, **how)
        assert answer["status"] == "SEND_OK"
        sent[key] = began
    assert sorted(row.key for row in member.received(2)) == ["level", "timed"]
    assert time.monotonic() >= sent["timed"] + 1.5
    member.stop()


@pytest.mark.parametrize("client", RESET)
def test_mqadmin_resets_a_group_that_is_online(online: dict[str, Online], scene: Scenes, client: str) -> None:
    scene(Clusters.tested(), client)
    where, group, member, sent = online[client]
    again = member.received(2 * COUNT)[COUNT:]
    assert_same(sent, again)
    where.consumed(member, group)
    member.stop()
