"""Names in files that people edit and in a master's tables: a bad one costs itself alone (X03)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from rmq.broker.groups.configs import GroupTable
from rmq.broker.replication import judged
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

TOPICS, GROUPS = "/store/config/topics.json", "/store/config/subscriptionGroup.json"
#: Names that would leave the store, end a line, or be no file: of topics, and those of them that no group has either.
NO_TOPIC = ("../../evil", "/etc/x", "a/b", "..", ".", "", " ", "a\nb", "a\x1b[31m", "a\x00", "x" * 256)
NO_GROUP = ("a\nb", "a\x1b[31m", "a\x00", "x" * 256)
#: What Java's stores may have.
ODD = ("%RETRY%a b", "%DLQ%gruppe-ä", "x" * 127, "good")


def topic(name: str) -> dict[str, Any]:
    return {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}


def test_topics_of_a_file_with_such_names_are_left_out_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = Simulation().node("a").world
        for name in NO_TOPIC:
            caplog.clear()
            # One is named by its key alone, as Java's reader has it.
            table = {**{one: topic(one) for one in ODD}, name: topic("good")}
            data = json.dumps({"topicConfigTable": table, "dataVersion": {"counter": 3, "timestamp": 1}})
            world.files.mkdir("/store/config")
            world.files.write_atomic(TOPICS, data.encode())
            topics = TopicTable(world, BrokerSettings(broker_name="b"), TOPICS)
            topics.load()
            assert all(topics.get(one) is not None for one in ODD), name
            assert topics.get(name) is None
            assert topics.data_version.counter == 3
            (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
            assert told.startswith(f"{TOPICS}: of topicConfigTable these are left out")
            assert told.isprintable()
            assert len(told) < 400

    run(main())


def test_groups_of_a_file_with_such_names_are_left_out_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = Simulation().node("a").world
        names = (*NO_GROUP, "good", "a/b", "gruppe ä")
        table = {name: {"groupName": name, "retryMaxTimes": 3} for name in names}
        forbidden = {name: {"T": 4} for name in names}
        data = json.dumps({"subscriptionGroupTable": table, "forbiddenTable": forbidden})
        world.files.mkdir("/store/config")
        world.files.write_atomic(GROUPS, data.encode())
        groups = GroupTable(world, BrokerSettings(), GROUPS)
        groups.load()
        known = {config.group_name for config in groups.all()}
        assert known & set(names) == {"good", "a/b", "gruppe ä"}
        assert set(groups.forbidden) == {"good", "a/b", "gruppe ä"}
        told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert [line.partition(" these")[0] for line in told] == [
            f"{GROUPS}: of subscriptionGroupTable", f"{GROUPS}: of forbiddenTable",
        ]  # fmt: skip
        assert all(line.isprintable() for line in told)

    run(main())


async def test_a_masters_entries_with_such_names_are_refused_one_by_one() -> None:
    good = {"good": topic("good"), "other": topic("other")}
    for name in NO_TOPIC:
        taken, refused = await judged.topics({**good, name: topic(name)})
        assert (set(taken), set(refused)) == ({"good", "other"}, {name})
        taken, refused = await judged.topics({**good, "evil": topic(name)})
        assert (set(taken), set(refused)) == ({"good", "other"}, {"evil"})
    for name in NO_GROUP:
        table = {one: {"groupName": one} for one in ("good", name)}
        found, left = await judged.groups(table)
        assert (set(found), set(left)) == ({"good"}, {name})
    for name in ("", "a\nb", "x" * 256):
        mode = {"topic": "T", "consumerGroup": name, "mode": "POP", "popShareQueueNum": 0}
        modes, without = await judged.modes({"T": {"G": {**mode, "consumerGroup": "G"}, name: mode}})
        assert (set(modes["T"]), set(without)) == ({"G"}, {f"T@{name}"}), name
        modes, without = await judged.modes({name: {"G": {**mode, "consumerGroup": "G", "topic": name}}})
        assert (modes, set(without)) == ({}, {f"{name}@G"})


def test_a_retry_topic_that_cannot_be_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger's heartbeat names thousands of groups."""

    async def main() -> None:
        topics = TopicTable(Simulation().node("a").world, BrokerSettings(broker_name="b"), TOPICS)
        for number in range(500):
            assert topics.create_for_send_back(f"%RETRY%a/{number}", 1, 6, 0) is None
        assert len(caplog.records) <= 100

    run(main())
