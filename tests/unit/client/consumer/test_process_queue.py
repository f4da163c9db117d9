"""What is held of a queue, and which offset may be committed."""

from __future__ import annotations

from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.message import MessageExt, MessageQueue


def held(offset: int, size: int = 10) -> MessageExt:
    message = MessageExt()
    message.topic, message.body, message.queue_offset = "T", b"x" * size, offset
    message.properties, message.reconsume_times = {}, 0
    return message


def filled(*offsets: int) -> tuple[ProcessQueue, dict[int, MessageExt]]:
    pq = ProcessQueue(MessageQueue("T", "b", 0), 0)
    messages = {offset: held(offset) for offset in offsets}
    pq.put(messages.values())
    return pq, messages


def test_the_offset_is_the_first_that_is_not_settled() -> None:
    pq, messages = filled(10, 11, 12, 15)
    assert (pq.count, pq.size, pq.span) == (4, 40, 5)
    assert pq.remove([messages[11]]) == 10
    assert pq.remove([messages[10]]) == 12
    assert pq.remove([messages[15]]) == 12
    assert pq.remove([messages[12]]) == 16
    assert (pq.count, pq.size, pq.span) == (0, 0, 0)


def test_nothing_held_gives_no_offset() -> None:
    pq, _ = filled()
    assert pq.remove([held(3)]) == -1
    assert pq.commit() == -1


def test_a_message_pulled_twice_counts_once() -> None:
    pq, messages = filled(1, 2)
    pq.put([messages[2], held(3)])
    assert (pq.count, pq.size) == (3, 30)


def test_orderly_take_commit_and_put_back() -> None:
    pq, messages = filled(5, 6, 7, 9)
    assert pq.take(2) == [messages[5], messages[6]]
    assert pq.count == 4
    assert pq.commit() == 7
    assert (pq.count, pq.size) == (2, 20)
    assert pq.take(5) == [messages[7], messages[9]]
    pq.put_back([messages[9]])
    assert pq.commit() == 8
    assert pq.take(1) == [messages[9]]
    pq.put_back()
    assert list(pq.messages) == [9]
    assert pq.take(1) == [messages[9]]
    assert pq.commit() == 10
    assert pq.size == 0


def test_put_back_keeps_the_order_before_what_was_pulled_since() -> None:
    pq, _ = filled(1, 2, 3)
    pq.take(2)
    pq.put([held(4)])
    pq.put_back()
    assert list(pq.messages) == [1, 2, 3, 4]


def test_a_lock_lasts_thirty_seconds() -> None:
    pq, _ = filled(1)
    assert not pq.lock_valid(0.0)
    pq.locked, pq.last_lock = True, 100.0
    assert pq.lock_valid(129.9)
    assert not pq.lock_valid(130.0)


def test_the_running_info_tells_what_is_held() -> None:
    pq, _ = filled(1, 2, 3)
    pq.take(1)
    info = pq.info(7)
    assert (info.commit_offset, info.cached_msg_count, info.cached_msg_min_offset, info.cached_msg_max_offset) == (
        7,
        2,
        2,
        3,
    )
    assert (info.transaction_msg_count, info.transaction_msg_min_offset) == (1, 1)
