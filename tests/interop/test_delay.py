"""Messages that wait, sent and received by Apache's clients: levels, times of their own, recall."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.support.interop import Clusters, Scene, fresh, until
from tests.support.peers import Client, ClientError

CLIENTS = ("java-4.9.8", "java-5.3.3")


@pytest.fixture(params=CLIENTS)
def where(request: pytest.FixtureRequest, scene: Callable[[str, str], Scene]) -> Scene:
    return scene(Clusters.tested(), request.param)


def delayed(scene: Scene, topic: str, key: str, **how: Any) -> dict[str, Any]:
    """Send one message that waits."""
    answer = scene.client.call("delayed", namesrv=scene.cluster.namesrv, topic=topic, key=key, **how)
    assert answer["status"] == "SEND_OK"
    return answer


def stored(scene: Scene, topic: str) -> dict[str, dict[str, str]]:
    """What mqadmin (Java 4.9.8) prints of each message of a topic, by key."""
    printed = scene.mqadmin("printMsg", "-n", scene.cluster.namesrv, "-t", topic)
    found = {}
    for line in printed.splitlines():
        if line.startswith("MSGID:"):
            fields = dict(re.findall(r"(\w+)=([^,}\]]*)", line))
            found[fields["KEYS"]] = fields
    return found


@pytest.mark.usefixtures("recalled")
def test_levels_and_times_of_their_own(where: Scene) -> None:
    topic = where.topic("delay")
    member = where.subscribe(topic, where.group("delay"))
    delayed(where, topic, "level", level=2)
    delayed(where, topic, "sec", properties={"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "90000"})
    delayed(where, topic, "ms", properties={"TIMER_DELAY_MS": "1500"})
    delayed(where, topic, "past", properties={"TIMER_DELIVER_MS": "1000"})
    if where.client.name == "java-5.3.3":
        delayed(where, topic, "setter", setter="setDelayTimeMs", value=1700)
    wanted = {"level", "sec", "ms", "past"} | ({"setter"} if where.client.name == "java-5.3.3" else set())
    rows = member.received(len(wanted))
    member.stop()
    assert sorted(row.key for row in rows) == sorted(wanted)
    shown = stored(where, topic)
    for key in wanted - {"level", "past"}:
        fields = shown[key]
        # How late it may be is measured in virtual time; here nothing is early.
        assert int(fields["storeTimestamp"]) >= int(fields["TIMER_OUT_MS"]), key
        assert int(fields["TIMER_OUT_MS"]) - int(fields["bornTimestamp"]) > 1000
        assert fields["REAL_TOPIC"] == topic


def test_a_time_too_far_ahead_is_refused(where: Scene) -> None:
    topic = where.topic("limit")
    with pytest.raises(ClientError, match=r"CODE: 13 .*259200000ms"):
        delayed(where, topic, "far", properties={"TIMER_DELAY_SEC": "259201"})


class Recalled(NamedTuple):
    """One message that was recalled in time and one that was not: both are due after eight seconds."""

    where: Scene
    topic: str
    taken: dict[str, Any]
    kept: dict[str, Any]


@pytest.fixture(scope="module")
def recalled(clusters: Clusters, clients: Callable[[str, str], Client]) -> Recalled:
    """What is due is waited for while other tests run."""
    where = Scene(clusters.get(), clients("java-5.3.3", "tested"), clients("java-4.9.8", "reader"))
    topic, other = where.topic("recall"), where.topic("other")
    client, namesrv = where.client, where.cluster.namesrv
    # The time is for a busy machine: what is due can be recalled no more.
    taken = delayed(where, topic, "taken", setter="setDelayTimeMs", value=8_000)
    kept = delayed(where, topic, "kept", setter="setDelayTimeMs", value=8_000)
    answer = client.call("recall", namesrv=namesrv, topic=topic, handle=taken["handle"])
    assert answer["uniqueId"] == taken["uniqueId"]
    refused = client.call("recall", namesrv=namesrv, topic=other, handle=kept["handle"])["refused"]
    assert "topic not match" in refused
    return Recalled(where, topic, taken, kept)


def test_what_waits_survives_a_kill_and_a_java_broker_reads_the_topic(
    clients: Callable[[str, str], Client],
) -> None:
    from tests.support.peers import start_cluster

    client = clients("java-4.9.8", "tested")
    with start_cluster("ours") as cluster:
        where = Scene(cluster, client, clients("java-4.9.8", "reader"))
        topic = fresh("kill")
        where.reader.call("topic", namesrv=cluster.namesrv, topic=topic, queues=4)
        for number in range(20):
            delayed(where, topic, f"k{number}", properties={"TIMER_DELAY_MS": str(500 + 400 * number)})
        delayed(where, topic, "level", level=2)
        cluster.brokers[0].daemon.kill()
        cluster.brokers[0].daemon.start()
        member = where.subscribe(topic, where.group("kill"))
        wanted = {"level", *(f"k{number}" for number in range(20))}
        # What was delivered right before the end may come twice.
        seen = until(lambda: {row.key for row in member.received(0)}, lambda seen: seen >= wanted)
        member.stop()
        assert seen == wanted
        waiting = where.read("rmq_sys_wheel_timer", 20)
        assert sorted(row.key for row in waiting) == sorted(f"k{number}" for number in range(20))


def test_recall(recalled: Recalled) -> None:
    where, topic, taken, kept = recalled
    member = where.subscribe(topic, where.group("recall"))
    member.received(1)
    assert [row.key for row in member.received(2, 3)] == ["kept"]
    member.stop()
    for handle in (taken["handle"], kept["handle"]):
        refused = where.client.call("recall", namesrv=where.cluster.namesrv, topic=topic, handle=handle)["refused"]
        assert "604" in refused
        assert "no such message waits" in refused
