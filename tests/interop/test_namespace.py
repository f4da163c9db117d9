"""A Java 4.9.4 client and our SDK in one namespace, on our broker and Java's: each finds what the other sends."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest

from rmq import Message, MessageExt, Producer, PushConsumer
from tests.support.interop import Scene, fresh, rows_of


@pytest.mark.parametrize("kind", ["ours", "java-5.3.3"])
def test_java_and_python_meet_in_a_namespace(kind: str, scene: Callable[[str, str], Scene]) -> None:
    where = scene(kind, "java-4.9.4")
    namesrv, java = where.cluster.namesrv, where.client
    topic, group, handle = fresh("T"), fresh("g"), fresh("h")
    java.call("topic", namesrv=namesrv, topic=f"NS%{topic}", queues=2)
    got: queue.Queue[tuple[str, str | None, int]] = queue.Queue()
    consumer = PushConsumer(group, namesrv=namesrv, namespace="NS", consume_from_where="CONSUME_FROM_FIRST_OFFSET")

    @consumer.on(topic)
    def handle_message(message: MessageExt) -> bool:
        got.put((message.topic, message.keys, message.reconsume_times))
        return message.reconsume_times > 0  # given back by Python, taken by Python from the topic that Java would take

    java.call(
        "subscribe", handle=handle, namesrv=namesrv, namespace="NS", group=fresh("g"), topic=topic, expression="*",
        model="clustering", failures=1,
    )  # fmt: skip
    with consumer, Producer(fresh("p"), namesrv=namesrv, namespace="NS") as producer:
        producer.send(Message(topic, b"python", keys="python"))
        java.call(
            "produce", namesrv=namesrv, namespace="NS", group=fresh("p"), topic=topic, prefix="java", count=1,
            mode="sync", tags=["A"],
        )  # fmt: skip
        seen = sorted(got.get(timeout=60) for _ in range(4))
        assert seen == [(topic, "java-0", 0), (topic, "java-0", 1), (topic, "python", 0), (topic, "python", 1)]
        rows = rows_of(java.call("received", handle=handle, count=4, timeout=60))
        assert sorted(row.key for row in rows) == ["java-0", "java-0", "python", "python"]
    java.call("unsubscribe", handle=handle)
