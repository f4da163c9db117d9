"""Everything an application sees is without its namespace, everything the cluster has is with it."""

from __future__ import annotations

from typing import Any

from rmq.aio import (
    ConsumeContext,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullStatus,
    TransactionProducer,
    TransactionState,
    by_hash,
)
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


def producer(s: Scene, namespace: str = "NS", group: str = "pg2") -> Producer:
    return Producer(group, namesrv=s.cluster.namesrv_addr, world=s.cluster.world, namespace=namespace)


@in_virtual_time
async def test_sent_consumed_and_tried_again_in_a_namespace() -> None:
    async with scene() as s:
        got: list[tuple[str, int, MessageQueue]] = []
        told: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []
        buried: list[MessageExt] = []
        consumer = s.consumer(
            namespace="NS", max_reconsume_times=1, message_queue_listener=lambda *seen: told.append(seen)
        )
        dead = s.consumer("undertaker", namespace="NS")

        @consumer.on("T")
        async def handle(message: MessageExt, context: ConsumeContext) -> None:
            got.append((message.topic, message.reconsume_times, context.message_queue))
            if message.keys == "bad":
                raise ValueError("again")

        @dead.on("%DLQ%g")
        async def bury(message: MessageExt) -> None:
            buried.append(message)

        await s.topic("NS%T", queues=2)
        async with producer(s) as sender, producer(s, "OTHER") as other:
            queues = await sender.fetch_publish_message_queues("T")
            assert {queue.topic for queue in queues} == {"T"}
            result = await sender.send(Message("T", b"1", keys="bad"), queue=queues[1])
            assert result.message_queue == queues[1]
            chosen = await sender.send(Message("T", b"2", keys="k"), selector=by_hash, arg=0)
            assert chosen.message_queue in queues
            batch = await sender.send([Message("T", b"3"), Message("T", b"4")])
            assert batch.message_queue.topic == "T"
            await other.send(Message("T", b"theirs"))
            await s.send(1)  # nor is this one theirs, of the same topic without a namespace
            found = await sender.query_message("T", "k")
            assert [message.topic for message in found.messages] == ["T"]
            seen = await sender.view_message(result.msg_id, "T")
            assert (seen.topic, seen.properties["INSTANCE_ID"]) == ("T", "NS")
            assert await sender.max_offset(queues[1]) > await sender.min_offset(queues[1])
            async with consumer, dead:
                await eventually(lambda: len(got) == 5 and bool(buried), 120)
                assert consumer.assignment[-2:] == queues
                assert consumer.group == "NS%g"
                assert (await consumer.view_message(result.offset_msg_id)).topic == "T"
        assert [one[0] for one in got] == ["T"] * 5
        assert sorted(one[1] for one in got) == [0, 0, 0, 0, 1]
        assert {queue.topic for *_, queue in got} == {"T", "%RETRY%g"}
        assert ("T", queues, queues) in told
        assert buried[0].body == b"1"
        tables = set((await s.admin.topic_list()).topic_list)
        assert {"NS%T", "%RETRY%NS%g", "%DLQ%NS%g", "OTHER%T"} <= tables
        assert not {"%RETRY%g", "%DLQ%g"} & tables
        info: Any = await s.admin.consume_stats("NS%g", "NS%T")
        assert {queue.topic for queue in info.offset_table} == {"NS%T"}


@in_virtual_time
async def test_pulled_in_a_namespace() -> None:
    async with scene() as s, producer(s) as sender, s.puller(namespace="NS") as puller:
        queue = (await sender.send(Message("T", b"1"))).message_queue
        assert await puller.fetch_message_queues_in_balance("T")
        result = await puller.pull_block_if_not_found(queue, "*", 0)
        assert result.status is PullStatus.FOUND
        assert result.messages[0].message_queue == queue
        puller.update_consume_offset(queue, 1)
        await puller.persist_offsets()
        assert await puller.fetch_consume_offset(queue, from_store=True) == 1


@in_virtual_time
async def test_a_transaction_in_a_namespace_is_checked() -> None:
    async with scene(transactionTimeOut="1000", transactionCheckInterval="1000") as s:
        asked: list[str] = []
        got: list[str] = []

        def check(message: MessageExt) -> TransactionState:
            asked.append(message.topic)
            return TransactionState.COMMIT

        consumer = s.consumer(namespace="NS")

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.append(message.topic)

        await s.topic("NS%T")
        made = TransactionProducer("tg", check, namesrv=s.cluster.namesrv_addr, world=s.cluster.world, namespace="NS")
        async with made, consumer:
            known = await made.send_in_transaction(Message("T", b"1"), lambda message: TransactionState.COMMIT)
            assert known.message_queue.topic == "T"
            await made.send_in_transaction(Message("T", b"2"), lambda message: TransactionState.UNKNOWN)
            await eventually(lambda: len(got) == 2, 120)
        assert (got, asked) == (["T", "T"], ["T"])
