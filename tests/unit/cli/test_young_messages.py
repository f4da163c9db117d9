"""A message that was sent just now, and is not in the index yet, is looked for again; an old one is not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rmq.cli.explain import facts
from rmq.cli.mqadmin import messages
from rmq.client.admin import AdminClient
from rmq.client.message import MessageExt
from rmq.client.results import QueryResult
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.errors import NotFound
from rmq.protocol.ids import UniqueIds
from rmq.runtime.world import World
from tests.support.virtual import in_virtual_time, one_world


class Behind:
    """An admin client whose brokers have indexed what they keep so many looks later."""

    def __init__(self, world: World, topic: str, msg_id: str, after: int) -> None:
        self.world = world
        self._topic, self._id, self._after = topic, msg_id, after
        self.looks = 0

    async def cluster_info(self) -> ClusterInfo:
        self.looks += 1
        return ClusterInfo({}, {})

    async def query_message(self, topic: str, key: str, most: int) -> QueryResult:
        if topic != self._topic or self.looks <= self._after:
            return QueryResult(0, [], f"no message of {topic}")
        found = MessageExt()
        found.topic, found.store_timestamp, found.broker_name = topic, 1, "b"
        found.properties = {"UNIQ_KEY": self._id, "REAL_TOPIC": "T", "DELAY": "1"}
        other = MessageExt()  # brokers compare hashes
        other.properties = {"UNIQ_KEY": "another"}
        return QueryResult(0, [other, found][-most:] if most > 1 else [other], "")


def behind(topic: str, after: int, age_ms: int = 0) -> tuple[AdminClient, Behind, str]:
    world = one_world()
    now = world.clock.now_ms() - age_ms
    msg_id = UniqueIds(bytes(4), 1, 1, now).next(now)
    made = Behind(world, topic, msg_id, after)
    return cast(Any, made), made, msg_id


@in_virtual_time
async def test_what_is_not_indexed_yet_is_looked_for_again() -> None:
    for age in (-2_000, 0, 5_000):
        admin, made, msg_id = behind("T", 3, age)
        assert (await messages.find_message(admin, msg_id, "T")).msg_id == msg_id
        assert made.looks == 4


@in_virtual_time
async def test_what_waits_for_its_time_is_explained_before_it_is_indexed() -> None:
    admin, _, msg_id = behind("SCHEDULE_TOPIC_XXXX", 2)
    assert (await facts.found(admin, msg_id, "T")).topic == "SCHEDULE_TOPIC_XXXX"


@in_virtual_time
async def test_what_is_not_there_is_said_within_a_second_and_of_an_old_id_at_once() -> None:
    for age, looks in ((0, 6), (60_000, 1)):
        admin, made, msg_id = behind("none", 0, age)
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotFound):
            await messages.find_message(admin, msg_id, "T")
        assert (made.looks, asyncio.get_running_loop().time() - began < 1) == (looks, True)
