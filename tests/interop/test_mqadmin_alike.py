"""Java's mqadmin 4.9.8 and ours, one after the other against the same cluster: they print the same.

Lines that Java prints in the order of hashes are compared as a set; figures that change from one run to the next are
masked. What is meant to differ is in docs/differences.md, and in tests/unit and tests/integration.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from tests.support.interop import Clusters, Row, Scene, fresh
from tests.support.peers import Client

COUNT = 20
OTHER = "alike-other"


@dataclass
class Tools:
    """Both tools, on a topic whose messages a group has consumed."""

    scene: Scene
    topic: str
    group: str
    sent: list[Row]

    def words(self, line: str) -> list[str]:
        row = next(row for row in self.sent if row.queue == 1)
        names = {
            "T": self.topic, "G": self.group, "A": self.scene.cluster.broker_addr, "B": "broker-a",
            "D": "DefaultCluster", "unique": row.unique_id, "id": row.offset_id, "key": row.key, "q": row.queue,
            "o": row.offset,
        }  # fmt: skip
        return shlex.split(line.format(**names))

    def java(self, line: str) -> list[str]:
        return _lines(self.scene.mqadmin(*self.words(line)))

    def ours(self, line: str, code: int = 0) -> list[str]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            words = [*self.words(line), "-n", self.scene.cluster.namesrv, "--timeout", "60"]
            assert invoke(root, "mqadmin", words) == code, line
        return _lines(printed.getvalue())


def _lines(text: str) -> list[str]:
    # Groups that have consumed a message stand in one line, in the order of a hash.
    lines = [line.rstrip() for line in text.replace("]MessageTrack", "]\nMessageTrack").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@pytest.fixture(scope="module", params=["ours", "java-4.9.4"])
def tools(request: pytest.FixtureRequest, clusters: Clusters, clients: Callable[[str, str], Client]) -> Iterator[Tools]:
    reader = clients("java-4.9.8", "reader")
    scene = Scene(clusters.get(request.param), reader, reader)
    topic, group = scene.topic("alike"), scene.group("alike", retries=16)
    for name in (group, OTHER):  # a group without one makes Java's tool print an exception
        scene.retry_topic(name)
    member = scene.subscribe(topic, group)
    sent = scene.produce(topic, "sync", count=COUNT)
    assert len(member.received(COUNT)) == COUNT
    scene.consumed(member, group)
    yield Tools(scene, topic, group, sent)
    member.stop()


#: What both are told, in an order in which each leaves what the next one finds.
SAME = [
    "topicClusterList -t {T}",
    "topicRoute -t {T}",
    "topicRoute -t {T} -l",
    "topicStatus -t {T}",
    "updateTopicPerm -c {D} -t {T} -p 6",
    "updateTopicPerm -b {A} -t {T} -p 6",
    "updateOrderConf -t {T} -m put -v broker-a:4",
    "updateOrderConf -t {T} -m get",
    "getConsumerConfig -g {G}",
    "consumerConnection -g {G}",
    "consumerConnection -g {G} -b {A}",
    "consumerProgress -g {G}",
    "consumerProgress -g {G} -s true",
    "queryMsgById -i {id}",
    "queryMsgByKey -t {T} -k {key}",
    "queryMsgByOffset -t {T} -b {B} -i {q} -o {o}",
    "printMsg -t {T}",
    "printMsg -t {T} -d false -s NoTag",
    "printMsgByQueue -t {T} -a {B} -i {q} -p true -d true",
    "printMsgByQueue -t {T} -a {B} -i {q} -f true",
    "queryCq -t {T} -q {q} -i 0 -c 2",
    "queryCq -t {T} -q {q} -i 1 -c 2 -b {A}",
    "resetOffsetByTime -g {G} -t {T} -s now",
    "skipAccumulatedMessage -g {G} -t {T}",
    "cloneGroupOffset -s {G} -d alike-other -t {T}",
    "getBrokerConfig -b {A}",
    "getBrokerConfig -c {D}",
    "updateBrokerConfig -b {A} -k fileReservedTime -v 72",
    "updateBrokerConfig -c {D} -k fileReservedTime -v 72",
    "getNamesrvConfig",
    "updateNamesrvConfig -k orderMessageEnable -v false",
    "updateKvConfig -s ns -k k -v v",
    "wipeWritePerm -b {B}",
    "addWritePerm -b {B}",
    "cleanExpiredCQ -b {A}",
    "deleteExpiredCommitLog -c {D}",
    "cleanUnusedTopic",
    "updateTopic -c {D} -t {T} -r 4 -w 4",
    "updateSubGroup -b {A} -g {G}",
]

#: A speed that a broker gives of its last samples: it is another one a second later.
_OF_A_MOMENT = re.compile(r"(?<=^Consume TPS: )\d+\.\d\d$")


@pytest.mark.parametrize("line", SAME)
def test_both_print_the_same(tools: Tools, line: str) -> None:
    java, ours = tools.java(line), tools.ours(line)
    assert "Exception" not in "".join(java)
    assert sorted(_OF_A_MOMENT.sub("#", one) for one in ours) == sorted(_OF_A_MOMENT.sub("#", one) for one in java)


#: Java's tool does these once in a process, or finds nothing at a Java broker.
ONCE = [
    "brokerConsumeStats -b {A}",
    "queryMsgByUniqueKey -t {T} -i {unique}",
    "consumeMessage -t {T} -b {B} -i {q} -o 1",
    "sendMessage -t {T} -p hello -k k -c c -b {B} -i 1",
]


@pytest.mark.parametrize("tools", ["ours"], indirect=True)
def test_both_print_the_same_once(tools: Tools) -> None:
    for line in ONCE:
        java, ours = tools.java(line), tools.ours(line)
        assert "Exception" not in "".join(java)
        unique = re.compile(r"\b[0-9A-F]{32,}$") if line.startswith("sendMessage") else re.compile("$^")
        assert sorted(unique.sub("ID", one) for one in ours) == sorted(unique.sub("ID", one) for one in java)


#: With what changes between two runs.
ALMOST = [
    "clusterList",
    "clusterList -m",
    "brokerStatus -b {A}",
    "statsAll -t {T}",
    "checkMsgSendRT -t {T} -a 5 -s 64",
    "sendMsgStatus -b {B} -s 64 -c 3",
]
#: Keys of figures that Java's clients have no word for, and the other way round, are the broker's business.
_FIGURE = re.compile(r"\b[0-9A-F]{32,}\b|-?\b\d+(\.\d+)?(ms)?\b|-(?= |$)")


@pytest.mark.parametrize("line", ALMOST)
def test_both_print_the_same_but_for_figures(tools: Tools, line: str) -> None:
    def masked(lines: list[str]) -> list[str]:
        return sorted(re.sub(" +", " ", _FIGURE.sub("#", one)) for one in lines if "Role" not in one)

    ours, java = tools.ours(line), tools.java(line)
    assert "Exception" not in "".join(java)
    if line == "clusterList":  # ours tells the role, too, where the broker does
        width = len(java[0])
        ours = [one[:width].rstrip() for one in ours]
    assert masked(ours) == masked(java)


def test_what_is_made_is_deleted_alike(tools: Tools) -> None:
    said = []
    for run in (tools.java, tools.ours):
        group, topic = fresh("gone"), fresh("gone-topic")
        for line in (f"updateSubGroup -c {{D}} -g {group}", f"updateTopic -c {{D}} -t {topic}"):
            tools.java(line)
        tools.scene.reader.call("route", namesrv=tools.scene.cluster.namesrv, topic=topic)
        lines = [*run(f"deleteSubGroup -c {{D}} -g {group}"), *run(f"deleteTopic -c {{D}} -t {topic}")]
        said.append([line.replace(group, "GROUP").replace(topic, "TOPIC") for line in lines])
    assert said[0] == said[1]
    for line in ("updateOrderConf -t {T} -m delete", "deleteKvConfig -s ns -k k"):
        for name in ("updateOrderConf -t {T} -m put -v broker-a:4", "updateKvConfig -s ns -k k -v v"):
            tools.java(name)
        java = tools.java(line)
        for name in ("updateOrderConf -t {T} -m put -v broker-a:4", "updateKvConfig -s ns -k k -v v"):
            tools.java(name)
        assert tools.ours(line) == java


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("exportMetadata -c {D}", "metadata.json"),
        ("exportMetadata -c {D} -t -s", "topic.json"),
        ("exportMetadata -b {A} -t", "topic.json"),
        ("exportMetadata -b {A} -g", "subscriptionGroup.json"),
    ],
)
def test_both_export_the_same(tools: Tools, line: str, file: str, tmp_path: Path) -> None:
    written = []
    for name, run in (("java", tools.java), ("ours", tools.ours)):
        folder = tmp_path / name
        said = run(f"{line} -f {folder}")
        assert said == [f"export {folder / file} success"]
        value = json.loads((folder / file).read_text())
        value.pop("exportTime", None)
        written.append(value)
    assert written[1] == written[0]


@pytest.mark.parametrize("tools", ["java-4.9.4"], indirect=True)
def test_both_export_the_same_configuration_and_kinds_of_figures(tools: Tools, tmp_path: Path) -> None:
    test_both_export_the_same(tools, "exportConfigs -c {D}", "configs.json", tmp_path)
    shapes = []
    for name, run in (("java", tools.java), ("ours", tools.ours)):
        run(f"exportMetrics -c {{D}} -f {tmp_path / name}")
        shapes.append(_shape(json.loads((tmp_path / name / "metrics.json").read_text())))
    assert shapes[1] == shapes[0]


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    return type(value).__name__
