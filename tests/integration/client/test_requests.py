"""Requests and the messages that answer them."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from rmq.aio import ClientError, Message, MessageExt, Producer, ReplyTimeout, RequestTimeout, ResponseError
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


def answering(s: Scene, got: list[MessageExt] | None = None) -> Any:
    """A consumer that answers what it gets with ``re:`` and the same, and ``silent`` not at all."""
    consumer = s.consumer("answering")

    @consumer.on("T")
    async def answer(message: MessageExt) -> None:
        if got is not None:
            got.append(message)
        if message.body != b"silent":
            await consumer.reply(message, b"re:" + message.body, keys=message.keys, properties={"by": "me"})

    return consumer


@in_virtual_time
async def test_a_request_is_answered_by_a_message_in_java_s_form() -> None:
    async with scene() as s, answering(s) as consumer:
        reply = await s.producer.request(Message("T", b"what?", keys="k-1"), timeout=5.0)
        assert (reply.body, reply.keys, reply.topic) == (b"re:what?", "k-1", "DefaultCluster_REPLY_TOPIC")
        given = reply.properties
        assert given["by"] == "me"
        assert (given["MSG_TYPE"], given["TTL"]) == ("reply", "5000")
        assert given["REPLY_TO_CLIENT"] == s.producer.client_id
        assert re.fullmatch(
            r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", given["CORRELATION_ID"]
        )
        assert int(given["PUSH_REPLY_TIME"]) <= int(given["ARRIVE_TIME"])
        assert reply.born_host[0] == consumer.client_id.partition("@")[0]
        [queue] = await consumer.fetch_subscribe_message_queues(reply.topic)
        async with s.puller("looking") as puller:
            [kept] = (await puller.pull(queue, "*", 0)).messages
        assert (kept.msg_id, kept.properties["CORRELATION_ID"]) == (reply.msg_id, given["CORRELATION_ID"])
        assert not s.producer._client.requests


@in_virtual_time
async def test_many_at_once_get_their_own_answers_and_large_ones_are_compressed() -> None:
    async with scene() as s, answering(s):
        bodies = [b"%d" % i * (5_000 if i % 10 == 0 else 1) for i in range(50)]
        replies = await asyncio.gather(*(s.producer.request(Message("T", body)) for body in bodies))
        assert [reply.body for reply in replies] == [b"re:" + body for body in bodies]


@in_virtual_time
async def test_a_producer_answers_as_a_consumer_does() -> None:
    async with scene() as s:

        async def take() -> None:
            async with s.puller() as puller:
                queues = await puller.fetch_subscribe_message_queues("T")
                while True:
                    for queue in queues:
                        for message in (await puller.pull(queue, "*", 0)).messages:
                            assert (await s.producer.reply(message, "yes")).ok
                            return
                    await asyncio.sleep(0.1)

        taking = asyncio.ensure_future(take())
        async with Producer("asking", namesrv=s.cluster.namesrv_addr, world=s.cluster.world) as producer:
            assert (await producer.request(Message("T", b"?"))).body == b"yes"
        await taking


@in_virtual_time
async def test_a_request_that_nobody_answers_is_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        asked: list[MessageExt] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def late(message: MessageExt) -> None:
            asked.append(message)
            await asyncio.sleep(10.0)
            await consumer.reply(message, b"too late")

        async with consumer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(
                ReplyTimeout, match=r"no reply in 2 s to the request [0-9A-F]{32}, which is stored in"
            ) as raised:
                await s.producer.request(Message("T", b"x"), timeout=2.0)
            assert 2.0 <= loop.time() - began < 2.2
            error = raised.value
            assert isinstance(error, RequestTimeout)
            assert isinstance(error, TimeoutError)
            assert error.queue is not None
            address = s.producer._client.routes.master_addr(error.queue.broker_name)
            assert (error.topic, error.address, error.retriable) == ("T", address, True)
            assert error.msg_id == asked[0].msg_id
            assert error.hint == f"mqadmin queryMsgByUniqueKey -t T -i {error.msg_id}"
            with caplog.at_level(logging.INFO, logger="rmq"):
                await eventually(lambda: "for which nobody waits" in caplog.text)
            assert not s.producer._client.requests


@in_virtual_time
async def test_what_is_no_request_is_not_answered_and_what_cannot_be_sent_is_not_asked() -> None:
    none: Any = None
    async with scene() as s, answering(s) as consumer:
        queue = (await s.producer.send(Message("T", b"x"))).message_queue
        async with s.puller() as puller:
            [message] = (await puller.pull(queue, "*", 0)).messages
        with pytest.raises(ClientError, match=r"is no request: it lacks the property CORRELATION_ID"):
            await consumer.reply(message, b"x")
        with pytest.raises(ClientError, match="request is None: give a MessageExt"):
            await consumer.reply(none, b"x")
        with pytest.raises(ClientError, match="request takes a Message, not NoneType"):
            await s.producer.request(none)
        with pytest.raises(ClientError, match="empty body"):
            await s.producer.request(Message("T", b""))
        with pytest.raises(ClientError, match="the callback is 5"):
            s.producer.request_async(Message("T", b"x"), 5)  # type: ignore[arg-type]


@in_virtual_time
async def test_who_asked_and_left_is_said_to_whom_answers() -> None:
    async with scene() as s:
        failed: list[Exception] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def answer(message: MessageExt) -> None:
            await asyncio.sleep(5.0)
            try:
                await consumer.reply(message, b"x")
            except ResponseError as error:
                failed.append(error)

        async with consumer:
            async with Producer("gone", namesrv=s.cluster.namesrv_addr, world=s.cluster.world) as producer:
                asked = asyncio.ensure_future(producer.request(Message("T", b"x"), timeout=60.0))
                await asyncio.sleep(3.0)
            with pytest.raises(ClientError, match="the producer gone was shut down before the request was answered"):
                await asked
            await eventually(lambda: failed)
            assert re.search("channel of <.*> not found", str(failed[0]))


@in_virtual_time
async def test_futures_and_their_callbacks() -> None:
    async with scene() as s, answering(s):
        told: list[Any] = []
        future = s.producer.request_async(Message("T", b"a"), told.append)
        assert (await future).body == b"re:a"
        await asyncio.sleep(0)
        assert told == [future]
        silent = s.producer.request_async(Message("T", b"silent"), timeout=1.0)
        with pytest.raises(ReplyTimeout):
            await silent


@in_virtual_time
async def test_answers_come_after_the_connection_was_lost_too() -> None:
    """Its broker forgets a client whose connection ends: the next request tells it who waits before it is stored."""
    async with scene() as s, answering(s):
        await s.producer.request(Message("T", b"a"))
        instance = s.producer._client
        [address] = instance.masters.values()
        conn = instance.remoting.connected(address)
        assert conn is not None
        conn.close()
        assert (await s.producer.request(Message("T", b"b"))).body == b"re:b"


@in_virtual_time
async def test_any_broker_of_the_cluster_may_hand_over_the_reply() -> None:
    """The topic is on the first broker alone, the topic of replies on both."""
    async with scene() as s:
        await s.cluster.start_broker(1)
        got: list[MessageExt] = []
        async with answering(s, got) as consumer:
            for _ in range(3):
                await s.producer.request(Message("T", b"x"))
            replies = await consumer.fetch_subscribe_message_queues("DefaultCluster_REPLY_TOPIC")
            assert len({queue.broker_name for queue in replies}) == 2
            async with s.puller("looking") as puller:
                ends = {queue.broker_name: await puller.max_offset(queue) for queue in replies}
            [stored] = {q.broker_name for q in await consumer.fetch_subscribe_message_queues("T")}
            # The broker that stored the request knows who asks best.
            assert ends.pop(stored) == 3
            assert list(ends.values()) == [0]
            # The other one knows, too, and is who answers through it.
            other = next(queue for queue in replies if queue.broker_name != stored)
            request = s.producer.request_async(Message("T", b"silent"))
            await eventually(lambda: len(got) == 4)
            send = s.producer._sender.encoder.prepare_reply(got[3], Message(other.topic, b"through the other"))
            assert (await s.producer._sender.send(send, other, None, None, 3.0)).message_queue == other
            assert (await request).body == b"through the other"


@in_virtual_time
async def test_requests_stay_within_a_namespace() -> None:
    async with scene() as s:
        how: Any = {"namesrv": s.cluster.namesrv_addr, "world": s.cluster.world, "namespace": "shop"}
        consumer = s.consumer("answering", namespace="shop")

        @consumer.on("T")
        async def answer(message: MessageExt) -> None:
            if message.body != b"silent":
                await consumer.reply(message, b"re:" + message.body)

        async with consumer, Producer("asking", **how) as producer:
            reply = await producer.request(Message("T", b"x"), timeout=30.0)
            assert (reply.body, reply.topic) == (b"re:x", "DefaultCluster_REPLY_TOPIC")
            with pytest.raises(ReplyTimeout) as raised:
                await producer.request(Message("T", b"silent"))
            assert raised.value.topic == "shop%T"  # as mqadmin knows it
