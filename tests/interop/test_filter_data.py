"""SQL92 subscriptions, their life and their bloom data: the same requests to Java's broker and to ours."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.peers import ToolMissing, skip_or_fail, start_cluster
from tests.support.raw_peer import RawPeer, send, with_peer

FILTERS = {"enableCalcFilterBitMap": "true", "enableConsumeQueueExt": "true", "filterSupportRetry": "true"}
TOPIC, GROUP = "T", "G"


def heartbeat(group: str = GROUP, **topics: tuple[str, str, int]) -> Command:
    """A consumer with (expression, type, version) by topic."""
    subscriptions = [
        {
            "topic": topic.replace("RETRY_", "%RETRY%"),
            "subString": text,
            "expressionType": kind,
            "subVersion": version,
            "classFilterMode": False,
            "tagsSet": [],
            "codeSet": [],
        }
        for topic, (text, kind, version) in topics.items()
    ]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    beat = {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}
    return Command(34, body=json.dumps(beat).encode())


def pull(version: int, *, group: str = GROUP, topic: str = TOPIC, inline: str | None = None) -> Command:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    ext |= {"sysFlag": "0" if inline is None else "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
    ext |= {"subscription": inline or "", "subVersion": str(version), "expressionType": "SQL92"}
    return Command(11, ext=dict(ext))


def check(text: str, kind: str = "SQL92") -> Command:
    subscription = {"topic": TOPIC, "subString": text, "expressionType": kind, "subVersion": 1}
    body = {"clientId": "c", "group": GROUP, "subscriptionData": subscription}
    return Command(46, body=json.dumps(body).encode())


async def told(peer: RawPeer, what: Command) -> Any:
    """What of an answer does not differ from run to run."""
    answer = await peer.ask(what)
    bodies = [record.body for record in decode_records(answer.body)] if what.code == 11 and answer.code == 0 else []
    return answer.code, answer.remark, bodies


async def first_life(peer: RawPeer) -> list[Any]:
    """A subscription from its first heartbeat to its end."""
    found = []

    async def note(what: Command) -> None:
        found.append(await told(peer, what))

    for number in range(4):
        await note(send(TOPIC, b"%d" % number, props=f"a\x01{number}"))
    await peer.settled(TOPIC, 4)
    await note(pull(1))  # no group yet
    await note(heartbeat(T=("a > 1", "SQL92", 10), U=("b = 1", "SQL92", 10)))
    for version in (0, 10, 11):
        await note(pull(version))
    await note(pull(10, topic="nothing"))
    for number in range(4, 8):
        await note(send(TOPIC, b"%d" % number, props=f"a\x01{number % 4}"))
    await peer.settled(TOPIC, 8)
    await note(pull(10))
    # Another expression under the same version changes nothing; a greater version does.
    await note(heartbeat(T=("a < 1", "SQL92", 10), U=("b = 1", "SQL92", 10)))
    await note(pull(10))
    await note(heartbeat(T=("a < 1", "SQL92", 11)))
    await note(pull(11))
    await note(pull(10))
    # One that does not compile.
    await note(heartbeat(T=("a <", "SQL92", 12)))
    await note(pull(12))
    await note(heartbeat(T=("a = 2", "SQL92", 13)))
    await note(pull(13))
    await note(heartbeat(T=("*", "TAG", 14)))
    await note(pull(14))
    await note(heartbeat(T=("a = 2", "SQL92", 15)))
    await note(pull(15))
    await note(pull(0, inline="a = 3"))
    # A retry is judged by the expression of the topic it came from.
    retry = {"RETRY_G": ("*", "TAG", 1), "T": ("a = 2", "SQL92", 16)}
    await note(heartbeat(GROUP, **retry))
    for number, topic in enumerate((TOPIC, TOPIC, "other")):
        await note(send("%RETRY%G", b"r%d" % number, props=f"a\x01{number + 1}\x02RETRY_TOPIC\x01{topic}"))
    await peer.settled("%RETRY%G", 3)
    await note(pull(1, topic="%RETRY%G"))
    await note(check("a > 1"))
    await note(check("a > 1", "TAG"))
    await note(Command(25, body=b"enablePropertyFilter=false"))
    await note(check("a > 1"))
    await note(check("*", "TAG"))
    await note(pull(16))
    await note(Command(25, body=b"enablePropertyFilter=true"))
    return found


def filters_of(store: Path) -> Any:
    """consumerFilter.json without its times."""
    text = (store / "config/consumerFilter.json").read_text()
    return json.loads(re.sub(r'"(bornTime|deadTime)":\d{5,}', r'"\1":1', text))


def units_of(store: Path) -> dict[str, list[tuple[int, bytes]]]:
    """(tags code, bit map) of every unit in consumequeue_ext, by topic."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for file in sorted((store / "consumequeue_ext").rglob("0*")):
        if file.is_file():
            data = file.read_bytes()
            at = 0
            while (size := int.from_bytes(data[at : at + 2], "big")) > 0:
                code = int.from_bytes(data[at + 2 : at + 10], "big", signed=True)
                found.setdefault(file.parts[-3], []).append((code, data[at + 20 : at + size]))
                at += size
    return found


def at(folder: Path) -> dict[str, str]:
    return {"storePathRootDir": str(folder / "store"), "storePathCommitLog": str(folder / "store/commitlog")}


async def group_is_gone(peer: RawPeer) -> None:
    """Wait until the broker has noticed that the connection of the only member is closed: it dates the filter then."""
    for _ in range(2000):
        answer = await peer.ask(Command(38, ext={"consumerGroup": GROUP}))
        if answer.code != 0 or not json.loads(answer.body)["consumerIdList"]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{GROUP} still has a member: {answer}")


async def second_life(peer: RawPeer) -> list[Any]:
    """The group comes back to a broker that knows its filter from the file."""
    found = [await told(peer, heartbeat(T=("a = 2", "SQL92", 16)))]
    found.append(await told(peer, pull(16)))
    # Version 17 of the same expression: the messages' bit maps still count.
    found.append(await told(peer, heartbeat(T=("a = 2", "SQL92", 17))))
    found.append(await told(peer, pull(17)))
    return found


def test_filters_as_java_keeps_them(tmp_path: Path) -> None:
    seen = []
    try:
        for kind, folder in (("java-4.9.4", tmp_path / "java"), ("ours", tmp_path / "ours")):
            with start_cluster(kind, properties={**FILTERS, **at(folder)}, our_namesrv=True) as cluster:
                answers = with_peer(cluster.broker_addr, first_life)
                with_peer(cluster.broker_addr, group_is_gone)
                cluster.brokers[0].daemon.stop()
            seen.append((answers, filters_of(folder / "store"), units_of(folder / "store")))
    except ToolMissing as missing:
        skip_or_fail(missing)
    java, ours = seen
    for javas, our in zip(java[0], ours[0], strict=True):
        # Ours says besides what is wrong with the expression.
        assert (our[0], our[2]) == (javas[0], javas[2])
        assert (our[1] or "").startswith(javas[1] or "")
    assert java[1:] == ours[1:]
    assert max(len(bits) for _, bits in ours[2][TOPIC]) == 14
    # Each goes on with the other's store.
    lives = []
    for kind, folder in (("ours", tmp_path / "java"), ("java-4.9.4", tmp_path / "ours")):
        with start_cluster(kind, properties={**FILTERS, **at(folder)}, our_namesrv=True) as cluster:
            lives.append(with_peer(cluster.broker_addr, second_life))
    assert lives[0] == lives[1]
    assert lives[0][-1] == (0, "FOUND", [b"2", b"6"])
