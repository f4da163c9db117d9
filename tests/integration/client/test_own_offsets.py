"""Offsets in an application's own storage: kept there, gone on from there, whatever the storage does."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmq.aio import ClientError, MessageExt, MessageQueue, PullConsumer, PushConsumer
from rmq.runtime.lockstep import on_loop
from tests.support.daemons import ROOT
from tests.support.parsed import parsed
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


class Kept:
    """Coroutine functions that fail while they are told to."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, MessageQueue], int] = {}
        self.fails: Any = None
        self.writes = 0

    async def _trouble(self) -> Any:
        if isinstance(self.fails, BaseException):
            raise self.fails
        if self.fails is not None:
            await asyncio.sleep(self.fails)

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        await self._trouble()
        return self.table.get((group, queue))

    async def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.writes += 1
        await self._trouble()
        self.table.update({(group, queue): offset for queue, offset in offsets.items()})


class Plainly:
    """The same as plain functions, which run on a thread."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def read(self, group: str, queue: MessageQueue) -> int | None:
        return on_loop(self.kept.read(group, queue))  # type: ignore[no-any-return]

    def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        on_loop(self.kept.write(group, offsets))


def member(s: Scene, store: Any, got: list[str | None], **options: Any) -> PushConsumer:
    made = s.consumer(offset_store=store, **options)

    @made.on("T")
    async def handle(message: MessageExt) -> None:
        got.append(message.keys)

    return made


@pytest.mark.parametrize("plain", [False, True])
@in_virtual_time
async def test_a_member_goes_on_where_the_storage_says(plain: bool) -> None:
    async with scene() as s:
        kept, got = Kept(), list[str | None]()
        store = Plainly(kept) if plain else kept
        await s.topic("NS%T", queues=1)
        async with member(s, store, got, namespace="NS"):
            await s.send(3, "NS%T")
            await eventually(lambda: len(got) == 3)
            await asyncio.sleep(60)
            writes = kept.writes
        assert writes == kept.writes  # nothing had changed since
        queue = MessageQueue("T", "broker-0", 0)
        assert kept.table["NS%g", queue] == 3
        kept.table["NS%g", queue] = 1
        async with member(s, store, got, namespace="NS"):
            await eventually(lambda: len(got) == 5)
        assert got[3:] == ["k1", "k2"]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("trouble", [ValueError("no"), SystemExit(1), 30, 3600])
@in_virtual_time
async def test_a_storage_that_fails_or_hangs_holds_nobody_up(
    trouble: Any, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene() as s:
        kept, got = Kept(), list[str | None]()
        store = Plainly(kept) if plain else kept
        clock = s.cluster.world.clock
        consumer = member(s, store, got)
        async with consumer:
            await s.send(4)
            await eventually(lambda: len(got) == 4)
            kept.fails = trouble
            await s.send(4)
            await eventually(lambda: len(got) == 8)
            await asyncio.sleep(60)
            assert 1 <= caplog.text.count("offsets were not kept") <= 2
            if trouble != 3600:
                kept.fails = None
                await asyncio.sleep(40)
                assert sum(kept.table.values()) == 8
            began = clock.monotonic()
        assert clock.monotonic() - began < 25


@in_virtual_time
async def test_a_queue_whose_offset_cannot_be_read_is_taken_later() -> None:
    async with scene() as s:
        kept, got = Kept(), list[str | None]()
        kept.fails = ValueError("away")
        async with member(s, kept, got):
            await s.send(4)
            await asyncio.sleep(30)
            assert got == []
            kept.fails = None
            await eventually(lambda: len(got) == 4, 60)


@in_virtual_time
async def test_a_pull_consumer_keeps_its_offsets_there_too() -> None:
    async with scene() as s:
        kept = Kept()
        queue = MessageQueue("T", "broker-0", 0)
        async with s.puller(offset_store=kept) as puller:
            puller.update_consume_offset(queue, 7)
        assert kept.table == {("g", queue): 7}


@in_virtual_time
async def test_what_a_storage_says_that_is_no_offset_is_refused() -> None:
    async with scene() as s:
        queue = MessageQueue("T", "broker-0", 0)
        for said in (-1, "5", 2.5, True, b"5", 1 << 63):
            kept = Kept()
            kept.table["g", queue] = said  # type: ignore[assignment]
            async with s.puller(offset_store=kept) as puller:
                with pytest.raises(
                    ClientError, match=r"^read of the offset store Kept gave .*: it must give an offset"
                ):
                    await puller.fetch_consume_offset(queue)


@pytest.mark.parametrize("given", [5, "offsets.db", object()])
def test_what_is_no_storage_is_refused(given: Any) -> None:
    with pytest.raises(ClientError, match=r"offset_store is .*: give an object with read and write"):
        PullConsumer("g", offset_store=given)


@in_virtual_time
async def test_the_storage_in_the_documentation_keeps_offsets(tmp_path: Path) -> None:
    page = (ROOT / "docs/sdk/consume.md").read_text()
    program = next(one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class SqliteOffsets" in one)
    names: dict[str, Any] = {}
    tree = parsed(program)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Assign)]
    exec(compile(tree, "docs/sdk/consume.md", "exec"), names)
    store, queue = names["SqliteOffsets"](tmp_path / "offsets.db"), MessageQueue("T", "broker-0", 0)
    async with scene() as s:
        got: list[str | None] = []
        await s.topic(queues=1)
        for count in (2, 4):
            async with member(s, store, got):
                await s.send(2)
                await eventually(lambda count=count: len(got) == count)  # type: ignore[misc]
            assert names["SqliteOffsets"](tmp_path / "offsets.db").read("g", queue) == count
