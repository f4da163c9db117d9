"""What name servers say of a group whose leader dies, what clients make of it, and what groups of consumers keep."""

from __future__ import annotations

import asyncio

from rmq.aio import AdminClient, Producer
from rmq.client.admin.nameservers import ORDER_TOPIC_CONFIG
from rmq.client.message import Message
from rmq.namesrv.app import NamesrvApp
from rmq.protocol.errors import RMQError
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

TOPIC = "Topic"


def master_in(namesrv: NamesrvApp) -> str | None:
    """Whom a name server names as the master of the topic."""
    route = namesrv.routes.route(TOPIC)
    return None if route is None or not route.broker_datas else route.broker_datas[0].broker_addrs.get(0)


async def begun(cluster: GroupCluster) -> Producer:
    """A producer, once its topic is known at every name server."""
    await cluster.led_by()
    producer = Producer("routes", namesrv=cluster.namesrv_addr, send_msg_timeout=1.0)
    await producer.start()
    await producer.send(Message(TOPIC, b"first"))
    await eventually(lambda: all(map(master_in, cluster.namesrvs)))
    await asyncio.sleep(3)  # the others have the topic, too
    return producer


@in_virtual_time
async def test_every_name_server_names_the_next_leader_within_a_second() -> None:
    async with GroupCluster(seed=21, namesrvs=2) as cluster:
        producer = await begun(cluster)
        for _ in range(3):
            leader = await cluster.led_by()
            await cluster.kill(leader)
            heir = await cluster.led_by()
            wanted = {f"{cluster.addresses[heir]}:10911"}
            await eventually(lambda: {master_in(one) for one in cluster.namesrvs} == wanted, 1)  # noqa: B023
            await cluster.begin(leader)
            await asyncio.sleep(3)
        await producer.shutdown()


@in_virtual_time
async def test_a_topic_in_order_is_one_with_the_next_leader() -> None:
    """That is the name servers' configuration, and in no log: each member is told of it when it registers."""
    async with GroupCluster(seed=23) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        producer = await begun(cluster)
        (await admin.put_kv_config(ORDER_TOPIC_CONFIG, TOPIC, "group:2")).whole()
        leader = await cluster.led_by()
        await eventually(lambda: cluster.members[leader].topics.is_order(TOPIC), 40)
        away = next(name for name in cluster.names if name != leader)
        await cluster.kill(away)
        await cluster.begin(away)
        await cluster.alike()
        await cluster.kill(leader)
        heir = await cluster.led_by()
        await eventually(lambda: cluster.members[heir].topics.is_order(TOPIC), 2)
        await producer.shutdown()


@in_virtual_time
async def test_who_leads_no_longer_registers_as_nobodys_master() -> None:
    """One that stood still registers when it wakes, if 30 s are over: before its services of a master have ended."""
    async with GroupCluster(seed=22) as cluster:
        producer = await begun(cluster)
        old = await cluster.led_by()
        app, driver = cluster.members[old], cluster.driver(old)
        said: list[tuple[bool, bool]] = []

        def register() -> None:
            if driver.leads is None and app.roles.role.leads:
                app._registration.announce()
                said.append((app._registered_id() == 0, app.roles.role.broker_id == 0))

        driver.on_change.insert(0, register)
        cluster.isolate(old)
        await asyncio.sleep(10)
        assert said == [(False, True)]
        assert master_in(cluster.namesrvs[0]) not in (None, f"{cluster.addresses[old]}:10911")
        await producer.shutdown()


@in_virtual_time
async def test_a_name_server_that_hears_nothing_of_it_costs_seconds() -> None:
    """One of two name servers is cut off from the group as its leader dies: it goes on naming what it knew last."""
    async with GroupCluster(seed=22, namesrvs=2) as cluster:
        producer = await begun(cluster)
        leader = await cluster.led_by()
        for name in cluster.names:
            cluster.simulation.net.cut(cluster.addresses[name], cluster.namesrvs[1].address[0])
        await cluster.kill(leader)
        heir = await cluster.led_by()
        address = f"{cluster.addresses[heir]}:10911"
        await eventually(lambda: master_in(cluster.namesrvs[0]) == address, 1)
        assert master_in(cluster.namesrvs[1]) != address
        clock = asyncio.get_running_loop().time
        begun_at, pauses = clock(), []
        producers = [producer]
        for number in range(4):  # whichever name server each of them asks first
            another = Producer(f"routes{number}", namesrv=cluster.namesrv_addr, send_msg_timeout=1.0)
            await another.start()
            producers.append(another)
        for one in producers:
            while True:
                try:
                    await one.send(Message(TOPIC, b"after"))
                    break
                except RMQError:
                    await asyncio.sleep(0.1)
            pauses.append(clock() - begun_at)
        assert max(pauses) < 5, pauses
        cluster.simulation.net.heal()
        await eventually(lambda: master_in(cluster.namesrvs[1]) == address, 35)
        for one in producers:
            await one.shutdown()


@in_virtual_time
async def test_progress_goes_back_by_a_second_at_most() -> None:
    """Members take it from the master every second; what a client told since then it tells again."""
    async with GroupCluster(seed=23) as cluster:
        producer = await begun(cluster)
        for _ in range(50):
            await producer.send(Message(TOPIC, b"more"))
        told: list[tuple[float, int]] = []
        clock = asyncio.get_running_loop().time
        for lap in range(3):
            leader = await cluster.led_by()
            for step in range(30):
                offset = lap * 30 + step
                cluster.members[leader].offsets.commit("progress", TOPIC, 0, offset)
                told.append((clock(), offset))
                await asyncio.sleep(0.1)
            died = clock()
            await cluster.kill(leader)
            heir = await cluster.led_by()
            kept = cluster.members[heir].offsets.query("progress", TOPIC, 0)
            safe = max(offset for at, offset in told if at < died - 1.5)
            assert kept >= safe, f"{kept}, and {safe} was told more than a second before"
            await cluster.begin(leader)
            await asyncio.sleep(3)
        await producer.shutdown()
