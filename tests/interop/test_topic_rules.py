"""Topics, permissions and consumption state: the same requests to Java's broker and to ours, one after the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.protocol import fastjson
from rmq.protocol.codes import Language
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.peers import Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.raw_peer import RawPeer

#: What differs from run to run: addresses, times, ids.
_VARYING = re.compile(r"127\.0\.0\.1:\d+|/127\.0\.0\.1:\d+|\d{13,}")
_NOT_TOLD = frozenset({"msgId", "transactionId", "MSG_REGION", "TRACE_ON"})


class Client(RawPeer):
    """A client of some language."""

    def __init__(self, cluster: Cluster, language: Language = Language.JAVA) -> None:
        host, port = cluster.broker_addr.split(":")
        super().__init__(host, int(port))
        self._language = language

    async def call(self, code: int, body: bytes | str = b"", **ext: object) -> Command:
        body = body.encode() if isinstance(body, str) else body
        fields: dict[str, str | None] = {name: str(value) for name, value in ext.items()}
        return await self.ask(Command(code, ext=fields, body=body, language=self._language, version=401))

    async def pushes(self, code: int, count: int = 1) -> list[Command]:
        """What the broker sent of its own with a code."""
        for _ in range(3000):
            found = [command for command in self.pushed if command.code == code]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)
        return [command for command in self.pushed if command.code == code]


def shown(answer: Command) -> Any:
    ext = {name: text for name, text in sorted((answer.ext or {}).items()) if name not in _NOT_TOLD}
    # Java's leftover in answers whose handler says nothing.
    remark = _VARYING.sub("*", answer.remark or "").replace("not set any response code", "")
    return answer.code, remark, ext


class Scene:
    """What a broker has answered so far."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def note(
        self, what: str, answer: Awaitable[Command], body: Callable[[Command], Any] | None = None
    ) -> Command:
        found = await answer
        self.told.append((what, *shown(found), body(found) if body is not None and found.code == 0 else None))
        return found


def heartbeat(group: str, *topics: str, unit: bool = False, model: str = "CLUSTERING", client: str = "c") -> bytes:
    subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"} for topic in topics]
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions, "unitMode": unit,
    }  # fmt: skip
    return json.dumps({"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}).encode()


def send(
    topic: str, queue: int = 0, props: str = "", unit: bool = False, queues: int = 4, flag: int = 0
) -> dict[str, Any]:
    return {
        "a": "PG", "b": topic, "c": "TBW102", "d": queues, "e": queue, "f": flag, "g": 1, "h": 0, "i": props, "j": 0,
        "k": str(unit).lower(), "m": "false",
    }  # fmt: skip


def topic(
    name: str, read: int = 2, write: int = 2, perm: int = 6, flag: int = 0, order: bool = False
) -> dict[str, Any]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": flag, "order": str(order).lower(),
    }  # fmt: skip


def pull(name: str, group: str = "G", queue: int = 0, offset: int = 0, flags: int = 4) -> dict[str, Any]:
    return {
        "consumerGroup": group, "topic": name, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": flags, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip


def bodies(answer: Command) -> Any:
    return [record.body for record in decode_records(answer.body)]


def configs(*names: str) -> Callable[[Command], Any]:
    """Some topics out of an answer to 21."""

    def pick(answer: Command) -> Any:
        table = json.loads(answer.body)["topicConfigTable"]
        return {name: table.get(name) for name in names}

    return pick


def table(answer: Command) -> Any:
    """A body, whatever the order of its queues."""
    return _settled(fastjson.loads(answer.body))


def _settled(value: object) -> Any:
    if isinstance(value, Mapping):
        return sorted((repr(name), _settled(one)) for name, one in value.items())
    if isinstance(value, list):
        return sorted((_settled(one) for one in value), key=repr)
    return value


async def topics(scene: Scene, one: Client, _: Client) -> None:
    note, ask = scene.note, one.call
    # Unit flags, and what an automatic topic takes from its template.
    await note("auto", ask(310, b"x", **send("Auto", queues=3)))
    await note("auto unit", ask(310, b"x", **send("AutoUnit", queues=99, unit=True)))
    await note("auto from other", ask(310, b"x", **{**send("AutoOther"), "c": "Auto"}))
    await note("auto from none", ask(310, b"x", **{**send("AutoNone"), "c": "nowhere"}))
    await note("retry unknown", ask(310, b"x", **send("%RETRY%nobody", unit=True)))
    await note("unit heartbeat", ask(34, heartbeat("GU", "Auto", unit=True)))
    await note("create", ask(17, **topic("Made", 3, 5, flag=3)))
    await note("create order", ask(17, **topic("Ordered", order=True)))
    await note("widen", ask(17, **topic("Made", 8, 8)))
    await note("narrow", ask(17, **topic("Made", 2, 1)))
    await note("configs", ask(21), configs("Auto", "AutoUnit", "%RETRY%GU", "%RETRY%nobody", "Made", "Ordered"))
    # Queues beyond what is written or read.
    for queue in (0, 1, 2):
        await note(f"send to {queue}", ask(310, b"x", **send("Made", queue)))
        if queue < 2:
            await one.settled("Made", 1, queue)
        await note(f"pull from {queue}", ask(11, **pull("Made", queue=queue)), bodies)
    # Permissions.
    for perm in (0, 2, 4, 6):
        name = f"Perm{perm}"
        await note(f"perm {perm}", ask(17, **topic(name, perm=perm)))
        await note(f"send at {perm}", ask(310, b"x", **send(name)))
        await one.settled(name, 1)
        await note(f"pull at {perm}", ask(11, **pull(name)), bodies)
    for perm in (2, 4, 0, 6):
        await note(f"broker {perm}", ask(25, f"brokerPermission={perm}"))
        await note(f"send at broker {perm}", ask(310, b"x", **send("Made")))
        await note(f"pull at broker {perm}", ask(11, **pull("Made", queue=1)))
    # Switches.
    await note("reject", ask(25, "rejectTransactionMessage=true"))
    half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01u"
    await note("half refused", ask(310, b"x", **send("Made", props=half, flag=4)))
    await note("accept", ask(25, "rejectTransactionMessage=false"))
    await note("half", ask(310, b"x", **send("Made", props=half, flag=4)))
    await note("not before", ask(25, "startAcceptSendRequestTimeStamp=4000000000000"))
    await note("too early", ask(310, b"x", **send("Made")))
    await note("from now", ask(25, "startAcceptSendRequestTimeStamp=0"))
    await note("in time", ask(310, b"x", **send("Made")))
    # System topics.
    for name in (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "TBW102",
        "OFFSET_MOVED_EVENT",
        "BenchmarkTest",
        "a b",
        "",
    ):
        await note(f"send to {name}", ask(310, b"x", **send(name)))
        await note(f"create {name}", ask(17, **topic(name)))
        await note(f"delete {name}", ask(215, topic=name))
    await note("delete unknown", ask(215, topic="unknown"))
    # Deleted and made again: nothing of its first life is left.
    await note("send", ask(310, b"old", **send("Again", queues=1)))
    await one.settled("Again", 1)
    await note("commit", ask(15, consumerGroup="G", topic="Again", queueId=0, commitOffset=1))
    await note("delete", ask(215, topic="Again"))
    await note("pull deleted", ask(11, **pull("Again")))
    await note("stats deleted", ask(202, topic="Again"))
    await note("send again", ask(310, b"new", **send("Again", queues=1)))
    await one.settled("Again", 1)
    await note("pull again", ask(11, **pull("Again")), bodies)
    # A pull outside of its queue is told as an event.
    await note("pull too far", ask(11, **pull("Again", offset=9)))
    await one.settled("OFFSET_MOVED_EVENT", 1)
    await note("event", ask(11, **pull("OFFSET_MOVED_EVENT")), lambda answer: [
        (body, record.properties.get("TAGS"), record.properties.get("KEYS"), record.topic)
        for record in decode_records(answer.body) for body in [json.loads(record.body)]
    ])  # fmt: skip


async def consumption(scene: Scene, java: Client, cpp: Client) -> None:
    note, ask = scene.note, java.call
    for queue in (0, 0, 0, 1):
        await note("send", ask(310, b"m", **send("C", queue, queues=2)))
    await java.settled("C", 3)
    await java.settled("C", 1, 1)
    where: dict[str, Any] = {"consumerGroup": "CG", "topic": "C"}
    await note("unknown offset", ask(14, **where, queueId=0))
    for queue, offset in ((0, 2), (1, 1), (0, 1), (5, 77)):
        await note("commit", ask(15, **where, queueId=queue, commitOffset=offset))
        await note("query", ask(14, **where, queueId=queue))
    await note("commit", ask(15, **where, queueId=0, commitOffset=2))
    reset: dict[str, Any] = {"topic": "C", "group": "CG", "timestamp": 0, "isForce": "true"}
    await note("reset, nobody there", ask(222, **reset))
    await note("reset of an unknown group", ask(222, **{**reset, "group": "nobody"}))
    await note("reset of an unknown topic", ask(222, **{**reset, "topic": "nothing"}))
    await note("java joins", ask(34, heartbeat("CG", "C")))
    await note("cpp joins", cpp.call(34, heartbeat("CG", "C", client="cc")))
    await note("reset", ask(222, **reset), table)
    for client in (java, cpp):
        for push in await client.pushes(220):
            scene.told.append(("pushed", sorted((push.ext or {}).items()), table(push)))
        client.pushed.clear()
    await note("reset to the end", ask(222, **{**reset, "timestamp": -1}), table)
    await note("reset to the end, unforced", ask(222, **{**reset, "timestamp": -1, "isForce": "false"}), table)
    for client in (java, cpp):
        await client.pushes(220, 2)
        client.pushed.clear()
    await note("reset for c", cpp.call(222, **reset), table)
    for client in (java, cpp):
        for push in await client.pushes(220):
            scene.told.append(("pushed in C's form", sorted((push.ext or {}).items()), table(push)))
    await note("after the resets", ask(14, **where, queueId=0))
    # Clone, correction.
    await note("clone", ask(314, srcGroup="CG", destGroup="CG2", topic="C", offline="false"))
    for queue in (0, 1):
        await note("cloned", ask(14, consumerGroup="CG2", topic="C", queueId=queue))
    await note("clone of nobody", ask(314, srcGroup="nobody", destGroup="CG3", topic="C", offline="false"))
    await note(
        "clone of a topic that is not", ask(314, srcGroup="CG", destGroup="CG3", topic="nothing", offline="false")
    )
    await note("cloned nothing", ask(14, consumerGroup="CG3", topic="nothing", queueId=0))
    await note("commit", ask(15, consumerGroup="CG2", topic="C", queueId=0, commitOffset=1))
    await note("correction", ask(308, topic="C", compareGroup="", filterGroups=""), table)
    # Members.
    await note("members", ask(38, consumerGroup="CG"), lambda answer: sorted(json.loads(answer.body)["consumerIdList"]))
    await note("who", ask(300, topic="C"), lambda answer: sorted(json.loads(answer.body)["groupList"]))
    await note("cpp leaves", cpp.call(35, clientID="cc", consumerGroup="CG"))
    await note("members", ask(38, consumerGroup="CG"), lambda answer: sorted(json.loads(answer.body)["consumerIdList"]))
    scene.told.append(("notices", {push.code for push in java.pushed}))
    await note("broadcast", ask(34, heartbeat("BG", "C", model="BROADCASTING")))
    await note("no broadcast", ask(200, '{"groupName":"BG","consumeBroadcastEnable":false,"consumeEnable":true}'))
    await note("pull by broadcast", ask(11, **pull("C", "BG", flags=0)))
    await note("disable", ask(200, '{"groupName":"BG","consumeEnable":false}'))
    await note("pull disabled", ask(11, **pull("C", "BG", flags=0)))
    await note("delete group", ask(207, groupName="CG", removeOffset="true"))
    await note("offset of a deleted group", ask(14, **where, queueId=0))


async def switches(scene: Scene, one: Client, _: Client) -> None:
    note, ask = scene.note, one.call
    system = ("TBW102", "DefaultCluster", "broker-a", "MY_TRACE", "RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC")
    await note("configs", ask(21), configs(*system))
    await note("system topics", ask(305), lambda answer: sorted(json.loads(answer.body)["topicList"]))
    await note("delete the trace topic", ask(215, topic="MY_TRACE"))
    await note("send to nowhere", ask(310, b"x", **send("Nowhere")))
    await note("create", ask(17, **topic("T")))
    await note("send", ask(310, b"x", **send("T")))
    await note("pull of nobody", ask(11, **pull("T", "nobody")))
    await note("heartbeat of nobody", ask(34, heartbeat("nobody", "T")))
    await note("system group", ask(11, **pull("T", "CID_RMQ_SYS_X", offset=1)))
    await note("commit", ask(15, consumerGroup="nobody", topic="T", queueId=0, commitOffset=1))
    await note("query", ask(14, consumerGroup="nobody", topic="T", queueId=0))
    await note("retry to nobody", ask(310, b"x", **send("%RETRY%nobody")))
    await note("groups on", ask(25, "autoCreateSubscriptionGroup=true"))
    await note("pull of somebody", ask(11, **pull("T", "nobody", offset=1)))


OFF = {
    "autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false", "clusterTopicEnable": "false",
    "brokerTopicEnable": "false", "traceTopicEnable": "true", "msgTraceTopicName": "MY_TRACE",
}  # fmt: skip


async def played(cluster: Cluster, part: Callable[[Scene, Client, Client], Awaitable[None]]) -> list[Any]:
    scene = Scene()
    async with Client(cluster) as java, Client(cluster, Language.CPP) as cpp:
        await part(scene, java, cpp)
    return scene.told


def told_by(kind: str) -> list[Any]:
    found: list[Any] = []
    for properties, parts in (({}, (topics, consumption)), (OFF, (switches,))):
        with start_cluster(kind, properties=properties, our_namesrv=True) as cluster:
            for part in parts:
                found += asyncio.run(played(cluster, part))
    return found


def test_the_same_as_java() -> None:
    try:
        java = told_by("java-4.9.4")
    except ToolMissing as missing:
        skip_or_fail(missing)
    ours = told_by("ours")
    differing = [(javas, our) for javas, our in zip(java, ours, strict=True) if javas != our]
    assert not differing
    assert len(ours) > 140
