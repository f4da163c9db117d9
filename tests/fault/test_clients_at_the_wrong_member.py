"""Clients whose route names a member that leads no more, or never did since it came back: they look who does.

In virtual time. Every client here is the only one of its process: nothing but its own calls tells it of an election.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rmq.aio import (
    AdminClient,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from rmq.cli.messages.places import Place
from rmq.cli.messages.reading import Chosen, read
from rmq.client.settings import PushConsumerOptions
from tests.fault.test_clients_in_failovers import _hand_over
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time

QUEUE = MessageQueue("Topic", "group", 0)
#: Seconds after which the route would be asked for again anyway are 30; an election takes up to two.
SOON = 3.0


async def begun(cluster: GroupCluster, count: int = 1) -> str:
    """The leader, once every member has messages."""
    leader = await cluster.led_by()
    async with Producer("begins", namesrv=cluster.namesrv_addr, instance_name="begins") as producer:
        await producer.send(Message("Topic", b"first"))
        for _ in range(count):
            await producer.send(Message("Topic", b"first"), queue=QUEUE)
    await cluster.alike()
    await asyncio.sleep(1)
    return leader


async def succeeded(cluster: GroupCluster, leader: str) -> None:
    """Another one leads, and the name server knows it."""

    def named() -> bool:
        route, heir = cluster.namesrvs[0].routes.route("Topic"), cluster.leader()
        addrs = route.broker_datas[0].broker_addrs if route is not None and route.broker_datas else {}
        return heir not in (None, leader) and addrs.get(0) == f"{cluster.addresses[heir]}:10911"

    await eventually(named, 30)


async def sent(cluster: GroupCluster, body: bytes) -> None:
    """By somebody who has just looked at the route."""
    async with Producer("others", namesrv=cluster.namesrv_addr, instance_name="others") as producer:
        await producer.send(Message("Topic", body), queue=QUEUE)


def consumer(cluster: GroupCluster, got: Counter[bytes], **options: object) -> PushConsumer:
    given: PushConsumerOptions = {
        "instance_name": "readers",
        "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
        **options,
    }  # type: ignore[typeddict-item]
    made = PushConsumer("readers", namesrv=cluster.namesrv_addr, **given)

    @made.on("Topic")
    async def take(message: MessageExt) -> None:
        got[bytes(message.body)] += 1

    return made


@pytest.mark.parametrize("pops", [False, True])
@in_virtual_time
async def test_orderly_consumers_find_the_next_leader_after_one_that_is_killed(pops: bool) -> None:
    """Without its lock nothing is pulled from a queue, so no pull fails that would tell of it."""
    async with GroupCluster(seed=1) as cluster:
        leader = await begun(cluster)
        if pops:
            async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
                await admin.set_message_request_mode(f"{cluster.addresses[leader]}:10911", "Topic", "readers", "POP")
        got: Counter[bytes] = Counter()
        reader = consumer(cluster, got, orderly=True, client_rebalance=not pops)
        await reader.start()
        await eventually(lambda: got[b"first"] == 2, 30)
        await cluster.kill(leader)
        await succeeded(cluster, leader)
        await sent(cluster, b"second")
        await eventually(lambda: got[b"second"] == 1, SOON)
        await reader.shutdown()


@in_virtual_time
async def test_an_orderly_consumer_that_starts_at_a_leader_which_is_cut_off_asks_the_next_for_its_locks() -> None:
    """It takes heartbeats and questions as ever, and grants nothing."""
    async with GroupCluster(seed=1) as cluster:
        leader = await begun(cluster)
        cluster.isolate(leader)
        await asyncio.sleep(1.2)
        got: Counter[bytes] = Counter()
        reader = consumer(cluster, got, orderly=True)
        await reader.start()
        await succeeded(cluster, leader)
        await eventually(lambda: got[b"first"] == 2, SOON)
        await reader.shutdown()


@in_virtual_time
async def test_what_was_popped_is_acknowledged_at_the_next_leader_when_the_last_one_refuses() -> None:
    async with GroupCluster(seed=4) as cluster:
        leader = await begun(cluster)
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            await admin.set_message_request_mode(f"{cluster.addresses[leader]}:10911", "Topic", "readers", "POP")
        got: Counter[bytes] = Counter()
        go = asyncio.Event()
        reader = PushConsumer(
            "readers", namesrv=cluster.namesrv_addr, client_rebalance=False, pop_invisible_time=20,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )  # fmt: skip

        @reader.on("Topic")
        async def take(message: MessageExt) -> None:
            got[bytes(message.body)] += 1
            await go.wait()

        await reader.start()
        await eventually(lambda: got[b"first"] == 2, 30)
        await _hand_over(cluster, leader)
        go.set()
        await asyncio.sleep(40)
        assert got[b"first"] == 2, "they come again"
        await reader.shutdown()


@in_virtual_time
async def test_a_consumer_that_ends_with_its_leader_has_its_progress_kept() -> None:
    async with GroupCluster(seed=2) as cluster:
        leader = await begun(cluster, 3)
        got: Counter[bytes] = Counter()
        reader = consumer(cluster, got)
        await reader.start()
        await eventually(lambda: got[b"first"] == 4, 30)
        await cluster.kill(leader)
        await succeeded(cluster, leader)
        await reader.shutdown()
        heir = await cluster.led_by()
        member = cluster.members[heir]
        assert member.offsets.query("readers", "Topic", 0) == member.store.queues.get("Topic", 0).visible > 2


@in_virtual_time
async def test_a_queue_ends_where_the_leader_says_and_not_where_one_that_has_come_back_does() -> None:
    """It has lost its disk, and has the address that the client's route has for the master."""
    async with GroupCluster(seed=3) as cluster, PullConsumer("readers", namesrv=cluster.namesrv_addr) as reader:
        leader = await begun(cluster, 5)
        end = await reader.max_offset(QUEUE)
        assert end >= 5
        await cluster.kill(leader, disk=True)
        await cluster.begin(leader)
        assert await reader.max_offset(QUEUE) == end
        assert await reader.min_offset(QUEUE) == 0
        assert await reader.search_offset(QUEUE, 0) == 0


@in_virtual_time
async def test_queues_are_shared_anew_although_another_topic_has_told_of_the_next_leader() -> None:
    """Each topic has a route of its own, and what one of them learns all of them go by."""
    async with GroupCluster(seed=5) as cluster:
        leader = await begun(cluster)
        async with Producer("begins", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Another", b"first"))
        readers = [
            PushConsumer("readers", namesrv=cluster.namesrv_addr, instance_name=name, rebalance_interval=1000)
            for name in ("one", "two")
        ]
        for reader in readers:
            for topic in ("Topic", "Another"):
                reader.subscribe(topic)
            reader.register_message_listener(lambda _: None)
        await readers[0].start()
        await asyncio.sleep(5)
        await cluster.kill(leader)
        await succeeded(cluster, leader)
        await asyncio.sleep(SOON)
        await readers[1].start()
        await eventually(
            lambda: [_share(reader) for reader in readers] == [Counter({"Topic": 2, "Another": 2})] * 2, SOON
        )
        for reader in readers:
            await reader.shutdown()


def _share(reader: PushConsumer) -> Counter[str]:
    return Counter(queue.topic for queue in reader._delivery.assignment.queues if not queue.topic.startswith("%"))


@in_virtual_time
async def test_a_name_server_that_names_a_leader_which_leads_no_more_is_not_believed() -> None:
    """It is cut off from the group, so for minutes it hears nothing; and the one it names lives, and follows."""
    async with GroupCluster(seed=22, namesrvs=2) as cluster:
        leader = await begun(cluster)
        for name in cluster.names:
            cluster.simulation.net.cut(cluster.addresses[name], cluster.namesrvs[1].address[0])
        # Whichever name server each of them asks first.
        producers = [Producer("sends", namesrv=cluster.namesrv_addr, instance_name=f"{number}") for number in range(4)]
        got: Counter[bytes] = Counter()
        readers = [
            consumer(cluster, got, instance_name=f"reads {number}", message_model="BROADCASTING") for number in range(4)
        ]
        for one in (*producers, *readers):
            await one.start()
        for producer in producers:
            await producer.send(Message("Topic", b"before"))
        await eventually(lambda: got[b"before"] == 16, 30)
        await _hand_over(cluster, leader)
        await succeeded(cluster, leader)
        for producer in producers:
            await producer.send(Message("Topic", b"after"))
        await eventually(lambda: got[b"after"] == 16, SOON)
        for one in (*producers, *readers):
            await one.shutdown()


@in_virtual_time
async def test_an_administrator_is_not_sent_to_a_leader_that_is_dead() -> None:
    """By a name server that is cut off from the group: each command is the first that its client does."""
    async with GroupCluster(seed=22, namesrvs=2) as cluster:
        leader = await begun(cluster)
        for name in cluster.names:
            cluster.simulation.net.cut(cluster.addresses[name], cluster.namesrvs[1].address[0])
        await cluster.kill(leader)
        await succeeded(cluster, leader)
        heir = f"{cluster.addresses[await cluster.led_by()]}:10911"
        for number in range(4):
            async with AdminClient(namesrv=cluster.namesrv_addr, instance_name=f"{number}") as admin:
                assert not (await admin.topic_stats("Topic")).missing
                assert (await admin.masters("DefaultCluster"))["group"] == heir


@pytest.mark.parametrize("way", ["kill", "hand over"])
@in_virtual_time
async def test_who_follows_a_topic_on_the_command_line_goes_on_with_the_next_leader(way: str) -> None:
    async with GroupCluster(seed=6) as cluster, PullConsumer("tools", namesrv=cluster.namesrv_addr) as reader:
        leader = await begun(cluster)
        found = read(cluster.world, reader, Chosen("Topic", begin=Place(offset=0), follow=True))
        assert [(await anext(found)).body for _ in range(2)] == [b"first"] * 2
        coming = asyncio.ensure_future(anext(found))
        await asyncio.sleep(1)
        if way == "kill":
            await cluster.kill(leader)
        else:
            await _hand_over(cluster, leader)
        await succeeded(cluster, leader)
        await sent(cluster, b"second")
        assert (await asyncio.wait_for(coming, SOON)).body == b"second"
        await found.aclose()


@in_virtual_time
async def test_who_reads_a_topic_on_the_command_line_gets_all_of_it_although_its_leader_dies() -> None:
    async with GroupCluster(seed=6) as cluster, PullConsumer("tools", namesrv=cluster.namesrv_addr) as reader:
        leader = await begun(cluster, 100)
        found = read(cluster.world, reader, Chosen("Topic", begin=Place(offset=0)))
        bodies = [(await anext(found)).body]
        await cluster.kill(leader)
        bodies += [message.body async for message in found]
        assert bodies == [b"first"] * 101


@pytest.mark.parametrize("pops", [False, True])
@in_virtual_time
async def test_who_waits_at_a_leader_that_stands_still_comes_to_the_next_when_the_route_says_so(pops: bool) -> None:
    """Its connections stay, and its answers would be waited for for 30 s."""
    async with GroupCluster(seed=7) as cluster:
        leader = await begun(cluster)
        if pops:
            async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
                await admin.set_message_request_mode(f"{cluster.addresses[leader]}:10911", "Topic", "readers", "POP")
        got: Counter[bytes] = Counter()
        reader = consumer(cluster, got, client_rebalance=not pops, poll_name_server_interval=1)
        await reader.start()
        await eventually(lambda: got[b"first"] == 2, 30)
        for node in cluster.simulation.nodes.values():
            if node.address != cluster.addresses[leader]:
                cluster.simulation.net.cut(node.address, cluster.addresses[leader])
        await succeeded(cluster, leader)
        await sent(cluster, b"second")
        await eventually(lambda: got[b"second"] == 1, SOON)
        cluster.simulation.net.heal()
        await reader.shutdown()
