"""The two requests of the hot path, as typed structs that decode straight from the JSON header.

Only members that the lane looks at are declared; others are skipped by the decoder. A header that does not fit (a null,
a number that does not parse, another member order) is no error here: it takes the ordinary way.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rmq.protocol.names import LONGEST

__all__ = [
    "PULL_START",
    "SEND_START",
    "PullFields",
    "PullFrame",
    "SendFields",
    "SendFrame",
    "decode_pull",
    "decode_send",
]

#: How a header begins that Java, our SDK and every client with sorted members writes.
SEND_START = b'{"code":310,'
PULL_START = b'{"code":11,'


#: Numbers as wide as a record holds them: a wider one must not reach the append.
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
#: Names as long as anything is kept under.
Name = Annotated[str, msgspec.Meta(max_length=LONGEST["topic"])]
Expression = Annotated[str, msgspec.Meta(max_length=LONGEST["subscription"])]


class SendFields(msgspec.Struct, gc=False):
    """SendMessageRequestHeaderV2 (protocol.md 2.2), the members that a plain send needs."""

    b: str  #: topic
    e: Int32  #: queue id
    f: Int32  #: system flags
    g: Int64  #: born timestamp, ms
    h: Int32  #: user flag
    i: str = ""  #: properties
    j: Int32 = 0  #: reconsume times
    m: bool = False  #: batch


class SendFrame(msgspec.Struct, gc=False):
    extFields: SendFields
    opaque: Int32
    flag: Int32 = 0


class PullFields(msgspec.Struct, gc=False, rename="camel"):
    """PullMessageRequestHeader (protocol.md 2.4)."""

    consumer_group: Name
    topic: Name
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: Expression | None = None
    sub_version: Int64 = 0
    expression_type: Name | None = None


class PullFrame(msgspec.Struct, gc=False):
    extFields: PullFields
    opaque: Int32
    flag: Int32 = 0


decode_send = msgspec.json.Decoder(SendFrame, strict=False).decode
decode_pull = msgspec.json.Decoder(PullFrame, strict=False).decode
