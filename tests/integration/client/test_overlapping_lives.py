"""Starts and shutdowns of one client that meet: whoever starts it can use it, and after a shutdown nothing runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq.app import App
from rmq.client import life
from rmq.client.instance import instances_of
from rmq.protocol.errors import ClientError
from tests.integration.client.test_cancelled import KINDS, ended, use
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import in_virtual_time

#: Seconds of virtual time: within the first turn, and while servers are asked.
MOMENTS = (0.0, 0.0002, 0.0005, 0.0011, 0.0023)


@asynccontextmanager
async def made(kind: str) -> AsyncIterator[tuple[Scene, Callable[[], Any], Callable[[], Awaitable[None]]]]:
    """A scene, what makes a client of that kind, and what waits until nothing of it runs."""
    make, more = KINDS[kind]
    async with scene() as s:
        others, before = len(instances_of(s.cluster.namesrv_addr, s.cluster.world)), set(asyncio.all_tasks())

        async def over() -> None:
            assert len(instances_of(s.cluster.namesrv_addr, s.cluster.world)) == others
            await ended(s, others, before)

        yield s, lambda: make(s, **more), over


@pytest.mark.parametrize("kind", KINDS)
def test_two_starts_at_once_are_one(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with made(kind) as (_, make, over):
            for moment in MOMENTS:
                client = make()
                first = asyncio.ensure_future(client.start())
                await asyncio.sleep(moment)
                await asyncio.gather(first, client.start())
                await use(client)
                await client.shutdown()
                await over()

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_a_shutdown_cuts_a_start_short_that_is_under_way(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with made(kind) as (_, make, over):
            for moment in MOMENTS:
                client = make()
                starting = asyncio.ensure_future(client.start())
                await asyncio.sleep(moment)
                started = starting.done()
                await client.shutdown()
                if not started:
                    with pytest.raises(ClientError, match="was shut down while it started"):
                        await starting
                await over()

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_two_shutdowns_are_one_and_a_start_comes_behind_them(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with made(kind) as (_, make, over):
            for moment in MOMENTS:
                client = make()
                await client.start()
                await use(client)
                first = asyncio.ensure_future(client.shutdown())
                await asyncio.sleep(moment)
                await asyncio.gather(first, client.shutdown())
                await over()
                await client.start()
                first = asyncio.ensure_future(client.shutdown())
                await asyncio.sleep(moment)
                await client.start()
                await first
                await use(client)
                await client.shutdown()
                await over()

    run()


@in_virtual_time
async def test_who_is_cancelled_while_a_shutdown_cuts_its_start_short_is_cancelled() -> None:
    async with made("push") as (_, make, over):
        client = make()
        starting = asyncio.ensure_future(client.start())
        await asyncio.sleep(0.0005)
        ending = asyncio.ensure_future(client.shutdown())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await ending
        await over()


def test_a_loop_that_was_left_in_the_middle_of_a_start_holds_up_no_other() -> None:
    class Slow:
        begun = 0

        @life.starts
        async def start(self) -> None:
            self.begun += 1
            if self.begun == 1:
                await asyncio.Event().wait()

    slow, left = Slow(), asyncio.new_event_loop()
    starting = left.create_task(slow.start())
    left.run_until_complete(asyncio.sleep(0))
    asyncio.run(slow.start())
    starting.cancel()
    left.run_until_complete(asyncio.wait({starting}))
    left.close()
    assert slow.begun == 2


@in_virtual_time
async def test_an_application_that_is_stopped_while_it_starts_has_stopped() -> None:
    async with scene() as s:
        others, before = len(instances_of(s.cluster.namesrv_addr, s.cluster.world)), set(asyncio.all_tasks())
        for moment in MOMENTS:
            app = App("shop", namesrv=s.cluster.namesrv_addr, world=s.cluster.world)
            starting = asyncio.ensure_future(app.start())
            await asyncio.sleep(moment)
            started = starting.done()
            await app.stop()
            if not started:
                with pytest.raises(ClientError, match="was shut down while it started"):
                    await starting
            await ended(s, others, before)
