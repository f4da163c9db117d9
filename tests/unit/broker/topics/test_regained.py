"""Topics whose messages have come, and no word of them; in a group: ``tests/fault/test_regained_topics.py``."""

from __future__ import annotations

import pytest

from rmq.broker.settings import BrokerSettings
from rmq.broker.store.state import Queue
from rmq.broker.topics.regained import regain
from rmq.broker.topics.table import TopicTable
from rmq.protocol.bodies.topic import TopicConfig
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation


def queue(topic: str, number: int, *, at: int = 100, messages: int = 1) -> Queue:
    made = Queue(topic, number)
    made.next, made.max_phys = messages, at
    return made


def regained(*queues: Queue, known: tuple[TopicConfig, ...] = (), since: int = 50) -> dict[str, tuple[int, int, int]]:
    """The topics that are there then, without a broker's own: read queues, write queues, permission."""

    async def main() -> dict[str, tuple[int, int, int]]:
        table = TopicTable(Simulation().node("a").world, BrokerSettings(broker_name="broker-a"), "/store/topics.json")
        for config in known:
            table.put(config)
        own = set(table.names()) - {config.topic_name for config in known}
        regain(table, queues, since, 8)
        return {
            one.topic_name: (one.read_queue_nums, one.write_queue_nums, one.perm)
            for one in table.all()
            if one.topic_name not in own
        }

    return run(main())


def test_a_topic_that_nobody_told_of_has_the_queues_that_new_ones_have() -> None:
    assert regained(queue("T", 2)) == {"T": (8, 8, 6)}
    assert regained(queue("T", 2), queue("T", 11), queue("T", 0)) == {"T": (12, 12, 6)}
    assert regained(queue("T", 2), since=1000) == {"T": (8, 8, 6)}, "however old its messages are"


def test_a_topic_of_a_group_has_no_more_than_it_needs() -> None:
    assert regained(queue("%RETRY%g", 0), queue("%DLQ%g", 0)) == {"%RETRY%g": (1, 1, 6), "%DLQ%g": (1, 1, 6)}


def test_a_topic_that_has_been_given_queues_since_has_them() -> None:
    config = TopicConfig("T", 2, 2, 4)
    assert regained(queue("T", 5), known=(config,)) == {"T": (6, 6, 4)}
    assert regained(queue("T", 5), known=(TopicConfig("T", 2, 16, 6),)) == {"T": (6, 16, 6)}
    assert regained(queue("T", 1), known=(TopicConfig("T", 4, 4, 6),)) == {"T": (4, 4, 6)}


@pytest.mark.parametrize("at", [20, 50])
def test_queues_that_somebody_took_away_stay_away(at: int) -> None:
    assert regained(queue("T", 5, at=at), known=(TopicConfig("T", 2, 2, 6),)) == {"T": (2, 2, 6)}


@pytest.mark.parametrize("topic", ["%LMQ%T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "no topic"])
def test_what_has_no_configuration_is_given_none(topic: str) -> None:
    assert regained(queue(topic, 3)) == {}


def test_a_queue_whose_messages_are_gone_brings_no_topic_back() -> None:
    assert regained(queue("T", 3, messages=0)) == {}
