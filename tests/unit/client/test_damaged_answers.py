"""Pulls from a broker whose disk has changed what it gives: a bad record costs itself alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from rmq.client.consumer.puller import Puller
from rmq.client.message import MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.results import PullStatus
from rmq.client.settings import ClientSettings
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from rmq.protocol.message import MessageRecord, encode_record
from rmq.protocol.subscription import build
from tests.support.virtual import one_world

QUEUE = MessageQueue("T", "b", 3)
Damage = Callable[[bytearray], None]


def patch(at: int, form: str, value: Any) -> Damage:
    return lambda record: struct.pack_into(form, record, at, value)


def flip(at: int, bit: int = 0) -> Damage:
    def change(record: bytearray) -> None:
        record[at] ^= 1 << bit

    return change


class Disk:
    """A queue of ten messages, as a broker gives it that looks at nothing."""

    def __init__(self, damage: dict[int, Damage], *, tags: str = "") -> None:
        self.namespace = Namespace()
        self.settings = ClientSettings()
        self.world = one_world()
        self.records = []
        for offset in range(10):
            properties = {"TAGS": tags[offset]} if tags else {}
            record = MessageRecord("T", 3, queue_offset=offset, body=b"message %d" % offset, properties=properties)
            record.physical_offset = 1_000 + 100 * offset
            made = bytearray(encode_record(record))
            if offset in damage:
                damage[offset](made)
            self.records.append(bytes(made))
        self.tags = tags
        self.asked: list[tuple[int, int]] = []
        self.heals = False

    async def find_reader(self, queue: MessageQueue, suggested: int, *, timeout: float) -> tuple[str, int]:
        return "b:1", 0

    async def call(self, address: str, code: RequestCode, header: PullMessageRequest, **_: Any) -> Command:
        first, most = header.queue_offset, header.max_msg_nums
        self.asked.append((first, most))
        wanted = [offset for offset in range(first, 10) if not self.tags or self.tags[offset] == header.subscription][
            :most
        ]
        following = wanted[-1] + 1 if len(wanted) == most else 10
        answer = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=following, min_offset=0, max_offset=10
        )
        reply = Command.request(code).reply(
            ResponseCode.SUCCESS if wanted else ResponseCode.PULL_NOT_FOUND, header=answer
        )
        reply.body = b"".join(self.records[offset] for offset in wanted)
        return reply

    async def consume(self, expression: str = "*", at_once: int = 32) -> list[int]:
        """The offsets of what a consumer gets that begins at 0."""
        puller = Puller(self, "g")  # type: ignore[arg-type]
        got: list[int] = []
        offset = 0
        for _ in range(100):
            result = await puller.pull(
                QUEUE, build("T", expression), offset, max_nums=at_once, timeout=1.0, post_subscription=True
            )
            assert result.next_begin_offset > offset or result.status is PullStatus.NO_NEW_MSG
            for message in result.messages:
                assert message.body == b"message %d" % message.queue_offset
                got.append(message.queue_offset)
            if result.status is PullStatus.NO_NEW_MSG:
                return got
            offset = result.next_begin_offset
        raise AssertionError(f"the end is not reached: {self.asked}")


#: Where fields of a version 1 record are: 0 size, 4 magic, 8 CRC, 12 queue id, 20 queue offset, 84 length of the body,
#: 88 body, 97 length of the topic, 98 topic, 99 length of the properties.
CHANGES = {
    "size smaller": patch(0, ">i", 95),
    "size much larger": flip(0),
    "size of nothing": patch(0, ">i", 0),
    "size below nothing": patch(0, ">i", -7),
    "magic": flip(7),
    "checksum": flip(9),
    "queue id": flip(15),
    "queue offset back": patch(20, ">q", 0),
    "queue offset on": patch(20, ">q", 8),
    "queue offset far on": flip(21),
    "queue offset below nothing": flip(20, 7),
    "length of the body": flip(87),
    "length of the body, below nothing": flip(84, 7),
    "body": flip(90),
    "length of the topic": flip(97),
    "topic": flip(98),
    "length of the properties": flip(100),
    "all zeros": lambda record: record.__setitem__(slice(None), bytes(len(record))),
}


@pytest.mark.parametrize("at_once", [1, 2, 32])
@pytest.mark.parametrize("offset", [0, 4, 9])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_record_that_changed_costs_itself_alone(
    change: str, offset: int, at_once: int, caplog: pytest.LogCaptureFixture
) -> None:
    got = await Disk({offset: CHANGES[change]}).consume(at_once=at_once)
    if (change, offset) in {("queue offset back", 0)}:
        assert got == list(range(10))  # it is what it was
        return
    assert got == [each for each in range(10) if each != offset]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"the message at offset {offset} cannot be read and is passed over" in caplog.text


async def test_several_of_them() -> None:
    damage = {0: CHANGES["body"], 1: CHANGES["size much larger"], 5: CHANGES["queue offset on"], 9: CHANGES["magic"]}
    assert await Disk(damage).consume() == [2, 3, 4, 6, 7, 8]


async def test_what_comes_well_when_it_is_asked_for_alone_is_not_lost() -> None:
    disk = Disk({4: CHANGES["body"]})
    good = Disk({}).records[4]
    call = disk.call

    async def heals(*args: Any, **more: Any) -> Command:
        answer = await call(*args, **more)
        if disk.asked[-1] == (4, 32):
            disk.records[4] = good
        return answer

    disk.call = heals  # type: ignore[method-assign]
    assert await disk.consume() == list(range(10))
    assert disk.asked[:4] == [(0, 32), (4, 32), (4, 1), (5, 32)]


@pytest.mark.parametrize("bad", range(10))
async def test_with_a_filter_only_what_it_takes_is_asked_for(bad: int) -> None:
    tags = "abbabaabba"
    wanted = [offset for offset in range(10) if tags[offset] == "a"]
    got = await Disk({bad: CHANGES["size much larger"]}, tags=tags).consume("a")
    assert got == [offset for offset in wanted if offset != bad]
