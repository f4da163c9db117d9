"""Sends that our SDK joins to batches, on Java brokers: each result is where Java's consumer finds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq import Message, Producer
from tests.support.interop import Scene, fresh


@pytest.mark.parametrize("kind", ["java-4.9.4", "java-5.3.3"])
def test_each_result_is_where_a_java_broker_has_the_message(kind: str, scene: Callable[[str, str], Scene]) -> None:
    where = scene(kind, "python")
    topic = where.topic("auto")
    with Producer(fresh("p"), namesrv=where.cluster.namesrv, auto_batch=True) as producer:
        futures = [producer.send_async(Message(topic, b"%d" % i, tags="A", keys=f"k{i}")) for i in range(300)]
        results = {f"k{number}": future.result(60) for number, future in enumerate(futures)}
        for key in ("k0", "k1", "k150", "k299"):
            assert producer.view_message(results[key].offset_msg_id).keys == key
    seen = where.read(topic, 300)
    assert {row.key: (row.queue, row.offset, row.unique_id) for row in seen} == {
        key: (one.message_queue.queue_id, one.queue_offset, one.msg_id) for key, one in results.items()
    }
