"""The index built behind the running broker: what is found meanwhile, appends that come between, kills, the end."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import pytest

from rmq.broker.store.index import build as index_build
from rmq.broker.store.index import feed as index_feed
from rmq.broker.store.index import writing as index_writing
from rmq.broker.store.index.index import Index
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import ENTRIES, SLOTS, body_of, die, opened, put, small
from tests.support.store_scan import java_hash, scan_index
from tests.support.turns import Turns

MESSAGES = 500


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small store takes many steps, and no step goes to the end."""
    monkeypatch.setattr(index_build, "_STEP", 4096)
    monkeypatch.setattr(index_build, "_LEAST_AT_ONCE", 512)
    monkeypatch.setattr(index_build, "_MOST_AT_ONCE", 2048)


def behind(**changes: Any) -> Any:
    return small(index_at_start=0, **changes)


def send(store: Store, queue: Queue, first: int, last: int) -> None:
    for number in range(first, last):
        store.append([put(queue, b"%d" % number, key=f"k{number}")])


async def filled(machine: SimNode) -> None:
    store = await opened(machine.world, small())
    send(store, store.queues.get_or_create("T", 0), 0, MESSAGES)
    await asyncio.sleep(2)
    await store.stop()


def lose_index(machine: SimNode) -> None:
    for name in machine.files.list("/store/index"):
        machine.files.unlink(f"/store/index/{name}")
    machine.files.unlink("/store/checkpoint")


async def built(store: Store) -> None:
    assert store.indexing.build is not None
    while not store.indexing.build.complete:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def found(store: Store, number: int) -> list[bytes]:
    return [body_of(record) for record in (await store.query_message("T", f"k{number}", 10, 0, 1 << 62)).records]


def in_index(machine: SimNode) -> list[tuple[int, int]]:
    """Hash and offset of each entry, of which no file has one twice."""
    found: list[tuple[int, int]] = []
    for file in scan_index(machine.files, "/store", SLOTS, ENTRIES):
        entries = [(value, offset) for value, offset, _, _ in file["entries"]]
        assert len(set(entries)) == len(entries)
        found += entries
    return found


async def assert_whole(machine: SimNode, store: Store, messages: int) -> None:
    """Every key in the log's order, and each found; the last of a full file may be there twice, as in Java's."""
    assert [await found(store, number) for number in range(messages)] == [[b"%d" % n] for n in range(messages)]
    assert store.index is not None
    await store.index.writer.force()
    entries = list(dict.fromkeys(in_index(machine)))
    assert [value for value, _ in entries] == [java_hash(f"T#k{number}") for number in range(messages)]
    assert [offset for _, offset in entries] == sorted({offset for _, offset in entries})


def test_sends_and_pulls_go_on_while_a_lost_index_is_built() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        await filled(machine)
        lose_index(machine)
        store = await opened(machine.world, behind(), start=False)
        build = store.indexing.build
        assert build is not None
        queue = store.queues.get_or_create("T", 0)
        assert await found(store, 0) == []
        assert "no message is found by key yet" in (build.progress() or "")
        await store.start()
        assert (queue.visible, store.log.gate, build.complete) == (MESSAGES, 0, False)
        seen: set[str] = set()
        sent = MESSAGES
        while not build.complete:
            if sent < MESSAGES + 100:
                send(store, queue, sent, sent + 1)
                sent += 1
            seen.add(build.progress() or "")
            await asyncio.sleep(0.001)
        assert len(seen) > 10
        assert all("being rebuilt" in text and "% done" in text for text in seen)
        assert build.progress() is None
        send(store, queue, sent, sent + 20)
        await assert_whole(machine, store, sent + 20)
        await store.stop()
        assert not machine.files.exists("/store/abort")

    run(main())


@pytest.mark.parametrize("steps", [1, 5, 20, 35])
def test_a_build_that_is_killed_goes_on_where_it_was(steps: int) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        await filled(machine)
        lose_index(machine)
        sent = MESSAGES
        for _ in range(2):
            store = await opened(machine.world, behind(queue_thorough_interval_ms=20))
            send(store, store.queues.get_or_create("T", 0), sent, sent + 5)
            sent += 5
            for _ in range(steps):
                await asyncio.sleep(0.0005)
            simulation.kill(machine)
            await die(store)
        store = await opened(machine.world, behind())
        await built(store)
        await assert_whole(machine, store, sent)
        await store.stop()

    run(main())


def test_a_stop_while_it_is_built_leaves_the_rest_to_the_next_start_and_to_java() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        await filled(machine)
        for name in machine.files.list("/store/index"):
            machine.files.unlink(f"/store/index/{name}")
        store = await opened(machine.world, behind())
        assert store.indexing.build is not None
        while store.indexing.build.behind > 30_000:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        assert not store.indexing.build.complete
        await store.force()
        assert store.index is not None
        assert 0 < store.checkpoint.logics <= store.index.end[0]
        await store.stop()
        # Java puts keys while it recovers from the times in the checkpoint, and only when it finds this file.
        assert machine.files.exists("/store/abort")
        have = in_index(machine)
        assert 0 < len(have) < MESSAGES
        store = await opened(machine.world, behind())
        await built(store)
        await assert_whole(machine, store, MESSAGES)
        await store.stop()
        assert not machine.files.exists("/store/abort")

    run(main())


def test_what_a_crash_left_of_the_index_is_checked_behind_the_running_broker() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await opened(machine.world, small(queue_thorough_interval_ms=10_000_000))
        send(store, store.queues.get_or_create("T", 0), 0, MESSAGES)
        await asyncio.sleep(5)
        simulation.kill(machine)
        await die(store)
        store = await opened(machine.world, behind(), start=False)
        build = store.indexing.build
        assert build is not None
        assert store.index is not None
        assert not store.index.checked
        assert "being checked" in (build.progress() or "")
        await store.force()
        await store.index.delete_expired(store.log.end)
        await store.start()
        await built(store)
        await assert_whole(machine, store, MESSAGES)
        await store.stop()

    run(main())


def test_an_index_that_goes_further_than_the_log_is_built_anew() -> None:
    """A power cut has taken messages whose keys were on disk: others take their places in the log."""

    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await opened(machine.world, small(flush_interval_ms=10_000_000))
        queue = store.queues.get_or_create("T", 0)
        send(store, queue, 0, 10)
        assert await store.flusher.flush_all()
        for number in range(10, 20):
            store.append([put(queue, b"%d" % number, key="gone")])
        assert store.index is not None
        await store.index.writer.force()
        simulation.power_cut(machine, all_lost=True)
        await die(store)
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        assert queue.next == 10
        send(store, queue, 10, 40)
        await built(store)
        await assert_whole(machine, store, 40)
        await store.stop()

    run(main())


def test_little_is_indexed_before_the_start_is_done() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        await filled(machine)
        lose_index(machine)
        store = await opened(machine.world, small())
        assert store.indexing.build is not None
        assert store.indexing.build.complete
        await assert_whole(machine, store, MESSAGES)
        await store.stop()

    run(main())


def test_after_a_clean_stop_messages_without_keys_are_not_looked_at_again() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        send(store, queue, 0, 1)
        for _ in range(MESSAGES):
            store.append([put(queue)])
        await store.stop()
        store = await opened(machine.world, behind(), start=False)
        assert store.indexing.build is not None
        assert store.indexing.build.complete
        await store.stop()

    run(main())


def test_a_build_ends_though_every_step_is_outrun_by_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is put at once in the end, until what came meanwhile is little enough."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        await filled(machine)
        lose_index(machine)
        store = await opened(machine.world, behind(), start=False)
        queue = store.queues.get_or_create("T", 0)
        steps = 0
        real = index_build.IndexBuild._step

        async def outrun(build: index_build.IndexBuild) -> None:
            nonlocal steps
            await real(build)
            steps += 1
            assert steps < 500, "it never catches up"
            before = store.log.end
            while store.log.end - before < 1200:  # in no part of a file as little as it begins with
                send(store, queue, queue.next, queue.next + 1)

        monkeypatch.setattr(index_build.IndexBuild, "_step", outrun)
        await store.start()
        await built(store)
        await assert_whole(machine, store, queue.next)
        await store.stop()

    run(main())


@pytest.mark.parametrize("at_start", [False, True])
def test_others_have_turns_while_messages_with_many_keys_are_read(
    monkeypatch: pytest.MonkeyPatch, at_start: bool
) -> None:
    """A thousand records were a slice, however many keys they had."""
    monkeypatch.setattr(index_feed, "_KEYS_IN_A_TURN", 300)
    monkeypatch.setattr(index_build, "_MOST_KEYS_AT_ONCE", 400)
    monkeypatch.setattr(index_build, "_LEAST_AT_ONCE", 1 << 20)
    monkeypatch.setattr(index_build, "_MOST_AT_ONCE", 1 << 20)
    wide = {"commit_log_file_size": 1 << 20, "index_slots": 1000, "index_entries": 40_000}
    words = " ".join(f"k{number}" for number in range(200))

    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small(**wide))
        for _ in range(100):
            store.append([put(store.queues.get_or_create("T", 0), key=words)])
        await asyncio.sleep(2)
        await store.stop()
        lose_index(machine)
        turns = Turns(monkeypatch, Index, "put_many", lambda _, hashes, stamp: len(hashes))
        store = await opened(machine.world, small(**wide) if at_start else behind(**wide))
        await built(store)
        assert turns.whole == 100 * 200
        assert turns.longest <= 600
        assert len((await store.query_message("T", "k199", 1_000, 0, 1 << 62)).records) == 100
        await store.stop()

    run(main())


def test_an_index_that_cannot_be_written_costs_queries_by_key_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_writing, "_MOST_WAITING", 2000)
    monkeypatch.setattr(index_build, "_MOST_WAITING", 1000)

    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small(queue_flush_interval_ms=100))
        index, build = store.index, store.indexing.build
        assert index is not None
        assert build is not None
        queue = store.queues.get_or_create("T", 0)
        send(store, queue, 0, 50)
        await asyncio.sleep(1)
        machine.disk.fail("pwrite", errno.EIO, "*/index/*", count=-1)
        for first in range(50, 350, 20):
            send(store, queue, first, first + 20)
            await asyncio.sleep(0.5)
        assert (queue.visible, store.log.gate, build.complete) == (350, 0, False)
        assert index.waiting < 2 * 2000 + 20 * 40
        assert build.behind > 0
        assert "the index cannot be written" in (build.progress() or "")
        assert await found(store, 60) == [b"60"]
        assert await found(store, 340) == []
        assert not build.turn.locked()  # nor has who cuts the log to wait for it
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(told) == len(dict.fromkeys(told)) == 3, told
        machine.disk.heal()
        await built(store)
        send(store, queue, 350, 360)
        await assert_whole(machine, store, 360)
        assert (build.behind, build.progress(), index.writer.failed) == (0, None, None)
        await store.stop()
        assert not machine.files.exists("/store/abort")

    run(main())
