"""Requests that only 5.x knows, for the comparison with a running Java 5.3.3 broker."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.answers.cases import Ask, Side
from tests.support.raw_peer import send, subscribe

__all__ = [
    "SCENE",
    "SETTINGS_OF_5",
    "WHOSE",
    "asks_of_5",
    "learn_handle",
    "pops_in_order",
    "pops_of_two_queues",
    "recalls",
    "waiting",
    "waiting_in_vain",
]

#: Of both brokers.
SETTINGS_OF_5 = {"recallMessageEnable": "true"}

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


def _sent(number: int, topic: str = TOPIC, queue: int = 0) -> Ask:
    message = send(topic, f"m{number}".encode(), props=f"TAGS\x01A\x02UNIQ_KEY\x01U{number}\x02")
    assert message.ext is not None
    return Ask(f"send {number} to {topic}-{queue}", 310, {**message.ext, "e": str(queue)}, message.body)


SCENE = (
    Ask("topic", 17, _TOPIC),
    Ask("group", 200, body=_json({"groupName": GROUP, "consumeEnable": True})),
    Ask("heartbeat", 34, body=subscribe(GROUP, TOPIC, client="P_C").body),
    *(_sent(number) for number in range(6)),
    Ask("topic of those who wait", 17, {**_TOPIC, "topic": "P_T4"}),
)
#: Which queues are whose: null as long as a Java broker has not asked the name server for its own route, every 30 s.
_ASSIGNMENT = {"consumerGroup": GROUP, "topic": TOPIC, "clientId": "P_C", "strategyName": "AVG"}
WHOSE = Ask("assignment", 400, body=_json({**_ASSIGNMENT, "messageModel": "CLUSTERING"}))


def asks_of_5() -> Iterator[Ask]:
    """One good request of each code, in an order in which each finds what it needs."""
    both = {"consumerGroup": GROUP, "topic": TOPIC}
    pull = {
        **both, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    ack = {"c": GROUP, "t": TOPIC, "so": 0, "q": 0, "it": 60000, "pt": 1, "rq": 0, "r": "0", "b": "AQ=="}
    yield Ask("topics", 18, body=_json({"topicConfigList": [_CONFIG | {"topicName": "P_L"}]}))
    yield Ask("groups", 225, body=_json({"groupConfigList": [{"groupName": "P_LG", "consumeEnable": True}]}))
    yield Ask("topic config", 351, {"topic": TOPIC})
    yield Ask("group config", 352, {"group": GROUP})
    yield Ask("topics of a group", 343, {"group": GROUP})
    yield Ask("subscription of a group", 345, {"group": GROUP, "topic": TOPIC})
    yield Ask("forbidden", 353, {"group": GROUP, "topic": TOPIC, "readable": "false"})
    yield Ask("forbidden pull", 11, {**pull, "sysFlag": "0"})
    yield Ask("forbidden lite pull", 361, {**pull, "sysFlag": "0"})
    yield Ask("forbidden pull with a subscription", 361, pull)
    yield Ask("is it forbidden", 353, {"group": GROUP, "topic": TOPIC})
    yield Ask("not forbidden", 353, {"group": GROUP, "topic": TOPIC, "readable": "true"})
    yield Ask("replicas", 907, masked=frozenset({"json.masterCommitLogMaxOffset"}))
    yield Ask("addresses for a slave", 906)
    yield Ask("addresses from a slave", 906, {"masterHaAddress": "127.0.0.1:1"})
    yield Ask("flush offset of a slave", 908, {"masterFlushOffset": "0"})
    yield Ask("timer check point", 60)
    yield Ask("timer metrics", 61, masked=frozenset({"body"}))
    yield Ask("user", 3004, {"username": "u"})
    yield Ask("users", 3005)
    yield Ask("client config", 47)
    yield Ask("lite pull", 361, pull)
    yield WHOSE
    yield Ask("request mode", 401, body=_json({**both, "mode": "POP", "popShareQueueNum": 0}))
    yield Ask("assignment for pop", 400, body=WHOSE.body)
    yield Ask("request modes", 402)
    yield Ask("peek", 200052, {**both, "queueId": "0", "maxMsgNums": "2"})
    yield Ask("pop", 200050, _POP)
    # What is asked again with a handle of an orderly pop is answered with the time since that pop, too.
    yield Ask("change", 200053, {**_HANDLE, "invisibleTime": "30000"}, masked=frozenset({"ext.invisibleTime"}))
    yield Ask("ack", 200051, _HANDLE)
    yield Ask("batch ack", 200151, body=_json({"brokerName": "broker-a", "acks": [ack]}))
    yield Ask(
        "notification", 200054, {**both, "queueId": "0", "pollTime": "0", "bornTime": "4102444800000", "order": "false"}
    )
    yield Ask("polling", 200055, {**both, "queueId": "0"})
    yield Ask("pop in order", 200050, {**_POP, "consumerGroup": "P_LG", "order": "true"})


def _pop(topic: str, group: str, queue: int, count: int, **more: object) -> dict[str, str]:
    ext = {**_POP, "topic": topic, "consumerGroup": group, "queueId": str(queue), "maxMsgNums": str(count)}
    return ext | {name: str(value) for name, value in more.items()}


def _of(number: int, topic: str, group: str, queue: int = 0) -> dict[str, str]:
    """The fields that name a message of the last pop."""
    ext = {**_HANDLE, "topic": topic, "consumerGroup": group, "queueId": str(queue)}
    return ext | {"extraInfo": f"@handle{number}", "offset": f"@offset{number}"}


def _acks(topic: str, group: str, bits: int, **more: object) -> bytes:
    ack = {
        "c": group, "t": topic, "r": "0", "so": "@start", "q": 0, "rq": "@revive", "pt": "@popped", "it": "@invisible",
        "b": base64.b64encode(bytes([bits])).decode(),
    }  # fmt: skip
    return _json({"brokerName": "broker-a", "acks": [ack | more]})


def _two_queues(topic: str, group: str) -> Iterator[Ask]:
    yield Ask(f"topic {topic}", 17, {**_TOPIC, "topic": topic, "readQueueNums": "2", "writeQueueNums": "2"})
    yield Ask(f"group {group}", 200, body=_json({"groupName": group, "consumeEnable": True}))
    for number in range(8):
        yield _sent(number, topic, number % 2)


def pops_of_two_queues() -> Iterator[Ask]:
    """Pops, batches of acknowledgements and peeks, on a topic with two queues of four messages."""
    topic, group = "P_T2", "P_G2"
    yield from _two_queues(topic, group)
    yield Ask("pop none", 200050, _pop(topic, group, 0, 0))
    yield Ask("pop fewer than none", 200050, _pop(topic, group, 0, -1))
    yield Ask("pop too many", 200050, _pop(topic, group, 0, 33))
    yield Ask("pop for an old request", 200050, _pop(topic, group, 0, 0, bornTime=1000))
    yield Ask("pop for a group with no name", 200050, _pop(topic, "no name!", 0, 1))
    yield Ask("pop an unknown type", 200050, _pop(topic, group, 0, 1, expType="ZZ", exp="a"))
    yield Ask("pop SQL92 that ends too soon", 200050, _pop(topic, group, 0, 1, expType="SQL92", exp="a ="))
    yield Ask("pop another tag", 200050, _pop(topic, "P_G2_TAG", 0, 32, exp="B"))
    yield Ask("pop from the end", 200050, _pop(topic, "P_G2_END", 0, 2, initMode=1))
    yield Ask("pop two", 200050, _pop(topic, group, 0, 2))
    yield Ask("ack two", 200151, body=_acks(topic, group, 0b11))
    yield Ask("ack two again", 200151, body=_acks(topic, group, 0b11))
    yield Ask("ack beyond the end", 200151, body=_acks(topic, group, 0b11110000))
    yield Ask("ack no bits", 200151, body=_acks(topic, group, 0))
    yield Ask("ack in no topic", 200151, body=_acks(topic, group, 1, t="NOBODY_KNOWS"))
    yield Ask("ack in no queue", 200151, body=_acks(topic, group, 1, q=9))
    yield Ask("ack broken bits", 200151, body=_acks(topic, group, 1, b="!!"))
    yield Ask("pop one more", 200050, _pop(topic, group, 0, 1))
    yield Ask("ack one", 200051, _of(0, topic, group))
    yield Ask("ack one again", 200051, _of(0, topic, group))
    yield Ask("pop the last", 200050, _pop(topic, group, 0, 1))
    yield Ask("change the last", 200053, {**_of(0, topic, group), "invisibleTime": "40000"})
    yield Ask("peek behind the last", 200052, _pop(topic, group, 0, 1))
    yield Ask("notification behind the last", 200054, _pop(topic, group, 0, 1))
    yield Ask("notification of any queue", 200054, _pop(topic, group, -1, 1))
    yield Ask("pop any", 200050, _pop(topic, group, -1, 32))
    yield Ask("pop behind all", 200050, _pop(topic, group, -1, 32))
    yield Ask("pop two whole queues", 200050, _pop(topic, "P_G2_ALL", -1, 32))
    yield Ask("peek none", 200052, _pop(topic, "P_G2_PEEK", 0, 0))
    yield Ask("peek one", 200052, _pop(topic, "P_G2_PEEK", 0, 1))
    yield Ask("peek more than 32", 200052, _pop(topic, "P_G2_PEEK", 0, 40))


def pops_in_order() -> Iterator[Ask]:
    """Orderly pops: several queues, repeated attempts, partial acknowledgement, changed and ended invisible times."""
    topic = "P_T3"
    yield from _two_queues(topic, "P_O1")
    since = frozenset({"ext.invisibleTime"})
    in_order = {"order": "true"}
    yield Ask("order: three", 200050, _pop(topic, "P_O1", 0, 3, attemptId="A", **in_order))
    yield Ask("order: another attempt", 200050, _pop(topic, "P_O1", 0, 3, attemptId="B", **in_order))
    yield Ask("order: the same attempt", 200050, _pop(topic, "P_O1", 0, 3, attemptId="A", **in_order))
    yield Ask("order: notification", 200054, _pop(topic, "P_O1", 0, 1, **in_order))
    yield Ask("order: peek", 200052, _pop(topic, "P_O1", 0, 1))
    yield Ask("order: ack the second", 200051, _of(1, topic, "P_O1"))
    yield Ask("order: still blocked", 200050, _pop(topic, "P_O1", 0, 3, attemptId="B", **in_order))
    yield Ask("order: ack the first", 200051, _of(0, topic, "P_O1"))
    yield Ask("order: ack the third", 200051, _of(2, topic, "P_O1"))
    yield Ask("order: the rest", 200050, _pop(topic, "P_O1", 0, 3, attemptId="C", **in_order))
    yield Ask("order: change the rest", 200053, {**_of(0, topic, "P_O1"), "invisibleTime": "50000"}, masked=since)
    yield Ask("order: every queue", 200050, _pop(topic, "P_O2", -1, 32, attemptId="A", **in_order))
    yield Ask("order: every queue, same attempt", 200050, _pop(topic, "P_O2", -1, 32, attemptId="A", **in_order))
    yield Ask("order: no attempt", 200050, _pop(topic, "P_O3", 0, 2, **in_order))
    yield Ask("order: give the first back", 200053, {**_of(0, topic, "P_O3"), "invisibleTime": "0"}, masked=since)
    yield Ask("order: the second is out", 200050, _pop(topic, "P_O3", 0, 2, **in_order))
    yield Ask("order: give the second back", 200053, {**_of(1, topic, "P_O3"), "invisibleTime": "0"}, masked=since)
    yield Ask("order: both again", 200050, _pop(topic, "P_O3", 0, 2, pollTime=2000, **in_order))
    yield Ask("order: for a moment", 200050, _pop(topic, "P_O4", 0, 2, invisibleTime=300, **in_order))
    yield Ask("order: the moment is over", 200050, _pop(topic, "P_O4", 0, 2, pollTime=5000, **in_order))
    yield Ask("order: ack one of two", 200151, body=_acks(topic, "P_O4", 0b01, rq=999))
    yield Ask("order: the same two", 200050, _pop(topic, "P_O5", 0, 2, attemptId="A", **in_order))
    yield Ask("order: one of the two is done", 200051, _of(0, topic, "P_O5"))
    yield Ask("order: repeated after that", 200050, _pop(topic, "P_O5", 0, 1, attemptId="A", **in_order))


def waiting() -> tuple[Ask, Ask, Ask]:
    """A pop that waits for a message, the question whether it waits, and the message."""
    return (
        Ask("pop that waits", 200050, _pop("P_T4", "P_G4", 0, 1, pollTime=30000), client="waiting"),
        Ask("who waits", 200055, _pop("P_T4", "P_G4", 0, 1)),
        _sent(0, "P_T4"),
    )


def waiting_in_vain() -> Ask:
    """A pop whose time is up soon: Java waits until bornTime and pollTime together."""
    now = int(time.time() * 1000)
    return Ask("pop that waits in vain", 200050, _pop("P_T4", "P_G4", 0, 1, pollTime=1000, bornTime=now))


def recalls() -> Iterator[Ask]:
    """A message that waits for its time and is taken back, and handles of no such message."""
    topic = "P_T5"
    later = str(int(time.time() * 1000) + 60_000)
    sent = send(topic, b"later", props=f"TIMER_DELIVER_MS\x01{later}\x02UNIQ_KEY\x01UK\x02")

    def handle(*words: str) -> str:
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    yield Ask("topic for recalls", 17, {**_TOPIC, "topic": topic})
    yield Ask("a message for later", 310, sent.ext, sent.body, masked=frozenset({"ext.recallHandle"}))
    for what, text in {
        "a handle": "@recall",
        "a handle used already": "@recall",
        "no base64": "zz!!",
        "an unknown key": handle("v1", topic, "broker-a", later, "NOBODY_KNOWS"),
        "a time long past": handle("v1", topic, "broker-a", "1000", "UK"),
        "a time far ahead": handle("v1", topic, "broker-a", str(int(later) + 10**12), "UK"),
        "another broker": handle("v1", topic, "broker-z", later, "UK"),
        "another form": handle("v2", topic, "broker-a", later, "UK"),
        "few words": handle("v1", topic),
        "an empty handle": "",
    }.items():
        yield Ask(f"recall: {what}", 370, {"producerGroup": "P", "topic": topic, "recallHandle": text})
    for name in (TOPIC, "NOBODY_KNOWS", ""):
        yield Ask(f"recall: topic {name!r}", 370, {"producerGroup": "P", "topic": name, "recallHandle": "@recall"})
    yield Ask("recall: no handle", 370, {"producerGroup": "P", "topic": topic})
    yield Ask("recall: no topic", 370, {"producerGroup": "P", "recallHandle": "@recall"})


def learn_handle(side: Side, answer: Command | None) -> None:
    """Keep what later requests name: receipt handles, as a 5.x client puts them together, and recall handles."""
    ext = (answer.ext or {}) if answer is not None else {}
    if ext.get("recallHandle"):
        side.known["recall"] = str(ext["recallHandle"])
    if answer is None or not answer.body or "startOffsetInfo" not in ext:
        return
    starts = {part.split(" ")[1]: part.split(" ")[2] for part in (ext["startOffsetInfo"] or "").split(";")}
    for number, found in enumerate(decode_records(answer.body)):
        start = starts[str(found.queue_id)]
        handle = (
            f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 broker-a "
            f"{found.queue_id} {found.queue_offset}"
        )
        side.known |= {f"offset{number}": str(found.queue_offset), f"handle{number}": handle}
        if number == 0:
            side.known |= {
                "offset": str(found.queue_offset), "handle": handle, "start": start, "popped": str(ext["popTime"]),
                "invisible": str(ext["invisibleTime"]), "revive": str(ext["reviveQid"]),
            }  # fmt: skip
