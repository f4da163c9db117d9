"""Messages that a power cut took along after they were consumed: the next ones reach the group; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.offset import (
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time


async def commit(scene: PopScene, queue_id: int, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=queue_id, commit_offset=offset)
    assert (await scene.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def committed(scene: PopScene, queue_id: int) -> int | None:
    header = QueryConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=queue_id)
    answer = await scene.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return answer.header(QueryConsumerOffsetResponse).offset


@in_virtual_time
async def test_after_a_power_cut_the_next_messages_reach_the_group(caplog: pytest.LogCaptureFixture) -> None:
    async with pop_scene(flushIntervalCommitLog="60000") as scene:
        await scene.topic(queues=3)
        await scene.send(*(f"old {n}" for n in range(10)))
        await scene.send("old", queue_id=2)
        await commit(scene, 2, 1)
        scene.app.store.flusher.request()
        await asyncio.sleep(1)
        # Consumed and noted in the file, while the messages are in the page cache alone.
        await scene.send(*(f"lost {n}" for n in range(5)))
        await scene.send("lost", queue_id=1)
        await commit(scene, 0, 15)
        await commit(scene, 1, 1)
        await scene.app.metadata.persist_offsets()
        await scene.power_cut()
        # No offset is used twice: the queues go on behind what the group has consumed.
        assert [await committed(scene, queue_id) for queue_id in range(3)] == [15, 1, 1]
        assert "groups have consumed behind the end of 2 queues (T-0, T-1): 6 messages or more" in caplog.text
        await scene.send(*(f"new {n}" for n in range(5)))
        await scene.send("new", queue_id=1)
        assert sorted(one.body for one in await scene.pop()) == ["new", *(f"new {n}" for n in range(5))]
        caplog.clear()
        await scene.kill()
        assert "groups have consumed" not in caplog.text, "told once"


@in_virtual_time
async def test_an_offset_behind_the_end_of_a_queue_comes_back_at_any_start(caplog: pytest.LogCaptureFixture) -> None:
    """A store that was put back from an older copy, with the offsets of today. A topic without messages lost none."""
    async with pop_scene() as scene:
        await scene.topic(queues=2)
        await scene.send("one", "two")
        await commit(scene, 0, 7)
        await commit(scene, 1, 7)
        await scene.restart()
        assert [await committed(scene, queue_id) for queue_id in range(2)] == [2, 7]
        assert "g comes back to the end of T: queue 0 from 7 to 2" in caplog.text
