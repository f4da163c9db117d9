"""Starts and ends that are cut short: nothing keeps running, nothing waits for ever, nothing finished is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import Message, MessageExt, MessageQueue, Producer, PullConsumer, PushConsumer
from rmq.client.instance import instances_of
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ConnectFailed, RMQError
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


def left_over(s: Scene) -> int:
    """Client instances besides the scene's own producer and admin client."""
    return len(instances_of(s.cluster.namesrv_addr, s.cluster.world)) - 2


async def handle(message: MessageExt) -> None:
    return None


def pusher(s: Scene) -> PushConsumer:
    made = s.consumer()
    made.on("T")(handle)
    return made


def puller(s: Scene) -> PullConsumer:
    return s.puller(register_topics=("T",))


@pytest.mark.parametrize("make", [pusher, puller], ids=["push", "pull"])
def test_a_start_cancelled_at_any_moment_leaves_nothing_behind(make: object) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            moment = 0.0
            while True:
                made = make(s)  # type: ignore[operator]
                starting = asyncio.ensure_future(made.start())
                await asyncio.wait({starting}, timeout=moment)
                if starting.done():
                    await made.shutdown()
                    break
                starting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await starting
                assert left_over(s) == 0, f"cancelled after {moment} s"
                moment += 0.0002
            assert moment > 0.001

    run()


@in_virtual_time
async def test_a_pull_consumer_that_finds_no_name_server_leaves_nothing_behind() -> None:
    async with scene() as s:
        await s.cluster.namesrvs[0].stop()
        with pytest.raises(RMQError):
            await puller(s).start()
        assert left_over(s) == 0


@pytest.mark.parametrize("make", [pusher, puller], ids=["push", "pull"])
def test_a_shutdown_cancelled_at_any_moment_ends_all_the_same(make: object) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            moment = 0.0
            while True:
                made = make(s)  # type: ignore[operator]
                await made.start()
                ending = asyncio.ensure_future(made.shutdown())
                await asyncio.wait({ending}, timeout=moment)
                if ending.done():
                    break
                ending.cancel()
                await asyncio.wait({ending})
                await eventually(lambda: left_over(s) == 0)
                moment += 0.0002

    run()


@in_virtual_time
async def test_a_producer_shutdown_cancelled_while_sends_are_under_way_ends_all_the_same() -> None:
    async with scene() as s:
        producer = Producer("other", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        await producer.start()
        sending = producer.send_async(Message("T", b"x"))
        ending = asyncio.ensure_future(producer.shutdown())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        await eventually(lambda: left_over(s) == 0)
        with pytest.raises(RMQError):
            await sending


@in_virtual_time
async def test_a_send_that_meets_the_shutdown_fails_and_is_not_cancelled() -> None:
    """Its task was not: a CancelledError would end whoever awaits it without a word."""
    async with scene() as s:
        producer = Producer("other", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        await producer.start()
        sending = asyncio.ensure_future(producer.send(Message("T", b"x")))
        await asyncio.sleep(0.0001)
        await producer.shutdown()
        with pytest.raises(RMQError):
            await sending


@pytest.mark.parametrize("asked", ["submit", "call"])
@in_virtual_time
async def test_a_request_that_meets_the_end_before_it_has_begun_is_told_of_it(asked: str) -> None:
    """A thread that sends would wait for its answer, and be told that the loop stands still."""
    async with scene() as s:
        producer = Producer("other", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
        await producer.start()
        instance, told = producer._client, list[Command | Exception]()
        command = Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        tasks = instance._tasks if asked == "submit" else instance.remoting._endpoint.tasks
        assert tasks is not None
        if asked == "submit":
            instance.submit(s.cluster.broker_addr, frame.encode(command), 1, 3.0, told.append)
        else:
            instance.remoting.call(s.cluster.broker_addr, command, 3.0, told.append)
        await tasks.close()
        assert [type(one) for one in told] == [ConnectFailed]
        await producer.shutdown()


@in_virtual_time
async def test_a_shutdown_during_the_start_makes_the_start_fail_with_one_line() -> None:
    async with scene() as s:
        consumer = pusher(s)
        starting = asyncio.ensure_future(consumer.start())
        await eventually(lambda: consumer._instance is not None, step=0.0001)
        await consumer.shutdown()
        with pytest.raises(ClientError, match="was shut down while it started"):
            await starting
        assert left_over(s) == 0


@in_virtual_time
async def test_a_queue_listener_that_hangs_or_shuts_down_does_not_hold_the_end() -> None:
    async with scene() as s:

        async def hangs(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
            await asyncio.Event().wait()

        consumer = s.consumer(message_queue_listener=hangs)
        consumer.on("T")(handle)
        await consumer.start()
        await asyncio.sleep(1)
        async with asyncio.timeout(30):
            await consumer.shutdown()

        async def shuts_down(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
            await second.shutdown()

        second = s.consumer(message_queue_listener=shuts_down)
        second.on("T")(handle)
        await second.start()
        await eventually(lambda: left_over(s) == 0, within=30)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_listener_that_cannot_be_cancelled_does_not_hold_the_end(orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            release = asyncio.Event()
            consumer = s.consumer(orderly=orderly, await_termination_when_shutdown=1)

            @consumer.on("T")
            async def stubborn(message: MessageExt) -> None:
                while not release.is_set():
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        continue

            await consumer.start()
            await s.send(4)
            await asyncio.sleep(1)
            async with asyncio.timeout(30):
                await consumer.shutdown()
            assert left_over(s) == 0
            release.set()
            await asyncio.sleep(1)

    run()
