"""The push consumer in clustering mode, whole cluster in virtual time."""

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
    PushConsumer,
    ResponseError,
)
from rmq.client.consumer.offsets import RemoteBrokerOffsetStore
from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.offset import ResetOffsetRequest
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

        sent = set(await s.send(4000))
        for member, share in zip(members, (600, 1600, 4000), strict=True):
            await member.start()
            await eventually(lambda share=share: len(seen) >= share)  # type: ignore[misc]
        assert set(seen) == sent
        # What listeners had in hand when their queue went, and what was behind it; not what came since the last note.
        assert seen.total() - len(seen) <= 2 * most
        for member in members:
            await member.shutdown()
        assert set((await s.diff()).values()) == {0}


@in_virtual_time
async def test_a_consumer_tells_how_far_it_noted_each_queue() -> None:
    async with scene() as s:
        consumer = s.consumer()
        queue = MessageQueue("T", "broker-0", 0)
        seen: list[str] = []

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            seen.append(message.msg_id)

        assert consumer.committed(queue) == -1, "it is not started"
        await consumer.start()
        await s.send(40)
        await eventually(lambda: len(seen) == 40)
        await eventually(lambda: consumer.committed(queue) == 10)
        assert consumer.committed(MessageQueue("T", "broker-0", 99)) == -1
        await consumer.shutdown()


@pytest.mark.parametrize(
    ("at_hand", "policy", "expected"),
    [
        ("40", "LAST_OFFSET", 7), ("40", "FIRST_OFFSET", 7), ("40", "TIMESTAMP", 7),
        ("0", "LAST_OFFSET", 2), ("0", "FIRST_OFFSET", 7), ("0", "TIMESTAMP", 4),
    ],
)  # fmt: skip
def test_where_a_new_group_starts(at_hand: str, policy: str, expected: int) -> None:
    """Field case B013: where it says, once the first message of a queue has left what counts as memory."""

    @in_virtual_time
    async def run() -> None:
        async with scene(accessMessageInMemoryMaxRatio=at_hand) as s:
            await s.topic("One", 1)
            await s.send(3, "One")
            await asyncio.sleep(60)
            middle = s.cluster.world.clock.now_ms()
            await asyncio.sleep(60)
            await s.send(2, "One")
            import datetime

            when = datetime.datetime.fromtimestamp((middle + 59_000) / 1000)
            got: list[MessageExt] = []
            consumer = s.consumer(consume_from_where=f"CONSUME_FROM_{policy}", consume_timestamp=when)

            @consumer.on("One")
            async def handle(message: MessageExt) -> None:
                got.append(message)

            async with consumer:
                await eventually(lambda: consumer.assignment)
                await asyncio.sleep(1)
                await s.send(2, "One")
                await asyncio.sleep(30)
            assert len(got) == expected

    run()


@pytest.mark.parametrize("policy", ["LAST_OFFSET", "FIRST_OFFSET"])
def test_where_to_start_matters_for_a_group_without_offsets_only(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """Field case B014."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            got: list[int] = []

            def member(consume_from_where: str) -> PushConsumer:
                made = s.consumer(consume_from_where=consume_from_where)

                @made.on("One")
                async def handle(message: MessageExt) -> None:
                    got.append(message.queue_offset)

                return made

            await s.send(10, "One")
            async with member("CONSUME_FROM_FIRST_OFFSET"):
                await eventually(lambda: len(got) == 10)
            await s.send(5, "One")
            caplog.clear()
            async with member(f"CONSUME_FROM_{policy}"):
                await eventually(lambda: len(got) == 15)
                await asyncio.sleep(30)
            assert got == list(range(15))
            lines = [record.getMessage() for record in caplog.records if "topic=One" in record.getMessage()]
            assert any("starts at the committed offset 10" in line for line in lines), lines

    with caplog.at_level("INFO"):
        run()


@in_virtual_time
async def test_the_exact_tag_is_compared_here_and_offsets_pass_what_does_not_match() -> None:
    """Field case B030."""
    async with scene() as s:
        got: list[str | None] = []
        consumer = s.consumer()

        @consumer.on("T", "BBBB || TagC")
        async def handle(message: MessageExt) -> None:
            got.append(message.tags)

        async with consumer:
            await s.send(40, tags="AaAa")  # the same Java hash as BBBB: only the client can tell
            await s.send(20, tags="other")
            await s.send(2, tags="TagC")
            await s.send(10, tags="AaAa")
            await eventually(lambda: len(got) == 2)
            await asyncio.sleep(21)
            assert set((await s.diff()).values()) == {0}
        assert got == ["TagC", "TagC"]


@in_virtual_time
async def test_pulling_stops_at_the_limits() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        release = asyncio.Event()
        done = 0
        consumer = s.consumer(consume_thread_max=2, consume_thread_min=1, pull_threshold_for_queue=100)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            nonlocal done
            await release.wait()
            done += 1

        async with consumer:
            await s.send(300, "One")
            await asyncio.sleep(30)
            held = next(pq for queue, pq in consumer.process_queues().items() if queue.topic == "One")
            assert 100 <= held.count <= 132
            release.set()
            await eventually(lambda: done == 300)


@in_virtual_time
async def test_the_span_stops_pulling_while_the_first_message_is_stuck() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        release = asyncio.Event()
        done: list[int] = []
        consumer = s.consumer(consume_concurrently_max_span=50)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            if message.queue_offset == 0:
                await release.wait()
            done.append(message.queue_offset)

        async with consumer:
            await s.send(200, "One")
            await asyncio.sleep(30)
            assert 50 < len(done) <= 50 + 2 * 32
            assert (await s.diff())[("One", 0)] == 200
            release.set()
            await eventually(lambda: len(done) == 200)


@in_virtual_time
async def test_suspend_and_resume() -> None:
    async with scene() as s:
        got: list[str] = []
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.msg_id)

        async with consumer:
            await s.send(1)
            await eventually(lambda: len(got) == 1)
            consumer.suspend()
            await asyncio.sleep(20)
            await s.send(5)
            await asyncio.sleep(60)
            assert len(got) == 1
            consumer.resume()
            await eventually(lambda: len(got) == 6)


@in_virtual_time
async def test_more_calls_at_a_time_begin_at_once_and_fewer_when_some_have_ended() -> None:
    async with scene() as s:
        running = most = 0
        consumer = s.consumer(consume_thread_min=1, consume_thread_max=1)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(10)
            running -= 1

        async with consumer:
            await s.send(40)
            await eventually(lambda: running == 1)
            await asyncio.sleep(5)
            assert most == 1
            consumer.update_core_pool_size(4)
            await eventually(lambda: running == 4, within=1)
            await asyncio.sleep(30)
            assert most == 4
            consumer.update_core_pool_size(2)
            await eventually(lambda: running == 2, within=11)
            most = 0
            await asyncio.sleep(30)
            assert most == 2


@in_virtual_time
async def test_shutdown_finishes_what_runs_and_leaves_the_rest() -> None:
    """Field case B041."""
    async with scene() as s:
        await s.topic("One", 1)
        seen: Counter[str] = Counter()

        def member() -> PushConsumer:
            made = s.consumer(consume_thread_min=1, consume_thread_max=4)

            @made.on("One")
            async def handle(message: MessageExt) -> None:
                await asyncio.sleep(2)
                seen[message.msg_id] += 1

            return made

        sent = await s.send(100, "One")
        first = member()
        await first.start()
        await eventually(lambda: len(seen) >= 20)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        began = loop.time()
        await first.shutdown(timeout=10)
        assert loop.time() - began <= 2.5
        assert 20 <= len(seen) <= 32
        second = member()
        await second.start()
        await eventually(lambda: len(seen) == 100, within=200)
        await second.shutdown()
        assert seen == Counter(sent)


@in_virtual_time
async def test_an_offset_that_does_not_exist_is_corrected_once() -> None:
    """Field case B022."""
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(50, "One")
        broken = s.consumer()
        got: list[str] = []

        @broken.on("One")
        async def handle(message: MessageExt) -> None:
            got.append(message.msg_id)

        async with broken:
            await eventually(lambda: len(got) == 50)
            (queue,) = [queue for queue in broken.assignment if queue.topic == "One"]
            await broken.reset_offsets("One", {queue: 5000})
            await asyncio.sleep(30)
            await s.send(3, "One")
            await eventually(lambda: len(got) == 53)
            await asyncio.sleep(10)
        assert len(got) == 53
        assert (await s.diff())[("One", 0)] == 0


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_reset_from_outside_is_not_undone_by_late_results(orderly: bool) -> None:
    """Field case B018."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            got: list[int] = []
            consumer = s.consumer(orderly=orderly, consume_thread_min=1, consume_thread_max=1)

            @consumer.on("One")
            async def handle(message: MessageExt) -> None:
                await asyncio.sleep(0.2)
                got.append(message.queue_offset)

            async with consumer:
                await s.send(100, "One")
                await eventually(lambda: len(got) == 5)
                await consumer.persist_offsets()
                header = ResetOffsetRequest(topic="One", group="g", timestamp=-1, is_force=True)
                await s.admin.instance.call(s.cluster.broker_addr, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
                await s.send(1, "One")
                # It goes on after the call under way: a queue never stands still for a reset.
                await eventually(lambda: got[-1] == 100, within=2)
                assert len(got) <= 7
                await asyncio.sleep(30)
                assert len(got) <= 7
            assert (await s.diff())[("One", 0)] == 0

    run()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_reset_while_nothing_is_called_takes_effect_at_once(orderly: bool) -> None:
    """An orderly queue's worker waits for messages, or out the pause after a failure: it is not waited for."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            await s.topic("Failing", 1)
            got: list[tuple[str, int]] = []
            consumer = s.consumer(orderly=orderly, suspend_current_queue_time=30)

            @consumer.on("One")
            @consumer.on("Failing")
            async def handle(message: MessageExt) -> bool:
                got.append((message.topic, message.queue_offset))
                return message.topic != "Failing"

            async with consumer:
                await s.send(3, "One")
                await s.send(3, "Failing")
                await eventually(lambda: got.count(("One", 2)) and got.count(("Failing", 0)))
                await asyncio.sleep(5)
                for topic in ("One", "Failing"):
                    got.clear()
                    await s.admin.reset_offset_by_timestamp(topic, "g", 0)
                    await eventually(lambda topic=topic: (topic, 0) in got, within=2)  # type: ignore[misc]

    run()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_reset_holds_when_the_member_stops_at_once(orderly: bool) -> None:
    """Field case B018."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            got: list[int] = []

            def member() -> PushConsumer:
                made = s.consumer(orderly=orderly, consume_thread_min=1, consume_thread_max=1)

                @made.on("One")
                async def handle(message: MessageExt) -> None:
                    await asyncio.sleep(0.2)
                    got.append(message.queue_offset)

                return made

            await s.send(100, "One")
            async with member() as first:
                await eventually(lambda: len(got) == 5)
                await first.persist_offsets()
                done = await s.admin.reset_offset_by_timestamp("One", "g", -1)
                assert [(one.new_offset, one.clients) for one in done] == [(100, 1)]
                await asyncio.sleep(0.01)
            assert len(got) <= 6
            assert (await s.diff())[("One", 0)] == 0
            async with member():
                await asyncio.sleep(30)
                assert len(got) <= 6
                await s.send(1, "One")
                await eventually(lambda: got[-1] == 100)

    run()


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
                return (await s.admin.instance.call(s.cluster.broker_addr, code, header, timeout=20)).body

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


@pytest.mark.parametrize("listeners", ["coroutine"], indirect=True)  # one on a thread would wait for itself
@in_virtual_time
async def test_a_listener_may_shut_its_consumer_down() -> None:
    async with scene() as s:
        ended = asyncio.Event()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            await consumer.shutdown()
            ended.set()

        await consumer.start()
        await s.send(1)
        await ended.wait()
        await eventually(lambda: not consumer.assignment)
        await asyncio.sleep(1)
        assert set((await s.diff()).values()) == {0}


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
async def test_a_broker_that_comes_back_elsewhere_serves_on() -> None:
    async with scene() as s:
        got: set[str] = set()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.add(message.msg_id)

        async with consumer:
            sent = set(await s.send(8))
            await eventually(lambda: got == sent)
            before = s.cluster.broker_addr
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await asyncio.sleep(5)
            await s.cluster.start_broker(0)
            assert s.cluster.broker_addr != before
            await asyncio.sleep(31)
            sent |= set(await s.send(8))
            await eventually(lambda: got == sent, within=35)


@in_virtual_time
async def test_a_broker_that_restarts_learns_of_its_consumers_at_once() -> None:
    async with scene(listenPort="20911") as s:
        got: set[str] = set()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.add(message.msg_id)

        async with consumer:
            sent = set(await s.send(8))
            await eventually(lambda: got == sent)
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await s.cluster.start_broker(0)
            sent |= set(await s.send(8))
            assert await eventually(lambda: got == sent) < 10


@in_virtual_time
async def test_a_consumer_starts_again_after_its_shutdown() -> None:
    async with scene() as s:
        got: set[str] = set()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.add(message.msg_id)

        sent: set[str] = set()
        for _ in range(3):
            sent.update(await s.send(4))
            async with consumer:
                await eventually(lambda: len(got) == len(sent))
            assert not consumer.assignment
        assert got == sent


@in_virtual_time
async def test_offsets_are_first_kept_after_one_interval() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(3, "One")
        got: list[MessageExt] = []
        consumer = s.consumer()

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            got.append(message)

        async with consumer:
            await eventually(lambda: len(got) == 3, within=1)
            await asyncio.sleep(5)
            assert (await s.diff())[("One", 0)] == 0


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
