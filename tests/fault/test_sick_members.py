"""Disks and clocks of members, and offsets of consumers: a group goes on, and loses what it says at most."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from rmq.aio import Message, MessageExt, Producer, PushConsumer
from rmq.broker.raft.passing import Moved, PassOn
from rmq.broker.replication.takeover import TakeOver
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.remoting.client import RemotingClient
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.lives import Load
from tests.support.virtual import eventually, in_virtual_time

_FULL, _BROKEN = 28, 5


async def _goes_on(cluster: GroupCluster, load: Load, within: float = 20.0) -> None:
    before = len(load.acknowledged)
    await eventually(lambda: len(load.acknowledged) > before + 20, within)


@pytest.mark.parametrize(
    ("action", "number", "path"),
    [
        ("pwrite", _FULL, "*/commitlog/*"), ("pwrite", _FULL, "*/raft/*"), ("pwrite", _BROKEN, "*/raft/*"),
        ("datasync", _BROKEN, "*/commitlog/*"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("leads", [False, True])
@in_virtual_time
async def test_a_member_whose_disk_fails_holds_nobody_up(action: str, number: int, path: str, leads: bool) -> None:
    """One whose fsync failed takes part again after a start, as any broker; others when their disks are well."""
    async with GroupCluster(seed=31, settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        leader = await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        await _goes_on(cluster, load)
        name = leader if leads else next(name for name in cluster.names if name != leader)
        disk = cluster.simulation.nodes[name].disk
        disk.fail(action, number, path, count=-1)
        await _goes_on(cluster, load, 30)
        await asyncio.sleep(3)
        await _goes_on(cluster, load, 30)
        disk.heal()
        if action == "datasync":
            await cluster.kill(name)
            await cluster.begin(name)
        load.ended = True
        await running
        await cluster.alike(120)
        assert load.acknowledged <= set(await cluster.bodies(name, "Topic"))


@pytest.mark.parametrize("leads", [False, True])
@in_virtual_time
async def test_a_member_whose_disk_is_full_says_so_wherever_it_is_asked(
    leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It said that the group has no leader, which sent whoever came to the others."""
    async with GroupCluster(seed=38) as cluster:
        leader = await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        await _goes_on(cluster, load)
        name = leader if leads else next(name for name in cluster.names if name != leader)
        term = cluster.driver(name).term
        cluster.simulation.nodes[name].disk.fail("pwrite", _FULL, "*/commitlog/*", count=-1)
        await _goes_on(cluster, load, 30)
        app = cluster.members[name]
        assert app.group is not None
        for _ in range(40):
            await asyncio.sleep(0.25)
            said = str(app._missing())
            assert said.startswith("this member takes part in nothing: "), said
            assert "full" in said or "No space left" in said, said
            info = app.group.view.info()
            assert (info.term >= term, info.role) == (True, "stopped")
        assert not [one for one in caplog.records if one.name.endswith("leaderless")]
        cluster.simulation.nodes[name].disk.heal()
        await eventually(lambda: app._missing() is None, 60)
        load.ended = True
        await running
        await cluster.alike(120)


@pytest.mark.parametrize("slow", ["leader", "follower"])
@in_virtual_time
async def test_a_slow_disk_slows_its_member_and_not_the_group(slow: str) -> None:
    """Half a second a flush: a slow follower is not waited for; a slow leader leads on, and no message is lost."""
    async with GroupCluster(seed=32, settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        leader = await cluster.led_by()
        name = leader if slow == "leader" else next(name for name in cluster.names if name != leader)
        offload = cluster.simulation.nodes[name].world.offload
        offload.delay = lambda: 0.5  # type: ignore[attr-defined]
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        await _goes_on(cluster, load, 30)
        if slow == "follower":
            assert load.pause < 0.5
        load.ended = True
        await running
        await cluster.alike(60)


@in_virtual_time
async def test_clocks_that_are_set_elect_nobody_and_lose_nothing() -> None:
    """K01: an hour forth and back, at each member in turn, with delayed messages."""
    async with GroupCluster(seed=33) as cluster:
        leader = await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        got: list[bytes] = []
        consumer = PushConsumer("clocks", namesrv=cluster.namesrv_addr)

        @consumer.on("Late")
        async def take(message: MessageExt) -> None:
            got.append(bytes(message.body))

        async with Producer("clocks", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Late", b"first"))
            await consumer.start()
            for name in (leader, *(name for name in cluster.names if name != leader)):
                for skew in (3_600_000, -3_600_000, 0):
                    cluster.simulation.nodes[name].clock.skew_ms = skew
                    await producer.send(Message("Late", b"%s %d" % (name.encode(), skew), delay_level=1))
                    await asyncio.sleep(2)
            assert (cluster.leader(), len(cluster.led)) == (leader, 1)
            await cluster.kill(leader)
            await cluster.led_by()
            await eventually(lambda: len(set(got)) == 10, 30)
            await consumer.shutdown()
        load.ended = True
        await running
        await cluster.begin(leader)
        await cluster.alike(60)
        assert load.acknowledged <= set(await cluster.bodies(leader, "Topic"))


# -- offsets of consumers: taken over by the others every second

#: Seconds: between two of those, with what it takes; and after which a leader that hears nobody leads no more.
_TAKEN_OVER, _STEPS_DOWN = 1.5, 2.5


class Progress:
    """A consumer that acknowledges more and more, and what members say of that."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.client = RemotingClient(cluster.simulation.node("consumer").world)
        #: Of each acknowledged write: when it was answered, what, and by whom; and of each fault: when, and whose.
        self.written: list[tuple[float, int, str]] = []
        self.faults: list[float] = []
        self.reads = 0
        self.back = 0
        self.ended = False

    async def _ask(self, name: str, code: int, **more: str) -> Command:
        ext: dict[str, str | None] = {"consumerGroup": "readers", "topic": "Topic", "queueId": "0", **more}
        return await self.client.request(f"{self.cluster.addresses[name]}:10911", Command(code, ext=ext), 1.0)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        value = 0
        while not self.ended:
            await asyncio.sleep(0.1)
            name = self.cluster.leader()
            if name is None:
                continue
            try:
                await self._look(name)
                value += 1
                answer = await self._ask(name, 15, commitOffset=str(value))
            except RMQError:
                continue
            if answer.code == 0:
                self.written.append((loop.time(), value, name))

    async def _look(self, name: str) -> None:
        """What the leader says is no less than what was acknowledged before the last faults could take it away."""
        began = asyncio.get_running_loop().time()
        answer = await self._ask(name, 14)
        if self.cluster.leader() != name:
            return
        said = int((answer.ext or {}).get("offset") or 0) if answer.code == 0 else 0
        lost = [(at - _TAKEN_OVER, at + _STEPS_DOWN) for at in self.faults]
        kept = [one for at, one, _ in self.written if at < began and not any(lo < at < hi for lo, hi in lost)]
        self.reads += 1
        most = max((one for at, one, _ in self.written if at < began), default=0)
        self.back = max(self.back, most - said)
        assert said >= max(kept, default=0), f"{name} says {said} at {began:.2f}, and {max(kept)} was acknowledged"


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_what_consumers_have_acknowledged_goes_back_by_moments_at_most(seed: int) -> None:
    """A leader is killed, or cut off with a consumer that goes on asking it, again and again."""
    async with GroupCluster(seed=seed) as cluster:
        await cluster.led_by()
        async with Producer("fill", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Topic", b"first"))
        progress = Progress(cluster)
        running = asyncio.create_task(progress.run())
        random, loop = Random(seed), asyncio.get_running_loop()
        for _ in range(5):
            await asyncio.sleep(random.uniform(3, 6))
            leader = await cluster.led_by()
            progress.faults.append(loop.time())
            if random.random() < 0.5:
                await cluster.kill(leader)
                await cluster.led_by()
                await cluster.begin(leader)
            else:
                cluster.isolate(leader)
                await eventually(lambda: cluster.leader() not in (None, leader), 30)  # noqa: B023
                await asyncio.sleep(2)
                cluster.simulation.net.heal()
            if running.done():
                break
        await asyncio.sleep(5)
        progress.ended = True
        await running
        await progress.client.close()
        assert progress.reads > 100
        assert progress.back <= 10 * (_TAKEN_OVER + _STEPS_DOWN)


def test_offsets_that_nobody_takes_over_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above is able to fail."""

    async def nothing(self: TakeOver, body: bytes, same: bool, end: int) -> None:
        """Leaves them where they are."""

    async def nobody(self: PassOn, moves: Sequence[Moved], request: Command | None = None) -> None:
        """Tells nobody."""

    monkeypatch.setattr(TakeOver, "offsets", nothing)
    monkeypatch.setattr(PassOn, "spread", nobody)
    with pytest.raises(AssertionError, match="was acknowledged"):
        test_what_consumers_have_acknowledged_goes_back_by_moments_at_most(0)
