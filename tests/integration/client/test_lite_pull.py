"""The lite pull consumer: polls and loops, places and commits, queues shared and assigned, limits."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from rmq.aio import ClientError, LitePullConsumer, Message, MessageExt, MessageQueue, RMQError
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


async def drained(consumer: LitePullConsumer, timeout: float = 1.0) -> list[MessageExt]:
    """What polls give until one gives nothing."""
    got: list[MessageExt] = []
    while messages := await consumer.poll(timeout):
        got += messages
    return got


def keys(messages: list[MessageExt]) -> list[str]:
    return sorted(message.keys or "" for message in messages)


async def one_queue(s: Scene, count: int) -> MessageQueue:
    """A topic T1 of one queue with so many messages, key and body their number."""
    await s.topic("T1", queues=1)
    for i in range(count):
        result = await s.producer.send(Message("T1", b"%d" % i, keys=f"k{i}", tags="even" if i % 2 == 0 else "odd"))
    return result.message_queue


@in_virtual_time
async def test_polls_give_each_message_once_and_the_next_member_goes_on() -> None:
    async with scene() as s:
        await s.send(100)
        consumer = s.lite()
        consumer.subscribe("T")
        async with consumer:
            first = await consumer.poll(5.0)
            assert 0 < len(first) <= 10
            assert len({message.queue_id for message in first}) == 1
            got = first + await drained(consumer)
            assert keys(got) == sorted(f"k{i}" for i in range(100))
            assert consumer.is_running
            assert len(consumer.assignment) == 4
        assert not consumer.is_running
        await s.send(3)
        consumer = s.lite()
        consumer.subscribe("T")
        async with consumer:
            assert len(await drained(consumer)) == 3


@in_virtual_time
async def test_what_was_polled_last_comes_again_unless_it_is_committed() -> None:
    async with scene() as s:
        queue = await one_queue(s, 30)

        async def take(polls: int, *, commit: bool = False) -> tuple[list[int], int]:
            consumer = s.lite()
            consumer.subscribe("T1")
            async with consumer:
                batches = [await consumer.poll(2.0) for _ in range(polls)]
                if commit:
                    await consumer.commit()
                return [batch[0].queue_offset for batch in batches], await consumer.committed(queue)

        assert (await take(2))[0] == [0, 10]
        assert await take(1, commit=True) == ([10], 20)
        assert (await take(1))[0] == [20]


@in_virtual_time
async def test_without_auto_commit_only_commits_count() -> None:
    async with scene() as s:
        queue = await one_queue(s, 40)
        for commits, begins in ((False, 0), (True, 0), (False, 20)):
            consumer = s.lite(auto_commit=False)
            consumer.subscribe("T1")
            async with consumer:
                polled = [await consumer.poll(2.0), await consumer.poll(2.0)]
                assert [batch[0].queue_offset for batch in polled] == [begins, begins + 10]
                await asyncio.sleep(20.0)
                if commits:
                    consumer.commit_async([queue])
                    await consumer.poll(0)


@in_virtual_time
async def test_auto_commit_tells_the_broker_at_its_interval_without_being_polled_again() -> None:
    async with scene() as s:
        queue = await one_queue(s, 20)
        consumer = s.lite(auto_commit_interval=2.0, persist_consumer_offset_interval=3600.0)
        consumer.subscribe("T1")
        async with consumer, s.puller() as looking:
            assert len(await consumer.poll()) == len(await consumer.poll()) == 10
            await asyncio.sleep(2.5)
            assert await looking.fetch_consume_offset(queue, from_store=True) == 10


@in_virtual_time
async def test_a_commit_that_no_broker_takes_is_an_error() -> None:
    async with scene() as s:
        await one_queue(s, 20)
        consumer = s.lite()
        consumer.subscribe("T1")
        async with consumer:
            await consumer.poll()
            await s.cluster.stop_broker(s.cluster.brokers[0])
            with pytest.raises(RMQError):
                await consumer.commit()


@in_virtual_time
async def test_a_loop_consumes_a_message_with_the_next_step_and_gives_a_broken_one_again() -> None:
    async with scene() as s:
        queue = await one_queue(s, 10)
        consumer = s.lite()
        consumer.subscribe("T1")
        seen: list[int] = []
        async with consumer:

            async def fail() -> None:
                async for message in consumer:
                    seen.append(message.queue_offset)
                    if message.queue_offset == 3:
                        raise ValueError("no")

            with pytest.raises(ValueError, match="no"):
                await fail()
            async for message in consumer:
                seen.append(message.queue_offset)
                if message.queue_offset == 5:
                    break
            assert seen == [0, 1, 2, 3, 3, 4, 5]
            polled = await consumer.poll()
            assert polled[0].queue_offset == 5
        consumer = s.lite()
        consumer.subscribe("T1")
        async with consumer:
            async for message in consumer:
                assert message.queue_offset == 5
                await consumer.commit()  # this one, too
                break
            assert await consumer.committed(queue) == 6


@in_virtual_time
async def test_a_loop_ends_with_the_consumer_and_waits_meanwhile() -> None:
    async with scene() as s:
        consumer = s.lite()
        consumer.subscribe("T")
        await consumer.start()
        seen: list[str | None] = []

        async def read() -> None:
            async for message in consumer:
                seen.append(message.keys)

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(100.0)
        await s.send(1)
        await eventually(lambda: seen == ["k0"], within=1.0)
        await asyncio.sleep(100.0)
        await consumer.shutdown()
        await reading
        with pytest.raises(ClientError, match="is not started"):
            await consumer.poll()


@in_virtual_time
async def test_places_are_set_and_committed_like_what_is_consumed() -> None:
    async with scene() as s:
        queue = await one_queue(s, 50)
        consumer = s.lite()
        consumer.subscribe("T1")
        async with consumer:
            assert len(await drained(consumer)) == 50
            await consumer.seek(queue, 45)
            assert [message.queue_offset for message in await drained(consumer)] == [45, 46, 47, 48, 49]
            await consumer.seek_to_begin(queue)
            assert (await consumer.poll())[0].queue_offset == 0
            await consumer.seek_to_end(queue)
            assert await consumer.poll(1.0) == []
            await s.producer.send(Message("T1", b"new"))
            assert (await consumer.poll())[0].queue_offset == 50
            await consumer.seek(queue, 20)
            with pytest.raises(ClientError, match="has offsets 0 to 51, not 52"):
                await consumer.seek(queue, 52)
            with pytest.raises(ClientError, match="is not among the queues of the consumer g now") as raised:
                await consumer.seek_to_begin(MessageQueue("T", queue.broker_name, 0))
            assert raised.value.topic == "T"
            assert await consumer.offset_for_timestamp(queue, 0) == 0
            await asyncio.sleep(6.0)
            assert await consumer.committed(queue) == 20
        consumer = s.lite()
        consumer.subscribe("T1")
        async with consumer:
            assert (await consumer.poll())[0].queue_offset == 20


@in_virtual_time
async def test_queues_that_are_assigned_are_read_whoever_reads_them_too() -> None:
    async with scene() as s:
        await s.send(40)
        one, other = s.lite("assigned"), s.lite("assigned")
        async with one, other:
            queues = await one.fetch_message_queues("T")
            assert await one.poll(1.0) == []
            one.assign(queues[:2])
            other.assign(queues)
            assert len(await drained(one)) == 20
            assert len(await drained(other)) == 40
            one.assign(queues[1:3])
            await eventually(lambda: one.assignment == queues[1:3])
            with pytest.raises(ClientError, match="was assigned its queues"):
                one.subscribe("T")
            one.assign([])
            await eventually(lambda: one.assignment == [])
            shared = s.lite()
            shared.subscribe("T")
            with pytest.raises(ClientError, match="subscribes"):
                shared.assign(queues)
            with pytest.raises(ClientError, match="give a MessageQueue"):
                other.assign(["T"])  # type: ignore[list-item]


@in_virtual_time
async def test_members_share_the_queues_and_lose_nothing_when_one_leaves() -> None:
    async with scene() as s:
        one, other = s.lite(), s.lite()
        one.subscribe("T")
        other.subscribe("T")
        got: list[str] = []
        async with one:
            await eventually(lambda: len(one.assignment) == 4)
            await s.send(40)
            assert len(await drained(one)) == 40
            async with other:
                await eventually(lambda: len(one.assignment) == len(other.assignment) == 2)
                assert await other.poll(1.0) == []  # what was consumed goes on with the queue, committed or not
                await s.send(40)
                for consumer in (one, other):
                    batch = await drained(consumer)
                    assert len(batch) == 20
                    got += keys(batch)
            await eventually(lambda: len(one.assignment) == 4)
            await s.send(8)
            assert sorted(got + keys(await drained(one))) == sorted(
                [f"k{i}" for i in range(40)] + [f"k{i}" for i in range(8)]
            )


@in_virtual_time
async def test_paused_queues_are_neither_pulled_nor_given_out() -> None:
    async with scene() as s:
        queue = await one_queue(s, 20)
        consumer = s.lite()
        consumer.subscribe("T1")
        async with consumer:
            assert len(await consumer.poll()) == 10
            consumer.pause([queue])
            assert await consumer.poll(5.0) == []
            waiting = asyncio.ensure_future(consumer.poll(60.0))
            await asyncio.sleep(1.0)
            consumer.resume([queue])
            await asyncio.sleep(0.01)
            assert waiting.done()
            assert len(await waiting) == 10


@in_virtual_time
async def test_what_is_held_is_bounded_and_what_is_handed_out_counts() -> None:
    async with scene() as s:
        await s.send(400)
        consumer = s.lite(pull_threshold_for_all=100, pull_batch_size=8)
        consumer.subscribe("T")
        async with consumer:
            await asyncio.sleep(30.0)
            assert consumer._polled is not None
            held = [pq.count for pq in consumer._delivery.assignment.queues.values()]  # type: ignore[union-attr]
            # One pull of each queue may be under way when it is full.
            assert 100 <= sum(held) <= 100 + 4 * 8
            assert sum(held) == consumer._polled._held
            assert len(await drained(consumer)) == 400
            assert consumer._polled._held == 0
        consumer = s.lite("other", pull_threshold_for_queue=16, pull_batch_size=8)
        consumer.subscribe("T")
        async with consumer:
            await asyncio.sleep(30.0)
            held = [pq.count for pq in consumer._delivery.assignment.queues.values()]  # type: ignore[union-attr]
            assert all(16 < count <= 24 for count in held)


@in_virtual_time
async def test_tags_and_conditions_choose_and_what_they_leave_out_is_passed() -> None:
    async with scene(enablePropertyFilter="true") as s:
        queue = await one_queue(s, 20)
        consumer = s.lite(auto_commit=False)
        consumer.subscribe("T1", "even")
        async with consumer:
            assert [message.tags for message in await drained(consumer)] == ["even"] * 10
            await consumer.commit()
            await asyncio.sleep(25.0)
            await consumer.commit()
            assert await consumer.committed(queue) == 20  # behind the last one, which is odd
        sql = s.lite("sql")
        sql.subscribe("T1", "TAGS = 'odd'", sql=True)
        async with sql:
            assert len(await drained(sql)) == 10
            sql.unsubscribe("T1")
            await eventually(lambda: sql.assignment == [])


@in_virtual_time
async def test_who_asked_is_told_of_other_queues_and_what_they_raise_costs_nothing() -> None:
    async with scene() as s:
        told: list[Any] = []

        async def changed(topic: str, queues: list[MessageQueue]) -> None:
            told.append((topic, len(queues)))

        def fails(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
            told.append((topic, len(queues), len(mine)))
            raise ValueError("what a listener raises")

        consumer = s.lite(message_queue_listener=fails)
        consumer.subscribe("T")
        consumer.register_topic_message_queue_change_listener("T", changed)
        async with consumer:
            await eventually(lambda: told)
            assert told == [("T", 4, 4)]
            await s.topic("T", queues=6)
            await eventually(lambda: ("T", 6) in told, within=100.0)
            await eventually(lambda: ("T", 6, 6) in told, within=100.0)
            assert len(told) == 3
            await s.send(6)
            assert len(await drained(consumer)) == 6
        with pytest.raises(ClientError, match="listener is 5: give a function"):
            consumer.register_topic_message_queue_change_listener("T", 5)  # type: ignore[arg-type]


@in_virtual_time
async def test_an_operator_sets_the_offsets_of_a_running_member() -> None:
    async with scene() as s:
        await one_queue(s, 20)
        consumer = s.lite()
        consumer.subscribe("T1")
        async with consumer:
            assert len(await drained(consumer)) == 20
            await asyncio.sleep(6.0)
            await s.admin.reset_offset_by_timestamp("T1", "g", 0)
            assert len(await drained(consumer, 5.0)) == 20
            info = await s.admin.consumer_running_info("g", consumer.client_id, s.cluster.broker_addr)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"


@in_virtual_time
async def test_broadcasting_members_read_everything_each() -> None:
    async with scene() as s:
        consumers = [
            s.lite(message_model="BROADCASTING", instance_name=f"i{i}", offset_store_dir=f"/offsets/{i}")
            for i in range(2)
        ]
        for consumer in consumers:
            consumer.subscribe("T")
        async with consumers[0], consumers[1]:
            await eventually(lambda: all(len(consumer.assignment) == 4 for consumer in consumers))
            await s.send(20)
            for consumer in consumers:
                assert len(await drained(consumer)) == 20


@in_virtual_time
async def test_who_asks_a_consumer_that_reads_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s, s.lite() as consumer:
        for _ in range(2):
            assert await consumer.poll(1) == []
        text = "the consumer g is asked for messages, and reads none: use subscribe() or assign()"
        assert [record.getMessage() for record in caplog.records if "reads none" in record.getMessage()] == [text]


@in_virtual_time
async def test_names_stay_within_a_namespace() -> None:
    async with scene() as s:
        consumer = s.lite(namespace="shop", allow_mixed_subscriptions=True)
        await s.topic("shop%N", queues=1)
        await s.producer.send(Message("shop%N", b"x"))
        async with consumer:
            [queue] = await consumer.fetch_message_queues("N")
            assert queue.topic == "N"
            consumer.assign([queue])
            [message] = await consumer.poll(30.0)
            assert message.topic == "N"
            assert consumer.assignment == [queue]
            await consumer.commit([queue])
            assert await consumer.committed(queue) == 1
            await consumer.seek_to_begin(queue)
            assert len(list(itertools.chain(await consumer.poll()))) == 1
