"""Whatever reads bytes or texts of strangers takes time in proportion to them, up to the limit it has.

A quarter of the limit and all of it are read. In proportion is four times as long, quadratic sixteen times: eight is
the judge. What is read in a few milliseconds at its limit may do as it likes.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from rmq.broker.lane.plain import plain_properties
from rmq.broker.schedule.timing import RecallHandle
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.index.words import keys_to_index, words
from rmq.broker.store.log.records import index_keys
from rmq.client.cluster.route import publish_queues
from rmq.config.sources import parse_properties, parse_update
from rmq.filter import sql
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol import batch, fastjson, frame, ids, names, properties, subscription
from rmq.protocol.bodies.body import LENIENT_BYTES, queue_from
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.lock import LockBatchRequestBody
from rmq.protocol.bodies.pop import BatchAckMessageRequestBody, bits_of
from rmq.protocol.bodies.reset import ResetOffsetBody
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.topic import RegisterBrokerBody
from rmq.protocol.errors import RMQError
from rmq.protocol.frame import MAX_HEADER, MAX_LENIENT_HEADER
from rmq.protocol.headers.pull import PullMessageRequest
from rmq.protocol.message import decode_record
from rmq.protocol.pop import Handle
from rmq.protocol.properties import MAX_BYTES
from rmq.protocol.tags import string_hash

#: Quick enough at the limit, seconds of the processor.
_QUICK = 0.02
_MIB = 1 << 20


def _compiled(text: str) -> None:
    sql._compiled.cache_clear()
    sql.compile_sql(text)


def _taken(read: Callable[[Any], object], data: object) -> float:
    gc.disable()
    began = time.process_time()
    with suppress(RMQError, ValueError):
        read(data)
    taken = time.process_time() - began
    gc.enable()
    return taken


def _judged(read: Callable[[Any], object], make: Callable[[int], object], limit: int) -> None:
    whole = _taken(read, make(limit))
    if whole < _QUICK:
        return
    quarter = half = 1e9
    for _ in range(5):  # another process may have had its share of one: the least of each counts
        quarter, half = min(quarter, _taken(read, make(limit // 4))), min(half, _taken(read, make(limit // 2)))
        if whole < 8 * quarter and half < 6 * quarter:
            return
        whole = min(whole, _taken(read, make(limit)))
    raise AssertionError(
        f"{quarter * 1000:.1f}, {half * 1000:.1f} and {whole * 1000:.1f} ms for 1/4, 1/2 and all of it"
    )


#: Texts that are hard for readers of JSON: what begins it, what is repeated, what ends it.
_JSON = {
    "escaped quotes": ('{"', '\\"', ""),
    "quotes": ("", '"', ""),
    "single quotes": ("[", "'',", "]"),
    "open arrays": ("", "[", ""),
    "open objects": ("", '{"a":', ""),
    "open object keys": ("", '{{"a":1}:', ""),
    "object keys": ("{", '{"a":1}:1,', "}"),
    "queue keys without end": ("{", '{"brokerName":"', ""),
    "queue keys": ("{", '{"brokerName":"b","queueId":1,"topic":"t"}:1,', "}"),
    "numbers as keys": ("{", "1:1,", "}"),
    "digits": ("[", "1", "]"),
    "digits as key": ("{", "1", ":1}"),
    "exponents": ("[", "1e1", "]"),
    "comments": ("[", "/**/", "1]"),
    "an open comment": ("[/*", "*", ""),
    "open comments": ("[", "/*", ""),
    "line comments": ("[", "//\n", "1]"),
    "blanks": ("[", " ", "1]"),
    "blanks before nothing": ("{1", " ", "1}"),
    "blanks after commas": ("{", ",  ", "}"),
    "commas": ("[", ",", "1]"),
    "backslashes": ('{"', "\\\\", ""),
    "a backslash at the end": ('{"', "\\\\", "\\"),
    "unicode escapes": ('["', "\\u0041", '"]'),
    "surrogates": ('["', "\\ud800", '"]'),
    "words": ("[", "true", "]"),
    "a list": ("[", "null,", "]"),
    "names": ("{", "a:1,", "}"),
    "references to nothing": ('{"a":{},b:[', '{"$ref":"$.a.b"},', "]}"),
    "references to all": ('{"a":[1,2,3],b:[', '{"$ref":"$.a"},', "]}"),
    "key references": ("{", '{"$ref":"$.a.null"}:1,', "}"),
}


def _repeated(form: tuple[str, str, str], size: int) -> bytes:
    begin, middle, end = form
    return (begin + middle * ((size - len(begin) - len(end)) // len(middle)) + end).encode()


@pytest.mark.parametrize("form", _JSON.values(), ids=_JSON)
@pytest.mark.parametrize(
    "read",
    [
        lambda data: fastjson.loads(data, limit=LENIENT_BYTES),
        ResetOffsetBody.decode,
        RegisterBrokerBody.decode,
        HeartbeatData.decode,
        lambda data: frame.decode(len(data).to_bytes(4, "big") + data),
        lambda data: NamesrvSettings().update(data.decode()),
    ],
    ids=["fastjson", "a table by queue", "a registration", "a heartbeat", "a header", "settings"],
)
def test_json(read: Callable[[Any], object], form: tuple[str, str, str]) -> None:
    _judged(read, lambda size: _repeated(form, size), min(LENIENT_BYTES, MAX_LENIENT_HEADER) - 64)


_STRICT: dict[str, Callable[[int], object]] = {
    "references to nothing": lambda n: {
        "a": {f"k{i}": 1 for i in range(n)}, "b": [{"$ref": f"$.a.z{i}"} for i in range(n)],
    },
    "a chain": lambda n: {f"r{i}": {"$ref": f"$.r{i + 1}"} for i in range(n)},
    "a chain backwards": lambda n: {f"r{i}": {"$ref": f"$.r{i - 1}"} for i in range(n)},
    "one target": lambda n: {"a": {"b": 1}, "c": [{"$ref": "$.a"}] * n},
    "large targets": lambda n: {"a": list(range(n)), "c": [{"$ref": "$.a"}] * n},
    "laughs": lambda n: {f"l{i}": [{"$ref": f"$.l{i - 1}"}] * 30 if i else 1 for i in range(n // 30)},
    "deep": lambda n: {"a": [[[[[[[[{"$ref": "$.b"}]]]]]]]] * n, "b": 1},
}  # fmt: skip


@pytest.mark.parametrize("make", _STRICT.values(), ids=_STRICT)
def test_strict_json_with_references(make: Callable[[int], object]) -> None:
    """Without a limit of its own: a MiB of it is the longest body that is read in one go."""
    _judged(lambda data: fastjson.loads(data, limit=LENIENT_BYTES), lambda n: json.dumps(make(n)).encode(), 12_000)


_TEXTS: dict[str, tuple[Callable[[Any], object], Callable[[int], object], int]] = {
    "properties": (properties.decode, lambda n: "a\1b\2" * (n // 4), MAX_BYTES),
    "properties without values": (properties.decode, lambda n: "a\1\2" * (n // 3), MAX_BYTES),
    "one property": (lambda text: properties.get(text, "A"), lambda n: "A\1" * (n // 2), MAX_BYTES),
    "one property without a value": (lambda text: properties.get(text, "A"), lambda n: "A\1\2" * (n // 3), MAX_BYTES),
    "plain properties": (lambda text: plain_properties(text, b""), lambda n: "KEYS\1a\2" * (n // 7), MAX_BYTES),
    "keys": (lambda text: keys_to_index({"KEYS": text}), lambda n: "a " * (n // 2), MAX_BYTES),
    "blanks for keys": (lambda text: keys_to_index({"KEYS": text}), lambda n: " " * n, MAX_BYTES),
    "keys in a record": (
        lambda text: index_keys(text, 0, len(text)), lambda n: b"KEYS\1\2" * (n // 6), MAX_BYTES,
    ),
    "a hash of a key": (KeyHasher("T").of, lambda n: b"a" * n, MAX_BYTES),
    "indexed words": (words, lambda n: b"a " * (n // 2), MAX_BYTES),
    "a bit set": (bits_of, lambda n: "/" * (n // 4 * 4), 4_096),
    "a batch of acks": (
        BatchAckMessageRequestBody.decode,
        lambda n: b'{"acks":[' + b'{"b":"AQ==","c":"g"},' * (n // 21) + b"{}]}", _MIB // 2 - 64,
    ),
    "locks": (
        LockBatchRequestBody.decode,
        lambda n: b'{"mqSet":[' + b'{"brokerName":"b","queueId":1,"topic":"t"},' * (n // 44) + b"{}]}", 65_536,
    ),
    "a hash": (string_hash, lambda n: "a" * n, names.LONGEST["subscription"]),
    "tags": (
        lambda text: subscription.build("T", text), lambda n: "||".join(map(str, range(n // 7))),
        names.LONGEST["subscription"],
    ),
    "the same tag": (
        lambda text: subscription.build("T", text), lambda n: "a||" * (n // 3), names.LONGEST["subscription"],
    ),
    "SQL92 digits": (_compiled, lambda n: "a = " + "0" * n, 16_000),
    "SQL92 numbers": (_compiled, lambda n: "a = " + "1" * n, 16_000),
    "SQL92 quotes": (_compiled, lambda n: "a = " + "'" * (n | 1), 16_000),
    "SQL92 comments": (_compiled, lambda n: "/*" * (n // 2), 16_000),
    "SQL92 closed comments": (_compiled, lambda n: "/**/" * (n // 4) + "a", 16_000),
    "SQL92 dashes": (_compiled, lambda n: "--" * (n // 2), 16_000),
    "SQL92 signs": (_compiled, lambda n: "a = 1" + " + 1" * (n // 4), 15_900),
    "SQL92 minus": (_compiled, lambda n: "a = " + "-" * n, 16_000),
    "SQL92 parentheses": (_compiled, lambda n: "(" * n, 16_000),
    "SQL92 alternatives": (_compiled, lambda n: "a = 1" + " or a = 1" * (n // 9), 15_900),
    "SQL92 lists": (_compiled, lambda n: "a in ('b'" + ",'b'" * (n // 4) + ")", 15_900),
    "SQL92 not": (_compiled, lambda n: "not " * (n // 4) + "a = 1", 15_900),
    "SQL92 names": (_compiled, lambda n: "a" * n, 16_000),
    "a batch": (batch.decode, lambda n: batch.encode([(0, b"", {"a": "b"})] * (n // 25)), _MIB // 2),
    "the weight of a batch": (
        lambda data: batch.holds_more_than(data, 1 << 40),
        lambda n: batch.encode([(0, b"", {})] * (n // 22)), 4 * _MIB,
    ),
    "the weight of no batch": (lambda data: batch.holds_more_than(data, 1 << 40), bytes, 4 * _MIB),
    "a batch of nothing": (batch.decode, bytes, 4 * _MIB),
    "a record of nothing": (decode_record, bytes, 4 * _MIB),
    "a frame": (frame.decode, lambda n: (n - 4).to_bytes(4, "big") + b" " * (n - 4), MAX_HEADER),
    "a receipt handle": (lambda text: Handle.parse(text, 0), lambda n: "1 " * (n // 2), MAX_HEADER),
    "a long receipt handle": (lambda text: Handle.parse(text, 0), lambda n: "1" * n, MAX_HEADER),
    "a recall handle": (RecallHandle.decode, lambda n: "A" * n, MAX_HEADER),
    "a message id": (ids.decode_offset_msg_id, lambda n: "0" * n, MAX_HEADER),
    "a unique id": (lambda text: ids.unique_id_time(text, 0), lambda n: "0" * n, MAX_HEADER),
    "a queue in a text": (queue_from, lambda n: '{"' * (n // 2), MAX_HEADER),
    "numbers of a header": (
        lambda text: PullMessageRequest.decode({"queueId": text, "topic": "T", "consumerGroup": "G"}),
        lambda n: "1" * n, MAX_HEADER,
    ),
    "settings": (lambda text: parse_update(text), lambda n: "a=b\n" * (n // 4), 65_536),
    "settings of one line": (lambda text: parse_update(text), lambda n: "a" * n, 65_536),
    "settings that go on": (lambda text: parse_properties(text, "x"), lambda n: "a=\\\n" * (n // 4), 65_536),
    "settings of blanks": (lambda text: parse_properties(text, "x"), lambda n: " " * n, 65_536),
    "settings of backslashes": (lambda text: parse_properties(text, "x"), lambda n: "a=" + "\\" * n, 65_536),
    "settings nobody knows": (lambda text: NamesrvSettings().update(text), lambda n: "a=b\n" * (n // 4), 65_536),
    "an order of queues": (
        lambda text: publish_queues("T", TopicRouteData(order_topic_conf=text)), lambda n: "b:1;" * (n // 4), 65_536,
    ),
    "a long count of queues": (
        lambda text: publish_queues("T", TopicRouteData(order_topic_conf=text)), lambda n: "b:" + "1" * n, 65_536,
    ),
    "writing": (fastjson.dumps, lambda n: [{"a": "\ud800\"", "b": [1, None]}] * (n // 40), _MIB // 4),
    "writing a text": (fastjson.dumps, lambda n: '"\n\u2028' * (n // 3), _MIB // 4),
    "writing a table": (fastjson.dumps, lambda n: dict.fromkeys(range(n // 8), "x"), _MIB // 4),
    "writing strictly": (fastjson.standard, lambda n: {str(i): {"b": "\u00e9"} for i in range(n // 16)}, _MIB // 4),
}  # fmt: skip


@pytest.mark.parametrize(("read", "make", "limit"), _TEXTS.values(), ids=_TEXTS)
def test_texts(read: Callable[[Any], object], make: Callable[[int], object], limit: int) -> None:
    _judged(read, make, limit)


def test_binary_headers() -> None:
    def made(fields: int) -> bytes:
        ext = b"".join(b"\0\1" + b"%c" % (n % 128) + b"\0\0\0\1x" for n in range(fields))
        head = b"\0\12\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0" + len(ext).to_bytes(4, "big") + ext
        return (len(head) | 1 << 24).to_bytes(4, "big") + head

    _judged(frame.decode, made, 30_000)


def test_a_stream_of_frames() -> None:
    def read(pieces: list[bytes]) -> None:
        decoder = frame.FrameDecoder()
        for piece in pieces:
            decoder.receive_data(piece)
            while decoder.next_frame() is not None:
                pass

    whole = (4 * _MIB - 4).to_bytes(4, "big") + bytes(4 * _MIB - 4)
    _judged(read, lambda n: [whole[at : at + 1_000] for at in range(0, n, 1_000)], len(whole))
