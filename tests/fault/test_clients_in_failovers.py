"""Clients through one change of the leader after the other: killed, cut off, handed over. In virtual time.

Clients of other languages, and processes: ``tests/interop/test_failover_clients.py``.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from rmq.aio import (
    AdminClient,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from rmq.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError, TransportError
from rmq.remoting.client import RemotingClient
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

WAYS = ("kill", "cut off", "hand over")


async def change(cluster: GroupCluster, way: str) -> None:
    """Another one leads, and a moment later the old one is there again."""
    leader = await cluster.led_by(60)
    match way:
        case "kill":
            await cluster.kill(leader)
        case "cut off":
            cluster.isolate(leader)
        case _:
            await _hand_over(cluster, leader)
    await eventually(lambda: cluster.leader() not in (None, leader), 30)
    await asyncio.sleep(0.7)
    cluster.simulation.net.heal()
    if leader not in cluster.members:
        await cluster.begin(leader)
    await cluster.led_by(60)


async def _hand_over(cluster: GroupCluster, leader: str) -> None:
    """An heir that lacks something, or has lost its connection, does not take it at once."""
    while (now := cluster.leader()) in (None, leader):
        if now == leader:
            cluster.driver(leader).transfer(next(name for name in cluster.names if name != leader))
        await asyncio.sleep(0.2)


async def changes(cluster: GroupCluster, count: int, pause: float = 1.5) -> None:
    for number in range(count):
        await asyncio.sleep(pause)
        await change(cluster, WAYS[number % len(WAYS)])
    await asyncio.sleep(pause)


class Work:
    """What clients do again and again until it is enough."""

    def __init__(self) -> None:
        self._ended = False
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, one: Callable[[bytes], Awaitable[object]], name: str, pause: float) -> None:
        """:param one: told a name that is nobody else's."""

        async def run() -> None:
            number = 0
            while not self._ended:
                await one(b"%s %d" % (name.encode(), number))
                number += 1
                await asyncio.sleep(pause)

        self._tasks.append(asyncio.create_task(run()))

    async def end(self) -> None:
        self._ended = True
        await asyncio.gather(*self._tasks)


@in_virtual_time
async def test_each_send_ends_once_and_what_was_acknowledged_is_there() -> None:
    async with GroupCluster(seed=1) as cluster, Producer("sends", namesrv=cluster.namesrv_addr) as producer:
        await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        sent: dict[bytes, asyncio.Task[SendResult]] = {}
        ended: Counter[bytes] = Counter()
        work = Work()

        async def send(body: bytes) -> None:
            sent[body] = producer.send_async(Message("Topic", body), callback=lambda _: ended.update([body]))

        async def oneway(body: bytes) -> None:
            with suppress(RMQError):  # nobody answers it, but there may be nobody to send it to
                await producer.send_oneway(Message("Topic", body))

        work.begin(send, "a", 0.03)
        work.begin(oneway, "b", 0.1)
        await changes(cluster, 4)
        before = len(await cluster.bodies(await cluster.led_by(), "Topic"))
        await asyncio.sleep(1)
        await work.end()
        outcomes = await asyncio.gather(*sent.values(), return_exceptions=True)
        await asyncio.sleep(0)
        assert ended == Counter(sent.keys())
        await cluster.alike()
        bodies = await cluster.bodies(cluster.names[0], "Topic")
        assert sum(body.startswith(b"b") for body in bodies[before:]) > 5, "messages oneway find the next leader, too"
        fine = {
            body
            for body, outcome in zip(sent, outcomes, strict=True)
            if isinstance(outcome, SendResult) and outcome.send_status is SendStatus.SEND_OK
        }
        assert fine <= set(bodies)
        assert len(fine) > 0.8 * len(sent)


@in_virtual_time
async def test_messages_oneway_find_the_leader_after_one_that_is_killed() -> None:
    """Nothing answers them: the end of the connection is what tells."""
    async with GroupCluster(seed=1) as cluster, Producer("oneway", namesrv=cluster.namesrv_addr) as producer:
        await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        await change(cluster, "kill")
        for number in range(10):
            with suppress(RMQError):
                await producer.send_oneway(Message("Topic", b"%d" % number))
        await cluster.alike()
        bodies = await cluster.bodies(cluster.names[0], "Topic")
        assert set(bodies) == {b"first", *(b"%d" % number for number in range(10))}


@in_virtual_time
async def test_messages_oneway_that_come_to_the_leader_of_before_are_passed_on() -> None:
    """It lives and follows, every connection stays, and nothing answers them until the producer looks at the route."""
    async with GroupCluster(seed=1) as cluster, Producer("oneway", namesrv=cluster.namesrv_addr) as producer:
        old = await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        driver = cluster.driver(old)
        await eventually(driver.heir)
        driver.transfer(driver.heir() or "")
        for number in range(60):
            await producer.send_oneway(Message("Topic", b"%d" % number))
            await asyncio.sleep(0.01 if number < 40 else 0.2)
        assert cluster.leader() != old
        await cluster.alike()
        bodies = await cluster.bodies(old, "Topic")
        assert sorted(bodies) == sorted([b"first", *(b"%d" % number for number in range(60))])


@in_virtual_time
async def test_transactions_end_as_they_were_decided() -> None:
    """Ends get lost with the leader that was told, and the next one asks."""
    settings = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
    async with GroupCluster(seed=2, settings=settings) as cluster:
        await cluster.led_by()
        decided: dict[bytes, TransactionState] = {}
        local: Counter[bytes] = Counter()
        got: set[bytes] = set()
        stored: set[bytes] = set()
        random, work = Random(1), Work()
        consumer = PushConsumer("reads", namesrv=cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET")

        @consumer.on("Orders")
        async def take(message: MessageExt) -> None:
            got.add(bytes(message.body))

        def check(message: MessageExt) -> TransactionState:
            return decided.get(bytes(message.body), TransactionState.ROLLBACK)

        async with TransactionProducer("orders", check, namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"first"))
            await consumer.start()

            async def transact(body: bytes) -> None:
                async def do(_: Message) -> TransactionState:
                    local[body] += 1
                    decided[body] = random.choice([TransactionState.COMMIT, TransactionState.ROLLBACK])
                    await asyncio.sleep(random.choice([0, 0.3]))
                    return random.choice([decided[body], TransactionState.UNKNOWN])

                try:
                    result = await producer.send_in_transaction(Message("Orders", body), do)
                except RMQError:
                    return
                if result.send_status is SendStatus.SEND_OK:
                    stored.add(body)

            for name in "ab":
                work.begin(transact, name, 0.1)
            await changes(cluster, 4)
            await work.end()
            committed = {body for body in stored if decided[body] is TransactionState.COMMIT}
            await eventually(lambda: committed <= got, 60)
            await asyncio.sleep(10)
        await consumer.shutdown()
        assert len(committed) > 10
        assert not [body for body in got & decided.keys() if decided[body] is not TransactionState.COMMIT]
        assert set(local.values()) == {1}


@in_virtual_time
async def test_two_members_keep_every_queue_in_order() -> None:
    """Their locks go with the leader. Nothing is skipped, and no queue has two readers at a time."""
    async with GroupCluster(seed=3) as cluster, Producer("orders", namesrv=cluster.namesrv_addr) as producer:
        await cluster.led_by()
        await producer.send(Message("Ordered", b"first"))
        given: dict[int, list[int]] = defaultdict(list)
        inside: Counter[int] = Counter()
        sent: set[tuple[int, int]] = set()
        work = Work()

        async def take(message: MessageExt) -> None:
            queue = message.queue_id
            inside[queue] += 1
            assert inside[queue] == 1, "two at a time"
            await asyncio.sleep(0.01)
            given[queue].append(message.queue_offset)
            inside[queue] -= 1

        members = [
            PushConsumer(
                "in_order", namesrv=cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET", orderly=True,
                instance_name=name,
            )
            for name in ("one", "two")
        ]  # fmt: skip
        for member in members:
            member.on("Ordered")(take)
            await member.start()

        async def send(body: bytes) -> None:
            queue = int(body.split()[0])
            try:
                result = await producer.send(Message("Ordered", body), queue=MessageQueue("Ordered", "group", queue))
            except RMQError:
                return
            if result.send_status is SendStatus.SEND_OK:
                sent.add((queue, result.queue_offset))

        for queue in range(4):
            work.begin(send, str(queue), 0.1)
        await changes(cluster, 10, 2.0)
        await work.end()
        await eventually(lambda: all(offset in given[queue] for queue, offset in sent), 60)
        for member in members:
            await member.shutdown()
        for queue, offsets in given.items():
            seen = -1
            for offset in offsets:
                assert offset <= seen + 1, f"queue {queue} goes from {seen} to {offset}"
                seen = offset
        assert len(sent) > 400


@in_virtual_time
async def test_what_was_popped_of_a_leader_is_settled_with_the_next_or_comes_again() -> None:
    async with (
        GroupCluster(seed=4) as cluster,
        AdminClient(namesrv=cluster.namesrv_addr) as admin,
        Producer("parcels", namesrv=cluster.namesrv_addr) as producer,
    ):
        leader = await cluster.led_by()
        await producer.send(Message("Parcels", b"first"))
        await admin.set_message_request_mode(f"{cluster.addresses[leader]}:10911", "Parcels", "packers", "POP")
        got: Counter[bytes] = Counter()
        sent: set[bytes] = set()
        work = Work()
        consumer = PushConsumer(
            "packers", namesrv=cluster.namesrv_addr, client_rebalance=False, pop_invisible_time=10,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )  # fmt: skip

        @consumer.on("Parcels")
        async def pack(message: MessageExt) -> None:
            await asyncio.sleep(0.02)
            got[bytes(message.body)] += 1

        await consumer.start()

        async def send(body: bytes) -> None:
            try:
                result = await producer.send(Message("Parcels", body))
            except RMQError:
                return
            if result.send_status is SendStatus.SEND_OK:
                sent.add(body)

        work.begin(send, "p", 0.05)
        await changes(cluster, 4)
        await work.end()
        await eventually(lambda: sent <= got.keys(), 30)
        await asyncio.sleep(30)
        packed = got.total()
        await asyncio.sleep(30)
        assert got.total() == packed, "it goes on and on"
        assert packed < 1.2 * len(got), "what was settled comes again"
        await consumer.shutdown()


@pytest.mark.parametrize("way", WAYS)
@in_virtual_time
async def test_replies_find_who_asks_once_he_has_found_the_next_leader(way: str) -> None:
    """He is told of it by what he sends, and the leader has to know him before the reply comes."""
    async with (
        GroupCluster(seed=5) as cluster,
        Producer("asks", namesrv=cluster.namesrv_addr, instance_name="asks") as asks,
        Producer("replies", namesrv=cluster.namesrv_addr, instance_name="replies") as replies,
    ):
        await cluster.led_by()
        await asks.send(Message("Questions", b"first"))
        consumer = PushConsumer("answers", namesrv=cluster.namesrv_addr, instance_name="replies")

        @consumer.on("Questions")
        async def answer(message: MessageExt) -> None:
            if message.body != b"first":
                await replies.reply(message, b"re: " + bytes(message.body))

        await consumer.start()
        await asyncio.sleep(2)
        for _ in range(4):
            assert (await asks.request(Message("Questions", b"before"), timeout=5)).body == b"re: before"
            await change(cluster, way)
            await asks.send(Message("Other", b"finds the next leader"))
            for _ in range(3):
                assert (await asks.request(Message("Questions", b"after"), timeout=5)).body == b"re: after"
        await consumer.shutdown()


@in_virtual_time
async def test_a_leader_that_is_cut_off_sends_no_group_back() -> None:
    """It serves for up to two seconds beside the next one: who comes from there is not where it thinks it ends."""
    async with (
        GroupCluster(seed=1) as cluster,
        Producer("p", namesrv=cluster.namesrv_addr) as producer,
    ):
        old = await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        await producer.send(Message("Topic", b"first"), queue=MessageQueue("Topic", "group", 0))
        await cluster.alike()
        client = RemotingClient(cluster.simulation.node("reader").world)
        seen: set[tuple[int, int]] = set()

        async def ask(suspend: int) -> None:
            pull: dict[str, str | None] = {
                "consumerGroup": "g", "topic": "Topic", "queueId": "0", "queueOffset": "9", "maxMsgNums": "32",
                "sysFlag": "6" if suspend else "4", "commitOffset": "0", "suspendTimeoutMillis": str(suspend),
                "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            answer = await client.request(
                f"{cluster.addresses[old]}:10911", Command(RequestCode.PULL_MESSAGE, ext=pull), 10
            )
            seen.add((answer.code, int((answer.ext or {})["nextBeginOffset"] or 0)))

        await ask(0)
        moved, seen = seen, set()
        assert [code for code, _ in moved] == [ResponseCode.PULL_OFFSET_MOVED], "it alone may say so"
        cluster.isolate(old)
        await asyncio.sleep(0.9)
        both = 0
        for _ in range(30):
            await asyncio.sleep(0.1)
            both += sum(cluster.driver(name).leads is not None for name in cluster.names) == 2
            await ask(0)
            await ask(100)
        await client.close()
        assert both, "nobody else has led meanwhile"
        assert {offset for _, offset in seen} == {9}, seen


# -- who comes to a member that leads no more


class Asker:
    """Asks members by name what consumers ask."""

    def __init__(self, cluster: GroupCluster) -> None:
        self._cluster = cluster
        self.client = RemotingClient(cluster.simulation.node("asker").world)

    async def _ask(self, name: str, code: RequestCode, body: bytes = b"", **ext: str) -> Command:
        at = f"{self._cluster.addresses[name]}:10911"
        fields: dict[str, str | None] = {"consumerGroup": "g", "topic": "Topic", "queueId": "0", **ext}
        return await self.client.request(at, Command(code, ext=fields, body=body), 5)

    async def commit(self, name: str, offset: int) -> None:
        answer = await self._ask(name, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=str(offset))
        assert answer.code == ResponseCode.SUCCESS

    async def offset(self, name: str) -> int:
        answer = await self._ask(name, RequestCode.QUERY_CONSUMER_OFFSET)
        assert answer.code == ResponseCode.SUCCESS
        return int((answer.ext or {})["offset"] or 0)

    async def lock(self, name: str, who: str) -> bool:
        queue = MessageQueue("Topic", "group", 0)
        body = LockBatchRequestBody(client_id=who, consumer_group="g", mq_set=[queue])
        answer = await self._ask(name, RequestCode.LOCK_BATCH_MQ, body.encode())
        assert answer.code == ResponseCode.SUCCESS
        return bool(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)


@in_virtual_time
async def test_members_that_follow_say_of_a_groups_progress_what_their_leader_says() -> None:
    """One that has just started would have the group begin anew; and what it is told, nobody else would have heard."""
    async with GroupCluster(seed=1) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        leader = await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        await producer.send(Message("Topic", b"first"), queue=MessageQueue("Topic", "group", 0))
        asker = Asker(cluster)
        follower, other = (name for name in cluster.names if name != leader)
        await cluster.alike()
        await asker.commit(leader, 1)
        assert await asker.offset(follower) == 1, "without waiting for the next second"
        await asker.commit(follower, 2)
        assert [await asker.offset(name) for name in (leader, follower, other)] == [2, 2, 2]
        await cluster.kill(follower)
        await cluster.begin(follower)
        assert await asker.offset(follower) == 2, "its own file says nothing of it"
        await asyncio.sleep(3)
        await cluster.kill(other)
        cluster.isolate(leader)
        await asyncio.sleep(3)
        assert cluster.driver(follower).leader is None
        assert await asker.offset(follower) == 2, "nobody leads: what was heard last"
        await cluster.kill(follower)
        await cluster.begin(follower)
        with pytest.raises(TransportError):
            await asker.offset(follower)  # any answer would be wrong, and Java takes an error for the queue's end
        await asker.client.close()


@in_virtual_time
async def test_locks_are_granted_by_the_leader_alone() -> None:
    async with GroupCluster(seed=1) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        leader = await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        asker = Asker(cluster)
        assert await asker.lock(leader, "one")
        follower = next(name for name in cluster.names if name != leader)
        assert not await asker.lock(follower, "two")
        cluster.isolate(leader)
        await asyncio.sleep(1.1)
        assert not await asker.lock(leader, "one"), "there may be a next leader"
        await eventually(lambda: cluster.leader() not in (None, leader), 10)
        successor = await cluster.led_by()
        assert await asker.lock(successor, "two")
        cluster.simulation.net.heal()
        await asyncio.sleep(1)
        await cluster.kill(successor)
        heir = await cluster.led_by()
        assert await asker.lock(heir, "two"), "what it had granted before is over"
        await asker.client.close()


@in_virtual_time
async def test_the_next_leader_soon_knows_whose_the_queues_are() -> None:
    """Its predecessor lives, and every connection stays: nothing but the route tells a consumer of it."""
    async with GroupCluster(seed=1) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        leader = await cluster.led_by()
        await producer.send(Message("Topic", b"first"))
        consumer = PushConsumer("g", namesrv=cluster.namesrv_addr, orderly=True)

        @consumer.on("Topic")
        async def take(message: MessageExt) -> None:
            """Nothing comes."""

        await consumer.start()
        await asyncio.sleep(3)
        await _hand_over(cluster, leader)
        locks = cluster.members[await cluster.led_by()].members.locks
        queue = MessageQueue("Topic", "group", 0)
        await eventually(lambda: locks.holder("g", queue), 5)
        await consumer.shutdown()
