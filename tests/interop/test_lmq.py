"""Light message queues and multi-dispatch: the same requests to Java's broker and to ours, and each other's stores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.peers import ToolMissing, skip_or_fail, start_cluster
from tests.support.raw_peer import RawPeer, pull, send, with_peer

LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true", "flushConsumerOffsetInterval": "500"}
GROUP = "%LMQ%GID"


def to(names: str, body: bytes, topic: str = "Parent", **more: str) -> Command:
    table = {"INNER_MULTI_DISPATCH": names, **more}
    return send(topic, body, props="\x02".join(f"{name}\x01{value}" for name, value in table.items()))


def ask(code: int, **ext: object) -> Command:
    return Command(code, ext={name: str(value) for name, value in ext.items()})


async def told(peer: RawPeer, what: Command) -> Any:
    """What of an answer does not differ from run to run."""
    answer = await peer.ask(what)
    ext = {name: text for name, text in (answer.ext or {}).items() if name not in ("msgId", "MSG_REGION", "TRACE_ON")}
    rows = []
    if what.code == 11 and answer.code == 0:
        for record in decode_records(answer.body):
            offsets = record.properties.get("INNER_MULTI_QUEUE_OFFSET")
            rows.append((record.body, record.topic, record.queue_id, record.queue_offset, offsets))
    # The client's own port, in the refusal of a queue id.
    return answer.code, re.sub(r"consumer:\[.*\]", "", answer.remark or ""), ext, rows


async def first_life(peer: RawPeer) -> list[Any]:
    """Sends, pulls and offsets of a fresh broker."""
    steps = [
        to("%LMQ%a,%LMQ%b", b"1"),
        to("%LMQ%a,other", b"2"),
        to("%LMQ%b,", b"3"),
        to("%LMQ%a,%LMQ%a", b"4"),
        to("", b"5"),
        send("Parent", b"6"),
        # A client's own numbers do not count.
        to("%LMQ%a", b"7", INNER_MULTI_QUEUE_OFFSET="99"),
    ]
    found = [await told(peer, step) for step in steps]
    await peer.settled("%LMQ%a", 4)
    for name in ("%LMQ%a", "%LMQ%b", "other", "Parent", "%LMQ%none"):
        found.append(await told(peer, pull(GROUP, name)))
        for code in (30, 31):
            found.append(await told(peer, ask(code, topic=name, queueId=0)))
    found.append(await told(peer, pull(GROUP, "%LMQ%a", 4)))
    found.append(await told(peer, pull(GROUP, "%LMQ%a", 99)))
    found.append(await told(peer, pull(GROUP, "%LMQ%a", queue=1)))
    for group, topic, queue in (
        (GROUP, "%LMQ%a", 0),
        (GROUP, "%LMQ%b", 7),
        ("plain", "%LMQ%a", 0),
        ("plain", "Parent", 0),
    ):
        where = {"consumerGroup": group, "topic": topic, "queueId": queue}
        found.append(await told(peer, ask(14, **where)))
        found.append(await told(peer, ask(15, **where, commitOffset=3)))
        found.append(await told(peer, ask(14, **where)))
        found.append(await told(peer, ask(14, **{**where, "queueId": 5})))
    found.append(
        sorted(json.loads((await peer.ask(ask(21))).body)["topicConfigTable"].keys() & {"%LMQ%a", "Parent", "other"})
    )
    found.append("%LMQ%GID" in json.loads((await peer.ask(ask(201))).body)["subscriptionGroupTable"])
    return found


async def more(peer: RawPeer) -> None:
    """What a later owner of the store adds."""
    for names, body in (("%LMQ%a,other", b"8"), ("%LMQ%c", b"9")):
        assert (await peer.ask(to(names, body))).code == 0


async def all_there(peer: RawPeer) -> list[Any]:
    """What the light queues hold, and where their group is."""
    found = [await told(peer, pull(GROUP, name)) for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c")]
    where = [("%LMQ%a", GROUP), ("%LMQ%b", GROUP), ("Parent", "plain")]
    found += [await told(peer, ask(14, consumerGroup=group, topic=topic, queueId=0)) for topic, group in where]
    return found


def test_light_queues_as_java_has_them(tmp_path: Path) -> None:
    try:
        with start_cluster("java-4.9.4", properties={**LIGHT, **at(tmp_path)}, our_namesrv=True) as java:
            javas = with_peer(java.broker_addr, first_life)
            java.brokers[0].daemon.stop()
    except ToolMissing as missing:
        skip_or_fail(missing)
    with start_cluster("ours", properties=LIGHT) as ours:
        found = with_peer(ours.broker_addr, first_life)
    assert found == javas
    # The store goes from hand to hand.
    with start_cluster("ours", properties={**LIGHT, **at(tmp_path)}) as ours:
        with_peer(ours.broker_addr, more)
        known = with_peer(ours.broker_addr, all_there)
        ours.brokers[0].daemon.stop()
    assert [row[0] for row in known[0][3]] == [b"1", b"2", b"4", b"7", b"8"]
    assert [row[4] for row in known[0][3]] == ["0,0", "1,0", "2,2", "3", "4,1"]
    assert [row[0] for row in known[2][3]] == [b"9"]
    # One was committed behind the two messages of its queue: it comes back to the end at our start.
    assert [answer[2] for answer in known[3:]] == [{"offset": "3"}, {"offset": "2"}, {"offset": "3"}]
    with start_cluster("java-4.9.4", properties={**LIGHT, **at(tmp_path)}, our_namesrv=True) as java:
        assert with_peer(java.broker_addr, all_there) == known


def at(folder: Path) -> dict[str, str]:
    return {"storePathRootDir": str(folder / "store"), "storePathCommitLog": str(folder / "store/commitlog")}
