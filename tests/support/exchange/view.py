"""Everything that a broker tells of its store, asked in the protocol: the same questions for Java's broker and ours.

What should be told comes from :mod:`tests.support.store_scan`, which reads the files and shares no code with either.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from tests.support.dispatched import dispatched
from tests.support.store_scan import LogScan, Record

__all__ = ["Broker", "View", "manifest", "readable", "table_of", "view"]

Place = tuple[str, int]
#: Java's broker has no configuration for this topic of its own, and lets nobody pull it.
_UNKNOWN_TO_JAVA = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: What the scanner of half messages moves by itself.
_OWN_GROUPS = "CID_RMQ_SYS_"


class Broker:
    """Questions to one broker; a refusal is an AssertionError."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def ask(self, command: Command, *codes: int) -> Command:
        """The answer, whose code must be 0 or one of ``codes``."""
        answer = await self._client.request(self.address, command, 120)
        assert answer.code == 0 or answer.code in codes, f"{command.code} {command.ext}: {answer.code} {answer.remark}"
        return answer

    async def number(self, code: int, name: str, topic: str, queue: int, **more: Any) -> int:
        ext = {"topic": topic, "queueId": str(queue), **{k: str(v) for k, v in more.items()}}
        return int(((await self.ask(Command(code, ext=ext))).ext or {})[name] or 0)

    async def maximum(self, topic: str, queue: int) -> int:
        return await self.number(30, "offset", topic, queue)

    async def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        ext: dict[str, str | None] = {
            "consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)
        }  # fmt: skip
        await self.ask(Command(15, ext=ext))

    async def until(self, ask: Callable[[], Awaitable[int]], least: int, seconds: float = 120.0) -> None:
        """Ask again and again until the answer is ``least`` or more."""
        async with asyncio.timeout(seconds):
            while True:
                if await ask() >= least:
                    return
                await asyncio.sleep(0.02)

    async def table(self, code: int, name: str) -> dict[str, Any]:
        """A table of its configuration."""
        return table_of((await self.ask(Command(code))).body, name)

    async def records(self, topic: str, queue: int, first: int, end: int) -> dict[int, bytes]:
        """Stored bytes by queue offset, as a consumer gets them."""
        found: dict[int, bytes] = {}
        at = first
        while at < end:
            ext: dict[str, str | None] = {
                "consumerGroup": "ex_reader", "topic": topic, "queueId": str(queue), "queueOffset": str(at),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            answer = await self.ask(Command(11, ext=ext), 20, 21)
            for data in split(answer.body if answer.code == 0 else b""):
                found[int.from_bytes(data[20:28], "big")] = data
            behind = int((answer.ext or {})["nextBeginOffset"] or 0)
            assert behind > at, f"a pull of {topic} {queue} at {at} stays there: {answer}"
            at = behind
        return found

    async def by_key(self, topic: str, key: str, *, unique: bool) -> set[bytes]:
        ext: dict[str, str | None] = {
            "topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(1 << 60),
            **({"_UNIQUE_KEY_QUERY": "true"} if unique else {}),
        }  # fmt: skip
        answer = await self.ask(Command(12, ext=ext), 22)
        return set(split(answer.body if answer.code == 0 else b""))

    async def by_id(self, offset: int) -> bytes:
        """By the physical offset that is the end of an offset id."""
        return (await self.ask(Command(33, ext={"offset": str(offset)}))).body


def table_of(text: bytes, name: str) -> dict[str, Any]:
    """A member of a JSON object. Java writes numbers as keys without quotes, and those of queues one behind another."""
    quoted = re.sub(r"(?<=[:,\s]\{|\d,)(\s*)(\d+):(?=\d)", r'\1"\2":', text.decode())
    return dict(json.loads(quoted)[name])


def split(body: bytes) -> list[bytes]:
    """The records that an answer holds one behind the other."""
    found = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        assert 0 < size <= len(body) - at, f"bytes that are no record at {at}"
        found.append(body[at : at + size])
        at += size
    return found


@dataclass
class View:
    """What was told."""

    #: (minimum, maximum, earliest store time, offset by asked time) of each queue.
    bounds: dict[Place, tuple[int, int, int, dict[int, int]]] = field(default_factory=dict)
    #: Store times of each queue by offset, by the files.
    times: dict[Place, dict[int, int]] = field(default_factory=dict)
    records: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    by_key: dict[tuple[str, str], set[bytes]] = field(default_factory=dict)
    by_id: dict[int, bytes] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    delays: dict[str, int] = field(default_factory=dict)
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)

    def in_order(self, place: Place) -> bool:
        """Whether the store times of a queue ascend: DLedger takes them before it has the order of messages."""
        stored = [stamp for _, stamp in sorted(self.times[place].items())]
        return stored == sorted(stored)

    def found_times(self, place: Place) -> dict[int, int]:
        """Store times of the messages found by time, for times that a message has and those before the first.

        Between two messages 4.9 takes the nearer one, of several with one time any (docs/differences.md).
        """
        stored = self.times[place]
        asked = set(stored.values())
        return {
            stamp: stored.get(offset, -1)
            for stamp, offset in self.bounds[place][3].items()
            if stamp in asked or stamp < min(asked)
        }


def readable(scan: LogScan) -> list[Record]:
    """Records that have a place in a queue: not half messages as they came, not rollbacks."""
    return [record for record in scan.records if record.sys_flag & 0xC in (0, 8)]


def _keys(record: Record) -> list[tuple[str, bool]]:
    """(key, whether it is the unique one) of a record's index entries."""
    found = [(key, False) for key in record.properties.get("KEYS", "").split(" ") if key]
    unique = record.properties.get("UNIQ_KEY")
    return [*found, (unique, True)] if unique else found


def manifest(scan: LogScan) -> View:
    """What the files say: records by place, key and physical offset. Nothing of bounds and configuration."""
    made = View()
    for record in readable(scan):
        if record.topic != _UNKNOWN_TO_JAVA:
            made.records.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = record.raw
        made.by_id[record.offset] = record.raw
        for key, _ in _keys(record):
            made.by_key.setdefault((record.topic, key), set()).add(record.raw)
    return made


def _telling(stored: dict[int, int], per_file: int) -> list[int]:
    """Of the store times by queue offset some from all over, and those on both sides of where a file ends."""
    by_offset = sorted(stored)
    some = {by_offset[(len(by_offset) - 1) * number // 7] for number in range(8)}
    edges = {offset for offset in by_offset if offset % per_file in (0, per_file - 1)}
    return [stored[offset] for offset in sorted(some | edges)]


async def view(client: RemotingClient, address: str, scan: LogScan, places: set[Place], per_file: int) -> View:
    """Ask a broker everything about the messages of a scan.

    :param places: queues that may hold no message any more.
    :param per_file: entries in a file of a queue.
    """
    broker = Broker(client, address)
    await dispatched(lambda command: broker.ask(command, 1))
    made = View()
    found_in_queues = readable(scan)
    times: dict[Place, dict[int, int]] = {}
    for record in found_in_queues:
        times.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = record.store_timestamp
    for place in sorted(places | times.keys()):
        topic, queue = place
        first, end = await broker.number(31, "offset", topic, queue), await broker.maximum(topic, queue)
        stored = times.get(place, {0: 0})
        made.times[place] = stored
        asked = {0, 1 << 50}
        for stamp in _telling(stored, per_file):
            asked |= {stamp - 1, stamp, stamp + 1}
        found = {stamp: await broker.number(29, "offset", topic, queue, timestamp=stamp) for stamp in sorted(asked)}
        earliest = await broker.number(32, "timestamp", topic, queue)
        made.bounds[place] = (first, end, earliest, found)
        if place in times and topic != _UNKNOWN_TO_JAVA:
            made.records[place] = await broker.records(topic, queue, first, end)
    unique = dict.fromkeys((record.topic, *key) for record in found_in_queues for key in _keys(record))
    for topic, key, is_unique in unique:
        made.by_key[topic, key] = await broker.by_key(topic, key, unique=is_unique)
    for record in found_in_queues:
        made.by_id[record.offset] = await broker.by_id(record.offset)
    offsets = await broker.table(43, "offsetTable")
    made.offsets = {name: held for name, held in offsets.items() if _OWN_GROUPS not in name}
    made.delays = await broker.table(45, "offsetTable")
    made.topics = {
        name: {key: value for key, value in config.items() if key != "attributes"}
        for name, config in (await broker.table(21, "topicConfigTable")).items()
    }
    made.groups = await broker.table(201, "subscriptionGroupTable")
    return made
