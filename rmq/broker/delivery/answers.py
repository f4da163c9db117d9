"""The answers to a pull (protocol.md 2.4)."""

from __future__ import annotations

from struct import Struct

from rmq.broker.delivery.read import Batch, Status
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_RESPONSE, VERSION, Command, SerializeType
from rmq.protocol.errors import ResponseError
from rmq.protocol.frame import encode

__all__ = ["code_of", "filtering_is_off", "pull_answer"]

_lengths = Struct(">ii").pack
_FOUND = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","maxOffset":"%d","minOffset":"%d"},'
    b'"flag":1,"language":"PYTHON","opaque":%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":'
    + str(VERSION).encode()
    + b"}"
)

_CODES = {
    Status.FOUND: ResponseCode.SUCCESS,
    Status.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def filtering_is_off(kind: str | None) -> ResponseError:
    """The refusal of an expression type where only tags are served: Java's words, and the setting (field case B068)."""
    return ResponseError(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {kind} (enablePropertyFilter is false)",
    )


def code_of(batch: Batch, offset: int) -> int:
    """The response code of a read; an empty queue is 19 at offset 0 and 21 elsewhere."""
    if batch.status is Status.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[batch.status]


def pull_answer(
    opaque: int, batch: Batch, code: int, broker_id: int, serialize: SerializeType
) -> tuple[list[bytes | memoryview], int]:
    """A whole frame in pieces, and their bytes together.

    :param broker_id: the broker the client is to ask next time.
    """
    if code == 0 and serialize is SerializeType.JSON:
        header = _FOUND % (broker_id, batch.next_offset, batch.max_offset, batch.min_offset, opaque)
        size = len(header)
        return [_lengths(4 + size + batch.size, size), header, *batch.records], 8 + size + batch.size
    frame = encode(
        Command(
            code,
            ext={
                "suggestWhichBrokerId": str(broker_id),
                "nextBeginOffset": str(batch.next_offset),
                "maxOffset": str(batch.max_offset),
                "minOffset": str(batch.min_offset),
            },
            remark=batch.status.name,
            body=b"".join(batch.records) if code == 0 else b"",
            flag=FLAG_RESPONSE,
            opaque=opaque,
            serialize=serialize,
        )
    )
    return [frame], len(frame)
