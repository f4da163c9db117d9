"""Groups of light message queues: configs that are nowhere kept, offsets with a file of their own."""

from __future__ import annotations

import asyncio
import json

from rmq.broker.groups.lmq_groups import LmqGroupTable, LmqOffsetTable, load_offsets
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.lmq_topics import LmqTopicTable
from rmq.broker.topics.metadata import MetadataFile
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation

#: As a Java 4.9.4 broker wrote it.
JAVA = (
    b'{\n\t"lmqOffsetTable":{\n\t\t"%LMQ%a@%LMQ%GID":3,\n\t\t"%LMQ%b@%LMQ%GID@@c":4\n\t},\n'
    b'\t"offsetTable":{\n\t\t"%LMQ%a@plain":{0:3\n\t\t},\n\t\t"Parent@plain":{0:3\n\t\t}\n\t}\n}'
)


def test_a_light_group_has_one_offset_a_topic() -> None:
    table = LmqOffsetTable()
    table.commit("%LMQ%GID", "%LMQ%a", 7, 3)
    table.commit("plain", "%LMQ%a", 0, 5)
    assert [table.query("%LMQ%GID", "%LMQ%a", queue) for queue in (0, 9)] == [3, 3]
    assert [table.query("plain", "%LMQ%a", queue) for queue in (0, 9)] == [5, -1]


def test_the_file_is_javas_there_and_back() -> None:
    table = LmqOffsetTable()
    table.parse(JAVA)
    assert table.query("%LMQ%GID@@c", "%LMQ%b", 0) == 4
    assert asyncio.run(table.render()) == JAVA
    assert json.loads(asyncio.run(table.encode()).replace(b"{0:", b'{"0":')) == {
        "lmqOffsetTable": {"%LMQ%a@%LMQ%GID": 3, "%LMQ%b@%LMQ%GID@@c": 4},
        "offsetTable": {"%LMQ%a@plain": {"0": 3}, "Parent@plain": {"0": 3}},
    }
    assert asyncio.run(LmqOffsetTable().render()) == b'{\n\t"lmqOffsetTable":{},\n\t"offsetTable":{}\n}'


def test_switching_light_queues_loses_no_offset() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        world = node.world
        paths = {False: "/c/consumerOffset.json", True: "/c/lmqConsumerOffset.json"}

        async def life(lmq: bool, offset: int) -> int:
            """Start with or without light queues; what was known, then commit another offset."""
            table = LmqOffsetTable() if lmq else OffsetTable()
            file = MetadataFile(world, paths[lmq], table.render)
            load_offsets(world, table, file, paths[not lmq])
            known = table.query("G", "T", 1)
            table.commit("G", "T", 1, offset)
            await asyncio.sleep(1)
            file.changed()
            await file.flush()
            return known

        assert [await life(lmq, at) for at, lmq in enumerate((False, True, True, False, False))] == [-1, 0, 1, 2, 3]

    run(main())


def test_light_names_are_topics_and_groups_that_nothing_keeps() -> None:
    async def main() -> None:
        world = Simulation(1).node("a").world
        topics = LmqTopicTable(world, BrokerSettings(), "/c/topics.json")
        groups = LmqGroupTable(world, BrokerSettings(auto_create_subscription_group=False), "/c/groups.json")
        found = topics.get("%LMQ%a")
        assert found is not None
        assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (1, 1, 6)
        assert "%LMQ%a" in topics
        assert groups.find("%LMQ%g") == SubscriptionGroupConfig(group_name="%LMQ%g")
        topics.put(TopicConfig(topic_name="%LMQ%a", read_queue_nums=4))
        groups.put(SubscriptionGroupConfig(group_name="%LMQ%g", retry_max_times=1))
        assert b"LMQ" not in topics.encode() + groups.encode()
        assert (topics.get("T"), groups.find("g")) == (None, None)

    run(main())
