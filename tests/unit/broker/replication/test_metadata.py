"""What a slave takes over from its master, and when (store-and-broker.md 6.6)."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from rmq.broker.replication import judged, metadata
from rmq.broker.store.state import Queue
from rmq.protocol import fastjson
from rmq.protocol.bodies.pop import SetMessageRequestModeRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull, send
from tests.support.scenes.pair import ROUND, Pair, pair, rounds
from tests.support.virtual import in_virtual_time


@in_virtual_time
async def test_tables_follow_the_master_and_outlive_a_restart() -> None:
    async with pair() as scene:
        await scene.topic("T", 3)
        await scene.send("T", "a", "b", "c")
        await scene.send("%RETRY%g", "r")
        scene.master.groups.find("g")
        await scene.commit("master", "g", "T", 2)
        mode = SetMessageRequestModeRequestBody(topic="T", consumer_group="g", mode="POP", pop_share_queue_num=2)
        await scene.ask("master", Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode()))
        late = await scene.ask("master", send("T", b"late", props="DELAY\x011\x02"))
        assert late.code == 0
        await asyncio.sleep(5)
        await rounds(scene)
        for _ in range(2):
            config = scene.slave.topics.get("T")
            assert config is not None
            assert config.read_queue_nums == 3
            assert scene.slave.topics.data_version == scene.master.topics.data_version
            assert scene.slave.groups.get("g") is not None
            assert scene.offset() == 2
            assert scene.slave.modes.get("T", "g").mode == "POP"
            written = scene.nodes["slave"].files.read("/store/config/delayOffset.json")
            assert fastjson.loads(written) == {"offsetTable": {1: 1}}
            await scene.slave.stop()
            await scene.master.stop()
            await scene.start_slave()
            await scene.start_master()


@in_virtual_time
async def test_what_has_not_changed_is_not_made_anew() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await asyncio.sleep(ROUND)
        before = scene.slave.topics.get("T"), scene.slave.groups.get("TOOLS_CONSUMER")
        await scene.topic("U")
        scene.master.groups.find("g")
        await asyncio.sleep(ROUND)
        assert "U" in scene.slave.topics
        assert scene.slave.groups.get("g") is not None
        after = scene.slave.topics.get("T"), scene.slave.groups.get("TOOLS_CONSUMER")
        assert all(one is other and one is not None for one, other in zip(before, after, strict=True))


@in_virtual_time
async def test_progress_waits_for_queues_that_trail_the_log() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        store = scene.slave.store
        async with store._catch_up.lock:
            for body in (b"b", b"c"):
                assert (await scene.ask("master", send("T", body))).code == 0
            await scene.commit("master", "g", "T", 3)
            await asyncio.sleep(3 * ROUND)
            assert store.log.end == scene.master.store.log.end
            assert scene.offset() == -1
        await rounds(scene)
        assert scene.offset() == 3


@in_virtual_time
async def test_progress_waits_until_the_log_has_arrived_that_it_speaks_of() -> None:
    async with pair() as scene:
        await asyncio.sleep(1)
        await scene.unfollow()
        await scene.topic("T")
        await scene.send("T", "a", "b")
        await scene.commit("master", "g", "T", 2)
        await scene.ask("master", send("T", b"late", props="DELAY\x011\x02"))
        await asyncio.sleep(3 * ROUND)
        assert scene.slave.topics.get("T") is not None, "a table waits for no log"
        assert (scene.offset(), scene.delays()) == (-1, {})
        await scene.copy_by_hand()
        await asyncio.sleep(ROUND)
        assert (scene.offset(), scene.delays()) == (2, {1: 1})


@in_virtual_time
async def test_offsets_go_back_only_where_the_masters_own_did() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", *"abcdefghij")
        await scene.commit("master", "g", "T", 5)
        await rounds(scene)
        # A group went on here while its master was away, and it does not know.
        await scene.commit("slave", "g", "T", 8)
        await rounds(scene)
        assert scene.offset() == 8
        await scene.commit("master", "g", "T", 6)
        await rounds(scene)
        assert scene.offset() == 8
        # A reset is the master's own word.
        await scene.commit("master", "g", "T", 1)
        await rounds(scene)
        assert scene.offset() == 1
        await scene.commit("master", "g", "T", 9)
        await rounds(scene)
        assert scene.offset() == 9
        # A master that was killed has forgotten.
        await scene.master.stop()
        await scene.start_master()
        scene.master.offsets.load({"T@g": {0: 4}})
        await rounds(scene)
        await rounds(scene)
        assert scene.offset() == 9


@in_virtual_time
async def test_what_the_master_deletes_goes_here_and_what_it_never_had_is_only_hidden() -> None:
    async with pair() as scene:
        for topic in ("T", "U"):
            await scene.topic(topic)
            await scene.send(topic, "old")
            await scene.commit("master", "g", topic, 1)
        await rounds(scene)
        await scene.delete_topic("T")
        await rounds(scene)
        assert scene.slave.topics.get("T") is None
        assert (scene.slave.store.queues.all("T"), scene.offset()) == ([], -1)
        await scene.topic("T")
        await scene.send("T", "new")
        await rounds(scene)
        found = await scene.ask("slave", pull("g", "T"))
        assert [record.body for record in decode_records(found.body)] == [b"new"]
        # It is deleted while nobody is told: perhaps it never was.
        await scene.slave.stop()
        await scene.delete_topic("U")
        await scene.master.stop()
        await scene.start_master()
        await scene.start_slave()
        await rounds(scene)
        assert scene.slave.topics.get("U") is None
        assert [queue.next for queue in scene.slave.store.queues.all("U")] == [1]
        assert scene.offset(topic="U") == 1
        await scene.topic("U")
        await rounds(scene)
        assert (await scene.ask("slave", pull("g", "U"))).code == 0


@in_virtual_time
async def test_a_topic_made_anew_since_the_master_was_asked_stays_whatever_else_is_taken_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judged, "_SLICE", 1)  # the loop gets its turn within the table
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "old")
        await rounds(scene)
        assert scene.slave.roles.slave is not None
        sync = scene.slave.roles.slave.metadata
        conn = sync._plain[0].conn
        await scene.delete_topic("T")
        without, end = scene.master.topics.answer(), scene.slave.store.log.end
        await scene.topic("T", 2)
        await scene.ask("master", send("T", b"new", queue=1))
        await scene.commit("master", "g", "T", 0)
        await asyncio.sleep(0.1)
        assert scene.slave.store.log.end > end
        taken = asyncio.create_task(sync._take(sync._plain[0], without, conn, end))
        await asyncio.sleep(0)
        await sync._take(sync._progress[0], await scene.master.offsets.encode(), conn, scene.slave.store.log.end)
        await taken
        await rounds(scene)
        found = await scene.ask("slave", pull("g", "T", queue=1))
        assert [record.body for record in decode_records(found.body)] == [b"new"]


@in_virtual_time
async def test_a_message_of_a_topic_made_anew_is_not_thrown_away_with_the_old_ones() -> None:
    """Its queue offset is one that the old topic had: it waits until a further one tells that the queue begins anew."""
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "old", "older")
        await rounds(scene)
        assert scene.slave.roles.slave is not None
        sync = scene.slave.roles.slave.metadata
        table = sync._plain[0]
        await scene.delete_topic("T")
        without, end = scene.master.topics.answer(), scene.slave.store.log.end
        await scene.topic("T")
        await scene.send("T", "new")
        await asyncio.sleep(0.1)
        await sync._take(table, without, table.conn, end)
        await scene.send("T", "newer")
        await rounds(scene)
        found = await scene.ask("slave", pull("g", "T"))
        assert [record.body for record in decode_records(found.body)] == [b"new", b"newer"]


@in_virtual_time
async def test_a_master_that_is_away_is_said_once_and_nothing_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as scene:
        await scene.topic("T")
        await rounds(scene)
        await scene.master.stop()
        scene.master = None  # type: ignore[assignment]
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(45)
        told = [record.message for record in caplog.records if "no name server knows a master" in record.message]
        assert len(told) == 1
        assert scene.slave._missing() is None
        assert scene.slave.topics.get("T") is not None


def test_the_rhythm_is_javas() -> None:
    assert (metadata._FIRST, metadata._PERIOD) == (3.0, 10.0)


def early_rounds(scene: Pair, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the slave asks its master for tables although it is not time, from now on."""
    slave = scene.slave.roles.slave
    assert slave is not None
    asked: list[float] = []
    ask = slave.metadata._round_of_tables

    async def seen() -> None:
        asked.append(asyncio.get_running_loop().time())
        await ask()

    monkeypatch.setattr(slave.metadata, "_round_of_tables", seen)
    return asked


@in_virtual_time
async def test_a_topic_or_a_queue_is_known_as_soon_as_its_first_message_is_here() -> None:
    async with pair() as scene:
        await rounds(scene)
        await scene.topic("New", 2)
        await scene.send("New", "a")
        await scene.replicated()
        await asyncio.sleep(0.1)
        assert (await scene.ask("slave", pull("g", "New", 0))).code == 0
        await asyncio.sleep(1.5)
        await scene.topic("New", 5)
        assert (await scene.ask("master", send("New", b"b", queue=4))).code == 0
        await scene.replicated()
        await asyncio.sleep(0.1)
        assert (await scene.ask("slave", pull("g", "New", 0, queue=4))).code == 0


@in_virtual_time
async def test_new_topics_are_asked_for_once_a_moment() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with pair() as scene:
            await rounds(scene)
            asked = early_rounds(scene, monkeypatch)
            for number in range(30):
                await scene.topic(f"New{number}")
                await scene.send(f"New{number}", "a")
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.1)
            assert all(f"New{number}" in scene.slave.topics for number in range(30))
            assert 2 <= len(asked) <= 5
            assert all(after - before >= 1 for before, after in itertools.pairwise(asked))


@in_virtual_time
async def test_topics_that_the_master_has_not_either_are_asked_for_once() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(metadata, "_MOST_IN_VAIN", 2)
        async with pair() as scene:
            await rounds(scene)
            asked = early_rounds(scene, monkeypatch)
            slave = scene.slave.roles.slave
            assert slave is not None

            async def arrived(*names: str, queue: int = 0) -> int:
                """How often the slave asks when it gets messages of topics that its master has not."""
                before = len(asked)
                for name in names:
                    slave.metadata.arrived([Queue(name, queue)])
                    slave.metadata.arrived([Queue(name, queue)])
                await asyncio.sleep(1.1)
                return len(asked) - before

            assert await arrived("A", "B", "rmq_sys_one", "%LMQ%one", "SCHEDULE_TOPIC_XXXX") == 1
            assert await arrived("A", "B", "rmq_sys_one", "%LMQ%one", "SCHEDULE_TOPIC_XXXX") == 0, "each was asked for"
            assert await arrived("B", queue=1) == 1, "not with so many queues"
            assert await arrived("C") == 1
            assert await arrived("B", "C") == 0
            assert await arrived("A") == 1, "no more than two are remembered"
            await scene.topic("Other")
            await slave.metadata.round(slave.metadata._plain)
            assert await arrived("C") == 1, "the master has another table"
            await scene.master.stop()
            assert await arrived("D") == 1
            assert await arrived("D") == 1, "nobody has answered"
