"""Apache's own mqadmin 4.9.8 against our cluster: it prints what it should, and no error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.interop import COUNT, Clusters, Row, Scene, fresh, until
from tests.support.peers import Client


@dataclass
class Stage:
    """A topic with messages that a group has consumed."""

    scene: Scene
    topic: str
    group: str
    sent: list[Row]

    def mqadmin(self, *args: str) -> str:
        """Run one command; fails on anything that looks like an error."""
        output = self.scene.mqadmin(*args)
        for sign in ("Exception", "error", "failed"):
            assert sign not in output, f"mqadmin {' '.join(args)} printed:\n{output}"
        return output


@pytest.fixture(scope="module")
def stage(clusters: Clusters, clients: Callable[[str, str], Client]) -> Stage:
    reader = clients("java-4.9.8", "reader")
    scene = Scene(clusters.get(), reader, reader)
    topic, group = scene.topic("mqadmin"), scene.group("mqadmin")
    member = scene.subscribe(topic, group)
    sent = scene.produce(topic, "async")
    assert len(member.received(COUNT)) == COUNT
    scene.consumed(member, group)
    member.stop()
    return Stage(scene, topic, group, sent)


def test_topic_list(stage: Stage) -> None:
    wanted = {stage.topic, f"%RETRY%{stage.group}", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"}
    assert wanted <= until(lambda: set(stage.mqadmin("topicList").split()), lambda names: wanted <= names)
    lines = [line.split() for line in stage.mqadmin("topicList", "-c").splitlines()]
    assert ["DefaultCluster", stage.topic] in [line[:2] for line in lines]


def test_topic_route(stage: Stage) -> None:
    output = stage.mqadmin("topicRoute", "-t", stage.topic)
    assert stage.scene.cluster.broker_addr in output
    assert '"writeQueueNums":4' in output.replace(" ", "")


def test_topic_status(stage: Stage) -> None:
    lines = [line.split() for line in stage.mqadmin("topicStatus", "-t", stage.topic).splitlines()]
    counted = {int(line[1]): int(line[3]) for line in lines if line[:1] == ["broker-a"]}
    offsets = [row.offset for row in stage.sent if row.offset is not None]
    assert sorted(counted) == [0, 1, 2, 3]
    assert sum(counted.values()) == len(offsets) == COUNT


def test_cluster_list(stage: Stage) -> None:
    lines = stage.mqadmin("clusterList").splitlines()
    assert any(
        line.split()[:4] == ["DefaultCluster", "broker-a", "0", stage.scene.cluster.broker_addr] for line in lines
    )
    assert any(
        line.split()[:2] == ["DefaultCluster", "broker-a"] for line in stage.mqadmin("clusterList", "-m").splitlines()
    )


@pytest.mark.parametrize("where", ["cluster", "broker"])
def test_update_topic(stage: Stage, where: str) -> None:
    target = ["-c", "DefaultCluster"] if where == "cluster" else ["-b", stage.scene.cluster.broker_addr]
    topic = fresh("made", where)
    output = stage.mqadmin("updateTopic", *target, "-t", topic, "-r", "6", "-w", "6")
    assert f"create topic to {stage.scene.cluster.broker_addr} success." in output
    stage.scene.reader.call("route", namesrv=stage.scene.cluster.namesrv, topic=topic)
    assert '"readQueueNums":6' in stage.mqadmin("topicRoute", "-t", topic).replace(" ", "")


def test_update_sub_group(stage: Stage) -> None:
    output = stage.mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", fresh("made-group"), "-r", "3")
    assert f"create subscription group to {stage.scene.cluster.broker_addr} success." in output


def test_consumer_progress(stage: Stage) -> None:
    output = stage.mqadmin("consumerProgress", "-g", stage.group)
    lines = [line.split() for line in output.splitlines()]
    consumed = {int(line[2]): int(line[4]) for line in lines if line[:1] == [stage.topic]}
    assert sum(consumed.values()) == COUNT
    assert "Diff Total: 0" in output
    assert stage.group in stage.mqadmin("consumerProgress")


def test_query_message(stage: Stage) -> None:
    message = stage.sent[7]
    assert message.offset_id is not None
    assert message.unique_id is not None
    by_id = stage.mqadmin("queryMsgById", "-i", message.offset_id)
    assert message.key in by_id
    assert f"Queue Offset:        {message.offset}" in by_id
    by_key = [
        line.split() for line in stage.mqadmin("queryMsgByKey", "-t", stage.topic, "-k", message.key).splitlines()
    ]
    assert [message.unique_id, str(message.queue), str(message.offset)] in by_key
    by_unique_id = stage.mqadmin("queryMsgByUniqueKey", "-t", stage.topic, "-i", message.unique_id)
    assert message.key in by_unique_id


def test_broker_status(stage: Stage) -> None:
    output = stage.mqadmin("brokerStatus", "-b", stage.scene.cluster.broker_addr)
    status = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in output.splitlines())}
    assert int(status["msgPutTotalTodayNow"]) >= COUNT
    for key in ("brokerVersionDesc", "bootTimestamp", "commitLogMaxOffset", "putTps", "getTotalTps", "runtime"):
        assert key in status, f"brokerStatus does not tell {key}"
    assert stage.scene.cluster.broker_addr in stage.mqadmin("brokerStatus", "-c", "DefaultCluster")
