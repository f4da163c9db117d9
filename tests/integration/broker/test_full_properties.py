"""Messages with as many properties as are taken: everything that is added to them later has room."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmq.aio import Message, MessageExt, ResponseError, TransactionProducer, TransactionState
from rmq.broker.lane import admit, step
from rmq.protocol import properties
from tests.support.scenes.client import Scene, scene
from tests.support.scenes.pop import pop_scene
from tests.support.virtual import eventually, in_virtual_time

GROUP = "g" * 120
TOPIC = "T" * 127
FAST = {"messageDelayLevel": "1s 1s 1s 1s 1s", "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}


async def fullest(send: Callable[[Any], Awaitable[object]], topic: str, batch: bool, **how: Any) -> Message:
    """Send a message of which not one byte more of properties would be taken."""
    size = admit.SENT_PROPERTIES
    for _ in range(2):
        message = Message(topic, b"full", tags="A", keys="k", properties={"pad": "x" * size}, **how)
        with pytest.raises(ResponseError, match="could not be tried again") as refused:
            await send([message] if batch else message)
        assert refused.value.code == 13
        over = int(re.findall(r"take (\d+) bytes", str(refused.value))[0]) - admit.SENT_PROPERTIES
        size -= over - 1
    assert over == 1
    message.properties["pad"] = "x" * (size - 1)
    await send([message] if batch else message)
    return message


async def buried(s: Scene, topic: str) -> MessageExt:
    """Let a group fail everything of a topic but b"fine"; the dead letter, once the message behind it was read."""
    consumer = s.consumer(GROUP, max_reconsume_times=2)
    done = []

    @consumer.on(topic)
    async def fail(message: MessageExt) -> None:
        if message.body == b"fine":
            done.append(message)
        else:
            raise ValueError("not this one")

    async with consumer:
        await eventually(lambda: s.cluster.brokers[0].store.queues.get(f"%DLQ%{GROUP}", 0))
        await s.producer.send(Message(topic, b"fine"))
        await eventually(lambda: done)
        await consumer.persist_offsets()
        assert set((await s.diff(GROUP)).values()) == {0}
    reader = s.puller("reader")
    async with reader:
        (queue,) = await reader.fetch_subscribe_message_queues(f"%DLQ%{GROUP}")
        found = await reader.pull(queue, "*", 0, 10)
    (dead,) = found.messages
    return dead


@in_virtual_time
@pytest.mark.parametrize("way", ["plain", "level", "time", "batch", "transaction"])
async def test_the_fullest_message_is_tried_again_and_buried(way: str) -> None:
    async with scene(**FAST) as s:
        await s.topic(TOPIC, 1)
        how = {"level": {"delay_level": 2}, "time": {"delay": 30}}.get(way, {})
        asked = []

        def check(message: MessageExt) -> TransactionState:
            asked.append(message)
            return TransactionState.COMMIT if len(asked) > 2 else TransactionState.UNKNOWN

        async with TransactionProducer(
            "p" * 120, check, namesrv=s.cluster.namesrv_addr, world=s.cluster.world
        ) as producer:

            async def send(message: Any) -> object:
                if way == "transaction":
                    return await producer.send_in_transaction(message, lambda _: TransactionState.UNKNOWN)
                return await s.producer.send(message)

            message = await fullest(send, TOPIC, way == "batch", **how)
            dead = await buried(s, TOPIC)
        assert len(asked) >= (3 if way == "transaction" else 0)
        assert dead.body == b"full"
        assert dead.properties["pad"] == message.properties["pad"]
        assert dead.properties["RETRY_TOPIC"] == TOPIC


@in_virtual_time
async def test_the_fullest_message_is_given_out_again_by_pop() -> None:
    async with pop_scene() as one:
        await one.topic("T" * 60)
        group = "g" * 58
        await one.send("full", topic="T" * 60, properties="pad\x01" + "x" * (admit.SENT_PROPERTIES - 4))
        for _ in range(17):
            (given,) = await one.pop(topic="T" * 60, consumer_group=group, invisible_time=1_000)
            assert len(given.record.properties["pad"]) == admit.SENT_PROPERTIES - 4
            await asyncio.sleep(2)
        await one.topic(f"%DLQ%{group}")
        (dead,) = await one.pop(topic=f"%DLQ%{group}", consumer_group="g")
        assert len(dead.record.properties["pad"]) == admit.SENT_PROPERTIES - 4


@in_virtual_time
@pytest.mark.parametrize("way", ["plain", "pop"])
async def test_a_message_stored_without_room_loses_properties_and_not_its_way(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a Java broker stored it, or this one before."""
    for module in (admit, step):
        monkeypatch.setattr(module, "SENT_PROPERTIES", properties.MAX_BYTES)
    table = {"TAGS": "A", "KEYS": "k", "small": "s", "pad": ""}
    if way == "pop":
        async with pop_scene() as one:
            await one.topic()
            table["pad"] = "x" * (
                properties.MAX_BYTES - len(properties.encode(table)) - len("\x02CLUSTER\x01DefaultCluster")
            )
            await one.send("full", properties=properties.encode(table))
            assert len(await one.pop(invisible_time=1_000)) == 1
            await asyncio.sleep(2)
            (given,) = await one.pop()
            found = given.record.properties
    else:
        async with scene(**FAST) as s:
            await s.topic("One", 1)
            message = Message("One", b"full", tags="A", keys="k", properties={"small": "s"})
            message.properties["pad"] = "x" * (properties.MAX_BYTES - 150)
            await s.producer.send(message)
            s.cluster.brokers[0].settings.update("maxMessageSize=1000")
            found = (await buried(s, "One")).properties
    assert "pad" not in found
    assert {name: found[name] for name in ("TAGS", "KEYS", "small", "RETRY_TOPIC")} == {
        "TAGS": "A", "KEYS": "k", "small": "s", "RETRY_TOPIC": "T" if way == "pop" else "One",
    }  # fmt: skip
    assert any("has no room for its properties pad" in line for line in caplog.messages)


@in_virtual_time
async def test_a_message_larger_than_what_is_taken_by_now_is_tried_again() -> None:
    async with scene(**FAST) as s:
        await s.topic("One", 1)
        await s.producer.send(Message("One", b"x" * 3000))
        await s.producer.send(Message("One", b"y" * 3000, delay_level=3))
        s.cluster.brokers[0].settings.update("maxMessageSize=1000")
        with pytest.raises(ResponseError):
            await s.producer.send(Message("One", b"z" * 3000))
        seen: list[tuple[int, int]] = []
        consumer = s.consumer()

        @consumer.on("One")
        async def fail_once(message: MessageExt) -> bool:
            seen.append((message.body[0], message.reconsume_times))
            return message.reconsume_times > 0

        async with consumer:
            await eventually(lambda: len(seen) == 4)
        assert sorted(seen) == [(ord("x"), 0), (ord("x"), 1), (ord("y"), 0), (ord("y"), 1)]
        retried = s.cluster.brokers[0].store.queues.get("%RETRY%g", 0)
        assert retried is not None
        assert retried.visible == 2
