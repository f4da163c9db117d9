"""Orderly consumption: one at a time, in order, under the broker's lock."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from rmq.aio import ConsumeContext, ConsumeResult, Message, MessageExt, MessageQueue, PushConsumer
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectFailed
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")

LATER = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT


async def ordered(s: Scene, count: int) -> None:
    for i in range(count):
        await s.producer.send(Message("T", b"%d" % i, keys=f"k{i}"))


@in_virtual_time
async def test_a_queue_waits_for_its_message_and_keeps_its_order() -> None:
    async with scene() as s:
        seen: dict[int, list[int]] = defaultdict(list)
        tries: dict[int, list[float]] = defaultdict(list)
        active: set[int] = set()
        consumer = s.consumer(orderly=True, suspend_current_queue_time=2)

        @consumer.on("T")
        async def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            queue = message.queue_id
            assert queue not in active
            active.add(queue)
            await asyncio.sleep(0.01)
            active.discard(queue)
            if message.queue_offset == 5 and len(tries[queue]) < 3:
                tries[queue].append(asyncio.get_running_loop().time())
                assert message.reconsume_times == len(tries[queue]) - 1
                if queue == 0:
                    raise ValueError("the same as SUSPEND_CURRENT_QUEUE_A_MOMENT")
                if queue == 1:
                    context.suspend_current_queue_time = 10
                return LATER
            seen[queue].append(message.queue_offset)
            return ConsumeResult.SUCCESS

        async with consumer:
            await ordered(s, 100)
            await eventually(lambda: sum(map(len, seen.values())) == 100)
        assert all(offsets == list(range(25)) for offsets in seen.values())
        assert 1.9 < tries[0][1] - tries[0][0] < 2.2
        assert 9.9 < tries[1][1] - tries[1][0] < 10.2
        assert set((await s.diff()).values()) == {0}


@in_virtual_time
async def test_too_many_tries_make_a_dead_letter_and_the_queue_goes_on() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        tries = 0
        seen: list[int] = []
        consumer = s.consumer(orderly=True, suspend_current_queue_time=0.1, max_reconsume_times=3)

        @consumer.on("One")
        async def handle(message: MessageExt) -> None:
            nonlocal tries
            if message.queue_offset == 2:
                tries += 1
                raise ValueError("never")
            seen.append(message.queue_offset)

        async with consumer:
            sent = await s.send(5, "One")
            await eventually(lambda: len(seen) == 4)
            await asyncio.sleep(30)
        assert tries == 4
        assert seen == [0, 1, 3, 4]
        assert (await s.admin.query_message("%DLQ%g", sent[2])).messages


@in_virtual_time
async def test_commit_and_rollback_by_hand() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        calls: list[int] = []
        consumer = s.consumer(orderly=True, suspend_current_queue_time=0.5)

        @consumer.on("One")
        async def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            context.auto_commit = False
            calls.append(message.queue_offset)
            if message.queue_offset < 2:
                return ConsumeResult.SUCCESS
            return ConsumeResult.ROLLBACK if calls.count(2) == 1 else ConsumeResult.COMMIT

        async with consumer:
            await s.send(3, "One")
            await eventually(lambda: len(calls) == 6)
            await asyncio.sleep(20)
            assert (await s.diff())[("One", 0)] == 0
        assert calls == [0, 1, 2, 0, 1, 2]


@in_virtual_time
async def test_a_clean_stop_and_an_unsubscription_hand_the_locks_over_at_once() -> None:
    """Field case B036."""
    async with scene() as s:
        seen: list[tuple[str, int, int]] = []
        members = {name: s.consumer(orderly=True) for name in "ab"}
        for name, member in members.items():

            @member.on("T")
            async def handle(message: MessageExt, name: str = name) -> None:
                seen.append((name, message.queue_id, message.queue_offset))

        await members["a"].start()
        await eventually(lambda: sum(queue.topic == "T" for queue in members["a"].assignment) == 4)
        await members["b"].start()
        await eventually(lambda: sum(queue.topic == "T" for queue in members["b"].assignment) == 2, within=3)
        await ordered(s, 40)
        await eventually(lambda: len(seen) == 40)
        # Its share stays its own while it is a member, but whoever asks gets the locks.
        queues = [queue for queue in members["a"].assignment if queue.topic == "T"]
        members["a"].unsubscribe("T")
        locks = s.cluster.brokers[0].members.locks
        await eventually(lambda: locks.lock("g", "somebody", queues) == queues, within=2)
        locks.unlock("g", "somebody", queues)
        await members["a"].shutdown()
        await eventually(lambda: sum(queue.topic == "T" for queue in members["b"].assignment) == 4, within=2)
        await ordered(s, 40)
        await eventually(lambda: len(seen) == 80)
        again = s.consumer(orderly=True)

        @again.on("T")
        async def take(message: MessageExt) -> None:
            seen.append(("again", message.queue_id, message.queue_offset))

        await again.start()
        await eventually(lambda: sum(queue.topic == "T" for queue in again.assignment) == 2, within=3)
        await members["b"].shutdown()
        await eventually(lambda: sum(queue.topic == "T" for queue in again.assignment) == 4, within=2)
        await ordered(s, 40)
        await eventually(lambda: len(seen) == 120)
        await again.shutdown()
        for number in range(4):
            assert [offset for _, queue, offset in seen if queue == number] == list(range(30))


@in_virtual_time
async def test_a_long_suspension_does_not_lose_the_queue() -> None:
    """Field case B040."""
    async with scene() as s:
        await s.topic("One", 1)
        seen: list[int] = []
        assigned: list[int] = []
        healthy = False
        consumer = s.consumer(
            orderly=True,
            suspend_current_queue_time=1,
            message_queue_listener=lambda topic, all_queues, mine: assigned.append(len(mine)),
        )

        @consumer.on("One")
        async def handle(message: MessageExt) -> ConsumeResult:
            if not healthy:
                return LATER
            seen.append(message.queue_offset)
            return ConsumeResult.SUCCESS

        async with consumer:
            await s.send(100, "One")
            await asyncio.sleep(600)
            healthy = True
            assert await eventually(lambda: len(seen) == 100) < 5
        assert seen == list(range(100))
        assert assigned.count(1) <= 2


@in_virtual_time
async def test_a_call_under_way_keeps_the_queue_until_it_ends() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        log: list[tuple[str, str, int]] = []
        first, second = s.consumer(orderly=True, instance_name="z"), s.consumer(orderly=True, instance_name="a")
        for name, member in (("first", first), ("second", second)):

            @member.on("One")
            async def handle(message: MessageExt, name: str = name) -> None:
                log.append((name, "begin", message.queue_offset))
                await asyncio.sleep(3)
                log.append((name, "end", message.queue_offset))

        await s.send(3, "One")
        await first.start()
        await eventually(lambda: log)
        await second.start()  # sorts before the other member: the one queue becomes its own
        await eventually(lambda: len(log) == 6, within=60)
        await first.shutdown()
        await second.shutdown()
        assert [(what, offset) for _, what, offset in log] == [(w, i) for i in range(3) for w in ("begin", "end")]
        assert [name for name, what, _ in log if what == "begin"] == ["first", "second", "second"]


@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
def test_batches_stay_in_order(model: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            seen: list[int] = []
            sizes: list[int] = []
            consumer = s.consumer(
                orderly=True, message_model=model, consume_message_batch_max_size=8, offset_store_dir="/offsets"
            )

            @consumer.on("One", batch=True)
            async def handle(messages: list[MessageExt]) -> None:
                sizes.append(len(messages))
                seen.extend(message.queue_offset for message in messages)

            await s.send(50, "One")
            async with consumer:
                await eventually(lambda: len(seen) == 50)
            assert seen == list(range(50))
            assert max(sizes) == 8

    run()


@in_virtual_time
async def test_a_master_that_is_gone_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(listenPort="20911") as s:
        consumer = s.consumer(orderly=True)
        got: set[str] = set()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(1)
            got.add(message.msg_id)

        async with consumer:
            sent = set(await s.send(400))
            await eventually(lambda: got)
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await asyncio.sleep(60)
            assert sum("no lock from the master" in record.message for record in caplog.records) < 10
            await s.cluster.start_broker(0)
            await eventually(lambda: got == sent, within=200)


def ignoring(s: Scene, **options: Any) -> PushConsumer:
    """An orderly member whose listener does nothing."""
    consumer = s.consumer(orderly=True, **options)

    @consumer.on("T")
    async def handle(message: MessageExt) -> None:
        return None

    return consumer


QUEUES = [MessageQueue("T", "broker-0", number) for number in range(4)]


def holders(s: Scene) -> set[str | None]:
    """Who has the locks of T's queues."""
    return {s.cluster.brokers[0].members.locks.holder("g", queue) for queue in QUEUES}


def ours(consumer: PushConsumer) -> int:
    return sum(queue.topic == "T" for queue in consumer.assignment)


@in_virtual_time
async def test_a_refused_lock_is_asked_for_again_within_about_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        locks = s.cluster.brokers[0].members.locks
        locks.lock("g", "somebody", QUEUES)
        with caplog.at_level("INFO", "rmq.client.consumer.kept_locks"):
            async with ignoring(s) as consumer:
                await asyncio.sleep(7.5)
                assert ours(consumer) == 0
                locks.unlock("g", "somebody", QUEUES[:1])
                await eventually(lambda: ours(consumer) == 1, within=1.5)
                locks.unlock("g", "somebody", QUEUES)
                await eventually(lambda: ours(consumer) == 4, within=1.5)
        said = [record.message for record in caplog.records if "locked by their last owner" in record.message]
        assert said == ["group g: 4 queues of T are locked by their last owner still"]


def late_locks(consumer: PushConsumer) -> None:
    """Requests for locks take half a second to leave, and what gives them back a second to be answered."""
    instance = consumer._client
    call, request = instance.call, instance.remoting.request

    async def slow(address: str, command: Command, timeout: float) -> Command:
        reply = await request(address, command, timeout)
        if command.code == RequestCode.UNLOCK_BATCH_MQ:
            await asyncio.sleep(1)
        return reply

    instance.remoting.request = slow  # type: ignore[method-assign]

    async def late(address: str, code: RequestCode, *arguments: Any, **named: Any) -> Any:
        if code == RequestCode.LOCK_BATCH_MQ:
            await asyncio.sleep(0.5)
        return await call(address, code, *arguments, **named)

    instance.call = late  # type: ignore[method-assign]


@pytest.mark.parametrize("how", ["unsubscription", "shutdown"])
def test_a_queue_given_up_while_its_lock_is_being_renewed_is_free(how: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            consumer = ignoring(s)
            await consumer.start()
            await eventually(lambda: ours(consumer) == 4)
            late_locks(consumer)
            delivery = consumer._delivery
            assert delivery is not None
            assert delivery.locks is not None
            renewal = asyncio.get_running_loop().create_task(delivery.locks.renew())
            await asyncio.sleep(0)
            if how == "shutdown":
                await consumer.shutdown()
            else:
                consumer.unsubscribe("T")
            await renewal
            await eventually(lambda: holders(s) == {None}, within=2)
            await consumer.shutdown()

    run()


@in_virtual_time
async def test_no_call_is_begun_without_a_connection_and_the_locks_are_kept_over_a_short_loss() -> None:
    """A member that only reconnects goes on where it was; nobody else gets its queues meanwhile."""
    async with scene() as s:
        calls: list[tuple[str, float]] = []
        members = {name: s.consumer(orderly=True, instance_name=name) for name in ("first", "other")}
        loop = asyncio.get_running_loop()
        for name, member in members.items():

            @member.on("T")
            async def handle(message: MessageExt, name: str = name) -> None:
                calls.append((name, loop.time()))
                await asyncio.sleep(0.5)

        first = members["first"]
        await first.start()
        await eventually(lambda: ours(first) == 4)
        await ordered(s, 80)
        await eventually(lambda: len(calls) >= 8)
        connected = first._client.remoting.connected(s.cluster.broker_addr)
        assert connected is not None
        lost = loop.time()
        away = True
        request = first._client.remoting.request

        async def no_way(address: str, *arguments: Any, **named: Any) -> Any:
            if away:
                raise ConnectFailed("the network is away")
            return await request(address, *arguments, **named)

        first._client.remoting.request = no_way  # type: ignore[method-assign]
        connected.close("the network is away")
        await members["other"].start()
        await asyncio.sleep(8)
        assert not [name for name, at in calls if at > lost + 0.01], "nobody has the locks for certain"
        assert holders(s) == {first.client_id}
        away = False
        await eventually(lambda: any(at > lost + 1 for _, at in calls), within=3)
        assert calls[-1][0] == "first"
        await first.shutdown()
        await members["other"].shutdown()


@pytest.mark.parametrize("seconds", [0, 5])
@in_virtual_time
async def test_queues_that_held_nothing_go_on_soon_after_a_lost_connection(seconds: int) -> None:
    """Nothing is pulled without a lock, so no worker is there to ask for it: it is asked for all the same."""
    async with scene() as s:
        got: list[int] = []
        consumer = s.consumer(orderly=True)

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.queue_id)

        async with consumer:
            await eventually(lambda: ours(consumer) == 4)
            await asyncio.sleep(5)
            remoting = consumer._client.remoting
            request = remoting.request
            away = True

            async def no_way(address: str, *arguments: Any, **named: Any) -> Any:
                if away:
                    raise ConnectFailed("the network is away")
                return await request(address, *arguments, **named)

            remoting.request = no_way  # type: ignore[method-assign]
            connected = remoting.connected(s.cluster.broker_addr)
            assert connected is not None
            connected.close("the network is away")
            await ordered(s, 8)
            await asyncio.sleep(seconds)
            away = False
            await eventually(lambda: len(got) == 8, within=3)
