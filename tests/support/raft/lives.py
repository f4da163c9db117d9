"""Lives of a group of brokers in virtual time: producers that go on, and whatever happens to machines and lines."""

from __future__ import annotations

import asyncio
from random import Random

from rmq.aio import Producer
from rmq.client.message import Message
from rmq.protocol.errors import RMQError
from tests.support.raft.brokers import GroupCluster

__all__ = ["Load", "faults", "live"]


class Load:
    """Producers that go on whatever happens."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.acknowledged: set[bytes] = set()
        self.ended = False
        #: The longest time without an acknowledged send, seconds.
        self.pause = 0.0

    async def run(self) -> None:
        async with Producer("load", namesrv=self.cluster.namesrv_addr, send_msg_timeout=1.0) as producer:
            await asyncio.gather(*(self._send(producer, name) for name in (b"a", b"b", b"c")))

    async def _send(self, producer: Producer, name: bytes) -> None:
        loop = asyncio.get_running_loop()
        number, last = 0, loop.time()
        while not self.ended:
            body = b"%s%d" % (name, number)
            number += 1
            try:
                result = await producer.send(Message("Topic", body))
            except RMQError:
                await asyncio.sleep(0.05)
                continue
            if result.send_status.name == "SEND_OK":
                self.acknowledged.add(body)
                self.pause = max(self.pause, loop.time() - last)
                last = loop.time()
            await asyncio.sleep(0.02)


async def faults(cluster: GroupCluster, seed: int, count: int, *, power: bool, wipes: bool = False) -> None:
    """Whatever happens to machines and lines, one after the other; in the end all of it is over."""
    random = Random(seed)
    for _ in range(count):
        await asyncio.sleep(random.uniform(0.1, 4.0))
        if wipes and random.random() < 0.4:
            name = random.choice(list(cluster.members) or cluster.names)
            if name in cluster.members and len(cluster.whole() - {name}) > len(cluster.names) // 2:
                await cluster.kill(name, disk=True)
                await cluster.begin(name)
                continue
        name = random.choice(list(cluster.members) or cluster.names)
        if random.random() < 0.6:
            name = cluster.leader() or name
        match random.randrange(8):
            case 0 | 1 | 2 if name in cluster.members:
                await cluster.kill(name, power=power and random.random() < 0.6)
            case 3:
                cluster.isolate(name)
            case 4:
                cluster.simulation.net.heal()
            case 5 if random.random() < 0.5:
                for one in list(cluster.members):
                    await cluster.kill(one, power=power)
            case 6 if name in cluster.members:
                cluster.driver(name).transfer(random.choice(cluster.names))
            case 7 if name in cluster.members and len(cluster.members) > 2:
                await cluster.stop_broker(cluster.members.pop(name))
        for one in cluster.names:
            if one not in cluster.members and random.random() < 0.6:
                await cluster.begin(one)
    cluster.simulation.net.heal()
    for one in cluster.names:
        if one not in cluster.members:
            await cluster.begin(one)


async def live(seed: int, *, power: bool, count: int = 12, wipes: bool = False) -> Load:
    """One life of a group.

    :param power: machines lose it, too; else processes end.
    :param wipes: and they lose their disks, a minority of them at a time.
    """
    settings = {"flushDiskType": "SYNC_FLUSH" if power else "ASYNC_FLUSH", "mappedFileSizeCommitLog": "65536"}
    cluster = GroupCluster(seed=seed, settings=settings)
    cluster.slow = 0.02 if power else 0.0
    async with cluster:
        await cluster.led_by()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        watching = asyncio.create_task(cluster.watch())
        await faults(cluster, seed, count, power=power, wipes=wipes)
        await cluster.led_by(60)
        await asyncio.sleep(5)
        load.ended = True
        await running
        await cluster.alike()
        if watching.done():
            await watching
        watching.cancel()
        for name in cluster.names:
            missing = load.acknowledged - set(await cluster.bodies(name, "Topic"))
            assert not missing, f"{name} lacks {sorted(missing)[:10]} of {len(load.acknowledged)}"
        return load
