"""Requests that nobody should send: every code with every field absent, empty, huge, negative, not ASCII or doubled.

Each is made of a sensible one, with one or two things wrong, as a JSON or a ROCKETMQ header, answered or oneway. What
is drawn comes from a seed, so that a campaign can be run again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rmq.protocol import batch, fastjson, frame
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.headers.table import REQUEST_HEADERS

__all__ = ["UNKNOWN", "Odd", "batches", "drawn", "every"]

#: In place of a field's text. None: the field is left out.
TEXTS: tuple[str | None, ...] = (
    None, "", " ", "0", "1", "-1", "2", "7", "99", "-2147483648", "2147483647", "2147483648", "-9223372036854775808",
    "9223372036854775807", "9223372036854775808", "1e9", "1.5", "NaN", "9" * 400, "true", "false", "maybe", "null",
    # names
    "T", "G", "other", "bad name!", "../../up", "a/b", "%", "%s%d%n", "%RETRY%G", "%RETRY%", "%DLQ%G", "%LMQ%q",
    "%SYS%x", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "rmq_sys_x", "%RETRY%" + "r" * 300,
    "n" * 127, "n" * 128, "n" * 256, "g" * 17_000, "x" * 60_000, "\x7f" * 60_000, "é" * 30_000,
    # what a text must not break
    "\0", "\0" * 300, "\x01\x02\x01", "a\x01b\x02", "名前", "😀", "\ud800", "\u2028", '"', "\\", "\n", "\r\n",
    "{}", "[]", "{", '{"a":', "[" * 2_000, "a=b", "*", "A || B", "a > 1 AND b IS NOT NULL", "(" * 500,
    "127.0.0.1:1", "7F00000100002A9F0000000000000000", "F" * 32, "0" * 56,
    # properties
    "KEYS\x01k\x02", "DELAY\x013\x02", "DELAY\x0199999999999\x02", "DELAY\x01x\x02", "TRAN_MSG\x01true\x02",
    "WAIT\x01false\x02", "TIMER_DELIVER_MS\x01x\x02", "TIMER_DELAY_SEC\x01-5\x02",
    "TIMER_DELAY_MS\x01" + "9" * 400 + "\x02", "TIMER_DELAY_SEC\x013\x02UNIQ_KEY\x01u\x02",
    "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02", "TAGS\x01" + "t" * 30_000 + "\x02",
    "KEYS\x01" + "k " * 10_000 + "\x02", "UNIQ_KEY\x01\0\x02", "x" * 32_000 + "\x01y\x02", "\x01\x01\x01", "TAGS\x01",
    "\x02" * 9_000,
)  # fmt: skip
#: In place of a value of a JSON body.
VALUES: tuple[Any, ...] = (
    None, "", "x", "é😀", "\0", "x" * 20_000, 0, -1, 1, 1.5, 1 << 31, 1 << 63, -(1 << 63), 10**400, True, [], {},
    [None], [[]], {"": None}, "1", "true", "-1", "9" * 400, "../up", ["x"] * 3, {"a": {"b": {"c": []}}},
)  # fmt: skip
BODIES: tuple[bytes, ...] = (
    b"", b"\0", b"\0" * 64, b"x", b"{", b"{}", b"[]", b"[{}]", b"null", b"0", b'"', b"\xff\xfe\xff", b"{" * 500,
    b"[" * 3_000,
    b'{"a":' * 200, b"a=b", b"a\n=", b"=\n=", b"\\u", b"{'a':1}", b'{"a":1,"a":2}', b"[1,2,3]", b'["x"]', b"[null]",
    b'{"$ref":"$"}', b'{"a":{"$ref":"$.a"}}', b'{"@type":"java.lang.Class"}', b"x" * 70_000, b"\xe9" * 1_000,
)  # fmt: skip
_SENSIBLE: dict[str, str] = {
    "topic": "T", "b": "T", "group": "G", "consumerGroup": "G", "producerGroup": "P", "a": "P", "groupName": "G",
    "srcGroup": "G",
    "destGroup": "other", "defaultTopic": "TBW102", "c": "TBW102", "d": "4", "defaultTopicQueueNums": "4", "m": "false",
    "queueId": "0", "e": "0", "queueOffset": "0", "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0",
    "expressionType": "TAG",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "i": "", "properties": "", "f": "0",
    "g": "1", "h": "0",
    "j": "0", "k": "false", "flag": "0", "bornTimestamp": "1", "clientId": "c", "clientID": "c", "offset": "0",
    "key": "k",
    "maxNum": "8", "beginTimestamp": "0", "endTimestamp": "9223372036854775807", "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "namespace": "N", "value": "v",
    "brokerName": "broker-9", "brokerAddr": "127.0.0.1:7", "clusterName": "C", "haServerAddr": "127.0.0.1:8",
    "brokerId": "0",
    "timestamp": "0", "isForce": "true", "commitOrRollback": "8", "tranStateTableOffset": "0", "commitLogOffset": "0",
    "msgId": "7F00000100002A9F0000000000000000", "offsetMsgId": "7F00000100002A9F0000000000000000", "delayLevel": "3",
    "statsName": "TOPIC_PUT_NUMS", "statsKey": "T", "readable": "true", "invisibleTime": "10000", "pollTime": "0",
    "bornTime": "1",
    "initMode": "0", "exp": "*", "expType": "TAG", "extraInfo": "0 0 0 0 0 broker-0 0 0", "queueIdTimestamp": "0",
}  # fmt: skip
_SUBSCRIPTION = {
    "topic": "T", "subString": "*", "subVersion": 1, "expressionType": "TAG", "classFilterMode": False, "tagsSet": [],
    "codeSet": [],
}  # fmt: skip
_CONSUMER = {
    "groupName": "G", "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [_SUBSCRIPTION],
}  # fmt: skip
_TOPIC = {
    "topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "attributes": {},
}  # fmt: skip
_GROUP = {"groupName": "G", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0}
_QUEUE = {"topic": "T", "brokerName": "broker-0", "queueId": 0}
_LOCK = {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]}
_TABLES = {
    "topicConfigSerializeWrapper": {"topicConfigTable": {"T": _TOPIC}, "dataVersion": {"timestamp": 1, "counter": 1}},
    "filterServerList": [],
}
#: Bodies that are understood.
_SENSIBLE_BODIES: dict[int, object] = {
    Code.HEART_BEAT: {"clientID": "c", "consumerDataSet": [_CONSUMER], "producerDataSet": [{"groupName": "P"}]},
    Code.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": "G", "subscriptionData": _SUBSCRIPTION},
    Code.LOCK_BATCH_MQ: _LOCK,
    Code.UNLOCK_BATCH_MQ: _LOCK,
    Code.REGISTER_BROKER: _TABLES,
    Code.REGISTER_TOPIC_IN_NAMESRV: {"queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 4,
    "writeQueueNums": 4}]},
    Code.QUERY_DATA_VERSION: {"timestamp": 1, "counter": 1},
    Code.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [_TOPIC]},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _GROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [_GROUP]},
    Code.QUERY_ASSIGNMENT: {
        "topic": "T", "consumerGroup": "G", "clientId": "c", "strategyName": "AVG", "messageModel": "CLUSTERING",
    },
    Code.SET_MESSAGE_REQUEST_MODE: {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0},
    Code.BATCH_ACK_MESSAGE: {
        "brokerName": "broker-0",
        "acks": [{"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "it": 1000, "pt": 1, "bm": "AQ=="}],
    },
    Code.QUERY_CORRECTION_OFFSET: {},
    Code.ADD_BROKER: {},
}  # fmt: skip
#: Bodies that are no JSON.
_OTHER_BODIES: dict[int, bytes] = {
    Code.UPDATE_BROKER_CONFIG: b"flushIntervalCommitLog=400\nlongPollingEnable=true",
    Code.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true",
    Code.SEND_MESSAGE: b"hello",
    Code.SEND_MESSAGE_V2: b"hello",
    Code.SEND_REPLY_MESSAGE: b"hello",
    Code.SEND_REPLY_MESSAGE_V2: b"hello",
    Code.SEND_BATCH_MESSAGE: batch.encode([(0, b"one", {}), (0, b"two", {"KEYS": "k"})]),
}


#: Request codes that nobody knows.
UNKNOWN = (-1, 0, 999, 32_767, 32_768, (1 << 31) - 1, -(1 << 31))


@dataclass(frozen=True)
class Odd:
    """One request as bytes, and what is odd about it."""

    code: int
    what: str
    data: bytes
    oneway: bool = False

    def __repr__(self) -> str:
        return f"request {self.code} ({self.what}{', oneway' if self.oneway else ''}, {len(self.data)} bytes)"


def fields(code: int) -> dict[str, str | None]:
    """Sensible fields of a code's header."""
    kind = REQUEST_HEADERS.get(code)
    return {} if kind is None else {name: _SENSIBLE.get(name, "1") for name in kind.wire_names.values()}


def body(code: int) -> bytes:
    """A sensible body."""
    if code in _OTHER_BODIES:
        return _OTHER_BODIES[code]
    return fastjson.dumps(_SENSIBLE_BODIES[code]) if code in _SENSIBLE_BODIES else b""


def _framed(header: bytes, content: bytes) -> bytes:
    sizes = (4 + len(header) + len(content)).to_bytes(4, "big") + len(header).to_bytes(4, "big")
    return sizes + header + content


def made(
    code: int,
    ext: dict[str, str | None] | None,
    content: bytes,
    what: str,
    *,
    binary: bool = False,
    oneway: bool = False,
) -> Odd | None:
    """A request of these parts; None when no frame holds it."""
    if len(content) > frame.MAX_FRAME - frame.MAX_HEADER:
        return None
    what += ", ROCKETMQ" if binary else ""
    flag = 2 if oneway else 0
    if not binary:
        header = {"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": 7, "version": 401}
        if ext is None:
            del header["extFields"]
        text = json.dumps(header, ensure_ascii=False).encode(errors="replace")
        return Odd(code, what, _framed(text, content), oneway) if len(text) <= frame.MAX_HEADER else None
    if not -32_768 <= code <= 32_767:
        return None
    command = Command(code, ext=ext, body=content, opaque=7, flag=flag, version=401, serialize=SerializeType.ROCKETMQ)
    return Odd(code, what, frame.encode(command), oneway)


def doubled(code: int, name: str, text: str, *, last: bool) -> Odd:
    """A field that comes twice, the odd text first or last."""
    ext = fields(code)
    pair = f"{json.dumps(name)}:{json.dumps(text)}"
    members = ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in ext.items())
    inner = f"{members},{pair}" if last else f"{pair},{members}"
    header = f'{{"code":{code},"extFields":{{{inner}}},"flag":0,"language":"JAVA","opaque":7,"version":401}}'
    return Odd(code, f"{name} twice, {text[:20]!r}", _framed(header.encode(errors="replace"), body(code)))


def bare(code: int, name: str, value: object) -> Odd:
    """A field that is no text."""
    ext: dict[str, object] = {**fields(code), name: value}
    header = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 7, "version": 401}
    return Odd(code, f"{name}={str(value)[:20]} without quotes", _framed(json.dumps(header).encode(), body(code)))


def _replaced(document: Any, chance: random.Random) -> Any:
    """A JSON document with one value, at any depth, replaced, left out or added."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in list(items):
            places.append((node, key))
            walk(value)

    copied = json.loads(json.dumps(document))
    walk(copied)
    if not places:
        return chance.choice(VALUES)
    node, key = chance.choice(places)
    what = chance.random()
    if what < 0.15:
        del node[key]
    elif what < 0.25 and isinstance(node, dict):
        node[chance.choice(("", "x", "é", "0", "@type", "$ref"))] = node.pop(key)
    elif what < 0.3 and isinstance(node, list):
        node[key:key] = [node[key]] * chance.choice((1, 30, 1_000))
    else:
        node[key] = chance.choice(VALUES)
    return copied


def _odd_body(code: int, chance: random.Random) -> tuple[bytes, str]:
    if code in _SENSIBLE_BODIES and chance.random() < 0.7:
        document = _replaced(_SENSIBLE_BODIES[code], chance)
        if chance.random() < 0.3:
            document = _replaced(document, chance)
        content = json.dumps(document, ensure_ascii=chance.random() < 0.5).encode(errors="replace")
        return content, f"body {content[:60]!r}"
    content = chance.choice(BODIES)
    if code in _OTHER_BODIES and chance.random() < 0.5:
        whole = bytearray(_OTHER_BODIES[code])
        for _ in range(chance.randint(1, 4)):
            whole[chance.randrange(len(whole))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 0x3D, 0x0A))
        content = bytes(whole)[: chance.randint(1, len(whole))]
    return content, f"body {content[:20]!r}"


def drawn(chance: random.Random, among: Sequence[int]) -> Odd:
    """Any one of them."""
    while True:
        code = chance.choice(among)
        ext, content = fields(code), body(code)
        binary, oneway = chance.random() < 0.25, chance.random() < 0.2
        what = chance.random()
        if ext and what < 0.1:
            name = chance.choice(sorted(ext))
            text = chance.choice(TEXTS) or ""
            return doubled(code, name, text.replace("\ud800", "?"), last=chance.random() < 0.5)
        if ext and what < 0.18:
            return bare(code, chance.choice(sorted(ext)), chance.choice(VALUES))
        if what < 0.4 or not ext:
            content, said = _odd_body(code, chance)
        else:
            said = ""
        if ext and (what >= 0.4 or chance.random() < 0.2):
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                name = chance.choice(sorted(fields(code)))
                text = chance.choice(TEXTS)
                ext.pop(name, None)
                if text is not None:
                    ext[name] = text
                said += f" {name}={str(text)[:24]!r}" + (f" x {len(text)}" if text and len(text) > 24 else "")
        if chance.random() < 0.02:
            ext = {}
        odd = made(code, ext or None, content, said.strip(), binary=binary, oneway=oneway)
        if odd is not None:
            return odd


def every(among: Sequence[int]) -> Iterator[Odd]:
    """Every text in every field of every code, in each form; and every body."""
    forms = ((False, False), (True, False), (False, True))
    for code in among:
        ext, content = fields(code), body(code)
        cases: list[tuple[dict[str, str | None], bytes, str]] = [(ext, content, "sensible"), ({}, content, "no fields")]
        cases += [(ext, one, f"body {one[:20]!r}") for one in BODIES]
        for name in ext:
            for text in TEXTS:
                changed = {key: value for key, value in ext.items() if key != name}
                if text is not None:
                    changed[name] = text
                cases.append((changed, content, f"{name}={str(text)[:24]!r}" + (f" x {len(text)}" if text else "")))
        for one in cases:
            for binary, oneway in forms:
                odd = made(code, one[0] or None, one[1], one[2], binary=binary, oneway=oneway)
                if odd is not None:
                    yield odd
        for name in ext:
            for text in ("", "-1", "x" * 300, "é"):
                yield doubled(code, name, text, last=True)
                yield doubled(code, name, text, last=False)
            for value in VALUES:
                yield bare(code, name, value)


def batches(
    sizes: Sequence[int], item: Callable[[int], tuple[int, bytes, dict[str, str]]] | None = None
) -> Iterator[Odd]:
    """Batches of so many messages, of empty bodies when ``item`` makes no others, in each form."""
    for size in sizes:
        content = batch.encode([item(number) if item else (0, b"", {}) for number in range(size)])
        for binary, oneway in ((False, False), (True, False), (False, True)):
            ext = fields(Code.SEND_BATCH_MESSAGE) | {"m": "true", "i": "WAIT\x01true\x02"}
            odd = made(Code.SEND_BATCH_MESSAGE, ext, content, f"a batch of {size}", binary=binary, oneway=oneway)
            if odd is not None:
                yield odd
