"""Settings do what their tables in docs/sdk.md say, seen from outside: by the requests of a client, or by what it does.

Those that are not here have tests beside what they are about.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from datetime import timedelta

import pytest

from rmq.aio import (
    Hook,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    RequestTimeout,
    ScheduledPullConsumer,
)
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.sysflags import PULL_SUSPEND
from rmq.runtime.lockstep import on_loop
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time

HEARTBEAT, ROUTE, PULL, KEEP = (
    RequestCode.HEART_BEAT, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)  # fmt: skip


class Requests(Hook):
    """What a client asks: when, whom, and with which fields."""

    quick = True

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[float, str, dict[str, str]]]] = defaultdict(list)
        self.answered: dict[int, list[dict[str, str]]] = defaultdict(list)

    def after_response(self, address: str, command: Command, answer: Command | None) -> None:
        self.answered[command.code].append(command.ext or {})

    def before_request(self, address: str, command: Command) -> None:
        now = asyncio.get_running_loop().time()
        self.seen[command.code].append((now, address, {k: str(v) for k, v in (command.ext or {}).items()}))

    def pauses(self, code: int) -> list[float]:
        """Seconds between two of a kind, rounded to tenths."""
        return [round(after[0] - before[0], 1) for before, after in itertools.pairwise(self.seen[code])]


async def only_queue(s: Scene, count: int = 0, body: bytes = b"x") -> MessageQueue:
    await s.topic("T1", queues=1)
    for _ in range(count):
        await s.producer.send(Message("T1", body))
    return MessageQueue("T1", s.cluster.brokers[0].settings.broker_name, 0)


@in_virtual_time
async def test_what_is_done_by_the_clock() -> None:
    async with scene() as s:
        requests = Requests()
        consumer = s.consumer(
            hooks=[requests], heartbeat_broker_interval=2, poll_name_server_interval=3,
            persist_consumer_offset_interval=timedelta(seconds=4),
        )  # fmt: skip
        consumer.on("T")(lambda message: None)
        async with consumer:
            await asyncio.sleep(20)
            heartbeats = requests.pauses(HEARTBEAT)
            assert heartbeats.count(2.0) >= 8
            assert len([one for one in requests.seen[ROUTE] if one[2]["topic"] == "T"]) in range(6, 9)
            begun, told = asyncio.get_running_loop().time(), len(requests.seen[KEEP])
            await s.send(4)
            await eventually(lambda: len(requests.seen[KEEP]) > told)
            assert requests.seen[KEEP][-1][0] - begun <= 4.1


@in_virtual_time
async def test_what_a_pull_asks_for() -> None:
    async with scene() as s:
        queue = await only_queue(s, 20)
        requests = Requests()
        got: list[MessageExt] = []
        consumer = s.consumer(
            hooks=[requests], pull_interval=3, pull_batch_size=5, pull_batch_size_in_bytes=1000,
            broker_suspend_max_time=7, consumer_timeout_when_suspend=9, post_subscription_when_pull=True,
        )  # fmt: skip
        consumer.on("T1", "*")(got.append)
        async with consumer:
            await eventually(lambda: len(got) == 20)
            mine = [one for one in requests.seen[PULL] if one[2]["topic"] == queue.topic]
            assert [round(after[0] - before[0], 1) for before, after in itertools.pairwise(mine)][:3] == [3.0] * 3
            assert {ext["maxMsgNums"] for _, _, ext in mine} == {"5"}
            assert {ext["maxMsgBytes"] for _, _, ext in mine} == {"1000"}
            assert {ext["suspendTimeoutMillis"] for _, _, ext in mine} == {"7000"}
            assert {ext.get("subscription") for _, _, ext in mine} == {"*"}
            await asyncio.sleep(30)
            mine = [one for one in requests.seen[PULL] if one[2]["topic"] == queue.topic]
            # Nothing comes: the broker holds each pull for so long, and the pause comes behind it.
            assert 9.9 < mine[-1][0] - mine[-2][0] < 12


@in_virtual_time
async def test_a_pull_that_failed_is_not_asked_again_at_once() -> None:
    async with scene() as s:
        await only_queue(s)
        requests = Requests()
        consumer = s.consumer(hooks=[requests], pull_time_delay_when_exception=6)
        consumer.on("T1")(lambda message: None)
        refused = SubscriptionGroupConfig("g", consume_enable=False)
        await s.admin.create_and_update_subscription_group(s.cluster.broker_addr, refused)
        async with consumer:
            await asyncio.sleep(40)
            mine = [one[0] for one in requests.seen[PULL] if one[2]["topic"] == "T1"]
            assert {round(after - before) for before, after in itertools.pairwise(mine)} == {6}


@pytest.mark.parametrize("limit", [{"pull_threshold_size_for_queue": 1 << 20}, {"pull_threshold_for_queue": 10}])
@in_virtual_time
async def test_what_a_queue_may_hold(limit: dict[str, int]) -> None:
    async with scene() as s:
        queue = await only_queue(s, 40, random.Random(1).randbytes(105_000))
        consumer = s.consumer(**limit, pull_batch_size=5, consume_thread_max=1)
        over = asyncio.Event()

        @consumer.on("T1")
        async def wait(message: MessageExt) -> None:
            await over.wait()

        async with consumer:
            await asyncio.sleep(20)
            held = consumer._delivery.assignment.queues[queue]
            assert 10 <= held.count <= 15, "it was full, and at most a pull more came"
            over.set()
            await eventually(lambda: not held.count)


@pytest.mark.parametrize(
    "limit",
    [
        {"pull_threshold_size_for_queue": 1 << 20}, {"pull_threshold_for_queue": 10},
        {"pull_threshold_for_all": 10}, {"consume_max_span": 10},
    ],
)  # fmt: skip
@in_virtual_time
async def test_what_a_lite_pull_consumer_may_hold(limit: dict[str, int]) -> None:
    async with scene() as s:
        queue = await only_queue(s, 40, random.Random(1).randbytes(105_000))
        consumer = s.lite(**limit, pull_batch_size=5)
        consumer.subscribe("T1")
        async with consumer:
            await asyncio.sleep(20)
            assert 10 <= consumer._delivery.assignment.queues[queue].count <= 16
            got = 0
            while messages := await consumer.poll(1):
                got += len(messages)
            assert got == 40


@in_virtual_time
async def test_how_long_a_poll_waits_and_how_often_queues_are_looked_at() -> None:
    async with scene() as s:
        consumer = s.lite(poll_timeout=2, topic_metadata_check_interval=3)
        changes: list[float] = []
        loop = asyncio.get_running_loop()

        def changed(topic: str, queues: object) -> None:
            changes.append(loop.time())

        consumer.subscribe("T")
        async with consumer:
            consumer.register_topic_message_queue_change_listener("T", changed)
            began = loop.time()
            assert await consumer.poll() == []
            assert round(loop.time() - began, 1) == 2.0
            await asyncio.sleep(10)
            grew = loop.time()
            changes.clear()
            await s.topic("T", queues=6)
            await eventually(lambda: changes)
            assert changes[0] - grew < 3.5


@in_virtual_time
async def test_how_long_a_pull_waits_for_a_broker_that_does_not_answer() -> None:
    class Hold(Hook):
        """Has the broker hold what it would answer at once."""

        quick = True

        def before_request(self, address: str, command: Command) -> None:
            if command.code == PULL:
                held = str(int((command.ext or {})["sysFlag"]) | PULL_SUSPEND)
                command.ext = {**(command.ext or {}), "sysFlag": held, "suspendTimeoutMillis": "20000"}

    async with scene() as s:
        queue = await only_queue(s, 1)
        async with s.puller(consumer_pull_timeout=2, hooks=[Hold()]) as puller:
            assert len((await puller.pull(queue, "*", 0, 32)).messages) == 1
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(RequestTimeout, match="no answer in 2 s"):
                await puller.pull(queue, "*", 1, 32)
            assert round(loop.time() - began, 1) == 2.0


@in_virtual_time
async def test_queues_of_a_topic_that_a_send_makes() -> None:
    async with scene() as s:
        inherited = {"read_queue_nums": 3, "write_queue_nums": 3, "perm": 7}
        await s.admin.create_and_update_topic(s.cluster.broker_addr, "Model", **inherited)
        options = {"namesrv": s.cluster.namesrv_addr, "world": s.cluster.world}
        async with Producer("p1", default_topic_queue_nums=2, **options) as made:
            await made.send(Message("New1", b"x"))
            assert len(await made.fetch_publish_message_queues("New1")) == 2
        async with Producer("p2", create_topic_key="Model", **options) as made:
            await made.send(Message("New2", b"x"))
            assert len(await made.fetch_publish_message_queues("New2")) == 3


@in_virtual_time
async def test_bodies_are_compressed_from_so_many_bytes_and_as_hard_as_said() -> None:
    async with scene() as s:
        queue = await only_queue(s)
        body = b"".join(b"%d " % (i * i) for i in range(2000))
        sizes = []
        for options in ({"compress_msg_body_over": 1 << 20}, {"compress_level": 1}, {"compress_level": 9}):
            async with Producer("p", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, **options) as made:
                sent = await made.send(Message("T1", body), queue=queue)
            async with s.puller() as puller:
                ((message,)) = (await puller.pull(queue, "*", sent.queue_offset, 1)).messages
            assert message.body == body
            sizes.append(message.store_size)
        assert sizes[0] > len(body) > sizes[1] > sizes[2]


@in_virtual_time
async def test_whom_a_client_says_it_is() -> None:
    async with scene() as s:
        requests = Requests()
        consumer = s.consumer(
            client_ip="10.1.2.3", instance_name="mine", unit_name="unit", unit_mode=True, hooks=[requests]
        )
        consumer.on("T")(lambda message: None)
        async with consumer:
            (one,) = (await s.admin.consumer_connections("g")).connection_set
            assert one.client_id == "10.1.2.3@mine@unit"


@in_virtual_time
async def test_the_other_port_of_a_broker_takes_sends() -> None:
    async with scene() as s:
        requests = Requests()
        async with Producer(
            "p", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, vip_channel=True, hooks=[requests]
        ) as made:
            await made.send(Message("T", b"x"))
        port = int(s.cluster.broker_addr.rpartition(":")[2])
        assert {address.rpartition(":")[2] for _, address, _ in requests.seen[RequestCode.SEND_MESSAGE_V2]} == {
            str(port - 2)
        }


@in_virtual_time
async def test_a_token_goes_along_with_a_signature() -> None:
    async with scene() as s:
        requests = Requests()
        async with Producer(
            "p", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, hooks=[requests],
            access_key="somebody", secret_key="something", security_token="token",
        ) as made:  # fmt: skip
            await made.send(Message("T", b"x"))
        asked = [*requests.answered[ROUTE], *requests.answered[RequestCode.SEND_MESSAGE_V2]]
        assert {(one["AccessKey"], one["SecurityToken"]) for one in asked} == {("somebody", "token")}


@in_virtual_time
async def test_so_many_scheduled_pulls_at_a_time() -> None:
    async with scene() as s:
        running, most = 0, 0
        consumer = ScheduledPullConsumer("g", namesrv=s.cluster.namesrv_addr, world=s.cluster.world, pull_thread_nums=2)

        @consumer.on("T")
        def pull(queue: MessageQueue) -> float:
            nonlocal running, most
            running += 1
            most = max(most, running)
            on_loop(asyncio.sleep(1))
            running -= 1
            return 0.1

        async with consumer:
            await asyncio.sleep(10)
        assert most == 2, "there are four queues"
