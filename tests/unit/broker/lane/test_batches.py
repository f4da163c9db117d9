"""Batches in the lane: stored together, answered once, and the long ones between other work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.lane import batches
from rmq.protocol import batch
from rmq.protocol.command import Command
from tests.support.raw_peer import send
from tests.support.scenes.front import FrontScene, in_front

WIDE = {"maxMessageSize": str(4 << 20), "mappedFileSizeCommitLog": str(8 << 20)}


def batched(*bodies: bytes, topic: str = "T", props: str = "", member: str = "k") -> Command:
    command = send(topic, batch.encode((0, body, {member: "v"}) for body in bodies), props=props)
    assert command.ext is not None
    command.ext["m"] = "true"
    return command


def long(count: int = 2000, **options: Any) -> Command:
    return batched(*[b"%d" % number for number in range(count)], **options)


def ids(answer: Command) -> int:
    return len(((answer.ext or {}).get("msgId") or "").split(","))


@in_front()
async def test_a_batch_is_stored_behind_what_came_before_it_and_answered_once(scene: FrontScene) -> None:
    before, answer, after = scene.ask(send(body=b"a"), batched(b"b", b"c"), send(body=b"d"))
    assert [(one.opaque, one.code) for one in (before, answer, after)] == [(1, 0), (2, 0), (3, 0)]
    assert (ids(answer), (answer.ext or {})["queueOffset"]) == (2, "1")
    assert await scene.stored() == [b"a", b"b", b"c", b"d"]


@in_front()
async def test_a_oneway_batch_is_stored_and_not_answered(scene: FrontScene) -> None:
    assert scene.ask(batched(b"a", b"b").mark_oneway()) == []
    assert await scene.stored() == [b"a", b"b"]


@in_front()
async def test_a_batch_that_fits_in_no_file_is_refused_whole(scene: FrontScene) -> None:
    scene.settings.max_message_size = 65536
    answers = scene.ask(send(body=b"a"), batched(*[bytes(900)] * 18), send(body=b"b"))
    assert {one.opaque: one.code for one in answers} == {1: 0, 2: 13, 3: 0}
    assert await scene.stored() == [b"a", b"b"]


@in_front(flushDiskType="SYNC_FLUSH")
async def test_a_batch_waits_for_the_flush_unless_it_need_not(scene: FrontScene) -> None:
    line = scene.line()
    line.came(batched(b"a", b"b"), batched(b"c", props="WAIT\x01false"))
    scene.tick(line)
    assert line.codes() == {2: 0}
    await asyncio.sleep(1)
    assert (line.codes(), line.owed_bytes, scene.front.pressure.held) == ({1: 0}, 0, 0)


@in_front(**WIDE)
async def test_others_are_served_between_the_slices_of_a_long_batch(scene: FrontScene) -> None:
    line, beside = scene.line(), scene.line()
    command = long()
    line.came(command)
    scene.tick(line)
    assert (line.answers(), scene.front.pressure.held) == ([], 1)
    assert line.owed_bytes > len(command.body)
    turns = 0
    while not line.sent:
        beside.came(send("T", b"between"))
        scene.tick(beside)
        assert beside.codes() == {1: 0}
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2
    (answer,) = line.answers()
    assert (answer.code, ids(answer)) == (0, 2000)
    assert (line.owed_bytes, scene.front.pressure.held) == (0, 0)
    stored = await scene.stored()
    first = stored.index(b"0")
    assert stored[first : first + 2000] == [b"%d" % number for number in range(2000)]


@in_front(**WIDE)
async def test_long_batches_take_turns(scene: FrontScene) -> None:
    line, active, most = scene.line(), [0], [0]
    real = scene.front.admission.batch

    def watched(*args: Any) -> Any:
        active[0] += 1
        most[0] = max(most[0], active[0])
        try:
            return (yield from real(*args))
        finally:
            active[0] -= 1

    scene.front.admission.batch = watched  # type: ignore[method-assign]
    line.came(long(), long(), long())
    scene.tick(line)
    await asyncio.sleep(1)
    assert (line.codes(), most[0]) == ({1: 0, 2: 0, 3: 0}, 1)


@in_front(**WIDE)
async def test_a_long_batch_that_is_refused_is_answered_and_given_back(scene: FrontScene) -> None:
    line = scene.line()
    line.came(long(props="DELAY\x013"), send(body=b"a"))
    scene.tick(line)
    await asyncio.sleep(1)
    assert line.codes() == {2: 0, 1: 13}
    assert (line.owed_bytes, scene.front.pressure.held) == (0, 0)


@in_front(**WIDE)
async def test_an_error_that_nobody_expected_in_a_long_batch_is_answered(scene: FrontScene) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError
        yield

    scene.front.admission.batch = broken  # type: ignore[method-assign]
    line = scene.line()
    line.came(long())
    scene.tick(line)
    await asyncio.sleep(1)
    assert (line.codes(), line.owed_bytes, scene.front.pressure.held) == ({1: 1}, 0, 0)


@in_front(**WIDE)
async def test_a_long_batch_whose_topic_is_deleted_meanwhile_is_refused(scene: FrontScene) -> None:
    line = scene.line()
    line.came(long())
    scene.tick(line)
    await asyncio.sleep(0)
    scene.store.delete_topic("T")
    await asyncio.sleep(1)
    assert (line.codes(), line.owed_bytes) == ({1: 17}, 0)
    assert await scene.stored() == []


@pytest.mark.parametrize("end", ["stored", "deleted", "refused"])
def test_a_very_long_batch_is_stored_in_parts(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_PART", 700)

    @in_front(**WIDE)
    async def parts(scene: FrontScene) -> None:
        appended: list[int] = []
        real = scene.store.append

        def append(puts: Any, *args: Any, **options: Any) -> Any:
            if len(appended) == 1 and end == "deleted":
                scene.store.delete_topic("T")
            if len(appended) == 1 and end == "refused":
                raise OSError(28, "No space left on device")
            appended.append(len(puts))
            assert options["together"]
            return real(puts, *args, **options)

        scene.store.append = append  # type: ignore[method-assign]
        line, turns = scene.line(), []
        line.came(long())
        scene.tick(line)
        while not line.sent:
            turns.append(len(appended))
            await asyncio.sleep(0)
        (answer,) = line.answers()
        assert (line.owed_bytes, scene.front.pressure.held) == (0, 0)
        if end == "stored":
            assert {0, 1, 2} < set(turns)
            assert (appended, answer.code, ids(answer)) == ([700, 700, 600], 0, 2000)
            assert await scene.stored() == [b"%d" % number for number in range(2000)]
        else:
            assert answer.code == {"deleted": 17, "refused": 1}[end]
            assert sum(appended) < 2000

    parts()


def test_what_is_stored_of_a_very_long_batch_is_let_go_of_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5,000 messages with 256 key words each, all at once took 40 ms of the loop."""
    monkeypatch.setattr(batches, "_PART", 700)

    @in_front(**WIDE)
    async def parts(scene: FrontScene) -> None:
        given: list[list[Any]] = []
        real = scene.store.append

        def append(puts: Any, *args: Any, **options: Any) -> Any:
            assert not any(given), "an earlier part is held"
            given.append(puts)
            return real(puts, *args, **options)

        scene.store.append = append  # type: ignore[method-assign]
        line = scene.line()
        line.came(long())
        scene.tick(line)
        await asyncio.sleep(1)
        assert (len(given), line.codes()) == (3, {1: 0})

    parts()


@in_front(**WIDE)
async def test_a_message_with_many_keys_weighs_more(scene: FrontScene) -> None:
    queue = scene.store.queues.get_or_create("T", 0)
    plain: Any = type("Put", (), {"queue": queue, "keys": (b"k",) * 3})()
    keys: Any = type("Put", (), {"queue": queue, "keys": (b"k",) * 102})()
    assert [len(part) for part in batches._parts([plain] * 12_000)] == [5000, 5000, 2000]
    assert [len(part) for part in batches._parts([keys] * 120)] == [50, 50, 20]
