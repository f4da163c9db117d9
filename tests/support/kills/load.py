"""Producers and consumers that talk to one broker through its deaths and write their histories."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from rmq.protocol import batch
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.errors import ConnectFailed, RMQError, TooManyRequests
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.history import FAIL, LARGE, OK, UNKNOWN, Clerk, Place, Seen, body_for, digest
from tests.support.store_scan import Tree, parse_record, scan_log, scan_through

__all__ = ["QUEUES", "TOPICS", "Load", "read_back", "scan_back"]

TOPICS = ("T0", "T1")
QUEUES = 2
PLACES: tuple[Place, ...] = tuple((topic, queue) for topic in TOPICS for queue in range(QUEUES))
#: Of the load of the catalogue (reliability.md B.4).
CATALOGUE: tuple[Place, ...] = tuple((f"T{topic}", queue) for topic in range(4) for queue in range(4))
_STORED_PERHAPS = frozenset({10, 11, 12})


def properties(key: str, *, wait: bool = True) -> str:
    return f"UNIQ_KEY\x01{key}\x02KEYS\x01{key[-2:]}" + ("" if wait else "\x02WAIT\x01false")


def send_command(topic: str, queue: int, keys: Sequence[str], *, wait: bool = True, queues: int = QUEUES) -> Command:
    """One message, or a batch when there are several keys."""
    if len(keys) == 1:
        body, text = body_for(keys[0]), properties(keys[0], wait=wait)
    else:
        body = batch.encode((0, body_for(key), {"UNIQ_KEY": key, "KEYS": key[-2:]}) for key in keys)
        text = ""
    ext: dict[str, str | None] = {
        "a": "pg", "b": topic, "c": "TBW102", "d": str(queues), "e": str(queue), "f": "0", "g": "1700000000000",
        "h": "0", "i": text, "j": "0", "k": "false", "m": str(len(keys) > 1).lower(),
    }  # fmt: skip
    return Command(320 if len(keys) > 1 else 310, ext=ext, body=body)


class Load:
    """``await run(address, until)`` serves one life of the broker; histories go on over all of them.

    :param folder: where histories go.
    :param answer: seconds that an answer may take.
    :param catalogue: four topics of four queues, and bodies of up to 64 KiB.
    :param claims: every send waits until its message is on the disk; else some do not, and some ask for no answer.
    """

    def __init__(
        self, folder: Path, *, producers: int = 6, consumers: int = 1, seed: int = 1, answer: float = 30.0,
        pause: float = 0.0, world: World | None = None, catalogue: bool = False, claims: bool = False,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.places = CATALOGUE if catalogue else PLACES
        self._queues = 1 + max(queue for _, queue in self.places)
        self._catalogue = catalogue
        self._world = world if world is not None else World.real()
        self._seed = seed
        self._answer = answer
        self._pause = pause
        self._claims = claims
        self._lives = 0

        def now() -> int:
            return int(self._world.clock.monotonic() * 1e9)

        self._producers = [Clerk(folder, f"p{n}", now) for n in range(producers)]
        self._consumers = [Clerk(folder, f"c{n}", now) for n in range(consumers)]
        self._numbers = [0] * producers
        self._next: dict[tuple[int, str, int], int] = {}
        #: Offsets that the broker has acknowledged, and those of them that it held when it last stopped in order.
        self._committed: dict[tuple[int, str, int], int] = {}
        self._kept: dict[tuple[int, str, int], int] = {}
        #: Sends that had no answer yet when the life ended.
        self.in_flight = 0
        self.cut_off = 0
        self.acknowledged = 0
        #: Sends that were answered by a refusal, and those stored perhaps.
        self.refused = 0
        self.doubtful = 0

    async def run(self, address: str, until: Callable[[], bool]) -> None:
        """Send and pull until ``until()`` holds or the broker is gone."""
        self._lives += 1
        self.in_flight = 0
        cut_off = self.cut_off
        client = RemotingClient(self._world)
        over = asyncio.Event()
        tasks = [
            *(asyncio.create_task(self._produce(client, address, n, until, over)) for n in range(len(self._producers))),
            *(asyncio.create_task(self._consume(client, address, n, until, over)) for n in range(len(self._consumers))),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
        self.in_flight = self.cut_off - cut_off

    async def _produce(
        self, client: RemotingClient, address: str, n: int, until: Callable[[], bool], over: asyncio.Event
    ) -> None:
        clerk = self._producers[n]
        rng = random.Random(f"{self._seed}-{self._lives}-{n}")
        while not until() and not over.is_set():
            # A batch lies in one file of the log.
            count = rng.randint(2, 3 if self._catalogue else 6) if rng.random() < 0.2 else 1
            keys = []
            for _ in range(count):
                self._numbers[n] += 1
                keys.append(f"{LARGE if self._catalogue else ''}{self._seed}.{n}.{self._numbers[n]:06d}")
            topic, queue = rng.choice(self.places)
            wait = count > 1 or rng.random() > 0.1 or self._claims
            oneway = count == 1 and rng.random() < 0.05 and not self._claims
            command = send_command(topic, queue, keys, wait=wait, queues=self._queues)
            op = clerk.invoke("send", keys=keys, topic=topic, queue=queue, claims=wait and not oneway)
            try:
                if oneway:
                    command.flag |= FLAG_ONEWAY
                    await client.oneway(address, command)
                    clerk.done(op, UNKNOWN, "send", status=-1)
                    continue
                answer = await client.request(address, command, self._answer)
            except (ConnectFailed, TooManyRequests):
                clerk.done(op, FAIL, "send", status=-2)
                over.set()
            except RMQError:
                self.cut_off += 1
                clerk.done(op, UNKNOWN, "send", status=-3)
                over.set()
            else:
                ext = answer.ext or {}
                if answer.code == 0:
                    self.acknowledged += count
                    clerk.done(op, OK, "send", status=0, offset=int(ext["queueOffset"] or 0))
                elif answer.code in _STORED_PERHAPS:
                    self.doubtful += 1
                    clerk.done(op, UNKNOWN, "send", status=answer.code)
                else:
                    self.refused += 1
                    clerk.done(op, FAIL, "send", status=answer.code, remark=answer.remark)
                    await asyncio.sleep(0.02)
            if self._pause:
                await asyncio.sleep(self._pause)

    async def _consume(
        self, client: RemotingClient, address: str, n: int, until: Callable[[], bool], over: asyncio.Event
    ) -> None:
        """A group that reads every queue in turn, commits what it has, and asks at first what the broker holds."""
        try:
            for topic, queue in self.places:
                await self._held(client, address, n, topic, queue)
            while not until() and not over.is_set():
                found = 0
                for topic, queue in self.places:
                    at = self._next.get((n, topic, queue), 0)
                    behind = await self._take(client, address, n, topic, queue, at)
                    found += behind - at
                    self._next[n, topic, queue] = behind
                if not found:
                    await asyncio.sleep(0.02)
        except RMQError:
            over.set()

    async def _held(self, client: RemotingClient, address: str, n: int, topic: str, queue: int) -> int:
        """What the broker says a group has committed; what it held at an orderly stop is the least that it may be."""
        clerk, group = self._consumers[n], f"g{n}"
        held = await offset_of(client, address, group, topic, queue)
        clerk.done(
            clerk.invoke("offset"), OK, "offset", group=group, topic=topic, queue=queue, offset=held,
            at_least=self._kept.get((n, topic, queue), -1),
        )  # fmt: skip
        return held

    async def _take(self, client: RemotingClient, address: str, n: int, topic: str, queue: int, at: int) -> int:
        """One pull, committed; the offset to go on from."""
        clerk, group = self._consumers[n], f"g{n}"
        op = clerk.invoke("pull", topic=topic, queue=queue, offset=at)
        items, behind = await pull(client, address, group, topic, queue, at)
        told = [(offset, key, digest(body)) for offset, key, body in items]
        clerk.done(op, OK, "pull", group=group, topic=topic, queue=queue, items=told)
        if behind > at:
            op = clerk.invoke("commit", group=group, topic=topic, queue=queue, offset=behind, received=behind)
            await commit(client, address, group, topic, queue, behind)
            self._committed[n, topic, queue] = behind
            clerk.done(op, OK, "commit")
        return max(at, behind)

    def stopped(self) -> None:
        """The broker has ended in order: what was committed is kept, whatever comes."""
        self._kept = dict(self._committed)

    async def finish(self, address: str) -> None:
        """Every group takes what is left, from where the broker says it is."""
        client = RemotingClient(self._world)
        try:
            for n in range(len(self._consumers)):
                for topic, queue in self.places:
                    at = max(0, await self._held(client, address, n, topic, queue))
                    while (behind := await self._take(client, address, n, topic, queue, at)) > at:
                        at = behind
        finally:
            await client.close()

    def close(self) -> None:
        for clerk in (*self._producers, *self._consumers):
            clerk.close()


def parse_body(body: bytes) -> list[tuple[int, str, bytes]]:
    """(queue offset, unique key, body) of every record in the answer to a pull."""
    found = []
    at = 0
    while at < len(body):
        record = parse_record(body, at, struct.unpack_from(">q", body, at + 28)[0])
        assert record is not None, f"bytes that are no record at {at}"
        found.append((record.queue_offset, record.properties["UNIQ_KEY"], record.body))
        at += record.size
    return found


async def pull(
    client: RemotingClient, address: str, group: str, topic: str, queue: int, offset: int, *, sys_flag: int = 0
) -> tuple[list[tuple[int, str, bytes]], int]:
    """Messages from an offset on, and the offset to go on from."""
    ext: dict[str, str | None] = {
        "consumerGroup": group, "topic": topic, "queueId": str(queue), "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": str(sys_flag | 4), "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    answer = await client.request(address, Command(11, ext=ext), 30)
    if answer.code == 17:  # the topic has had no message yet
        return [], offset
    assert answer.code in (0, 19, 20, 21), answer
    fields = answer.ext or {}
    return (parse_body(answer.body) if answer.code == 0 else []), int(fields["nextBeginOffset"] or 0)


async def offset_of(client: RemotingClient, address: str, group: str, topic: str, queue: int) -> int:
    ext: dict[str, str | None] = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
    answer = await client.request(address, Command(14, ext=ext), 30)
    return int((answer.ext or {}).get("offset") or 0) if answer.code == 0 else -1


async def commit(client: RemotingClient, address: str, group: str, topic: str, queue: int, offset: int) -> None:
    ext: dict[str, str | None] = {
        "consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)
    }  # fmt: skip
    answer = await client.request(address, Command(15, ext=ext), 30)
    assert answer.code == 0, answer


async def read_back(
    address: str, *, name: str = "pull", world: World | None = None, places: Sequence[Place] = PLACES
) -> Seen:
    """Every message of every queue, from its minimum on, as a consumer gets them."""
    seen = Seen(name)
    client = RemotingClient(world if world is not None else World.real())
    try:
        for topic, queue in places:
            answer = await client.request(address, Command(31, ext={"topic": topic, "queueId": str(queue)}), 30)
            at = int((answer.ext or {}).get("offset") or 0) if answer.code == 0 else 0
            seen.first[topic, queue] = at
            while True:
                items, behind = await pull(client, address, name, topic, queue, at)
                for offset, key, body in items:
                    seen.add(topic, queue, offset, key, body)
                if behind <= at:
                    break
                at = behind
    finally:
        await client.close()
    return seen


def scan_back(tree: Tree, directory: str, file_size: int, *, through: bool = False) -> Seen:
    """The same from the commit-log files alone, read with code of their own.

    :param through: what lies behind damage, too.
    """
    seen = Seen("scan")
    for record in scan_through(tree, directory) if through else scan_log(tree, directory, file_size).records:
        place = (record.topic, record.queue_id)
        if place in CATALOGUE:
            seen.first.setdefault(place, record.queue_offset)
            seen.add(*place, record.queue_offset, record.properties["UNIQ_KEY"], record.body)
    return seen
