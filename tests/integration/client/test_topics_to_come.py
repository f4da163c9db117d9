"""Consumers that are there before their topics, in virtual time."""

from __future__ import annotations

import asyncio
import functools
import logging

import pytest

from rmq.aio import ClientError, Message, MessageExt, MessageQueue, PushConsumer, ResponseError
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time


@in_virtual_time
async def test_the_first_messages_of_a_new_topic_reach_a_consumer_that_waited_for_it() -> None:
    """Also with the default, CONSUME_FROM_LAST_OFFSET: everything in that topic came after the consumer."""
    async with scene() as s:
        got: list[bytes] = []
        consumer = s.consumer(consume_from_where="CONSUME_FROM_LAST_OFFSET")

        @consumer.on("Tomorrow")
        async def handle(message: MessageExt) -> None:
            got.append(message.body)

        async with consumer:
            await s.send(3, "Tomorrow")
            assert await eventually(lambda: sorted(got) == [b"0", b"1", b"2"]) < 3.0


@in_virtual_time
async def test_a_topic_that_was_only_out_of_reach_is_not_read_from_its_beginning() -> None:
    async with scene(accessMessageInMemoryMaxRatio="0") as s:
        await s.send(40)
        await asyncio.sleep(600)
        await s.cluster.stop_broker(s.cluster.brokers[0])
        got: list[bytes] = []
        consumer = s.consumer(consume_from_where="CONSUME_FROM_LAST_OFFSET")

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.body)

        async with consumer:
            await s.cluster.start_broker(0)
            await eventually(lambda: any(queue.topic == "T" for queue in consumer.assignment))
            await s.producer.send(Message("T", b"new"))
            await eventually(lambda: b"new" in got)
            # The nearest stored message stands for a time, which may be one older one of each of four queues.
            assert len(got) <= 5


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_queues_that_are_younger_than_their_group_are_read_from_their_beginning(up: bool) -> None:
    """Of a topic that grew, and of a broker that was added; the group had been at the end of the others."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("Growing", 2)
            got: list[bytes] = []

            def member() -> PushConsumer:
                consumer = s.consumer(consume_from_where="CONSUME_FROM_LAST_OFFSET")

                @consumer.on("Growing")
                async def handle(message: MessageExt) -> None:
                    got.append(message.body)

                return consumer

            consumer = member()
            await consumer.start()
            await s.send(20, "Growing")
            await eventually(lambda: len(got) == 20)
            if not up:
                await consumer.shutdown()
            await s.topic("Growing", 4)
            host, port = (await s.cluster.start_broker(1)).address
            await s.admin.create_and_update_topic(f"{host}:{port}", "Growing", read_queue_nums=2, write_queue_nums=2)
            await asyncio.sleep(40)
            await s.send(60, "Growing")
            await asyncio.sleep(600)
            if not up:
                consumer = member()
                await consumer.start()
            await eventually(lambda: len(got) == 80, within=60)
            await consumer.shutdown()

    run()


@pytest.mark.parametrize("policy", ["LAST_OFFSET", "FIRST_OFFSET"])
def test_broadcasting_misses_nothing_that_came_while_a_member_was_there(policy: str) -> None:
    """No broker says where it begins in a queue that came after it."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("Growing", 1)
            await s.send(5, "Growing")
            got: list[bytes] = []
            consumer = s.consumer(
                consume_from_where=f"CONSUME_FROM_{policy}", message_model="BROADCASTING", offset_store_dir="/offsets"
            )

            @consumer.on("Growing")
            async def handle(message: MessageExt) -> None:
                got.append(message.body)

            async with consumer:
                await eventually(lambda: consumer.assignment)
                old = 0 if policy == "LAST_OFFSET" else 5
                await s.topic("Growing", 3)
                await s.producer.send(Message("Growing", b"early"), queue=MessageQueue("Growing", "broker-0", 2))
                await eventually(lambda: b"early" in got, within=60)
                await asyncio.sleep(60)
                assert len(got) == old + 1

    run()


@in_virtual_time
async def test_a_topic_nobody_has_is_said_once_and_looked_for_ever_more_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as s:
        consumer = s.consumer()

        @consumer.on("Oders")
        async def handle(message: MessageExt) -> None:
            raise AssertionError("there is no such message")

        with caplog.at_level(logging.WARNING, "rmq.client"):
            async with consumer:
                await asyncio.sleep(300)
        lines = [record.getMessage() for record in caplog.records if "Oders" in record.getMessage()]
        assert lines == [
            "group g: no broker has the topic Oders: either the name is wrong, or nobody has sent to it yet; "
            "it is looked for again"
        ]


@in_virtual_time
async def test_a_broker_that_is_away_is_said_once_and_once_more_when_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pulls from five queues, offsets, heartbeats and rebalances all fail meanwhile."""
    async with scene() as s:
        consumer = s.consumer()
        got: list[bytes] = []

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.body)

        async with consumer:
            await s.send(8)
            await eventually(lambda: len(got) == 8)
            await s.producer.shutdown()
            port = s.cluster.broker_addr.rpartition(":")[2]
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await asyncio.sleep(60)
            await s.cluster.start_broker(0, listenPort=port)
            await asyncio.sleep(60)
        lines = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith("rmq.client") and record.levelno >= logging.WARNING
        ]
        assert len(lines) == 2, lines
        assert "tried again" in lines[0]
        assert lines[1].endswith(" works again")


@in_virtual_time
async def test_a_unique_id_without_its_topic_and_a_queue_of_no_topic_say_what_to_do() -> None:
    async with scene() as s:
        sent = await s.producer.send(Message("T", b"x", keys="k"))
        with pytest.raises(ResponseError) as refused:
            await s.producer.view_message(sent.msg_id)
        assert f"say the topic: view_message('{sent.msg_id}', topic=...)" in str(refused.value)
        assert (await s.producer.view_message(sent.msg_id, "T")).body == b"x"
        at_now = functools.partial(s.producer.search_offset, timestamp=0)
        for call in (s.producer.max_offset, s.producer.min_offset, s.producer.earliest_msg_store_time, at_now):
            for broker in ("b", "broker-0"):  # which is known, and says 0 of what it does not have
                with pytest.raises(ClientError, match="the topic Nix does not exist"):
                    await call(MessageQueue("Nix", broker, 0))
            with pytest.raises(ClientError, match="does not exist: the topic has 4 queues there"):
                await call(MessageQueue("T", "broker-0", 99))
            with pytest.raises(ClientError, match="does not exist: the topic is not there"):
                await call(MessageQueue("T", "b", 0))
        await s.topic("T", 100)
        assert await s.producer.max_offset(MessageQueue("T", "broker-0", 99)) == 0
        with pytest.raises(ClientError, match="the topic Nix does not exist") as missing:
            await s.producer.send(Message("Nix", b"x"), queue=MessageQueue("Nix", "b", 0))
        assert missing.value.topic == "Nix"


@in_virtual_time
async def test_a_name_server_that_is_away_is_said_once_a_topic(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        consumer = PushConsumer("g", namesrv="127.0.0.1:1", world=s.cluster.world)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            raise AssertionError("there is no such message")

        with caplog.at_level(logging.WARNING, "rmq.client"):
            async with consumer:
                await asyncio.sleep(300)
        said = [record.getMessage().partition(": no name server")[0] for record in caplog.records]
        assert sorted(line for line in said if " T" in line) == [
            "group g: rebalance of T waits",
            "route of T",
            "the route of T is asked for again",
        ]
