"""Broadcasting keeps its offsets itself; the old pull consumer does as it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.aio import ClientError, Message, MessageExt, PullConsumer, PullStatus, PushConsumer
from rmq.protocol.queue import MessageQueue
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@in_virtual_time
async def test_every_member_gets_everything_and_goes_on_where_it_was() -> None:
    async with scene() as s:
        got: list[list[str]] = [[], []]

        def member(number: int) -> PushConsumer:
            made = s.consumer(
                message_model="BROADCASTING", instance_name=f"i{number}", offset_store_dir="/home/offsets"
            )

            @made.on("T")
            async def handle(message: MessageExt) -> None:
                got[number].append(message.msg_id)
                if message.keys == "k3":
                    raise ValueError("broadcasting does not try again")

            return made

        members = [member(0), member(1)]
        for one in members:
            await one.start()
        sent = await s.send(20)
        await eventually(lambda: all(len(seen) == 20 for seen in got))
        await members[0].shutdown()
        more = await s.send(5)
        await eventually(lambda: len(got[1]) == 25)
        again = member(0)
        await again.start()
        await eventually(lambda: len(got[0]) == 25)
        await asyncio.sleep(30)
        await again.shutdown()
        await members[1].shutdown()
        for seen in got:
            assert sorted(seen) == sorted(sent + more)
        data = s.cluster.world.files.read("/home/offsets/10.0.0.1@i0/g/offsets.json")
        assert data.count(b'"topic":"T"') == 4


@in_virtual_time
async def test_a_slow_broadcast_message_is_not_sent_back() -> None:
    """Nobody subscribes the retry topic of a broadcasting group."""
    async with scene() as s:
        consumer = s.consumer(
            message_model="BROADCASTING", instance_name="i", offset_store_dir="/home/offsets", consume_timeout=5
        )

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(8)

        async with consumer:
            await s.send(1)
            await asyncio.sleep(20)
            assert sorted(consumer._inner.offsets("T").values())[-1] == 1
        stats = await s.admin.topic_stats("%RETRY%g")
        assert {one.max_offset for one in stats.offset_table.values()} == {0}


@in_virtual_time
async def test_a_member_that_cannot_save_gets_each_message_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case B026: its offset is of messages that are gone, and its folder takes nothing any more."""
    async with scene() as s:
        await s.topic("One", 1)
        got: list[int] = []

        def member() -> PushConsumer:
            made = s.consumer(message_model="BROADCASTING", instance_name="i", offset_store_dir="/home/offsets")

            @made.on("One")
            async def handle(message: MessageExt) -> None:
                got.append(message.queue_offset)

            return made

        async with member():
            await s.send(100, "One")
            await eventually(lambda: len(got) == 100)
        await s.send(50, "One")
        queue = s.cluster.brokers[0].store.queues.get("One", 0)
        assert queue is not None
        queue.min = queue.visible  # as retention leaves it
        write = s.cluster.world.files.write_atomic

        def refuse(path: str, data: bytes, *, backup: bool = False) -> None:
            if path.startswith("/home/offsets"):
                raise PermissionError(13, "Permission denied", path)
            write(path, data, backup=backup)

        monkeypatch.setattr(s.cluster.world.files, "write_atomic", refuse)
        got.clear()
        async with member() as consumer:
            await asyncio.sleep(20)
            await s.send(5, "One")
            await eventually(lambda: len(got) == 5)
            await asyncio.sleep(60)
            assert list(consumer._inner.offsets("One").values()) == [155]
        assert got == list(range(150, 155))
        assert any("cannot be written" in record.message for record in caplog.records)


@in_virtual_time
async def test_pulls_say_what_they_found() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        queue = MessageQueue("One", "broker-0", 0)
        await s.send(40, "One", tags="A")
        async with s.puller() as consumer:
            assert await consumer.fetch_subscribe_message_queues("One") == [queue]
            result = await consumer.pull(queue, "*", 0, 32)
            assert (result.status, len(result.messages), result.next_begin_offset) == (PullStatus.FOUND, 32, 32)
            assert (result.min_offset, result.max_offset) == (0, 40)
            assert [message.queue_offset for message in result.messages] == list(range(32))
            assert result.messages[0].properties["MAX_OFFSET"] == "40"
            assert (await consumer.pull(queue, "B", 0, 32)).status is PullStatus.NO_MATCHED_MSG
            assert (await consumer.pull(queue, "*", 40, 32)).status is PullStatus.NO_NEW_MSG
            illegal = await consumer.pull(queue, "*", 400, 32)
            assert (illegal.status, illegal.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 40)
            with pytest.raises(ClientError, match="negative"):
                await consumer.pull(queue, "*", -1)
            with pytest.raises(ClientError, match="one message"):
                await consumer.pull(queue, "*", 0, 0)
            wrong: Any = None
            for arguments, why in (
                ((wrong, "*", 0), "the queue is None"),
                ((queue, 5, 0), "the subscription is 5"),
                ((queue, "*", wrong), "the offset to pull from is None"),
                ((queue, "*", 10**20), "64 bits"),
                ((queue, "*", 0, "x"), "max_nums is 'x'"),
            ):
                with pytest.raises(ClientError, match=why):
                    await consumer.pull(*arguments)
            with pytest.raises(ClientError, match="the offset to go on from is '7'"):
                consumer.update_consume_offset(queue, "7")  # type: ignore[arg-type]


@in_virtual_time
async def test_a_blocking_pull_waits_for_the_message() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        queue = MessageQueue("One", "broker-0", 0)
        async with s.puller() as consumer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            waiting = asyncio.ensure_future(consumer.pull_block_if_not_found(queue, "*", 0))
            await asyncio.sleep(7)
            await s.producer.send(Message("One", b"x"))
            result = await waiting
            assert (result.status, len(result.messages)) == (PullStatus.FOUND, 1)
            assert 7 <= loop.time() - began < 7.5
            began = loop.time()
            result = await consumer.pull_block_if_not_found(queue, "*", 1)
            assert result.status is PullStatus.NO_NEW_MSG
            assert 19 <= loop.time() - began <= 26


@in_virtual_time
async def test_offsets_are_kept_where_the_application_says() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        queue = MessageQueue("One", "broker-0", 0)
        await s.send(5, "One")
        async with s.puller() as consumer:
            assert await consumer.fetch_message_queues_in_balance("One") == [queue]
            consumer.update_consume_offset(queue, 4)
            assert await consumer.fetch_consume_offset(queue) == 4
            consumer.update_consume_offset(queue, 3)
            await asyncio.sleep(16)  # kept by the rhythm of the client
            assert await consumer.fetch_consume_offset(queue, from_store=True) == 3
            consumer.update_consume_offset(queue, 2)
        async with s.puller() as consumer:
            assert await consumer.fetch_consume_offset(queue) == 2
        assert (await s.diff())[("One", 0)] == 3


@in_virtual_time
async def test_look_ups() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        queue = MessageQueue("One", "broker-0", 0)
        clock = s.cluster.world.clock
        times = []
        for _ in range(5):
            times.append(clock.now_ms())
            await s.send(1, "One")
            await asyncio.sleep(60)
        async with s.puller() as consumer:
            assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 5)
            assert await consumer.search_offset(queue, times[3]) == 3
            assert 0 <= await consumer.earliest_msg_store_time(queue) - times[0] < 1000
            result = await s.producer.send(Message("One", b"find me", keys="needle"))
            await asyncio.sleep(1)
            for found in (
                (await consumer.query_message("One", "needle")).messages[0],
                await consumer.view_message(result.offset_msg_id),
                await consumer.view_message(result.msg_id, "One"),
            ):
                assert (found.body, found.msg_id, found.offset_msg_id) == (
                    b"find me", result.msg_id, result.offset_msg_id,
                )  # fmt: skip
                assert found.message_queue == queue
            with pytest.raises(ClientError, match="no offset message id"):
                await consumer.view_message("nonsense")


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_two_that_would_share_their_offsets_are_told_apart(kind: str) -> None:
    """Each would go on where the other is."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:

            def member(**options: Any) -> PushConsumer | PullConsumer:
                options = {"message_model": "BROADCASTING", "offset_store_dir": "/home/offsets", **options}
                if kind == "pull":
                    return s.puller(**options)
                made = s.consumer(**options)
                made.on("T")(lambda message: None)
                return made

            first, other = member(), member(instance_name="other")
            # As a client of another process: it has connections of its own.
            second = member()
            second._settings.namesrv = f"{s.cluster.namesrv_addr};{s.cluster.namesrv_addr}"
            await first.start()
            await other.start()
            for _ in range(2):
                with pytest.raises(
                    ClientError, match=r"/10\.0\.0\.1@DEFAULT/g/offsets\.json.*instance_name of its own"
                ):
                    await second.start()
            await first.shutdown()
            await second.start()
            await second.shutdown()
            await other.shutdown()

    run()
