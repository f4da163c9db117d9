"""The cluster inside a test: on a real loop, beside blocking code, and in virtual time on a disk that loses power."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing import simloop
from rmq.testing.cluster import BlockingCluster, Cluster
from rmq.testing.simworld import Simulation


def send(body: bytes) -> Command:
    fields = {
        "producerGroup": "g",
        "topic": "TopicTest",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "KEYS\x01k\x02",
        "reconsumeTimes": "0",
        "unitMode": "false",
    }
    return Command(RequestCode.SEND_MESSAGE, ext=dict(fields), body=body)


async def max_offset(client: RemotingClient, addr: str) -> int:
    request = Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "TopicTest", "queueId": "0"})
    answer = await client.request(addr, request, 60.0)
    assert answer.code == 0, answer.remark
    return int((answer.ext or {})["offset"] or -1)


async def test_two_brokers_register_and_take_messages(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, RemotingClient(World.real()) as client:
        answer = await client.request(cluster.namesrv_addr, Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert b'"broker-0"' in answer.body
        assert b'"broker-1"' in answer.body
        assert (await client.request(cluster.broker_addr, send(b"x"))).code == 0
        first = cluster.brokers[0]
        await cluster.stop_broker(first)
        assert (await cluster.start_broker(0)) is cluster.brokers[-1]
        addr = f"127.0.0.1:{cluster.brokers[-1].address[1]}"
        assert await max_offset(client, addr) == 1


def test_beside_blocking_code(tmp_path: Path) -> None:
    with BlockingCluster(tmp_path) as cluster:

        async def work(inner: Cluster) -> int:
            async with RemotingClient(inner.world) as client:
                await client.request(inner.broker_addr, send(b"x"))
                return await max_offset(client, inner.broker_addr)

        assert cluster.call(work) == 1
        assert cluster.namesrv_addr.startswith("127.0.0.1:")


def test_what_sync_flush_acknowledged_survives_a_power_cut() -> None:
    async def main() -> None:
        simulation = Simulation(2)
        node = simulation.node("broker")
        settings = {"flushDiskType": "SYNC_FLUSH"}
        node.files.mkdir("/data/broker-0")  # the folder was there before the first broker, and forced
        node.files.sync_dir("/")
        node.files.sync_dir("/data")
        cluster = Cluster("/data", world=node.world, settings=settings)
        await cluster.start()
        client = RemotingClient(node.world)
        answers = await asyncio.gather(*(client.request(cluster.broker_addr, send(b"%d" % n)) for n in range(25)))
        assert [answer.code for answer in answers] == [0] * 25
        world = simulation.power_cut(node, all_lost=True)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(1)
        async with (
            Cluster("/data", world=world, settings=settings) as again,
            RemotingClient(world) as other,
        ):
            assert await max_offset(other, again.broker_addr) == 25
            assert (await other.request(again.broker_addr, send(b"after"))).code == 0
            assert await max_offset(other, again.broker_addr) == 26

    simloop.run(main())
