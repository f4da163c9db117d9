"""Consumers whose broker has them pop: acknowledgements, failures, invisible times; whole cluster in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq.aio import AdminClient, ClientError, ConsumeContext, ConsumeResult, Message, MessageExt, Producer
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing.simcluster import SimCluster
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time

POP = {"client_rebalance": False}


@asynccontextmanager
async def popping(share: int = 0, **settings: str) -> AsyncIterator[Scene]:
    """A scene whose group pops."""
    async with scene(**settings) as s:
        await s.admin.set_message_request_mode(s.cluster.broker_addr, "T", "g", "POP", share)
        yield s


class Asked:
    """Counts what is asked of servers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, s: Scene) -> None:
        from rmq.remoting.client import RemotingClient

        self.codes: Counter[int] = Counter()
        real = RemotingClient.request

        async def request(client: Any, address: str, command: Command, *rest: Any, **how: Any) -> Command:
            self.codes[command.code] += 1
            return await real(client, address, command, *rest, **how)

        monkeypatch.setattr(RemotingClient, "request", request)


@pytest.mark.usefixtures("listeners")
@in_virtual_time
async def test_each_message_once_and_what_is_done_stays_away() -> None:
    async with popping() as s:
        got: Counter[bytes] = Counter()
        consumer = s.consumer(pop_invisible_time=5, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            assert message.topic == "T"
            assert message.properties["POP_CK"].split(" ")[4:6] == ["0", "broker-0"]
            got[message.body] += 1

        await s.send(100)
        async with consumer:
            await eventually(lambda: len(got) == 100)
            await asyncio.sleep(30)
            assert [(queue.topic, queue.queue_id) for queue in consumer.assignment] == [("%RETRY%g", 0), ("T", -1)]
            assert set(got.values()) == {1}
            (held,) = consumer._inner.pop_queues().values()
            assert held.count == 0
            info = consumer._inner.running_info()
            assert info.mq_pop_table is not None
            assert [queue.queue_id for queue in info.mq_pop_table] == [-1]


@in_virtual_time
async def test_acknowledgements_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with popping() as s:
        got: list[bytes] = []
        consumer = s.consumer(**POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.body)

        await s.send(96)
        asked = Asked(monkeypatch, s)
        async with consumer:
            await eventually(lambda: len(got) == 96)
        assert asked.codes[RequestCode.ACK_MESSAGE] + asked.codes[RequestCode.BATCH_ACK_MESSAGE] < 12, asked.codes
        assert asked.codes[RequestCode.BATCH_ACK_MESSAGE]
        # Nothing was left to be told when it ended: the next member gets nothing.
        other = s.consumer(pop_invisible_time=5, **POP)
        other.on("T")(handle)
        async with other:
            await asyncio.sleep(90)
        assert len(got) == 96


@pytest.mark.parametrize("share", [0, 1])
@in_virtual_time
async def test_members_share_and_one_that_ends_without_a_word_loses_nothing(share: int) -> None:
    async with popping(share) as s:
        got: list[tuple[str, bytes]] = []
        consumers = []
        for name in ("a", "b"):
            consumer = s.consumer(instance_name=name, pop_invisible_time=5, **POP)

            @consumer.on("T")
            async def handle(message: MessageExt, name: str = name) -> None:
                got.append((name, message.body))
                if name == "b":
                    await asyncio.sleep(3600)

            consumers.append(consumer)
        first, second = consumers
        async with first:
            await second.start()
            await asyncio.sleep(2)
            await s.send(200)
            await eventually(lambda: {name for name, _ in got} == {"a", "b"})
            await second.shutdown(timeout=0)
            await eventually(lambda: len({body for name, body in got if name == "a"}) == 200, within=120)


@pytest.mark.usefixtures("listeners")
@in_virtual_time
async def test_failures_come_again_as_the_listener_says_and_end_as_dead_letters() -> None:
    async with popping() as s:
        tries: list[tuple[int, str, float]] = []
        now = s.cluster.world.clock.monotonic
        consumer = s.consumer(max_reconsume_times=3, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            tries.append((message.reconsume_times, message.topic, now()))
            if message.reconsume_times == 1:
                context.delay_level_when_next_consume = 3  # two minutes
            return ConsumeResult.RECONSUME_LATER

        async with consumer:
            (sent,) = await s.send(1)
            await eventually(lambda: len(tries) == 4, within=600)
            await asyncio.sleep(600)
        assert [(times, topic) for times, topic, _ in tries] == [(number, "T") for number in range(4)]
        gaps = [later - sooner for (_, _, sooner), (_, _, later) in itertools.pairwise(tries)]
        assert all(delay <= gap < delay + 3 for gap, delay in zip(gaps, (10, 120, 60), strict=True)), gaps
        (dead,) = (await s.admin.query_message("%DLQ%g", sent)).messages
        assert dead.msg_id == sent
        assert "POP_CK" not in dead.properties, "who pops dead letters would acknowledge something else"


@in_virtual_time
async def test_of_a_batch_only_what_failed_comes_again() -> None:
    async with popping() as s:
        got: list[tuple[bytes, int]] = []
        consumer = s.consumer(consume_message_batch_max_size=8, **POP)

        @consumer.on("T", batch=True)
        async def handle(messages: list[MessageExt], context: ConsumeContext) -> None:
            got.extend((message.body, message.reconsume_times) for message in messages)
            bad = [i for i, message in enumerate(messages) if message.body == b"5" and not message.reconsume_times]
            if bad:
                context.ack_index = bad[0] - 1

        await s.send(8)
        async with consumer:
            await eventually(lambda: (b"5", 1) in got)
        assert {body for body, _ in got} == {b"%d" % i for i in range(8)}
        assert (b"4", 1) not in got or got.index((b"4", 0)) > got.index((b"5", 0))


@in_virtual_time
async def test_a_listener_over_the_invisible_time_does_not_count_unless_it_asked_for_more() -> None:
    async with popping() as s:
        began: list[tuple[bytes, int]] = []
        seen: list[MessageExt] = []
        consumer = s.consumer(pop_invisible_time=5, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            began.append((message.body, message.reconsume_times))
            seen.append(message)
            if message.reconsume_times == 0:
                if message.body == b"1":
                    await consumer.change_invisible_time(message, 60)
                await asyncio.sleep(20)

        async with consumer:
            await s.send(2)
            await eventually(lambda: (b"0", 1) in began)
            await asyncio.sleep(120)
            assert sorted(began) == [(b"0", 0), (b"0", 1), (b"1", 0)]
            with pytest.raises(ClientError, match="is not popped"):
                await consumer.change_invisible_time(seen[0], 60)


@in_virtual_time
async def test_what_waits_over_its_invisible_time_is_not_begun() -> None:
    async with popping() as s:
        began: list[tuple[bytes, int]] = []
        consumer = s.consumer(pop_invisible_time=5, consume_thread_max=1, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            began.append((message.body, message.reconsume_times))
            if len(began) == 1:
                await asyncio.sleep(7)

        await s.topic(queues=1)
        await s.send(3)
        async with consumer:
            await eventually(lambda: len(began) == 4)
            await asyncio.sleep(60)
        assert sorted(began) == [(b"0", 0), (b"0", 1), (b"1", 1), (b"2", 1)]


@in_virtual_time
async def test_a_broker_that_is_killed_loses_nothing_and_does_not_begin_anew() -> None:
    async with SimCluster() as cluster:
        where: Any = {"namesrv": cluster.namesrv_addr, "world": cluster.world}
        s = Scene(cluster, Producer("pg", **where), AdminClient(**where))
        async with s.producer, s.admin:
            await s.topic()
            await s.admin.set_message_request_mode(cluster.broker_addr, "T", "g")
            got: Counter[bytes] = Counter()
            consumer = s.consumer(pop_invisible_time=10, consume_thread_max=8, **POP)

            @consumer.on("T")
            async def handle(message: MessageExt) -> None:
                got[message.body] += 1
                await asyncio.sleep(0.2)

            async with consumer:
                await s.send(200)
                await eventually(lambda: len(got) > 60)
                await cluster.kill_broker()
                await cluster.start_broker()
                await eventually(lambda: len(got) == 200, within=300)
                await asyncio.sleep(60)
            assert sum(got.values()) < 300, "what was acknowledged came again"


@in_virtual_time
async def test_nothing_is_popped_while_suspended_or_too_much_is_open() -> None:
    async with popping() as s:
        began: list[bytes] = []
        go = asyncio.Event()
        consumer = s.consumer(pop_threshold_for_queue=8, pop_batch_nums=4, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            began.append(message.body)
            await go.wait()

        consumer.suspend()
        async with consumer:
            await s.send(40)
            await asyncio.sleep(5)
            assert not began
            consumer.resume()
            await asyncio.sleep(5)
            assert len(began) == 12, "pops go on until more than the threshold are open"
            go.set()
            await eventually(lambda: len(began) == 40)


@pytest.mark.usefixtures("listeners")
@in_virtual_time
async def test_in_order_and_what_fails_holds_what_follows() -> None:
    async with popping() as s:
        got: list[tuple[int, bytes, int]] = []
        consumer = s.consumer(orderly=True, suspend_current_queue_time=2, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> ConsumeResult:
            got.append((message.queue_id, message.body, message.reconsume_times))
            fails = message.body in (b"7", b"9") and message.reconsume_times < 2
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if fails else ConsumeResult.SUCCESS

        for number in range(40):
            queues = [queue for queue in await s.producer.fetch_publish_message_queues("T") if queue.queue_id < 2]
            await s.producer.send(Message("T", b"%d" % number), queue=queues[number % 2])
        async with consumer:
            await eventually(lambda: len(got) == 44)
            await asyncio.sleep(90)
        for queue_id in (0, 1):
            bodies = [int(body) for queue, body, _ in got if queue == queue_id]
            assert bodies == sorted(bodies), bodies
        assert [times for _, body, times in got if body in (b"7", b"9")] == [0, 1, 2, 0, 1, 2]
        assert len(got) == 44


@in_virtual_time
async def test_in_order_with_a_limit_of_tries_the_dead_do_not_hold_the_queue() -> None:
    async with popping() as s:
        got: list[bytes] = []
        consumer = s.consumer(orderly=True, suspend_current_queue_time=1, max_reconsume_times=1, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.body)
            if message.body == b"0":
                raise ValueError("never")

        await s.topic(queues=1)
        sent = await s.send(3)
        async with consumer:
            await eventually(lambda: b"2" in got)
        assert got == [b"0", b"0", b"1", b"2"]
        assert (await s.admin.query_message("%DLQ%g", sent[0])).messages


@in_virtual_time
async def test_a_group_that_pulls_again_gets_what_pops_left() -> None:
    async with popping() as s:
        got: list[tuple[bytes, str, int]] = []
        consumer = s.consumer(rebalance_interval=1, pop_invisible_time=5, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append((message.body, message.topic, message.reconsume_times))
            if message.body == b"0" and "POP_CK" in message.properties:
                raise ValueError("later")

        async with consumer:
            await s.send(1)
            await eventually(lambda: len(got) == 1)
            await s.admin.set_message_request_mode(s.cluster.broker_addr, "T", "g", "PULL")
            await eventually(lambda: all(queue.queue_id >= 0 for queue in consumer.assignment))
            await s.send(2)
            await eventually(lambda: (b"0", "T", 1) in got, within=60)
            assert (b"1", "T", 0) in got
            assert "%RETRY%g_T" in consumer._inner.topics()
            await s.admin.set_message_request_mode(s.cluster.broker_addr, "T", "g", "POP")
            await eventually(lambda: "%RETRY%g_T" not in consumer._inner.topics())


@in_virtual_time
async def test_namespace_tags_and_unsubscribing() -> None:
    async with scene() as s:
        await s.topic("ns%T")
        await s.admin.set_message_request_mode(s.cluster.broker_addr, "ns%T", "ns%g", "POP")
        got: list[tuple[bytes, str, int]] = []
        consumer = s.consumer(namespace="ns", **POP)

        @consumer.on("T", "AaAa")
        async def handle(message: MessageExt) -> None:
            got.append((message.body, message.topic, message.reconsume_times))
            if message.body == b"again" and not message.reconsume_times:
                raise ValueError("later")

        # The two tags have one hash: the broker lets both through, the second is acknowledged by the client.
        for body, tag in (("good", "AaAa"), ("bad", "BBBB"), ("again", "AaAa")):
            await s.producer.send(Message("ns%T", body.encode(), tags=tag))
        async with consumer:
            await eventually(lambda: len(got) == 3, within=60)
            assert sorted(got) == [(b"again", "T", 0), (b"again", "T", 1), (b"good", "T", 0)]
            assert not any(held.count for held in consumer._inner.pop_queues().values())
            await s.topic("ns%U")
            consumer.on("U")(handle)
            consumer.unsubscribe("T")
            await eventually(lambda: not consumer._inner.pop_queues())
            # A pop under way brings it: it is given back for others, long before its invisible time is over.
            await s.producer.send(Message("ns%T", b"left", tags="AaAa"))
            other = s.consumer(namespace="ns", instance_name="other", allow_mixed_subscriptions=True, **POP)
            other.on("T", "AaAa")(handle)
            async with other:
                assert await eventually(lambda: len(got) == 4) < 20
            assert got[3] == (b"left", "T", 1)


@in_virtual_time
async def test_without_a_mode_the_broker_has_us_pull() -> None:
    async with scene() as s:
        got: list[MessageExt] = []
        consumer = s.consumer(**POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message)

        await s.send(4)
        async with consumer:
            await eventually(lambda: len(got) == 4)
            assert not consumer._inner.pop_queues()
            assert [queue.queue_id for queue in consumer.assignment if queue.topic == "T"] == [0, 1, 2, 3]
            with pytest.raises(ClientError, match="is not popped"):
                await consumer.change_invisible_time(got[0], 60)


@in_virtual_time
async def test_in_order_a_batch_is_kept_while_its_first_message_fails() -> None:
    """Twelve tries every two seconds, where what was popped is invisible for five."""
    async with popping() as s:
        got: list[bytes] = []
        handles: set[str] = set()
        consumer = s.consumer(orderly=True, suspend_current_queue_time=2, pop_invisible_time=5, **POP)

        @consumer.on("T")
        async def handle(message: MessageExt) -> ConsumeResult:
            got.append(message.body)
            handles.add(message.properties["POP_CK"])
            fails = len(got) < 12
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if fails else ConsumeResult.SUCCESS

        await s.topic(queues=1)
        await s.send(3)
        async with consumer:
            await eventually(lambda: len(got) == 14)
            await asyncio.sleep(60)
        assert got == [b"0"] * 12 + [b"1", b"2"]
        assert len(handles) == 3, "the broker gave them out again meanwhile"
