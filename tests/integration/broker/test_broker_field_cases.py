"""What users met in the field, on a whole broker in virtual time (the numbers are those of docs/field-cases.md)."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import json
import logging
from collections import Counter
from typing import Any

import pytest

from rmq.aio import ClientError, Message, MessageExt, MessageQueue, Producer, PullStatus, PushConsumer, ResponseError
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.group import DeleteSubscriptionGroupRequest
from rmq.protocol.headers.offset import (
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    ResetOffsetRequest,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.testing.simworld import Simulation
from tests.support.raw_peer import subscribe
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


async def ask(s: Scene, code: RequestCode, header: object = None, body: bytes = b"", *, accept: int = 0) -> object:
    return await s.admin._client.call(s.cluster.broker_addr, code, header, body, accept=(accept,))  # type: ignore[arg-type]


async def committed(
    s: Scene, group: str, queue: int = 0, topic: str = "One", *, zero: bool | None = None
) -> int | None:
    """The stored offset; None for code 22."""
    header = QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue, set_zero_if_not_found=zero)
    reply = await s.admin._client.call(
        s.cluster.broker_addr, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=(0, ResponseCode.QUERY_NOT_FOUND)
    )
    return None if reply.code else reply.header(QueryConsumerOffsetResponse).offset


async def commit(s: Scene, group: str, offset: int, queue: int = 0, topic: str = "One") -> None:
    header = UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue, commit_offset=offset)
    await ask(s, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def collector(
    s: Scene, group: str = "g", topic: str = "One", expression: str = "*", **how: object
) -> tuple[PushConsumer, list[str]]:
    """A consumer, and the bodies it got."""
    sql = bool(how.pop("sql", False))
    consumer = s.consumer(group, **how)
    got: list[str] = []

    @consumer.on(topic, expression, sql=sql)
    async def take(message: MessageExt) -> None:
        got.append(message.body.decode())

    return consumer, got


@in_virtual_time
async def test_b013_where_a_group_without_offset_begins_for_who_does_not_ask_for_not_found() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(5, "One")
        assert await committed(s, "new") == 0  # Java's rule: the first message is still at hand
        assert await committed(s, "new", zero=True) == 0
        assert await committed(s, "new", zero=False) is None


@in_virtual_time
async def test_b015_a_time_after_the_newest_message_is_the_end() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(10, "One")
        queue = MessageQueue("One", "broker-0", 0)
        first = await s.admin.earliest_msg_store_time(queue)
        newest = s.cluster.world.clock.now_ms()
        for when, offset in ((newest + 1, 10), (newest + 3_600_000, 10), (first - 1, 0), (0, 0)):
            header = SearchOffsetRequest(topic="One", queue_id=0, timestamp=when)
            reply = await s.admin._client.call(s.cluster.broker_addr, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            assert reply.header(SearchOffsetResponse).offset == offset
        consumer, got = collector(s)
        async with consumer:
            await eventually(lambda: len(got) == 10)
            await consumer.persist_offsets()
            header_now = ResetOffsetRequest(topic="One", group="g", timestamp=newest + 3_600_000, is_force=True)
            await ask(s, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header_now)
            await asyncio.sleep(30)
            assert len(got) == 10
        assert (await s.diff())[("One", 0)] == 0


@in_virtual_time
async def test_b017_a_queue_whose_messages_are_gone_is_searched_to_its_end() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(20, "One")
        queue = s.cluster.brokers[0].store.queues.get("One", 0)
        assert queue is not None
        queue.min = queue.visible  # as retention leaves it
        for when in (0, s.cluster.world.clock.now_ms() - 86_400_000):
            assert await s.admin.search_offset(MessageQueue("One", "broker-0", 0), when) == 20


@in_virtual_time
async def test_b017_a_reset_of_a_retry_topic_invents_no_backlog() -> None:
    async with scene(messageDelayLevel="1s 1s 1s 1s") as s:
        consumer = s.consumer()
        tries = 0

        @consumer.on("T")
        async def fail_once(message: MessageExt) -> bool:
            nonlocal tries
            tries += 1
            return message.reconsume_times > 0

        async with consumer:
            await s.send(20)
            await eventually(lambda: tries == 40)
        queue = s.cluster.brokers[0].store.queues.get("%RETRY%g", 0)
        assert queue is not None
        assert queue.visible == 20
        queue.min = queue.visible  # as retention leaves it
        yesterday = s.cluster.world.clock.now_ms() - 86_400_000
        (done,) = await s.admin.reset_offset_by_timestamp("%RETRY%g", "g", yesterday)
        assert (done.old_offset, done.new_offset, done.clients) == (20, 20, 0)
        assert (await s.diff())[("%RETRY%g", 0)] == 0


@in_virtual_time
async def test_b018_a_reset_of_an_offline_group_holds_for_its_next_start() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        consumer, got = collector(s)
        async with consumer:
            await eventually(lambda: consumer.assignment)
        await s.send(100, "One")
        await commit(s, "g", 0)
        # Nobody is online: 206 tells the tool, which then moves the stored offsets itself.
        header = ResetOffsetRequest(topic="One", group="g", timestamp=-1, is_force=True)
        await ask(s, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, accept=ResponseCode.CONSUMER_NOT_ONLINE)
        await commit(s, "g", await s.admin.max_offset(MessageQueue("One", "broker-0", 0)))
        again, later = collector(s)
        async with again:
            await asyncio.sleep(30)
            assert later == got == []
            await s.send(1, "One")
            await eventually(lambda: len(later) == 1)
        assert await committed(s, "g") == 101


@pytest.mark.parametrize("online", [True, False])
def test_b020_one_queue_is_reset_to_one_offset(online: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.send(400)
            consumer, got = collector(s, topic="T")
            async with consumer:
                await eventually(lambda: len(got) == 400)

            async def reset(queue: int, offset: int, *, accept: int = 0) -> None:
                header = ResetOffsetRequest(topic="T", group="g", queue_id=queue, offset=offset)
                await ask(s, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, accept=accept)

            async def resets() -> None:
                await reset(2, 40)
                await reset(1, 101, accept=1)
                await reset(1, -5, accept=1)

            again, later = collector(s, topic="T")
            if online:
                async with again:
                    await eventually(lambda: len(again.assignment) == 5)
                    await asyncio.sleep(2)
                    await resets()
                    await asyncio.sleep(30)
            else:
                await resets()
                async with again:
                    await asyncio.sleep(30)
            assert len(later) == 60
            assert set((await s.diff()).values()) == {0}

    run()


@in_virtual_time
async def test_b022_an_offset_beyond_the_end_goes_to_the_end() -> None:
    async with scene() as s, s.puller("p") as puller:
        await s.topic("One", 1)
        await s.send(50, "One")
        queue = MessageQueue("One", "broker-0", 0)
        assert (await puller.pull(queue, "*", 50)).status is PullStatus.NO_NEW_MSG
        for offset in (51, 5000):
            result = await puller.pull(queue, "*", offset)
            assert (result.status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 50)
        with pytest.raises(ClientError, match="cannot be negative"):
            await puller.pull(queue, "*", -1)
        await commit(s, "g", 5000)
        consumer, got = collector(s)
        async with consumer:
            await asyncio.sleep(5)
            await s.send(3, "One")
            await eventually(lambda: len(got) == 3)
            await asyncio.sleep(30)
        assert len(got) == 3


@in_virtual_time
async def test_b053_a_message_that_waits_is_taken_back() -> None:
    async with scene() as s:
        consumer, got = collector(s, topic="T")
        async with consumer:
            taken, kept = [await s.producer.send(Message("T", name, delay=10)) for name in ("taken", "kept")]
            assert taken.recall_handle
            assert kept.recall_handle
            await asyncio.sleep(2)
            assert await s.producer.recall_message("T", taken.recall_handle) == taken.msg_id
            await eventually(lambda: got)
            await asyncio.sleep(15)
            assert got == ["kept"]
            with pytest.raises(ResponseError, match="delivered"):
                await s.producer.recall_message("T", kept.recall_handle)
            with pytest.raises(ClientError, match="no recall handle"):
                await s.producer.recall_message("T", "broken")
            assert (await s.producer.send(Message("T", b"now"))).recall_handle is None
            with pytest.raises(ClientError, match="in one way"):
                await s.producer.send(Message("T", b"x", delay=1, delay_level=1))


@pytest.mark.parametrize("with_offsets", [True, False])
def test_b023_a_deleted_group_takes_its_offsets_along_when_asked_to(with_offsets: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            await s.send(100, "One")
            await commit(s, "g", 50)
            await s.admin.create_and_update_subscription_group(
                s.cluster.broker_addr, SubscriptionGroupConfig(group_name="g")
            )
            header = DeleteSubscriptionGroupRequest(group_name="g", remove_offset=with_offsets)
            await ask(s, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            assert ("g" in await s.admin.query_topic_consume_by_who("One")) is not with_offsets
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await s.cluster.start_broker()
            await asyncio.sleep(31)
            assert ("g" in await s.admin.query_topic_consume_by_who("One")) is not with_offsets
            consumer, got = collector(s)
            async with consumer:
                await asyncio.sleep(30)
            assert len(got) == (100 if with_offsets else 50)

    run()


@in_virtual_time
async def test_b024_a_topic_made_anew_has_no_offsets_of_the_old_one() -> None:
    async with scene() as s:
        await s.topic("One", 3)
        consumer, got = collector(s)
        async with consumer:
            await s.send(100, "One")
            await eventually(lambda: len(got) == 100)
            await consumer.persist_offsets()
            broker = s.cluster.broker_addr
            await s.admin._client.call(broker, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="One"))
            await asyncio.sleep(60)
            path = f"{s.cluster.folder}/broker-0/config/consumerOffset.json"
            assert b"One@g" not in s.cluster.world.files.read(path)
            await s.topic("One", 3)
            await asyncio.sleep(60)
            got.clear()
            await s.send(5, "One")
            await eventually(lambda: len(got) == 5, within=90)
            await asyncio.sleep(20)
            assert all(left >= 0 for left in (await s.diff()).values())
        assert len(got) == 5
        assert sum((await s.diff()).values()) == 0


@in_virtual_time
async def test_b029_another_tag_brings_nothing_back_but_a_reset_does() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        first, nothing = collector(s, expression="Tag2")
        async with first:
            await s.send(1, "One", tags="Tag1")
            await asyncio.sleep(20)
            assert await committed(s, "g") == 1
        second, got = collector(s, expression="Tag1")
        async with second:
            await asyncio.sleep(30)
            assert got == nothing == []
            await s.admin._client.call(
                s.cluster.broker_addr,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                ResetOffsetRequest(topic="One", group="g", timestamp=0, is_force=True),
            )
            await eventually(lambda: len(got) == 1)
            await asyncio.sleep(30)
        assert len(got) == 1


@in_virtual_time
async def test_b051_delays_of_any_length_by_the_brokers_clock() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        loop = asyncio.get_running_loop()
        came: dict[str, float] = {}
        consumer = s.consumer()

        @consumer.on("One")
        async def take(message: MessageExt) -> None:
            came[message.body.decode()] = loop.time()

        async with consumer:
            await eventually(lambda: consumer.assignment)
            began = loop.time()
            now = s.cluster.world.clock.now_ms()
            at = datetime.datetime.fromtimestamp
            wanted: dict[str, tuple[float, dict[str, Any]]] = {
                "1s": (1.0, {"delay": 1}),
                "1.5s": (1.5, {"delay": 1.5}),
                "7s": (7.0, {"delay": datetime.timedelta(seconds=7)}),
                "61s": (61.0, {"delay": 61.0}),
                "at": (5.0, {"deliver_at": at((now + 5000) / 1000)}),
                "past": (0.0, {"deliver_at": at((now - 3_600_000) / 1000, datetime.UTC)}),
            }
            for name, (_, how) in wanted.items():
                await s.producer.send(Message("One", name, **how))
            with pytest.raises(ResponseError, match="259200000ms"):
                await s.producer.send(Message("One", b"far", delay=345_600))
            await eventually(lambda: len(came) == len(wanted), within=70)
        for name, (due, _) in wanted.items():
            # The broker's clock counts whole milliseconds.
            assert due - 0.001 <= came[name] - began < due + 0.3, name


@in_virtual_time
async def test_b051_the_clock_of_the_one_who_sends_does_not_matter() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        ahead = Simulation(2).node("ahead")
        ahead.clock.skew_ms = 600_000
        world = dataclasses.replace(s.cluster.world, clock=ahead.clock)
        consumer, got = collector(s)
        async with consumer, Producer("skewed", namesrv=s.cluster.namesrv_addr, world=world) as producer:
            await eventually(lambda: consumer.assignment)
            sent = await producer.send(Message("One", b"x", delay=5))
            stored = await s.admin.view_message(sent.offset_msg_id)
            assert stored.born_timestamp - s.cluster.world.clock.now_ms() > 590_000
            assert 4.999 < await eventually(lambda: got) < 5.3


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("a LIKE '%x'", "write STARTSWITH, ENDSWITH or CONTAINS"),
        ("a BETWEEN 9 AND 3", "character"),
        ("a > 'q'", "character 5"),
    ],
)
def test_b066_b067_what_does_not_compile_is_refused_with_23(expression: str, why: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene(enablePropertyFilter="true") as s:
            consumer, _ = collector(s, expression=expression, topic="T", sql=True)
            with pytest.raises(ResponseError, match=why) as refused:
                await consumer.start()
            assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    run()


@in_virtual_time
async def test_b055_more_retry_queues_lose_no_retry() -> None:
    async with scene(messageDelayLevel="1s 1s 1s 1s") as s:
        tries: Counter[str] = Counter()
        consumer = s.consumer()

        @consumer.on("T")
        async def fail_once(message: MessageExt) -> bool:
            tries[message.msg_id] += 1
            return message.reconsume_times > 0

        async with consumer:
            await s.send(4)
            await eventually(lambda: sum(tries.values()) == 8)
            group = SubscriptionGroupConfig(group_name="g", retry_queue_nums=2)
            await s.admin.create_and_update_subscription_group(s.cluster.broker_addr, group)
            (queues,) = (await s.admin.topic_route("%RETRY%g")).queue_datas
            assert (queues.read_queue_nums, queues.write_queue_nums) == (2, 2)
            await s.send(20)
            await eventually(lambda: sum(tries.values()) == 48, within=90)
        assert set(tries.values()) == {2}


@in_virtual_time
async def test_b068_sql_is_switched_on_while_running() -> None:
    async with scene(enablePropertyFilter="false") as s:
        refused, _ = collector(s, expression="a > 5", topic="T", sql=True)
        with pytest.raises(ResponseError, match="enablePropertyFilter"):
            await refused.start()
        await ask(s, RequestCode.UPDATE_BROKER_CONFIG, body=b"enablePropertyFilter=true")
        consumer, got = collector(s, expression="a > 5", topic="T", sql=True)
        async with consumer:
            for number in (4, 6):
                await s.producer.send(Message("T", b"%d" % number, properties={"a": str(number)}))
            await eventually(lambda: got)
            await asyncio.sleep(10)
        assert got == ["6"]


@pytest.mark.parametrize("support", ["true", "false"])
@pytest.mark.parametrize(("expression", "sql"), [("a > 5", True), ("TagA", False)])
def test_b069_what_matched_once_is_retried(support: str, expression: str, sql: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene(enablePropertyFilter="true", filterSupportRetry=support, messageDelayLevel="1s 1s 1s 1s") as s:
            tries: Counter[str] = Counter()
            consumer = s.consumer()

            @consumer.on("T", expression, sql=sql)
            async def fail_once(message: MessageExt) -> bool:
                tries[message.body.decode()] += 1
                return message.reconsume_times > 0

            async with consumer:
                for number in range(12):
                    tag = "TagA" if number > 5 else "TagB"
                    message = Message("T", b"%d" % number, tags=tag, properties={"a": str(number)})
                    await s.producer.send(message)
                await eventually(lambda: sum(tries.values()) == 12)
                await asyncio.sleep(30)
        assert tries == {str(number): 2 for number in range(6, 12)}

    run()


@in_virtual_time
async def test_b071_an_expression_of_sql_is_said_to_be_one() -> None:
    async with scene(enablePropertyFilter="true") as s:
        consumer = s.consumer()
        with pytest.raises(ClientError, match="looks like SQL"):
            consumer.subscribe("T", "TAGS = 'x' AND a = 1")
        consumer, got = collector(s, topic="T", expression="TAGS = 'x' AND a = 1", sql=True)
        async with consumer:
            for tag, number in (("x", "1"), ("x", "2"), ("y", "1")):
                await s.producer.send(Message("T", f"{tag}{number}", tags=tag, properties={"a": number}))
            await eventually(lambda: got)
            await asyncio.sleep(10)
        assert got == ["x1"]


@in_virtual_time
async def test_b084_every_message_with_an_id_is_found_by_it() -> None:
    async with scene() as s:
        sent = await s.producer.send(Message("T", b"one"))
        stored = await s.admin.view_message(sent.offset_msg_id)
        ext = {
            "a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0",
            "i": f"UNIQ_KEY\x01{stored.properties['UNIQ_KEY']}", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        from rmq.protocol.command import Command

        copy = Command(RequestCode.SEND_MESSAGE_V2, ext=dict(ext), body=b"two")
        assert (await s.admin._client.remoting.request(s.cluster.broker_addr, copy, 3)).code == 0
        found = (await s.admin.query_message("T", sent.msg_id)).messages
        assert {(message.body, message.queue_id) for message in found} == {(b"one", stored.queue_id), (b"two", 1)}


@in_virtual_time
async def test_b110_no_setting_leads_to_a_shell_or_another_file() -> None:
    async with scene() as s:
        before = await s.admin.broker_config(s.cluster.broker_addr)
        for text, code in (
            ("rocketmqHome=-c $@|sh . echo touch pwned", ResponseCode.NO_PERMISSION),
            ("brokerConfigPath=/etc/x", ResponseCode.NO_PERMISSION),
            ("configBlackList=x", ResponseCode.NO_PERMISSION),
            ("traceTopicEnable=true\nbrokerConfigPath=/etc/x", ResponseCode.NO_PERMISSION),
            ("traceTopicEnable=true\nmaxMessageSize=big", 1),
            ("traceOn=false\nregionId=\\uD800", 1),
            ("traceOn=false\nregionId=a\\nmaxMessageSize\\=1", 1),
            ("traceOn=false\nmessageStorePlugIn=\\uDC00", 1),
        ):
            await ask(s, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode(), accept=code)
        assert await s.admin.broker_config(s.cluster.broker_addr) == before
        await ask(s, RequestCode.UPDATE_BROKER_CONFIG, body=b"filterServerNums=1")  # a key without effect here


@in_virtual_time
async def test_b036_a_killed_orderly_member_is_replaced_within_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with scene() as s:
        first, second = (s.consumer(orderly=True, instance_name=name) for name in ("killed", "waiting"))
        got: list[int] = []
        for consumer in (first, second):

            @consumer.on("T")
            async def take(message: MessageExt) -> None:
                got.append(message.queue_offset)

        await first.start()
        await eventually(lambda: sum(queue.topic == "T" for queue in first.assignment) == 4)
        name = first.client_id
        await asyncio.sleep(1)
        # What SIGKILL leaves: nothing more is said, and the connections close.
        await first._membership.tasks.close()  # type: ignore[union-attr]
        await first._client._tasks.close()  # type: ignore[union-attr]
        await first._client.remoting.close()
        await second.start()
        await s.send(4)
        await eventually(lambda: len(got) == 4, within=13)
        assert any(f"from {name} to " in record.message for record in caplog.records)
        await second.shutdown()
        first._membership = None


@in_virtual_time
async def test_b005_what_is_committed_is_in_the_file_that_java_reads() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await commit(s, "g", 7)
        await s.cluster.stop_broker(s.cluster.brokers[0])
        text = s.cluster.world.files.read(f"{s.cluster.folder}/broker-0/config/consumerOffset.json").decode()
        assert json.loads(text.replace("0:", '"0":'))["offsetTable"]["One@g"] == {"0": 7}
        await s.cluster.start_broker()


@in_virtual_time
async def test_a_commit_below_0_leaves_a_group_where_it_is() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        await s.send(10, "One")
        consumer, got = collector(s)
        async with consumer:
            await eventually(lambda: len(got) == 10)
        assert await committed(s, "g") == 10
        with pytest.raises(ResponseError, match="commitOffset is -5"):
            await commit(s, "g", -5)
        pull = {
            "consumerGroup": "g", "topic": "One", "queueId": "0", "queueOffset": "10", "maxMsgNums": "1",
            "sysFlag": "5", "commitOffset": "-5", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        reply = await s.admin._client.remoting.request(
            s.cluster.broker_addr, Command(RequestCode.PULL_MESSAGE, ext=pull), 3
        )
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        assert await committed(s, "g") == 10
        header = ResetOffsetRequest(topic="One", group="g", timestamp=0, is_force=True, queue_id=0, offset=-1)
        with pytest.raises(ResponseError, match="cannot be reset to -1"):
            await ask(s, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        consumer, got = collector(s)
        async with consumer:
            await s.send(1, "One")
            await eventually(lambda: got)
        assert got == ["0"]


@in_virtual_time
@pytest.mark.parametrize(("boundary", "found"), [(None, (10, 74)), ("LOWER", (10, 74)), ("upper", (73, 73))])
async def test_a_time_inside_a_batch_is_at_its_edges(boundary: str | None, found: tuple[int, int]) -> None:
    async with scene() as s:
        await s.topic("One", 1)
        for _ in range(10):
            await s.send(1, "One")
            await asyncio.sleep(1)
        await s.producer.send([Message("One", b"%d" % i) for i in range(64)])
        await asyncio.sleep(10)
        await s.send(10, "One")
        store = s.cluster.brokers[0].store
        stored = store.queues.get("One", 0)
        assert stored is not None
        batch = await store.search.time_at(stored, 10)
        for when, offset in zip((batch, batch + 1), found, strict=True):
            header = SearchOffsetRequest(topic="One", queue_id=0, timestamp=when, boundary_type=boundary)
            reply = await s.admin._client.call(s.cluster.broker_addr, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            assert reply.header(SearchOffsetResponse).offset == offset


@in_virtual_time
async def test_a_group_without_heartbeats_does_not_cost_the_connection_its_other_groups() -> None:
    async with scene() as s:
        await s.topic("One", 1)
        remoting, address = s.admin._client.remoting, s.cluster.broker_addr
        for group in ("silent", "alive"):
            await remoting.request(address, subscribe(group, "One"), 3)
        conn = remoting.connected(address)
        consumers = s.cluster.brokers[0].members.consumers
        for _ in range(5):
            await asyncio.sleep(30)
            await remoting.request(address, subscribe("alive", "One"), 3)
        assert consumers.group("silent") is None
        assert consumers.group("alive") is not None
        assert remoting.connected(address) is conn
        await eventually(lambda: remoting.connected(address) is not conn, within=150)
        assert consumers.group("alive") is None
