"""What an answer to a pop becomes: handles, retries, what is not wanted, what is not of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq.client.consumer.pop.popper import Popped, Popper
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.namespace import Namespace
from rmq.protocol import subscription
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import HeaderError
from rmq.protocol.headers.pop import PopMessageResponse
from rmq.protocol.message import MessageRecord, encode_record


def record(topic: str, queue_id: int, offset: int, **properties: str) -> bytes:
    return encode_record(
        MessageRecord(topic=topic, body=b"x", queue_id=queue_id, queue_offset=offset, properties=properties)
    )


def popped(*records: bytes, tags: str = "*", queue_id: int = -1, order: bool = False, **header: Any) -> Popped:
    """What comes of an answer with these records."""
    told = PopMessageResponse(pop_time=1_000, invisible_time=60_000, revive_qid=3, **header)

    async def call(*_: Any, **__: Any) -> Command:
        return Command.request(0, None).reply(ResponseCode.SUCCESS, "FOUND", header=told, body=b"".join(records))

    async def find_master(_: MessageQueue) -> str:
        return "b:1"

    world = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 1_000))
    instance = SimpleNamespace(call=call, find_master=find_master, namespace=Namespace(), world=world)
    popper = Popper(cast(ClientInstance, instance), "g", order=order)
    return asyncio.run(
        popper.pop(
            MessageQueue("T", "b", queue_id), subscription.build("T", tags, sub_version=1), max_nums=32, invisible=60,
            poll=15, timeout=30, from_max=True,
        )
    )  # fmt: skip


def handles(found: Popped) -> list[str]:
    return [str(handle) for _, handle in found.messages]


def test_a_handle_says_where_the_pop_began_and_where_the_message_is() -> None:
    found = popped(
        record("T", 2, 17), record("T", 2, 18), record("%RETRY%g_T", 0, 5), record("%RETRY%g+T", 0, 6),
        start_offset_info="0 2 16;1 0 5;2 0 6",
    )  # fmt: skip
    assert handles(found) == [
        "16 1000 60000 3 0 b 2 17", "16 1000 60000 3 0 b 2 18", "5 1000 60000 3 1 b 0 5", "6 1000 60000 3 2 b 0 6",
    ]  # fmt: skip
    assert {message.topic for message, _ in found.messages} == {"T"}
    assert [message.properties["POP_CK"] for message, _ in found.messages] == handles(found)


def test_what_comes_again_has_its_handle_with_it() -> None:
    given = "5 900 60000 3 1 b 0 5"
    assert handles(popped(record("T", 0, 5, POP_CK=given), start_offset_info="1 0 5")) == [given]


def test_an_old_answer_says_nothing_of_starts() -> None:
    assert handles(popped(record("T", 2, 17), record("T", 2, 19))) == [
        "17 1000 60000 3 0 b 2 17", "17 1000 60000 3 0 b 2 19",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        record("U", 2, 17),
        record("%RETRY%g", 2, 17),
        record("T", 3, 17),
        record("T", 2, 15),
        record("T", 2, 17, POP_CK="16 1000 60000 3 0 other 2 17"),
        record("T", 2, 17, POP_CK="16 1000 60000 3 0 b 2 18"),
        record("T", 2, 17, POP_CK="nonsense"),
    ],
)
def test_what_is_not_of_the_answer_is_left_alone(other: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """To acknowledge it would settle something else."""
    found = popped(other, record("T", 2, 18), start_offset_info="0 2 16", queue_id=2)
    assert handles(found) == ["16 1000 60000 3 0 b 2 18"]
    assert not found.unwanted
    assert "is not of it" in caplog.text


def test_a_tag_with_the_same_hash_is_not_wanted() -> None:
    found = popped(
        record("T", 2, 17, TAGS="AaAa"), record("T", 2, 18, TAGS="BBBB"), tags="AaAa", start_offset_info="0 2 17"
    )
    assert [message.tags for message, _ in found.messages] == ["AaAa"]
    assert [handle.offset for _, handle in found.unwanted] == [18]


def test_tries_of_an_orderly_pop() -> None:
    answer: dict[str, Any] = {"start_offset_info": "0 2 17", "order_count_info": "0 qo2%18 4;0 2 1"}
    records = record("T", 2, 17), record("T", 2, 18)
    assert [message.reconsume_times for message, _ in popped(*records, order=True, **answer).messages] == [1, 4]
    assert [message.reconsume_times for message, _ in popped(*records, **answer).messages] == [0, 0]


def test_a_damaged_header_is_refused() -> None:
    with pytest.raises(HeaderError):
        popped(record("T", 2, 17), start_offset_info="0 2 sixteen")
