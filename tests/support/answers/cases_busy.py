"""Requests to a broker that cannot or must not take messages, and floods of sends that make it so."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

from rmq.protocol import batch
from rmq.protocol.command import Command
from rmq.protocol.ids import decode_offset_msg_id
from tests.support.answers.cases import Ask, Side
from tests.support.raw_peer import RawPeer, pull, send, subscribe

__all__ = ["CLOSED", "SCENE", "asks_of", "flooded", "prepared"]

TOPIC, GROUP, PRODUCERS = "B_T", "B_G", "B_P"

#: Settings that keep messages out, and those that let them in again.
CLOSED = {
    "nothing": ("", ""),
    "read only": ("brokerPermission=4", "brokerPermission=6"),
    "write only": ("brokerPermission=2", "brokerPermission=6"),
    "no transactions": ("rejectTransactionMessage=true", "rejectTransactionMessage=false"),
    "not yet": ("startAcceptSendRequestTimeStamp=4102444800000", "startAcceptSendRequestTimeStamp=0"),
}

_TOPIC = {
    "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip

_BATCH = batch.encode([(0, b"b", {}), (0, b"b", {})])

SCENE = (
    Ask("topic", 17, _TOPIC),
    Ask("group", 200, body=json.dumps({"groupName": GROUP, "consumeEnable": True}).encode()),
    Ask("heartbeat", 34, body=subscribe(GROUP, TOPIC, client="B_C").body),
)


def _sent(name: str, code: int = 310, props: str = "", body: bytes = b"m", **more: str) -> Ask:
    message = send(TOPIC, body, props=props)
    return Ask(name, code, {**(message.ext or {}), "a": PRODUCERS, "e": "0", **more}, body)


def _half(number: str) -> Ask:
    props = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02UNIQ_KEY\x01{number}\x02"
    return _sent(f"half {number}", props=props, f="4")


async def prepared(side: Side) -> None:
    """A message to pull and give back, and a half message for each condition."""
    for ask in SCENE:
        assert await side.ask(ask, 60.0) is not None
    side.known["first"] = await _stored(side, _sent("first"))
    for at, name in enumerate((*CLOSED, "full disk")):
        side.known[f"half {name}"] = await _stored(side, _half(name))
        side.known[f"state {name}"] = str(at)
    await side.dispatched()


async def _stored(side: Side, ask: Ask) -> str:
    """Where a message was put into the commit log."""
    answer = await side.ask(ask, 60.0)
    assert answer is not None
    assert answer.code == 0, answer
    return str(decode_offset_msg_id((answer.ext or {})["msgId"] or "")[2])


def asks_of(condition: str) -> Iterator[Ask]:
    """What a client may ask under a condition, and the administrator."""
    for ask in (
        _sent("send"),
        _sent("send with a level", props="DELAY\x013\x02"),
        _sent("batch", 320, body=_BATCH, m="true"),
        Ask("send back", 36, {"offset": "@first", "group": GROUP, "delayLevel": "3", "originTopic": TOPIC}),
        _half("later"),
        Ask(
            "commit",
            37,
            {
                "producerGroup": PRODUCERS,
                "tranStateTableOffset": f"@state {condition}",
                "commitLogOffset": f"@half {condition}",
                "commitOrRollback": "8",
                "fromTransactionCheck": "false",
                "msgId": condition,
                "transactionId": condition,
            },
        ),
        Ask("pull", 11, {**(pull(GROUP, TOPIC, 0).ext or {}), "maxMsgNums": "1"}, masked=frozenset({"ext.maxOffset"})),
        Ask("end of the queue", 30, {"topic": "B_NOTHING", "queueId": "0"}),
        Ask("offset", 15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "1"}),
        Ask("heartbeat", 34, body=SCENE[2].body),
        Ask("runtime information", 28, masked=frozenset({"body"})),
        Ask("topics of the system", 305, masked=frozenset({"body"})),
    ):
        yield Ask(f"{condition}: {ask.id}", ask.code, ask.ext, ask.body, masked=ask.masked, settled=True)


def _settled(text: str | None) -> str:
    """A remark without its numbers."""
    return re.sub(r"\d+", "*", text or "")


async def flooded(address: str, connections: int = 4, sends: int = 60, size: int = 200_000) -> set[tuple[int, str]]:
    """Send much at once, and ask for something else meanwhile: the kinds of answers to the sends."""
    host, _, port = address.partition(":")
    message = send(TOPIC, b"f" * size)
    kinds: set[tuple[int, str]] = set()

    async def one() -> None:
        async with RawPeer(host, int(port)) as peer:
            answers = [peer.submit(Command(310, ext=dict(message.ext or {}), body=message.body)) for _ in range(sends)]
            kinds.update([(answer.code, _settled(answer.remark)) for answer in await asyncio.gather(*answers)])

    async def other() -> None:
        async with RawPeer(host, int(port)) as peer:
            for command in (pull(GROUP, TOPIC, 0), Command(28), Command(305)):
                if command.code == 11:
                    command.ext = {**(command.ext or {}), "sysFlag": "4"}
                assert (await peer.ask(command)).code == 0

    await asyncio.gather(*(one() for _ in range(connections)), other())
    return kinds
