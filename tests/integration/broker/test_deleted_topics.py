"""A topic that is deleted is gone for good: over restarts and kills, with all that was on its way to it."""

from __future__ import annotations

import asyncio

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.message import QueryMessageRequest, ViewMessageRequest
from rmq.protocol.headers.offset import UpdateConsumerOffsetRequest
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.testing.simworld import SimOffload
from tests.support.pop_scene import PopScene, pop_scene
from tests.support.store_kit import bodies
from tests.support.virtual import in_virtual_time


async def delete(scene: PopScene, topic: str = "T") -> None:
    answer = await scene.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic))
    assert answer.code == 0, answer.remark


async def found_by_key(scene: PopScene, key: str, topic: str = "T") -> int:
    header = QueryMessageRequest(topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=1 << 50)
    answer = await scene.ask(RequestCode.QUERY_MESSAGE, header)
    return answer.body.count(key.encode()) if answer.code == 0 else 0


async def commit(scene: PopScene, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=0, commit_offset=offset)
    assert (await scene.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def stored(scene: PopScene, topic: str = "T") -> list[str]:
    queue = scene.app.store.queues.get(topic, 0)
    return [] if queue is None else [body.decode() for body in await bodies(scene.app.store, queue)]


async def end_by(scene: PopScene, how: str) -> None:
    await {"restart": scene.restart, "kill": scene.kill, "power cut": scene.power_cut}[how]()


@pytest.mark.parametrize("how", ["restart", "kill", "power cut"])
@in_virtual_time
async def test_a_deleted_topic_does_not_come_back(how: str) -> None:
    async with pop_scene(flushDiskType="SYNC_FLUSH") as scene:
        await scene.topic()
        await scene.send("a", "b", "c", properties="KEYS\x01old-key\x02")
        old = scene.app.store.queues.get("T", 0)
        assert old is not None
        first = int.from_bytes(await scene.app.store.queues.entries_cold(old, 0, 1), "big") >> (12 * 8)
        await commit(scene, 3)
        await asyncio.sleep(20)
        await delete(scene)
        for _ in range(2):
            await end_by(scene, how)
            assert scene.app.topics.get("T") is None
            assert scene.app.store.queues.all("T") == []
        await scene.topic()
        assert scene.app.offsets.of("g", "T") == {}
        await scene.send("new", properties="KEYS\x01new-key\x02")
        for _ in range(2):
            await end_by(scene, how)
            assert await stored(scene) == ["new"]
            assert (await found_by_key(scene, "old-key"), await found_by_key(scene, "new-key")) == (0, 1)
            seen = await scene.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=first))
            assert seen.code != 0


@pytest.mark.parametrize("step", range(14))
@in_virtual_time
async def test_a_kill_in_the_middle_of_a_deletion_leaves_all_of_it_or_nothing(step: int) -> None:
    async with pop_scene(flushDiskType="SYNC_FLUSH") as scene:
        await scene.topic()
        await scene.send("a", "b", "c")
        await commit(scene, 3)
        await asyncio.sleep(20)
        assert isinstance(scene.node.world.offload, SimOffload)
        scene.node.world.offload.delay = 0.01
        asked = asyncio.create_task(delete(scene), name="client deletion")
        await asyncio.sleep(0.0005 + 0.005 * step)
        acknowledged = asked.done()
        await scene.kill()
        asked.cancel()
        if scene.app.topics.get("T") is not None:
            assert not acknowledged
            assert await stored(scene) == ["a", "b", "c"]
            assert scene.app.offsets.of("g", "T") == {0: 3}
            await delete(scene)
        assert scene.app.store.queues.all("T") == []
        await scene.topic()
        await scene.send("new")
        await scene.kill()
        assert await stored(scene) == ["new"]
        assert scene.app.offsets.of("g", "T") == {}


@in_virtual_time
async def test_queues_without_a_topic_that_are_cleaned_do_not_come_back() -> None:
    """Request 316, for what another broker left."""
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a")
        scene.app.topics.delete("T")
        await scene.app.topics.file.saved()
        await scene.restart()
        assert await stored(scene) == ["a"]
        assert (await scene.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        await scene.kill()
        assert scene.app.store.queues.all("T") == []


@in_virtual_time
async def test_a_topic_that_was_never_used_is_deleted_like_any_other() -> None:
    async with pop_scene() as scene:
        await scene.topic()
        await commit(scene, 3)
        await asyncio.sleep(20)
        await delete(scene)
        await scene.kill()
        assert scene.app.topics.get("T") is None
        await scene.topic()
        assert scene.app.offsets.of("g", "T") == {}
