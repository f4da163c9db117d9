"""A leader of a release before dies, and the others have not heard of a topic, or of its new queues: its log does not
tell. What was acknowledged is consumed. (Leaders of this release: ``tests/fault/test_table_changes.py``.)
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from rmq.aio import AdminClient, Producer
from rmq.client.message import Message, MessageQueue
from tests.support.consumers import bodies_of
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


async def leader_of_the_release_before(cluster: GroupCluster) -> tuple[str, str]:
    """One that puts no change of its tables into the log; its name and address."""
    leader = await cluster.led_by()
    tables = cluster.members[leader].tables
    tables.topics.drafts.journal = tables.groups.drafts.journal = None
    tables.topics.applied = tables.groups.applied = None
    return leader, f"{cluster.addresses[leader]}:10911"


@pytest.mark.parametrize("was_there", [False, True])
def test_messages_of_a_topic_that_nobody_else_has_heard_of_are_consumed(was_there: bool) -> None:
    @in_virtual_time
    async def scene() -> None:
        async with GroupCluster(seed=3) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
            leader, at = await leader_of_the_release_before(cluster)
            if was_there:
                await admin.create_and_update_topic(at, "Orders", read_queue_nums=2, write_queue_nums=2)
                await asyncio.sleep(3)
            await admin.create_and_update_topic(at, "Orders", read_queue_nums=12, write_queue_nums=12)
            sent = set()
            async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
                for queue in (1, 9, 11):
                    body = b"%d" % queue
                    await producer.send(Message("Orders", body), queue=MessageQueue("Orders", "group", queue))
                    sent.add(body)
            await cluster.kill(leader)
            others = [app for name, app in cluster.members.items() if name != leader]
            configs = [app.tables.topics.get("Orders") for app in others]
            assert all(one is None or one.read_queue_nums == 2 for one in configs), "they had heard of it"

            await cluster.led_by()
            async with _consumer(cluster) as got:
                await eventually(lambda: got == sent, 90)

    scene()


def _consumer(cluster: GroupCluster) -> AbstractAsyncContextManager[set[bytes]]:
    return bodies_of("Orders", cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET")


@in_virtual_time
async def test_who_consumes_already_is_given_what_is_in_regained_queues_at_once() -> None:
    """With the settings as they come: 30 s between two looks at the route, and 20 between two rebalances."""
    async with GroupCluster(seed=3) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        leader, at = await leader_of_the_release_before(cluster)
        await admin.create_and_update_topic(at, "Orders", read_queue_nums=2, write_queue_nums=2)
        await asyncio.sleep(3)
        async with _consumer(cluster) as got:
            await asyncio.sleep(1)
            async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
                await admin.create_and_update_topic(at, "Orders", read_queue_nums=12, write_queue_nums=12)
                for queue in (1, 9, 11):
                    await producer.send(Message("Orders", b"%d" % queue), queue=MessageQueue("Orders", "group", queue))
                await cluster.kill(leader)
                assert got == {b"1"}
                await cluster.led_by()
                await eventually(lambda: got == {b"1", b"9", b"11"}, 5)
