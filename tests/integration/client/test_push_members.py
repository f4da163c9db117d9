"""The push consumer in clustering mode: who has which queues and subscriptions, whole cluster in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from rmq.aio import (
    ClientError,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    ResponseError,
)
from rmq.client.consumer.offsets import RemoteBrokerOffsetStore
from rmq.protocol.codes import RequestCode
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@in_virtual_time
async def test_two_members_share_the_queues_and_lose_nothing() -> None:
    """Field case B031: members of one address and process."""
    async with scene() as s:
        got: list[set[str]] = [set(), set()]
        members = [s.consumer(), s.consumer()]
        for member, seen in zip(members, got, strict=True):

            @member.on("T")
            async def handle(message: MessageExt, seen: set[str] = seen) -> None:
                seen.add(message.msg_id)

        await members[0].start()
        sent = set(await s.send(100))
        await eventually(lambda: got[0] == sent)
        await members[1].start()
        # At once, on the broker's word, not with the next 20 s rhythm.
        assert await eventually(lambda: sum(q.topic == "T" for q in members[1].assignment) == 2) < 2.0
        assert sum(q.topic == "T" for q in members[0].assignment) == 2
        sent |= set(await s.send(100))
        await eventually(lambda: got[0] | got[1] == sent)
        assert got[1]
        await members[1].shutdown()
        assert await eventually(lambda: sum(q.topic == "T" for q in members[0].assignment) == 4) < 2.0
        sent |= set(await s.send(20))
        await eventually(lambda: got[0] | got[1] == sent)
        await members[0].shutdown()
        assert set((await s.diff()).values()) == {0}


@in_virtual_time
async def test_a_queue_that_changes_hands_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member rebalances at the same word: the new owner lets the last one note how far it came."""
    persist = RemoteBrokerOffsetStore.persist

    async def busy(self: RemoteBrokerOffsetStore, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        queues = list(queues)
        await asyncio.sleep(0.05)
        await persist(self, queues, wait=wait)

    monkeypatch.setattr(RemoteBrokerOffsetStore, "persist", busy)
    async with scene() as s:
        seen: Counter[str] = Counter()
        running = most = 0
        members = [s.consumer(consume_thread_min=4, consume_thread_max=4) for _ in range(3)]
        for member in members:

            @member.on("T")
            async def handle(message: MessageExt) -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.02)
                running -= 1
                seen[message.msg_id] += 1

        sent = set(await s.send(1600))
        for member, share in zip(members, (300, 700, 1600), strict=True):
            await member.start()
            await eventually(lambda share=share: len(seen) >= share)  # type: ignore[misc]
        assert set(seen) == sent
        # What listeners had in hand when their queue went, and what was behind it; not what came since the last note.
        assert seen.total() - len(seen) <= 2 * most
        for member in members:
            await member.shutdown()
        assert set((await s.diff()).values()) == {0}


@in_virtual_time
async def test_brokers_relay_what_tools_ask() -> None:
    async with scene() as s:
        got: list[str] = []
        consumer = s.consumer()

        @consumer.on("T", "TagA")
        async def handle(message: MessageExt) -> ConsumeResult:
            got.append(message.msg_id)
            return ConsumeResult.SUCCESS

        async with consumer:
            sent = await s.producer.send(Message("T", b"x", tags="TagA"))
            await eventually(lambda: got)
            from rmq.protocol.bodies.reset import GetConsumerStatusBody
            from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
            from rmq.protocol.headers.client import (
                ConsumeMessageDirectlyRequest,
                GetConsumerRunningInfoRequest,
                GetConsumerStatusRequest,
            )

            async def ask(code: RequestCode, header: Any) -> bytes:
                return (await s.admin._client.call(s.cluster.broker_addr, code, header, timeout=20)).body

            info = ConsumerRunningInfo.decode(
                await ask(
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    GetConsumerRunningInfoRequest(consumer_group="g", client_id=consumer.client_id, jstack_enable=True),
                )
            )
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert {queue.topic for queue in info.mq_table} == {"T", "%RETRY%g"}
            assert {data.topic: data.sub_string for data in info.subscription_set}["T"] == "TagA"
            assert info.status_table["T"].consume_ok_tps > 0
            assert "THREAD" in (info.jstack or "")
            result = ConsumeMessageDirectlyResult.decode(
                await ask(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    ConsumeMessageDirectlyRequest(
                        consumer_group="g", client_id=consumer.client_id, msg_id=sent.offset_msg_id
                    ),
                )
            )
            assert (result.consume_result, result.order) == ("CR_SUCCESS", False)
            assert got == [sent.msg_id, sent.msg_id]
            status = GetConsumerStatusBody.decode(
                await ask(
                    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequest(topic="T", group="g")
                )
            )
            table = status.consumer_table[consumer.client_id]
            assert table[sent.message_queue] == 1


@in_virtual_time
async def test_subscriptions_change_while_running() -> None:
    async with scene() as s:
        await s.topic("U")
        got: Counter[str] = Counter()
        consumer = s.consumer()

        async def handle(message: MessageExt) -> None:
            got[message.topic] += 1

        consumer.register_message_listener(handle)
        consumer.subscribe("T")
        async with consumer:
            await s.send(4)
            await eventually(lambda: got["T"] == 4)
            consumer.subscribe("U")
            await eventually(lambda: any(queue.topic == "U" for queue in consumer.assignment), within=5)
            await s.send(4, "U")
            await eventually(lambda: got["U"] == 4)
            consumer.unsubscribe("T")
            await eventually(lambda: not any(queue.topic == "T" for queue in consumer.assignment), within=5)
            await s.send(4)
            await asyncio.sleep(30)
            assert got["T"] == 4


@in_virtual_time
async def test_what_cannot_start_says_why() -> None:
    async with scene(enablePropertyFilter="false") as s:
        with pytest.raises(ClientError, match="subscribes nothing"):
            await s.consumer().start()
        bare = s.consumer()
        bare.subscribe("T")
        with pytest.raises(ClientError, match="T has no listener"):
            await bare.start()
        with pytest.raises(ClientError, match="looks like SQL"):
            bare.subscribe("T", "TAGS = 'x' AND a = 1")
        with pytest.raises(ClientError, match="the subscription is b'a'"):
            bare.subscribe("T", b"a")  # type: ignore[arg-type]
        with pytest.raises(ClientError, match="DEFAULT_CONSUMER is a placeholder"):
            s.consumer("DEFAULT_CONSUMER")
        sql = s.consumer()

        @sql.on("T", "a > 1", sql=True)
        async def handle(message: MessageExt) -> None:
            raise AssertionError

        with pytest.raises(ResponseError, match="code 1 "):
            await sql.start()
        assert not sql.assignment
        twins = [s.consumer(instance_name="same") for _ in range(2)]
        for twin in twins:
            twin.on("T")(handle)
        async with twins[0]:
            with pytest.raises(ClientError, match="already has a consumer with client id"):
                await twins[1].start()


@in_virtual_time
async def test_members_of_one_process_subscribe_the_same() -> None:
    """Field case B032."""
    async with scene() as s:

        async def handle(message: MessageExt) -> None:
            raise AssertionError

        first, second = s.consumer(), s.consumer()
        first.on("T", "A")(handle)
        second.on("T", "B")(handle)
        async with first:
            with pytest.raises(ClientError, match=r"another member .* T:A, this one .*T:B"):
                await second.start()
            meant = s.consumer(allow_mixed_subscriptions=True)
            meant.on("T", "B")(handle)
            async with meant:
                pass


@in_virtual_time
async def test_what_a_pull_brings_after_an_unsubscription_stays_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        await s.topic("One", 1)
        got: list[bytes] = []
        consumer = s.consumer()
        consumer.on("T")(lambda message: None)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            got.append(message.body)

        async with consumer:
            await eventually(lambda: len(consumer.assignment) == 6)
            await asyncio.sleep(1)
            sending = asyncio.get_running_loop().create_task(s.producer.send(Message("One", b"between")))
            await asyncio.sleep(0)
            consumer.unsubscribe("One")
            await sending
            await asyncio.sleep(100)
            assert got == []
            consumer.subscribe("One")
            await eventually(lambda: got == [b"between"], within=5)
        assert not [record.message for record in caplog.records if "listener" in record.message]


@in_virtual_time
async def test_a_message_pulled_for_another_expression_is_pulled_anew() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        got: list[str | None] = []
        consumer = s.consumer()

        @consumer.on("One", "A")
        async def handle(message: MessageExt) -> None:
            got.append(message.tags)

        async with consumer:
            await eventually(lambda: consumer.assignment)
            await asyncio.sleep(1)
            sending = [
                asyncio.get_running_loop().create_task(s.producer.send(Message("One", b"x", tags=tag))) for tag in "AB"
            ]
            await asyncio.sleep(0)
            consumer.subscribe("One", "B")
            await asyncio.gather(*sending)
            await asyncio.sleep(60)
        assert got == ["B"]
