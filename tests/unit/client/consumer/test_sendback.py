"""A failed message goes back by one of two ways; which worked, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.client.consumer import sendback
from rmq.client.message import MessageExt
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import RequestTimeout, ResponseError, RMQError

REFUSED = ResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group", "b:10911")
SILENT = RequestTimeout("no answer")


def failed(tries: int = 0) -> MessageExt:
    message = MessageExt()
    message.topic, message.body, message.queue_offset, message.properties = "T", b"x", 7, {}
    message.broker_name, message.queue_id, message.reconsume_times = "b", 0, tries
    return message


@pytest.mark.parametrize(
    ("back", "retry", "worked", "said"),
    [
        (None, None, True, []),
        (SILENT, None, True, []),
        (REFUSED, None, True, ["send-back of"]),
        (SILENT, SILENT, False, ["neither back"]),
        (REFUSED, SILENT, False, ["send-back of", "neither back"]),
    ],
)
async def test_the_second_way_is_taken_when_the_first_fails(
    back: RMQError | None, retry: RMQError | None, worked: bool, said: list[str],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    tried: list[str] = []

    def way(name: str, error: RMQError | None) -> Any:
        async def go(*arguments: Any, **named: Any) -> None:
            tried.append(name)
            if error is not None:
                raise error

        return go

    monkeypatch.setattr(sendback, "send_message_back", way("back", back))
    monkeypatch.setattr(sendback, "send_to_retry_topic", way("retry", retry))
    never: Any = None
    assert await sendback.give_back(never, "g", failed(), 0, 16) is worked
    assert tried == (["back"] if back is None else ["back", "retry"])
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))


@pytest.mark.parametrize(("level", "tries", "dead"), [(0, 15, False), (0, 16, True), (-1, 0, True), (3, 2, False)])
async def test_what_goes_to_the_dead_letters_is_said(
    level: int, tries: int, dead: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def back(*arguments: Any) -> None:
        return None

    monkeypatch.setattr(sendback, "send_message_back", back)
    never: Any = None
    assert await sendback.give_back(never, "g", failed(tries), level, 16)
    assert [record.getMessage().rpartition(", ")[2] for record in caplog.records] == (["%DLQ%g"] if dead else [])
