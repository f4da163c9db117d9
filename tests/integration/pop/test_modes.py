"""QUERY_ASSIGNMENT and the request modes, over a real cluster in virtual time."""

from __future__ import annotations

import json
from collections.abc import Collection

from rmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rmq.protocol.bodies.pop import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.cluster import Cluster
from tests.support.scenes.client import Scene, scene
from tests.support.virtual import eventually, in_virtual_time


async def query(
    client: RemotingClient, addr: str, client_id: str, topic: str = "T", model: str = "CLUSTERING", by: str = "AVG"
) -> tuple[int, set[tuple[str, int]]]:
    """The mode's code and the (mode, queue id) of each queue of the member."""
    body = QueryAssignmentRequestBody(
        client_id=client_id, consumer_group="g", message_model=model, strategy_name=by, topic=topic
    )
    answer = await client.request(addr, Command.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode()))
    if answer.code:
        return answer.code, set()
    found = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
    return 0, {(one.mode or "", one.message_queue.queue_id) for one in found if one.message_queue is not None}


async def set_mode(client: RemotingClient, addr: str, mode: str, topic: str = "T", share: int = -1) -> int:
    body = SetMessageRequestModeRequestBody(consumer_group="g", mode=mode, pop_share_queue_num=share, topic=topic)
    return (await client.request(addr, Command.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode()))).code


async def beat(client: RemotingClient, addr: str, client_id: str, topics: Collection[str] = ("T",)) -> None:
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[
            ConsumerData(
                group_name="g", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=[SubscriptionData(topic, "*") for topic in topics],
            )
        ],
    )  # fmt: skip
    answer = await client.request(addr, Command.request(RequestCode.HEART_BEAT, body=data.encode()))
    assert answer.code == 0


@in_virtual_time
async def test_assignment_by_mode() -> None:
    async with scene() as made:
        await assignments(made, made.cluster)


async def assignments(made: Scene, cluster: Cluster) -> None:
    addr = cluster.broker_addr
    clients = [RemotingClient(cluster.world) for _ in range(2)]
    one, two = clients
    assert await query(one, addr, "c1") == (0, set()), "nobody knows the group"
    await beat(one, addr, "c1")
    await beat(two, addr, "c2")
    assert await query(one, addr, "c1") == (0, {("PULL", 0), ("PULL", 1)})
    assert await query(two, addr, "c2", by="AVG_BY_CIRCLE") == (0, {("PULL", 1), ("PULL", 3)})
    assert (await query(two, addr, "c2", by="CONFIG"))[0] == 29
    assert await query(two, addr, "c2", model="BROADCASTING") == (0, {("PULL", i) for i in range(4)})
    assert await set_mode(one, addr, "POP") == 0
    assert await query(one, addr, "c1") == (0, {("POP", -1)})
    assert await query(two, addr, "c2", model="BROADCASTING") == (0, {("PULL", i) for i in range(4)})
    await eventually(lambda: "%RETRY%g" in cluster.brokers[0].topics)
    assert await query(one, addr, "c1", topic="%RETRY%g") == (0, {("PULL", 0)})
    assert await set_mode(one, addr, "POP", topic="%RETRY%g") == 16
    assert await query(one, addr, "c1", topic="nowhere") == (0, set())
    table = await one.request(addr, Command.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
    entry = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": -1, "topic": "T"}
    assert json.loads(table.body) == {"messageRequestModeMap": {"T": {"g": entry}}}
    path = cluster.brokers[0].settings.config_path("messageRequestMode.json")
    assert json.loads(cluster.world.files.read(path)) == {"messageRequestModeMap": {"T": {"g": entry}}}
    for client in clients:
        await client.close()


@in_virtual_time
async def test_modes_come_back() -> None:
    async with scene() as made:
        cluster = made.cluster
        client = RemotingClient(cluster.world)
        assert await set_mode(client, cluster.broker_addr, "POP", share=2) == 0
        await client.close()
        await cluster.stop_broker(cluster.brokers[0])
        app = await cluster.start_broker(0)
        mode = app.modes.get("T", "g")
        assert (mode.mode, mode.pop_share_queue_num) == ("POP", 2)
        assert app.modes.get("T", "other").mode == "PULL"
