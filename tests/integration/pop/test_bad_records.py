"""One record of POP's that is bad costs itself: what was popped comes back, before and after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from rmq.broker.store.queues.files import BLANK_ENTRY
from rmq.broker.store.queues.pointing import overwrite
from rmq.broker.store.state import Put
from rmq.broker.store.store import Store
from rmq.protocol.names import POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC
from tests.support.faults.sick_disk import Sick
from tests.support.scenes.pop import PopScene, pop_scene
from tests.support.virtual import in_virtual_time

KEY = ["g", "T", 0, 0, 1]
HUGE = (1 << 63) - 1
#: Events that are none, each in place of one that is.
ODD: list[Any] = [
    [],
    [7],
    ["z", "g", "T", 0],
    ["p", *KEY, "soon", [0], "1"],
    ["p", *KEY, 1000, [0], "f" * 40],
    ["p", *KEY, 1000, "0", "1"],
    ["p", *KEY, 1000, [0.5], "1"],
    ["p", *KEY, 1000, [0], "-1"],
    ["p", *KEY, 1000, [0], ""],
    ["p", *KEY, 1e300, [0], "1"],
    ["p", *KEY, 1000, list(range(5000)), "1"],
    ["p", [], {}, 0, 0, 1, 1000, [0], "1"],
    ["p", "g", "T", 1 << 40, 0, 1, 1000, [0], "1"],
    ["n", "g", "T", 0, "9"],
    ["n", "g", "T", 0, -5],
    ["n", "g", "T", 0, True],
    ["n", "g", "T", 0, 1.5],
    ["a", *KEY, 7],
    ["c", *KEY, 0, 1, None],
    ["o", "g", "T", 0, "", [], [], [], [], "0"],
    ["o", "g", "T", 0, "", [0], [1], [1, 2], [0], "0"],
    ["o", "g", "T", 0, None, [0], [1], [1], [0], "0"],
    {"p": 1},
    "p",
]


def write(store: Store, body: bytes) -> None:
    host = bytes(8)
    queue = store.queues.get_or_create(POP_JOURNAL_TOPIC, 0)
    store.append([Put(queue, body, b"", 0, 0, 0, host, host, 0, 0, 0, ())])


async def popped_and_killed(scene: PopScene, *, before: bytes) -> None:
    """One message is out when the broker is killed, with a forged record in front of the journal's own."""
    await scene.topic()
    write(scene.app.store, before)
    await scene.send("a", "b")
    assert [message.body for message in await scene.pop(invisible_time=5_000, max_msg_nums=1)] == ["a"]
    await asyncio.sleep(2)
    await scene.kill()


@pytest.mark.parametrize("event", ODD, ids=lambda event: str(event)[:40])
def test_forged_events_cost_no_start(event: Any, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def check() -> None:
        async with pop_scene() as scene:
            # What stands in the same record does not count, either.
            await popped_and_killed(scene, before=orjson.dumps([["n", "g", "T", 0, 2], event]))
            assert [message.body for message in await scene.pop(invisible_time=60_000)] == ["b"]
            await asyncio.sleep(6)
            assert [message.body for message in await scene.pop()] == ["a"]

    check()
    told = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
    assert len(told) == 1
    assert f"{POP_JOURNAL_TOPIC}-0 at 0" in told[0]


@pytest.mark.parametrize("body", [b"", b"x", b"7", b"null", b'["n"]', b"[" * 3000, b"[%s]" % (b"9" * 5000)])
def test_bodies_that_are_no_events_cost_no_start(body: bytes) -> None:
    @in_virtual_time
    async def check() -> None:
        async with pop_scene() as scene:
            await popped_and_killed(scene, before=body)
            await asyncio.sleep(6)
            assert sorted(message.body for message in await scene.pop()) == ["a", "b"]

    check()


@in_virtual_time
async def test_numbers_of_forged_events_are_bounded() -> None:
    async with pop_scene() as scene:
        events = [
            ["p", "g", "T", 0, 0, HUGE, HUGE, [0, HUGE], "3"],
            ["p", "g", "U", 5, 0, 1, 1, [HUGE], "1"],
            ["n", "other", "T", 0, HUGE],
            ["n", "other", "U", 3, HUGE],
            ["o", "g", "U", 0, "", [HUGE], [HUGE], [HUGE], [HUGE], "0"],
        ]
        await popped_and_killed(scene, before=orjson.dumps(events))
        await asyncio.sleep(6)
        assert sorted(message.body for message in await scene.pop()) == ["a", "b"]
        # A group that was told to go on behind the end gets what comes.
        await scene.send("c")
        assert [message.body for message in await scene.pop(consumer_group="other")] == ["c"]


@pytest.mark.parametrize("entry", [False, True])
def test_a_journal_that_cannot_be_read_everywhere_costs_no_start(entry: bool) -> None:
    @in_virtual_time
    async def check() -> None:
        load = Store.load

        async def load_sick(store: Store) -> Any:
            found = await load(store)
            sick = Sick(store, *(() if entry else (0,)))
            if entry:
                sick.entries(POP_JOURNAL_TOPIC, 0)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "load", load_sick)
            async with pop_scene() as scene:
                await popped_and_killed(scene, before=b"[]")
                assert scene.app.offsets.query(POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC, 0) <= 0
                assert [message.body for message in await scene.pop(invisible_time=60_000)] == ["b"]
                await asyncio.sleep(6)
                assert [message.body for message in await scene.pop()] == ["a"]

    check()


@in_virtual_time
async def test_a_message_that_cannot_be_read_keeps_no_other_from_coming_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pop_scene() as scene:
        await scene.topic()
        places = []
        for body in ("a", "bad", "c"):
            places.append(scene.app.store.log.end)
            await scene.send(body)
        assert len(await scene.pop(invisible_time=1_000)) == 3
        sick = Sick(scene.app.store, places[1])
        await asyncio.sleep(20)
        assert [message.body for message in await scene.pop(invisible_time=600_000)] == ["a", "c"]
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1
        assert "group g, T-0 at 1" in told[0]
        sick.heal()
        await asyncio.sleep(61)
        assert [message.body for message in await scene.pop(invisible_time=600_000)] == ["bad"]


@pytest.mark.parametrize("lost", [0, 1, 2])
@in_virtual_time
async def test_an_orderly_batch_goes_on_without_a_message_that_is_lost(lost: int) -> None:
    """What is damaged has a blank entry from then on: the others of its batch are given again, each once."""
    async with pop_scene() as scene:
        await scene.topic()
        await scene.send("a", "b", "c", "d")
        how = {"order": True, "queue_id": 0, "invisible_time": 5_000, "max_msg_nums": 3}
        assert [message.body for message in await scene.pop(**how)] == ["a", "b", "c"]
        queues = scene.app.store.queues
        queue = queues.get("T", 0)
        assert queue is not None
        await overwrite(queues, scene.app.world.offload, queue, lost, BLANK_ENTRY)
        await asyncio.sleep(5.1)
        again = await scene.pop(**how)
        assert [message.body for message in again] == [body for at, body in enumerate("abc") if at != lost]
        for message in again:
            assert await scene.ack(message) == 0
        assert [message.body for message in await scene.pop(**how)] == ["d"]
