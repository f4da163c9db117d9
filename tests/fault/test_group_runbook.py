"""What docs/failover.md tells whoever runs a group to do: one machine after the other, and no send fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmq.aio import AdminClient, Producer
from rmq.broker.app import BrokerApp
from rmq.client.message import Message
from rmq.runtime import patience
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


@asynccontextmanager
async def sending(cluster: GroupCluster) -> AsyncIterator[list[str]]:
    """A producer that sends all the while; what came of each message."""
    sent: list[str] = []
    ended = asyncio.Event()

    async def send(producer: Producer) -> None:
        while not ended.is_set():
            sent.append((await producer.send(Message("Topic", b"%d" % len(sent)))).send_status.name)
            await asyncio.sleep(0.02)

    async with Producer("runbook", namesrv=cluster.namesrv_addr) as producer:
        running = asyncio.create_task(send(producer))
        yield sent
        ended.set()
        await running


async def stop(cluster: GroupCluster, name: str) -> None:
    await cluster.stop_broker(cluster.members.pop(name))


async def ready(app: BrokerApp) -> None:
    """Wait as who restarts one machine after the other does."""
    await eventually(lambda: app._missing() is None, 30)


@in_virtual_time
async def test_a_rolling_restart_fails_no_send() -> None:
    async with GroupCluster(seed=21) as cluster:
        first = await cluster.led_by()
        async with sending(cluster) as sent:
            await eventually(lambda: len(sent) > 50)
            for name in [*(name for name in cluster.names if name != first), first]:
                await stop(cluster, name)
                await asyncio.sleep(2)
                await ready(await cluster.begin(name))
            await asyncio.sleep(2)
        assert set(sent) == {"SEND_OK"}
        await cluster.alike()
        assert sorted(map(int, await cluster.bodies(first, "Topic"))) == list(range(len(sent)))


@in_virtual_time
async def test_another_member_leads_before_maintenance() -> None:
    async with GroupCluster(seed=22) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        old = await cluster.led_by()
        heir = next(name for name in cluster.names if name != old)
        await asyncio.sleep(2)
        async with sending(cluster) as sent:
            await eventually(lambda: len(sent) > 50)
            await admin.elect_master("group", int(heir[1:]) + 1)
            await stop(cluster, old)
            await asyncio.sleep(5)
            await ready(await cluster.begin(old))
        assert set(sent) == {"SEND_OK"}
        assert cluster.leader() == heir


@in_virtual_time
async def test_a_member_moves_to_another_machine_with_its_store() -> None:
    """Its address changes at all of them, one after the other."""
    async with GroupCluster(seed=23) as cluster:
        leader = await cluster.led_by()
        moves, stays = (name for name in cluster.names if name != leader)
        async with sending(cluster) as sent:
            await eventually(lambda: len(sent) > 50)
            await stop(cluster, moves)
            disk = cluster.simulation.nodes[moves].disk
            old = cluster.addresses[moves]
            node = cluster.simulation.nodes[moves] = cluster.simulation.node("new machine")
            node.disk = disk
            cluster.simulation.kill(node)
            cluster.addresses[moves] = node.address
            assert node.address != old
            await cluster.begin(moves)
            for name in (stays, leader):
                await stop(cluster, name)
                await asyncio.sleep(2)
                await ready(await cluster.begin(name))
            await ready(cluster.members[moves])
            await asyncio.sleep(2)
        # Where those that know one address of it meet those that know the other there is no majority for a moment.
        assert set(sent) <= {"SEND_OK", "FLUSH_SLAVE_TIMEOUT"}
        await cluster.alike()
        # What was not committed in time may be gone, and nobody was told that it is there.
        there = sorted(map(int, await cluster.bodies(moves, "Topic")))
        assert len(there) == len(set(there))
        assert {number for number, answer in enumerate(sent) if answer == "SEND_OK"} <= set(there)


@in_virtual_time
async def test_a_master_and_its_slaves_become_a_group() -> None:
    cluster = GroupCluster(seed=24)
    cluster.waits = True
    async with cluster:
        plain = {"enableDLegerCommitLog": "false"}
        master = await cluster.begin("n0", **plain)
        slaves = [
            await cluster.begin(name, **plain, brokerRole="SLAVE", brokerId=str(number))
            for number, name in ((1, "n1"), (2, "n2"))
        ]
        async with Producer("before", namesrv=cluster.namesrv_addr) as producer:
            for number in range(50):
                await producer.send(Message("Topic", b"%d" % number))
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:

            async def same() -> bool:
                status = await admin.broker_ha_status(f"{cluster.addresses['n0']}:10911")
                return len(status.ha_connection_info) == 2 and not any(one.diff for one in status.ha_connection_info)

            async with patience.timeout(30):
                while True:
                    if await same():
                        break
                    await asyncio.sleep(0.5)
        for app in (*slaves, master):
            await cluster.stop_broker(app)
        cluster.members.clear()
        for name in cluster.names:
            await cluster.begin(name)
        await cluster.led_by()
        async with sending(cluster) as sent:
            await eventually(lambda: len(sent) > 20)
        assert set(sent) == {"SEND_OK"}
        await cluster.alike()
        for name in cluster.names:
            assert len(await cluster.bodies(name, "Topic")) == 50 + len(sent)


@in_virtual_time
async def test_a_leader_hands_over_to_a_member_that_is_there() -> None:
    """Two of five are away, and have all that is there: neither is waited for, and no send waits for long."""
    async with GroupCluster(seed=25, size=5) as cluster:
        leader = await cluster.led_by()
        await cluster.alike()
        for name in [name for name in cluster.names if name != leader][:2]:
            await cluster.kill(name)
        await asyncio.sleep(5)
        before = asyncio.get_running_loop().time()
        await stop(cluster, leader)
        await eventually(lambda: cluster.leader() is not None)
        assert asyncio.get_running_loop().time() - before < 1
