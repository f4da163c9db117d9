"""When pulling waits."""

from __future__ import annotations

import pytest

from rmq.client.consumer.fetch import Limits
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.settings import PushConsumerSettings


def holding(*offsets: int, size: int = 10) -> ProcessQueue:
    pq = ProcessQueue(MessageQueue("T", "b", 0), 0)
    messages = []
    for offset in offsets:
        message = MessageExt()
        message.topic, message.body, message.queue_offset = "T", b"x" * size, offset
        messages.append(message)
    pq.put(messages)
    return pq


@pytest.mark.parametrize(
    ("limits", "held", "sharing", "exceeded"),
    [
        (Limits(3, 100, 0, 0, 5), (0, 1, 2), 1, False),
        (Limits(3, 100, 0, 0, 5), (0, 1, 2, 3), 1, True),
        (Limits(9, 30, 0, 0, 5), (0, 1, 2), 1, False),
        (Limits(9, 29, 0, 0, 5), (0, 1, 2), 1, True),
        (Limits(9, 100, 0, 0, 5), (0, 5), 1, False),
        (Limits(9, 100, 0, 0, 5), (0, 6), 1, True),
        (Limits(9, 100, 0, 0, None), (0, 6000), 1, False),
        (Limits(9, 100, 7, 0, 5), (0, 1, 2), 2, False),
        (Limits(9, 100, 7, 0, 5), (0, 1, 2, 3), 2, True),
        (Limits(9, 100, 1, 0, 5), (0,), 4, False),
        (Limits(9, 100, 0, 60, 5), (0, 1, 2), 2, False),
        (Limits(9, 100, 0, 59, 5), (0, 1, 2), 2, True),
        (Limits(9, 100, 0, 0, 5), (), 1, False),
    ],
)
def test_what_may_be_held(limits: Limits, held: tuple[int, ...], sharing: int, exceeded: bool) -> None:
    assert limits.exceeded(holding(*held), sharing) is exceeded


def test_limits_of_a_topic_are_shared_by_its_queues_and_the_span_is_nothing_in_order() -> None:
    plain = Limits.of(PushConsumerSettings.of({}))
    assert not plain.by_topic
    assert plain.span == 2000
    assert Limits.of(PushConsumerSettings.of({"orderly": True})).span is None
    assert Limits.of(PushConsumerSettings.of({"pull_threshold_for_topic": 10})).by_topic
    assert Limits.of(PushConsumerSettings.of({"pull_threshold_size_for_topic": 1 << 20})).by_topic
