"""A topic that is deleted is gone for good: over restarts and kills, with all that was on its way to it."""

from __future__ import annotations

import asyncio

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.message import QueryMessageRequest, ViewMessageRequest
from rmq.protocol.headers.offset import UpdateConsumerOffsetRequest
from rmq.protocol.headers.topic import DeleteTopicRequest
from rmq.protocol.headers.transaction import EndTransactionRequest
from rmq.testing.simworld import SimOffload
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.scenes.store import bodies
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


#: What a message is sent with that waits, and for how many seconds at most.
WAITS = {"level": "DELAY\x013\x02", "time": "TIMER_DELAY_SEC\x0110\x02", "half": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"}


async def end_half(scene: PopScene, index: int, position: int, verdict: int = 8) -> int:
    header = EndTransactionRequest(
        producer_group="pg", tran_state_table_offset=index, commit_log_offset=position, commit_or_rollback=verdict
    )  # fmt: skip
    return (await scene.ask(RequestCode.END_TRANSACTION, header)).code


async def last_half(scene: PopScene) -> tuple[int, int]:
    """Queue index and commit-log offset of the newest half message."""
    queue = scene.app.store.queues.get("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert queue is not None
    entry = await scene.app.store.queues.entries_cold(queue, queue.next - 1, 1)
    return queue.next - 1, int.from_bytes(entry[:8], "big")


@pytest.mark.parametrize("how", ["none", "kill"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("waits", WAITS)
@in_virtual_time
async def test_what_waits_for_a_deleted_topic_is_dropped_when_it_is_due(
    caplog: pytest.LogCaptureFixture, waits: str, again: bool, how: str
) -> None:
    """Told once for all of it; what was sent to a topic of the same name later is delivered."""
    async with pop_scene(flushDiskType="SYNC_FLUSH") as scene:
        await scene.topic()
        halves = []
        for body in "abc":
            await scene.send(body, properties=WAITS[waits])
            halves += [await last_half(scene)] if waits == "half" else []
        await delete(scene)
        if again:
            await scene.topic()
            await scene.send("new", properties=WAITS[waits])
            halves += [await last_half(scene)] if waits == "half" else []
        if how == "kill":
            await scene.kill()
        caplog.clear()
        for half in halves:
            assert await end_half(scene, *half) == 0
        await asyncio.sleep(30)
        assert await stored(scene) == (["new"] if again else [])
        assert (scene.app.store.queues.get("T", 0) is None) != again
        told = [record.message for record in caplog.records if "are dropped" in record.message]
        assert told == ["messages that have waited for topic T are dropped: it was deleted meanwhile"]
        assert scene.app.roles.master.check.open_halves == 0


@in_virtual_time
async def test_nobody_is_asked_about_half_messages_of_a_deleted_topic() -> None:
    async with pop_scene(transactionTimeOut="1000", transactionCheckInterval="1000") as scene:
        await scene.topic()
        await scene.send("a", properties=WAITS["half"])
        await delete(scene)
        assert scene.app.roles.master.check.open_halves == 1
        await asyncio.sleep(5)
        assert scene.app.roles.master.check.open_halves == 0
        assert "TRANS_CHECK_MAX_TIME_TOPIC" not in scene.app.store.queues.topics()


@in_virtual_time
async def test_queues_without_topic_and_messages_go_with_retention() -> None:
    """Those that another broker left; a topic that exists keeps its numbering."""
    async with pop_scene(fileReservedTime="1", mappedFileSizeCommitLog=str(64 << 10)) as scene:
        for topic in ("T", "Kept", "Filler"):
            await scene.topic(topic)
            await scene.send("a", topic=topic)
        scene.app.topics.delete("T")
        await commit(scene, 1)
        for _ in range(40):
            await scene.send("x" * 4000, topic="Filler")
        await asyncio.sleep(3700)
        assert scene.app.store.queues.all("T") != []
        scene.app.store.retention.trigger()
        await asyncio.sleep(60)
        assert scene.app.store.queues.all("T") == []
        assert scene.app.offsets.of("g", "T") == {}
        kept = scene.app.store.queues.get("Kept", 0)
        assert kept is not None
        assert (kept.min, kept.next) == (1, 1)


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
