"""Messages that consumers give back: stored for a later try or as dead letters, or refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.lane.send_back import SendBack
from rmq.broker.store.log.gate import Gate
from rmq.protocol import properties
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.command import Command
from rmq.protocol.errors import AuthError, ResponseError
from rmq.protocol.headers.send import ConsumerSendMsgBackRequest
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.permissions import use_group, use_topic
from tests.support.raw_peer import send
from tests.support.scenes.front import Allowing, FrontScene, as_conn, in_front

NEW, OLD = 409, 120


class Back:
    """The handler of a front, and one message that may be given back."""

    def __init__(self, scene: FrontScene) -> None:
        self.scene = scene
        self.told: list[tuple[str, str]] = []
        tables = scene.tables
        self.handler = SendBack(
            scene.world, scene.settings, tables.topics, tables.groups, scene.store, scene.front.admission,
            lambda group, topic: self.told.append((group, topic)),
        )  # fmt: skip

    def store(self, *, times: int = 0, topic: str = "T", **own: str) -> int:
        """Store a message; its commit-log offset."""
        at = self.scene.store.log.end
        command = send(topic, b"body", props=properties.encode({"TAGS": "Red", "KEYS": "k", **own}))
        assert command.ext is not None
        command.ext |= {"j": str(times), "f": "1", "h": "7"}
        assert [answer.code for answer in self.scene.ask(command)] == [0]
        return at

    async def give(
        self,
        offset: int,
        level: int = 0,
        *,
        group: str = "G",
        version: int = NEW,
        most: int | None = None,
        grant: Allowing | None = None,
    ) -> int:
        """Give a message back; the answer's code."""
        header = ConsumerSendMsgBackRequest(
            offset=offset, group=group, delay_level=level, max_reconsume_times=most
        )  # fmt: skip
        request = Command(36, version=version)
        request.grant = grant
        answer = await self.handler.send_back(as_conn(self.scene.line()), request, header)
        assert answer is not None
        return answer.code

    async def refused(self, offset: int, **more: Any) -> tuple[int, str]:
        end = self.scene.store.log.end
        with pytest.raises(ResponseError) as error:
            await self.give(offset, **more)
        assert (self.scene.store.log.end, self.told) == (end, [])
        return error.value.code, error.value.remark or ""

    async def newest(self, before: int) -> tuple[MessageRecord, dict[str, str]]:
        data = await self.scene.store.messages.at(before)
        assert data is not None
        record = decode_record(data)
        return record, dict(record.properties)


@in_front()
async def test_a_message_given_back_waits_at_the_level_of_its_try_and_keeps_what_it_was(scene: FrontScene) -> None:
    back = Back(scene)
    for times, level, expected in ((0, 0, 3), (2, 0, 5), (0, 7, 7), (1, 99, 18)):
        offset, end = back.store(times=times), scene.store.log.end
        assert await back.give(offset, level) == 0
        record, table = await back.newest(end)
        assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", expected - 1)
        assert (record.body, record.flag, record.sys_flag, record.reconsume_times) == (b"body", 7, 1, times + 1)
        assert table.pop("ORIGIN_MESSAGE_ID").endswith(f"{offset:016X}")
        assert table == {
            "TAGS": "Red", "KEYS": "k", "CLUSTER": "DefaultCluster", "RETRY_TOPIC": "T", "WAIT": "false",
            "REAL_TOPIC": "%RETRY%G", "REAL_QID": "0", "DELAY": str(expected),
        }  # fmt: skip
    assert back.told == [("G", "T")] * 4


@in_front()
async def test_the_first_topic_and_id_stay_with_a_message_that_is_given_back_again(scene: FrontScene) -> None:
    back = Back(scene)
    offset, end = back.store(RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="id"), scene.store.log.end
    assert await back.give(offset) == 0
    _, table = await back.newest(end)
    assert (table["RETRY_TOPIC"], table["ORIGIN_MESSAGE_ID"], back.told) == ("First", "id", [("G", "First")])


@pytest.mark.parametrize(
    ("times", "level", "most", "version", "dead"),
    [
        (1, 0, None, NEW, False), (2, 0, None, NEW, True), (0, -1, None, NEW, True), (2, 0, 3, NEW, False),
        (2, 0, 3, OLD, True), (0, 0, 0, NEW, True), (0, 0, 0, OLD, False),
    ],
)  # fmt: skip
def test_a_message_that_has_used_up_its_tries_is_a_dead_letter(
    times: int, level: int, most: int | None, version: int, dead: bool
) -> None:
    @in_front()
    async def give(scene: FrontScene) -> None:
        scene.tables.groups.put(SubscriptionGroupConfig("G", retry_max_times=2))
        back = Back(scene)
        offset, end = back.store(times=times), scene.store.log.end
        assert await back.give(offset, level, most=most, version=version) == 0
        record, table = await back.newest(end)
        assert (record.topic == "%DLQ%G") == dead
        if dead:
            assert (record.queue_id, table["DELAY"]) == (0, "0")
            assert scene.tables.topics.get("%DLQ%G") is not None
            assert not scene.tables.topics.unsaved  # its topic is in its file before the consumer is told

    give()


@in_front()
async def test_a_group_without_retry_queues_gets_nothing_back(scene: FrontScene) -> None:
    scene.tables.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=0))
    back = Back(scene)
    offset, end = back.store(), scene.store.log.end
    assert await back.give(offset) == 0
    assert (scene.store.log.end, back.told) == (end, [])


@in_front()
async def test_retries_are_spread_over_the_queues_of_the_group(scene: FrontScene) -> None:
    scene.tables.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=3))
    back = Back(scene)
    offset, queues = back.store(), set()
    for _ in range(30):
        end = scene.store.log.end
        assert await back.give(offset) == 0
        queues.add((await back.newest(end))[1]["REAL_QID"])
    assert queues == {"0", "1", "2"}


@in_front(autoCreateSubscriptionGroup="false")
async def test_what_cannot_be_given_back_is_refused_with_its_reason(scene: FrontScene) -> None:
    back = Back(scene)
    offset = back.store()
    code, remark = await back.refused(offset, group="None")
    assert (code, remark[:35]) == (26, "subscription group not exist, None ")
    assert (await back.refused(offset, group="CID_RMQ_SYS_TRANS"))[0] == 16
    for wrong in (-1, offset + 1, scene.store.log.end, 1 << 40):
        assert await back.refused(wrong) == (1, f"look message by offset failed, {wrong}")
    scene.tables.topics.put(TopicConfig("%RETRY%G", 1, 1, 4))
    assert await back.refused(offset) == (16, "the topic[%RETRY%G] sending message is forbidden")
    scene.settings.broker_permission = 4
    assert (await back.refused(offset))[0] == 16


@in_front()
async def test_what_the_broker_keeps_for_itself_is_not_given_to_a_group(scene: FrontScene) -> None:
    back, end = Back(scene), scene.store.log.end
    scene.ask(send(props="TRAN_MSG\x01true"))
    await asyncio.sleep(1)  # the topic of halves is in its file
    assert (await back.refused(end))[0] == 16


@in_front()
async def test_who_gives_a_message_back_may_read_its_topic_though_it_waits(scene: FrontScene) -> None:
    back, grant = Back(scene), Allowing()
    plain = back.store()
    waiting = scene.store.log.end
    scene.ask(send(props="DELAY\x013"))
    for offset in (plain, waiting):
        grant.asked.clear()
        assert await back.give(offset, grant=grant) == 0
        assert grant.asked == [(use_group("G"),), (use_topic("T"),)]
    grant.refuses, end = True, scene.store.log.end
    with pytest.raises(AuthError):
        await back.give(plain, grant=grant)
    assert scene.store.log.end == end


@in_front()
async def test_a_retry_that_waits_may_be_given_back_all_the_same(scene: FrontScene) -> None:
    back, end = Back(scene), scene.store.log.end
    scene.ask(send(props="DELAY\x013"))
    assert await back.give(end) == 0


@in_front()
async def test_a_store_that_takes_nothing_is_told_and_nothing_is_counted(scene: FrontScene) -> None:
    back = Back(scene)
    offset = back.store()
    await back.give(back.store())
    back.told.clear()
    scene.store.log.gate = Gate.DISK_FULL
    code, remark = await back.refused(offset)
    assert (code, remark[:27]) == (1, "the message was not stored:")
    scene.store.log.gate = 0
