"""What is open of a queue that is popped from: settled once, and late when its time is over."""

from __future__ import annotations

import pytest

from rmq.client.consumer.pop.queue import PopQueue
from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol.pop import Handle


def popped(offset: int, mark: str = "0", queue_id: int = 2) -> tuple[MessageExt, Handle]:
    message = MessageExt()
    message.topic, message.body, message.properties = "T", b"x", {}
    message.queue_id, message.queue_offset, message.broker_name, message.reconsume_times = queue_id, offset, "b", 0
    return message, Handle(0, 1_000, 60_000, 3, mark, "b", queue_id, offset)


def test_a_message_is_settled_once_and_the_count_is_what_is_open() -> None:
    pq = PopQueue(MessageQueue("T", "b", -1))
    one, two = popped(7), popped(7, queue_id=3)
    for message, handle in (one, two):
        pq.put(message, handle, 60.0)
    assert (pq.count, pq.info().wait_ack_count) == (2, 2)
    assert [held.handle for held in pq.settle([one[0], one[0]])] == [one[1]]
    assert pq.settle([one[0]]) == []
    assert (pq.count, pq.find(one[0])) == (1, None)


def test_one_message_popped_twice_is_two() -> None:
    """Its time was over at the broker before it was here: both have their handle, and equal each other as messages."""
    pq = PopQueue(MessageQueue("T", "b", -1))
    first, again = popped(7), popped(7)
    again = (again[0], Handle(0, 2_000, 60_000, 3, "0", "b", 2, 7))
    assert first[0] == again[0]
    for message, handle in (first, again):
        pq.put(message, handle, 60.0)
    assert [held.handle.pop_time for held in pq.settle([again[0]])] == [2_000]
    assert pq.count == 1


@pytest.mark.parametrize(("now", "late"), [(59.9, False), (60.0, True)])
def test_late_is_whose_time_is_over_or_who_is_settled(now: float, late: bool) -> None:
    pq = PopQueue(MessageQueue("T", "b", -1))
    message, handle = popped(7)
    pq.put(message, handle, 60.0)
    assert pq.late(message, now) is late
    pq.settle([message])
    assert pq.late(message, 0.0)


@pytest.mark.parametrize(("mark", "topic"), [("0", "T"), ("1", "%RETRY%g_T"), ("2", "%RETRY%g+T")])
def test_the_topic_it_lies_in(mark: str, topic: str) -> None:
    pq = PopQueue(MessageQueue("T", "b", -1))
    message, handle = popped(7, mark)
    pq.put(message, handle, 60.0)
    held = pq.find(message)
    assert held is not None
    assert held.lies_in("g") == topic
    assert held.place == MessageQueue("T", "b", 2)
