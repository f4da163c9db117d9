"""Messages of our SDK that wait, on a Java 5.3.3 broker: levels, times of their own, recall; and a SQL92 condition."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from rmq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer
from tests.support.interop import Clusters, fresh, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_what_waits_comes_in_its_time_and_what_is_recalled_does_not(clusters: Clusters) -> None:
    namesrv = clusters.get("java-5.3.3").namesrv
    topic = fresh("delay")
    got: dict[str | None, tuple[int, int]] = {}
    consumer = PushConsumer(fresh("g"), namesrv=namesrv, consume_from_where=FIRST)

    @consumer.on(topic, "wanted = 'yes'", sql=True)
    def handle(message: MessageExt) -> None:
        got[message.keys] = (message.born_timestamp, message.store_timestamp)

    with Producer(fresh("p"), namesrv=namesrv) as producer:

        def send(key: str, wanted: str = "yes", **how: object) -> str | None:
            message = Message(topic, b"x", keys=key, properties={"wanted": wanted}, **how)  # type: ignore[arg-type]
            return producer.send(message).recall_handle

        send("now")
        send("other", wanted="no")
        send("level", delay_level=1)
        send("delay", delay=1.5)
        send("at", deliver_at=datetime.now(UTC) + timedelta(seconds=2))
        handle_of_taken = send("taken", delay=4)
        assert handle_of_taken is not None
        producer.recall_message(topic, handle_of_taken)
        with consumer:
            until(lambda: set(got), lambda keys: len(keys) == 4)
            threading.Event().wait(4)  # beyond its time
    assert set(got) == {"now", "level", "delay", "at"}
    for key in ("delay", "at"):
        born, stored = got[key]
        assert stored - born >= 900, "early"
