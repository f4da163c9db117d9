"""What is acknowledged for a topic that is new outlives a kill: topics.json has the topic by then (I1)."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol import batch
from rmq.protocol.command import Command
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.raw_peer import RawPeer, pull, send

CREATE = {"topic": "Made", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG"}
CREATE |= {"topicSysFlag": "0", "order": "false", "defaultTopic": "TBW102"}


class Disk:
    """Writes of metadata that wait until they may go on."""

    def __init__(self, folder: Path, name: str = "topics.json") -> None:
        self.file = folder / "broker-0" / "config" / name
        self.may = asyncio.Event()
        self.may.set()
        self.fails = False
        self._offload = World.real().offload

    async def offload(self, what: Callable[..., Any], *args: Any) -> Any:
        if getattr(getattr(what, "__self__", None), "path", None) == str(self.file):
            await self.may.wait()
            if self.fails:
                raise OSError(errno.EIO, "Input/output error")
        return await self._offload(what, *args)

    def has(self, name: str) -> bool:
        return self.file.exists() and f'"{name}"' in self.file.read_text()


@asynccontextmanager
async def scene(folder: Path, name: str = "topics.json") -> AsyncIterator[tuple[Disk, RawPeer, RawPeer]]:
    """A broker, and two connections to it; from here on no metadata is written until it may be."""
    disk = Disk(folder, name)
    world = dataclasses.replace(World.real(), offload=disk.offload)
    async with Cluster(folder, world=world) as cluster:
        host, _, port = cluster.broker_addr.rpartition(":")
        async with RawPeer(host, int(port)) as one, RawPeer(host, int(port)) as other:
            assert (await one.ask(send("Old"))).code == 0
            disk.may.clear()
            yield disk, one, other
            disk.may.set()


async def waits(peer: RawPeer, *asked: asyncio.Future[Command]) -> None:
    """Others are served, and these are not."""
    for _ in range(3):
        assert (await peer.ask(send("Old"))).code == 0
    assert not any(each.done() for each in asked)


def offset(answer: Command) -> int:
    assert answer.code == 0, answer.remark
    return int((answer.ext or {})["queueOffset"] or "")


def of_two(topic: str) -> Command:
    command = send(topic, batch.encode([(0, b"b1", {}), (0, b"b2", {})]))
    command.code = 320
    assert command.ext is not None
    command.ext["m"] = "true"
    return command


async def test_sends_to_a_new_topic_wait_for_its_name_on_the_disk_and_keep_their_order(tmp_path: Path) -> None:
    async with scene(tmp_path) as (disk, one, other):
        first = [one.submit(send("New", b"%d" % number)) for number in range(3)]
        one.submit(send("New", b"oneway", oneway=True))
        delayed = one.submit(send("New", b"later", props="DELAY\x0118"))
        await waits(other, *first, delayed)
        rest = [one.submit(of_two("New")), one.submit(send("New", b"last"))]
        created = other.submit(Command(17, ext=dict(CREATE)))
        made = other.submit(send("Made"))
        await waits(other, *first, delayed, *rest, created, made)
        assert not disk.has("New")
        first[0].add_done_callback(lambda _: seen.append(disk.has("New")))
        created.add_done_callback(lambda _: seen.append(disk.has("Made")))
        seen: list[bool] = []
        disk.may.set()
        assert [offset(await each) for each in first] == [0, 1, 2]
        assert (await delayed).code == (await created).code == (await made).code == 0
        assert [offset(await each) for each in rest] == [4, 6]
        assert seen == [True, True]
        found = (await one.ask(pull(topic="New"))).body
        bodies = [b"0", b"1", b"2", b"oneway", b"b1", b"b2", b"last"]
        places = [found.find(body) for body in bodies[3:]]
        assert -1 not in places
        assert places == sorted(places)


async def test_a_disk_that_does_not_take_the_name_is_told_of_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as (disk, one, other):
        disk.fails = True
        sent = one.submit(send("New"))
        await waits(other, sent)
        disk.may.set()
        assert offset(await sent) == 0
        assert "writing topics.json fails" in caplog.text
        disk.fails = False
        assert (await one.ask(Command(17, ext=dict(CREATE)))).code == 0
        assert disk.has("New")


async def test_a_topic_that_is_deleted_while_sends_wait_for_it_is_made_anew(tmp_path: Path) -> None:
    async with scene(tmp_path) as (disk, one, other):
        sent = [one.submit(send("New")), one.submit(send("New"))]
        await waits(other, *sent)
        deleted = other.submit(Command(215, ext={"topic": "New"}))
        await waits(other, *sent, deleted)
        disk.may.set()
        assert [offset(await each) for each in sent] == [0, 1]
        assert (await deleted).code == 0
        assert disk.has("New")


async def test_groups_and_their_deletion_are_answered_when_they_are_on_the_disk(tmp_path: Path) -> None:
    async with scene(tmp_path, "subscriptionGroup.json") as (disk, one, other):
        made = one.submit(Command(200, body=b'{"groupName":"G1","retryMaxTimes":3}'))
        await waits(other, made)
        disk.may.set()
        assert (await made).code == 0
        assert disk.has("G1")
        disk.may.clear()
        gone = one.submit(Command(207, ext={"groupName": "G1"}))
        await waits(other, gone)
        disk.may.set()
        assert (await gone).code == 0
        assert not disk.has("G1")
