"""What mqadmin does with groups: moves offsets, deletes, and says which members disagree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmq.aio import AdminClient, ClientError, Message, MessageExt, MessageQueue, Producer, PushConsumer
from rmq.testing.cluster import Cluster
from tests.integration.cli.test_mqadmin import Admin
from tests.support.daemons import PATIENCE

FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Admin:
    made = Admin(cluster, capsys)
    await made.run("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "4")
    async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
        for number in range(40):
            await producer.send(Message("T", f"{number}"), queue=MessageQueue("T", "broker-0", number % 4))
    return made


def member(cluster: Cluster, topic: str = "T", expression: str = "*", **how: object) -> tuple[PushConsumer, list[str]]:
    consumer = PushConsumer("g", namesrv=cluster.namesrv_addr, consume_from_where=FIRST, **how)  # type: ignore[arg-type]
    got: list[str] = []

    @consumer.on(topic, expression)
    async def take(message: MessageExt) -> None:
        got.append(f"{message.queue_id}:{message.queue_offset}")

    return consumer, got


async def consume(cluster: Cluster, count: int) -> list[str]:
    """What a member gets until there are ``count``; its offsets are stored when it has left."""
    consumer, got = member(cluster)
    async with consumer, asyncio.timeout(PATIENCE):
        while len(got) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return got


async def stored(admin: Admin) -> dict[int, int]:
    progress = await admin.json("consumerProgress", "-g", "g")
    return {row["queueId"]: row["consumerOffset"] for row in progress["queues"] if row["topic"] == "T"}


async def test_b020_one_queue_goes_to_an_offset(admin: Admin) -> None:
    await consume(admin.cluster, 40)
    reset = ("resetOffsetByTime", "-g", "g", "-t", "T", "-b", "broker-0")
    (row,) = await admin.json(*reset, "-q", "2", "-o", "4")
    assert row == {"topic": "T", "brokerName": "broker-0", "queueId": 2, "oldOffset": 10, "offset": 4, "clients": 0}
    for bad in ("11", "-5"):
        said = await admin.run(*reset, "-q", "1", "-o", bad, code=1)
        assert f"queue 1 of T on broker-0 has offsets 0 to 10: g cannot be reset to {bad}" in said
    for broker, bad in (("broker-0", "4"), ("broker-9", "0")):
        said = await admin.run(*reset[:-1], broker, "-q", bad, "-o", "0", code=3)
        assert f"the topic T has no queue {bad} on {broker} (queues: 4 on broker-0)" in said
    assert await stored(admin) == {0: 10, 1: 10, 2: 4, 3: 10}
    again = await consume(admin.cluster, 6)
    assert sorted(again) == [f"2:{offset}" for offset in range(4, 10)]
    assert "give a time with -s, or one queue with -b, -q and -o" in await admin.run(*reset, "-q", "1", code=2)


async def test_b018_it_is_said_what_was_done_with_each_queue(admin: Admin) -> None:
    """Field case B015, too: nothing is left behind a reset to now."""
    await consume(admin.cluster, 40)
    reset = ("resetOffsetByTime", "-g", "g", "-t", "T", "-s")
    lines = (await admin.run(*reset, "0")).splitlines()
    assert lines[0].startswith("rollback consumer offset by specified consumerGroup[g], topic[T], force[true], ")
    assert lines[1].split()[2:] == ["#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset"]
    assert [line.split() for line in lines[2:]] == [
        ["broker-0", str(queue), "10", "10", "0", "0"] for queue in range(4)
    ]
    assert await stored(admin) == dict.fromkeys(range(4), 0)
    # Not forward unless it is forced.
    await admin.run(*reset, "now", "-f", "false")
    assert await stored(admin) == dict.fromkeys(range(4), 0)
    assert {row["offset"] for row in await admin.json(*reset, "now")} == {10}
    assert await stored(admin) == dict.fromkeys(range(4), 10)
    consumer, got = member(admin.cluster)
    async with consumer:
        async with asyncio.timeout(PATIENCE):
            while sum(queue.topic == "T" for queue in consumer.assignment) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert {row["clients"] for row in await admin.json(*reset, "2020-01-01#00:00:00:000")} == {1}
        async with asyncio.timeout(PATIENCE):
            while len(got) < 40:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert await stored(admin) == dict.fromkeys(range(4), 10)
    assert "the group x has no offset on T" in await admin.run(
        "resetOffsetByTime", "-g", "x", *reset[3:], "now", code=3
    )
    assert "soon: now, milliseconds" in await admin.run(*reset, "soon", code=2)


async def test_b023_a_group_is_not_deleted_while_members_are_online(admin: Admin) -> None:
    await consume(admin.cluster, 40)
    delete = ("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", "true")
    consumer, _ = member(admin.cluster)
    async with consumer:
        said = await admin.run(*delete, code=1)
        assert "the group g has 1 member online" in said
        assert consumer.client_id in said
        assert await stored(admin) == dict.fromkeys(range(4), 10)
        assert "success" in await admin.run(*delete, "--force")
    await admin.run("updateSubGroup", "-c", "DefaultCluster", "-g", "g")
    kept = "its offsets stay: a new group g goes on where this one stood"
    said = await admin.run("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", said=kept)
    where = f"from broker [{admin.cluster.broker_addr}] in cluster [DefaultCluster] success."
    assert said.splitlines() == [
        f"delete subscription group [g] {where}",
        *(
            f"delete topic [{kind}g] from {place} success."
            for kind in ("%RETRY%", "%DLQ%")
            for place in ("cluster [DefaultCluster]", "NameServer")
        ),
    ]
    nothing = await admin.run("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", code=3)
    assert "has no group g: nothing was deleted" in nothing
    await admin.run(*delete, said="has no group g: offsets that it left were deleted, if there were any")
    async with AdminClient(namesrv=admin.cluster.namesrv_addr) as client:
        assert "g" not in (await client.subscription_groups(admin.cluster.broker_addr)).subscription_group_table
        assert "g" not in await client.query_topic_consume_by_who("T")


async def test_b032_members_that_disagree_are_named(admin: Admin) -> None:
    async with AsyncExitStack() as members:
        first, _ = member(admin.cluster, expression="A", instance_name="first")
        await members.enter_async_context(first)
        alike, _ = member(admin.cluster, expression="A", instance_name="alike")
        await members.enter_async_context(alike)
        assert await admin.run("consumerStatus", "-g", "g")
        rows = (await admin.json("consumerStatus", "-g", "g"))["members"]
        assert {row["clientId"] for row in rows} == {first.client_id, alike.client_id}
        assert [row["subscription"] for row in rows] == [{"T": "A"}, {"T": "A"}]
        shown = await admin.run("consumerStatus", "-g", "g", "-i", first.client_id, "-s")
        assert "PROP_CONSUME_TYPE" in shown
        assert "THREAD" in shown
        assert alike.client_id not in shown
        with pytest.raises(ClientError, match="another member"):
            await member(admin.cluster, expression="B")[0].start()
        other, _ = member(admin.cluster, expression="B", instance_name="other", allow_mixed_subscriptions=True)
        await members.enter_async_context(other)
        said = await admin.run("consumerStatus", "-g", "g", code=1)
        alike_ids = ", ".join(sorted((first.client_id, alike.client_id)))
        assert f"T: A by {alike_ids}; B by {other.client_id}" in said
    # Nobody there is a state, not an error (field case B119); a member that is asked for is missed.
    assert await admin.run("consumerStatus", "-g", "g") == "g: offline\n"
    assert await admin.json("consumerStatus", "-g", "g") == {
        "group": "g",
        "members": [],
        "differences": [],
        "state": "offline",
    }
    await admin.run("updateSubGroup", "-c", "DefaultCluster", "-g", "unused")
    assert await admin.run("consumerStatus", "-g", "unused") == "unused: never connected\n"
    assert "no broker knows the group unheard-of" in await admin.run("consumerStatus", "-g", "unheard-of", code=3)
    said = await admin.run("consumerStatus", "-g", "g", "-i", "1.2.3.4@gone", code=3)
    assert "the group g has no member 1.2.3.4@gone that is online" in said
