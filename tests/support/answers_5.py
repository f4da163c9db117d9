"""Requests that only 5.x knows, for the comparison with a running Java 5.3.3 broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.answers import Ask, Side
from tests.support.raw_peer import send, subscribe

__all__ = ["SCENE", "asks_of_5", "learn_handle"]

TOPIC, GROUP = "P_T", "P_G"
_CONFIG = {
    "topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": False,
}  # fmt: skip
_POP = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "1", "invisibleTime": "60000",
    "pollTime": "0", "bornTime": "4102444800000", "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
}  # fmt: skip
_HANDLE = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "extraInfo": "@handle", "offset": "@offset"}
_TOPIC = {
    "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _sent(number: int) -> Ask:
    message = send(TOPIC, f"m{number}".encode(), props=f"TAGS\x01A\x02UNIQ_KEY\x01U{number}\x02")
    return Ask(f"send {number}", 310, message.ext, message.body)


SCENE = (
    Ask("topic", 17, _TOPIC),
    Ask("group", 200, body=_json({"groupName": GROUP, "consumeEnable": True})),
    Ask("heartbeat", 34, body=subscribe(GROUP, TOPIC, client="P_C").body),
    *(_sent(number) for number in range(6)),
)


def asks_of_5() -> Iterator[Ask]:
    """One good request of each code, in an order in which each finds what it needs."""
    both = {"consumerGroup": GROUP, "topic": TOPIC}
    pull = {
        **both, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    assignment = {**both, "clientId": "P_C", "strategyName": "AVG", "messageModel": "CLUSTERING"}
    ack = {"c": GROUP, "t": TOPIC, "so": 0, "q": 0, "it": 60000, "pt": 1, "rq": 0, "r": "0", "b": "AQ=="}
    yield Ask("topics", 18, body=_json({"topicConfigList": [_CONFIG | {"topicName": "P_L"}]}))
    yield Ask("groups", 225, body=_json({"groupConfigList": [{"groupName": "P_LG", "consumeEnable": True}]}))
    yield Ask("topic config", 351, {"topic": TOPIC})
    yield Ask("group config", 352, {"group": GROUP})
    yield Ask("topics of a group", 343, {"group": GROUP})
    yield Ask("subscription of a group", 345, {"group": GROUP, "topic": TOPIC})
    yield Ask("forbidden", 353, {"group": GROUP, "topic": TOPIC, "readable": "true"})
    yield Ask("replicas", 907)
    yield Ask("lite pull", 361, pull)
    yield Ask("assignment", 400, body=_json(assignment))
    yield Ask("request mode", 401, body=_json({**both, "mode": "POP", "popShareQueueNum": 0}))
    yield Ask("assignment for pop", 400, body=_json(assignment))
    yield Ask("request modes", 402)
    yield Ask("peek", 200052, {**both, "queueId": "0", "maxMsgNums": "2"})
    yield Ask("pop", 200050, _POP)
    yield Ask("change", 200053, {**_HANDLE, "invisibleTime": "30000"})
    yield Ask("ack", 200051, _HANDLE)
    yield Ask("batch ack", 200151, body=_json({"brokerName": "broker-a", "acks": [ack]}))
    yield Ask(
        "notification", 200054, {**both, "queueId": "0", "pollTime": "0", "bornTime": "4102444800000", "order": "false"}
    )
    yield Ask("polling", 200055, {**both, "queueId": "0"})
    yield Ask("pop in order", 200050, {**_POP, "consumerGroup": "P_LG", "order": "true"})


def learn_handle(side: Side, answer: Command | None) -> None:
    """Keep the receipt handle of a popped message, as a 5.x client puts it together."""
    ext = (answer.ext or {}) if answer is not None else {}
    if answer is None or not answer.body or "popTime" not in ext:
        return
    found = decode_records(answer.body)[0]
    side.known["offset"] = str(found.queue_offset)
    side.known["handle"] = (
        f"{found.queue_offset} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 broker-a "
        f"{found.queue_id} {found.queue_offset}"
    )
