"""A broker that cannot keep up refuses sends with Java's codes and remarks, and serves everything else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from rmq.broker.store.log.gate import Gate
from rmq.protocol import fastjson
from rmq.protocol.command import Command
from rmq.runtime.world import Offload, World
from rmq.testing.cluster import Cluster
from tests.support.daemons import PATIENCE
from tests.support.raw_peer import RawPeer, pull, send

T = TypeVar("T")


class SlowSync:
    """An offload whose flushes of the commit log wait until they are let go."""

    def __init__(self, real: Offload) -> None:
        self._real = real
        self.go = asyncio.Event()
        self.go.set()
        self.running = asyncio.Event()

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        if getattr(what, "__qualname__", "").endswith("LogFiles.sync"):
            self.running.set()
            await self.go.wait()
            self.running.clear()
        return await self._real(what, *args)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


async def connect(cluster: Cluster) -> RawPeer:
    return RawPeer(*cluster.brokers[0].address)


async def still_served(peer: RawPeer) -> None:
    """Pulls and administration answer, whatever happens to sends."""
    assert (await peer.ask(pull(offset=0))).code == 0
    assert (await peer.ask(Command(28))).code == 0


async def runtime(peer: RawPeer) -> dict[str, str]:
    answer = await peer.ask(Command(28))
    table: Any = fastjson.loads(answer.body)
    return dict(table["table"])


async def test_sends_that_waited_too_long(cluster: Cluster) -> None:
    async with await connect(cluster) as peer:
        assert (await peer.ask(send())).code == 0
        # Everything has waited longer than "less than nothing".
        cluster.brokers[0].settings.wait_time_mills_in_send_queue = -1000  # earlier than any send
        answer = await peer.ask(send())
        assert answer.code == 2
        assert re.fullmatch(
            r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, "
            r"period in queue: \d+ms, size of queue: \d+",
            answer.remark or "",
        )
        batch = await peer.ask(Command(320, ext=dict(send().ext or {}, m="true"), body=b"?"))
        assert batch.code == 2
        assert answer.ext in (None, {})
        await still_served(peer)
        cluster.brokers[0].settings.update("brokerFastFailureEnable=false")
        assert (await peer.ask(send())).code == 0
        assert cluster.brokers[0].stats.put_failures == 2
        # As Java's count it, and rmq doctor reads it: not what was refused and is in no log.
        assert (await runtime(peer))["putMessageFailedTimes"] == "0"


async def test_oneway_sends_are_refused_in_silence(cluster: Cluster) -> None:
    async with await connect(cluster) as peer:
        assert (await peer.ask(send())).code == 0
        cluster.brokers[0].settings.wait_time_mills_in_send_queue = -1000  # earlier than any send
        peer.submit(send(oneway=True))
        await still_served(peer)
        assert cluster.brokers[0].store.queues.get_or_create("T", 0).next == 1
        assert peer.answered == 3


async def test_more_sends_than_may_wait(cluster: Cluster) -> None:
    async with await connect(cluster) as peer:
        assert (await peer.ask(send())).code == 0
        cluster.brokers[0].settings.update("sendThreadPoolQueueCapacity=3")
        answers = await asyncio.gather(*[peer.submit(send()) for _ in range(5)])
        assert [answer.code for answer in answers] == [0, 0, 0, 2, 2]
        assert {answer.remark for answer in answers[3:]} == {"[OVERLOAD]system busy, start flow control for a while"}
        assert cluster.brokers[0].store.queues.get_or_create("T", 0).next == 4
        cluster.brokers[0].settings.update("sendThreadPoolQueueCapacity=0")
        answer = await peer.ask(send())
        assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        await still_served(peer)


async def test_a_full_disk(cluster: Cluster) -> None:
    """Field case B009."""
    async with await connect(cluster) as peer:
        assert (await peer.ask(send())).code == 0
        log = cluster.brokers[0].store.log
        log.close_gate(Gate.DISK_FULL)
        answer = await peer.ask(send())
        assert answer.code == 14
        assert re.search(r"the broker's disk is full \[CL: ", answer.remark or "")
        await still_served(peer)
        log.open_gate(Gate.DISK_FULL)
        assert (await peer.ask(send())).code == 0


async def test_a_broker_that_opens_later(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    async with await connect(cluster) as peer:
        assert (await peer.ask(send())).code == 0
        broker.settings.update("startAcceptSendRequestTimeStamp=4102444800123")
        answer = await peer.ask(send())
        assert answer.code == 1
        assert re.fullmatch(r"broker unable to service, until 2\d\d\d-\d\d-\d\d \d\d:\d\d:00,123", answer.remark or "")
        assert (await runtime(peer))["startAcceptSendRequestTimeStamp"] == "4102444800123"
        await still_served(peer)
        broker.settings.update("startAcceptSendRequestTimeStamp=1")
        assert (await peer.ask(send())).code == 0


async def test_a_flush_that_does_not_end(tmp_path: Path) -> None:
    world = World.real()
    slow = SlowSync(world.offload)
    async with Cluster(
        tmp_path, settings={"flushDiskType": "SYNC_FLUSH"}, world=replace(world, offload=slow)
    ) as cluster:
        settings = cluster.brokers[0].settings
        async with await connect(cluster) as peer:
            assert (await peer.ask(send())).code == 0
            slow.go.clear()
            held = [peer.submit(send(body=b"x" * 1000)) for _ in range(3)]
            await slow.running.wait()
            table = await runtime(peer)
            assert table["sendThreadPoolQueueSize"] == "3"
            async with asyncio.timeout(PATIENCE):  # the oldest of them waits longer with every look
                while int((await runtime(peer))["sendThreadPoolQueueHeadWaitTimeMills"]) < 20:
                    continue
            owed = [conn.owed_bytes for conn in cluster.brokers[0].server.connections]
            assert max(owed) >= 3 * 1000

            settings.update("osPageCacheBusyTimeOutMills=-1")
            answer = await peer.ask(send())
            assert (answer.code, answer.remark) == (2, "[REJECTREQUEST]system busy, start flow control for a while")
            settings.update("osPageCacheBusyTimeOutMills=1000")
            settings.update("sendThreadPoolQueueCapacity=3")
            assert (await peer.ask(send())).code == 2
            assert (await peer.ask(Command(28))).code == 0
            assert not any(future.done() for future in held)

            slow.go.set()
            assert [(await future).code for future in held] == [0, 0, 0]
            assert (await runtime(peer))["sendThreadPoolQueueSize"] == "0"
            assert {conn.owed_bytes for conn in cluster.brokers[0].server.connections} == {0}
            assert (await peer.ask(send())).code == 0


async def test_held_answers_stop_the_reading_of_their_connection(tmp_path: Path) -> None:
    world = World.real()
    slow = SlowSync(world.offload)
    async with Cluster(
        tmp_path,
        settings={"flushDiskType": "SYNC_FLUSH"},
        world=replace(world, offload=slow),
    ) as cluster:
        broker = cluster.brokers[0]
        async with await connect(cluster) as peer, await connect(cluster) as other:
            assert (await peer.ask(send())).code == 0
            slow.go.clear()
            body = b"x" * 1_000_000
            held = [peer.submit(send(body=body)) for _ in range(40)]
            await slow.running.wait()
            while not any(conn._paused for conn in broker.server.connections):
                assert (await other.ask(Command(28))).code == 0
            # Nothing more of it is taken in, while others are served.
            assert broker.front.pressure.held < 40
            assert (await other.ask(Command(28))).code == 0
            slow.go.set()
            assert {(await future).code for future in held} == {0}
            assert broker.front.pressure.held == 0


async def test_a_storm_of_other_commands_is_served_in_slices(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    broker.settings.wait_time_mills_in_send_queue = 60_000  # a busy machine is not what this is about
    async with await connect(cluster) as peer:
        assert (await peer.ask(send())).code == 0
        routed: list[int] = []
        step, route = broker.server._step, broker.router.route

        def counting_step(ready: list[Any]) -> None:
            routed.append(0)
            step(ready)

        def counting_route(conn: Any, command: Command) -> None:
            routed[-1] += 1
            route(conn, command)

        broker.server._step = counting_step
        lane: Any = step.__self__  # type: ignore[attr-defined]
        lane._router = SimpleNamespace(route=counting_route)
        finished: list[int] = []
        futures = []
        for number in range(300):
            command = send() if number % 10 == 9 else Command(30, ext={"topic": "T", "queueId": "0"})
            future = peer.submit(command)
            future.add_done_callback(lambda _, number=number: finished.append(number))
            futures.append(future)
        answers = await asyncio.gather(*futures)
        assert {answer.code for answer in answers} == {0}
        assert sum(routed) == 270
        assert max(routed) <= 64
        others = [number for number in finished if number % 10 != 9]
        assert others == sorted(others)
