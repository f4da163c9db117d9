"""Every public call has an end, and its time is what was said, whoever is silent: name server or broker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from rmq import aio
from rmq.protocol.bodies.acl import PlainAccessConfig
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.errors import RMQError
from rmq.runtime.world import World
from tests.integration.client.test_wrong_types import RIGHT
from tests.support.virtual import in_virtual_time, one_world
from tests.unit.client.test_surface import public

LIMIT = 0.5
#: Those of several requests, one after the other, and those that have a multiple of the time by their nature.
TIMES = {
    "query_message": 2, "consumer_running_info": 4, "consume_message_directly": 10, "clean_expired_consume_queue": 10,
    "clean_unused_topic": 10, "delete_expired_commit_log": 10, "view_message": 2,
}  # fmt: skip
#: They wait as long as something is silent, by what they are; or make no request.
WITHOUT = {"start", "shutdown", "run", "pull_block_if_not_found", "split", "transaction", "on"}
GIVEN: dict[str, Any] = {
    **RIGHT, "account": PlainAccessConfig("abcdefg", "abcdefgh"), "acl_file_full_path": None, "addresses": "1.1.1.1",
    "broker_addrs": [], "broker_id": 1, "configs": [], "destination": "e", "index": 0, "mode": "POP", "name": "n",
    "new_topic": "N", "offset_msg_id": "0" * 32, "pop_share_queue_num": 0, "queue_id": 0, "queue_num": 1, "queues": [],
    "source": "g", "value": "v", "invisible_time": 30.0,
    "values": {"a": "b"}, "access_key": "abcdefg", "namespace": "n",
}  # fmt: skip


class Silent(asyncio.Protocol):
    """Takes what is sent to it, and answers nothing."""


@asynccontextmanager
async def silent(world: World) -> AsyncIterator[str]:
    listening = await world.network.listen(Silent, "127.0.0.1", 0)
    host, port = listening.address
    yield f"{host}:{port}"
    await listening.close()


async def took(call: Any, **given: Any) -> float:
    """Seconds of a call that fails."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with suppress(RMQError):
        made = call(**given)
        if inspect.isawaitable(made):
            await made
    return loop.time() - began


def knows(client: Any, address: str) -> None:
    """Have a client know a route that leads to an address, as it was yesterday."""
    route = TopicRouteData(
        queue_datas=[QueueData("broker-0", perm=6, read_queue_nums=4, write_queue_nums=4)],
        broker_datas=[BrokerData({0: address}, "broker-0", "c")],
    )
    instance = getattr(client, "_instance", None) or client._membership.instance
    instance.routes.take("T", route, own=False)


@pytest.mark.parametrize("whose", ["name server", "broker"])
@pytest.mark.parametrize("kind", ["Producer", "PullConsumer", "LitePullConsumer", "AdminClient", "PushConsumer"])
@in_virtual_time
async def test_calls_end_in_their_time(kind: str, whose: str) -> None:
    world = one_world()
    async with silent(world) as address:
        options: dict[str, Any] = {"namesrv": address, "world": world, "mq_client_api_timeout": LIMIT}
        if kind == "Producer":
            options["send_msg_timeout"] = LIMIT
        client: Any = getattr(aio, kind)(*(() if kind == "AdminClient" else ("g",)), **options)
        if kind == "PushConsumer":
            client.on("T")(lambda message: None)
        async with client:
            for name, method in public(type(client)).items():
                if not inspect.isfunction(method) or name in WITHOUT:
                    continue
                given: dict[str, Any] = {"broker_addr": address, "timeout": LIMIT, "broker_addrs": [address]}
                arguments = list(inspect.signature(method).parameters.values())[1:]
                named = {
                    one.name: {**GIVEN, **given}[one.name]
                    for one in arguments
                    if one.default is one.empty or one.name == "timeout"
                }
                if whose == "broker":
                    knows(client, address)
                spent = await took(getattr(client, name), **named)
                assert spent <= 1.1 * LIMIT * TIMES.get(name, 1), (name, spent)
