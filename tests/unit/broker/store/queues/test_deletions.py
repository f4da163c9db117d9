"""What was deleted stays deleted: over every kind of stop, wherever its records lie, and whoever fills queues anew."""

import asyncio
import dataclasses
import json
import random
from typing import Any

import pytest

from rmq.broker.store.queues.deletions import Deletion, Deletions
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import verify
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, bodies, die, found_keys, opened, put, small

BIG = b"x" * 500


async def delete(store: Store, topic: str) -> None:
    """As the broker does before it answers."""
    store.delete_topic(topic)
    await store.deletions.saved()


def send(store: Store, topic: str, body: bytes, count: int = 1, *, queue_id: int = 0, key: str = "k") -> None:
    queue = store.queues.get_or_create(topic, queue_id)
    for _ in range(count):
        store.append([put(queue, body, key=key)])


async def stop_by(kind: str, simulation: Simulation, machine: SimNode, store: Store, settings: StoreSettings) -> None:
    """End a store in one of the ways there are; the machine's world may be another one afterwards."""
    if kind in ("clean", "rebuilt"):
        await store.stop()
        if kind == "rebuilt":
            await rebuild(machine.world, settings)
        return
    machine.files.freeze()
    await die(store)
    if kind == "power cut":
        simulation.power_cut(machine, all_lost=True)
    else:
        simulation.kill(machine)


STOPS = ("clean", "killed", "power cut", "rebuilt")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("waits", [0, 3])
@pytest.mark.parametrize("how", STOPS)
def test_a_deleted_topic_stays_deleted(how: str, waits: float, again: bool) -> None:
    """Its records lie in several old files and in the newest one; the stop comes at once, or after a while."""

    async def main() -> None:
        simulation = Simulation(5)
        machine = simulation.node("a")
        settings = small(sync_flush=True)
        store = await opened(machine.world, settings)
        for _ in range(40):
            send(store, "Gone", BIG, 2)
            send(store, "Gone", BIG, queue_id=1)
            send(store, "Kept", b"kept")
        assert len(store.log.segments) > 3
        await asyncio.sleep(2)
        send(store, "Gone", b"last", 3)  # in no file of the queue yet
        await store.flusher.flush_all()
        await delete(store, "Gone")
        if again:
            send(store, "Gone", b"new", 2)
            await store.flusher.flush_all()
        await asyncio.sleep(waits)
        for _ in range(3):
            await stop_by(how, simulation, machine, store, settings)
            store = await opened(machine.world, settings)
            queue = store.queues.get("Gone", 0)
            assert store.queues.get("Gone", 1) is None
            if again:
                assert queue is not None
                assert (queue.min, queue.next) == (0, 2)
                assert await bodies(store, queue) == [b"new"] * 2
            else:
                assert queue is None
                assert not machine.files.exists("/store/consumequeue/Gone")
            assert await found_keys(store, "Gone", ["k"]) == {"k": 2 if again else 0}
            kept = store.queues.get("Kept", 0)
            assert kept is not None
            assert await bodies(store, kept) == [b"kept"] * 40
        await store.stop()
        assert machine.files.list("/store/trash") == []
        async with StoppedStore(machine.world, settings) as stopped:
            assert (await verify(stopped)).findings.damaged == 0

    run(main())


@pytest.mark.parametrize("again", [False, True])
def test_a_clean_start_does_not_read_the_log_for_what_is_deleted(again: bool) -> None:
    async def main() -> None:
        machine = Simulation(5).node("a")
        store = await opened(machine.world, small())
        for _ in range(60):
            send(store, "Gone", BIG, 2)
            send(store, "Kept", b"kept")
        await delete(store, "Gone")
        if again:
            send(store, "Gone", b"new")
        for _ in range(2):
            await store.stop()
            store = await opened(machine.world, small())
            newest = store.log.segments[-1].start
            assert store.log.start + 2 * LOG_SIZE < newest
            assert store.recovered.checked_from == newest
            assert store.recovered.dispatched_from == store.log.end
        await store.stop()

    run(main())


def test_a_start_after_a_kill_reads_no_more_for_a_deletion() -> None:
    """What was not added up before the kill is added up at start, from the queues that wait to be removed."""

    async def start(*, deleted: bool) -> int:
        simulation = Simulation(5)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        for _ in range(60):
            send(store, "Gone", BIG, 2)
            send(store, "Kept", b"kept")
        await asyncio.sleep(2)
        if deleted:
            await delete(store, "Gone")
        await stop_by("killed", simulation, machine, store, small())
        store = await opened(machine.world, small())
        assert (store.queues.get("Gone", 0) is None) == deleted
        await store.stop()
        return store.recovered.checked_from

    async def main() -> None:
        without = await start(deleted=False)
        assert await start(deleted=True) == without > LOG_SIZE

    run(main())


def test_a_start_reads_once_for_what_was_not_added_up() -> None:
    """The queues were removed by hand, or a kill came between: the sums are put right on the way."""

    async def main() -> None:
        machine = Simulation(5).node("a")
        store = await opened(machine.world, small())
        for _ in range(60):
            send(store, "Gone", BIG, 2)
            send(store, "Kept", b"kept")
        await asyncio.sleep(2)
        await delete(store, "Gone")
        for grave in store.queues.graves:
            store.queues.disk.remove_tree(grave)
        store.queues.graves.clear()
        read_from = []
        for _ in range(3):
            await store.stop()
            store = await opened(machine.world, small())
            assert store.queues.get("Gone", 0) is None
            read_from.append(store.recovered.checked_from)
        newest = store.log.segments[-1].start
        assert read_from == [store.log.start, newest, newest]
        await store.stop()

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_deletions_over_and_over(seed: int) -> None:
    """Sends, deletions and stops of every kind: of each topic exactly what was sent since its deletion is there."""

    async def main() -> None:
        rng = random.Random(seed)
        simulation = Simulation(seed)
        machine = simulation.node("a", fsync_seconds=0.003)
        settings = small(sync_flush=True, queue_flush_interval_ms=200, queue_thorough_interval_ms=700)
        alive: dict[tuple[str, int], list[bytes]] = {}
        number = 0
        for _ in range(5):
            store = await opened(machine.world, settings)
            for queue in store.queues:
                if queue.next > queue.min:
                    assert await bodies(store, queue) == alive.get((queue.topic, queue.id)), queue
            assert all(store.queues.get(*key) is not None for key in alive)
            for _ in range(rng.randint(5, 40)):
                topic = f"T{rng.randrange(3)}"
                if rng.random() < 0.1:
                    await delete(store, topic)
                    alive = {key: sent for key, sent in alive.items() if key[0] != topic}
                else:
                    for _ in range(rng.randint(1, 6)):
                        key = topic, rng.randrange(2)
                        number += 1
                        body = b"%d" % number * rng.randint(1, 90)
                        send(store, key[0], body, queue_id=key[1])
                        alive.setdefault(key, []).append(body)
                await asyncio.sleep(rng.choice((0, 0.001, 0.05, 0.3, 1.5)))
            await store.flusher.flush_all()
            await stop_by(rng.choice(STOPS), simulation, machine, store, settings)

    run(main())


def test_a_deletion_is_forgotten_with_the_files_of_its_records() -> None:
    async def main() -> None:
        machine = Simulation(5).node("a")
        settings = small(file_reserved_hours=1, clean_interval_ms=1000)
        store = await opened(machine.world, settings)
        send(store, "Gone", BIG, 60)
        await delete(store, "Gone")
        end = store.log.end
        assert [topic for topic, _ in store.deletions.items()] == ["Gone"]
        send(store, "Kept", BIG, 60)
        await asyncio.sleep(3700)
        store.retention.trigger()
        await asyncio.sleep(60)
        assert store.log.start >= end
        assert list(store.deletions.items()) == []
        assert json.loads(machine.files.read("/store/deletions.json"))["known"]["topics"] == {}
        await store.stop()
        store = await opened(machine.world, settings)
        assert store.queues.get("Gone", 0) is None
        assert store.recovered.checked_from == store.log.segments[-1].start
        await store.stop()

    run(main())


def test_a_topic_without_messages_needs_no_note() -> None:
    async def main() -> None:
        machine = Simulation(5).node("a")
        store = await opened(machine.world, small())
        send(store, "Kept", b"kept")
        store.queues.get_or_create("Empty", 0)
        await delete(store, "Empty")
        assert list(store.deletions.items()) == []
        await store.stop()
        assert not machine.files.exists("/store/deletions.json")

    run(main())


def test_messages_that_take_the_places_of_lost_ones_are_not_dead() -> None:
    """A power cut took the end of the log, the note of the deletion stayed: the topic's new messages count."""

    async def main() -> None:
        simulation = Simulation(5)
        machine = simulation.node("a")
        settings = small(sync_flush=False, flush_interval_ms=1_000_000)
        store = await opened(machine.world, settings)
        send(store, "Kept", BIG, 3)
        await store.flusher.flush_all()
        flushed = store.log.end
        send(store, "Gone", BIG, 5)
        await delete(store, "Gone")
        machine.files.freeze()
        await die(store)
        simulation.power_cut(machine, all_lost=True)
        for expected in ([b"new"], [b"new"] * 2):
            store = await opened(machine.world, settings)
            assert store.deletions.end_of("Gone") == flushed
            send(store, "Gone", b"new")
            queue = store.queues.get("Gone", 0)
            assert queue is not None
            assert await bodies(store, queue) == expected
            machine.files.freeze()
            await die(store)
            simulation.kill(machine)

    run(main())


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_note_takes_no_message(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A flipped digit must not make messages dead: then nothing is known, and the log says so."""

    async def main() -> None:
        machine = Simulation(5).node("a")
        store = await opened(machine.world, small())
        send(store, "Gone", b"old", 3)
        await delete(store, "Gone")
        send(store, "Gone", b"new", 3)
        await store.stop()
        data = machine.files.read("/store/deletions.json")
        end = b"%d" % store.deletions.end_of("Gone")
        assert end in data
        spoilt = {"cut": data[:-9], "flipped": data.replace(end, b"9" + end[1:]), "empty": b"", "other": b"[]"}[damage]
        assert spoilt != data
        machine.files.write_atomic("/store/deletions.json", spoilt)
        store = await opened(machine.world, small())
        queue = store.queues.get("Gone", 0)
        assert queue is not None
        assert (await bodies(store, queue))[-3:] == [b"new"] * 3
        assert "deletions.json cannot be used" in caplog.text
        await store.stop()

    run(main())


def test_a_directory_that_came_back_is_taken_away_again() -> None:
    """Another broker, or a power cut, has brought the queues of a deleted topic back."""

    async def main() -> None:
        machine = Simulation(5).node("a")
        store = await opened(machine.world, small())
        send(store, "Gone", b"old", 3)
        send(store, "Made", b"old", 3)
        await store.stop()
        path = "/store/consumequeue/{}/0/" + "0" * 20
        old = {topic: machine.files.read(path.format(topic)) for topic in ("Gone", "Made")}
        store = await opened(machine.world, small())
        await delete(store, "Gone")
        await delete(store, "Made")
        await store.stop()
        # The other one has gone on in the old numbering with a topic that was made anew.
        for topic, data in old.items():
            machine.files.mkdir(f"/store/consumequeue/{topic}/0")
            machine.files.write_atomic(path.format(topic), data)
        notes = machine.files.read("/store/deletions.json")
        machine.files.unlink("/store/deletions.json")
        store = await opened(machine.world, small())
        send(store, "Made", b"new", 2)
        await store.stop()
        machine.files.write_atomic("/store/deletions.json", notes)
        store = await opened(machine.world, small())
        assert store.queues.get("Gone", 0) is None
        made = store.queues.get("Made", 0)
        assert made is not None
        assert (made.min, made.next) == (3, 5)
        assert await bodies(store, made) == [b"new"] * 2
        await store.stop()

    run(main())


@pytest.mark.parametrize("how", STOPS)
def test_light_queues_and_their_sources_are_deleted_apart(how: str) -> None:
    """One record lies in its own topic's queue and in light and other queues: each of them is deleted by itself."""

    async def main() -> None:
        simulation = Simulation(5)
        machine = simulation.node("a")
        settings = small(sync_flush=True, multi_dispatch=True, lmq=True)
        store = await opened(machine.world, settings)

        def post(topic: str, names: str, body: bytes) -> None:
            one = put(store.queues.get_or_create(topic, 0), body)
            named = f"INNER_MULTI_DISPATCH\x01{names}\x02".encode()
            store.append([one._replace(properties=named)])

        for _ in range(40):
            post("A", "%LMQ%x,B,%LMQ%y", BIG)
            post("C", "%LMQ%x,A", BIG)
        await asyncio.sleep(2)
        await delete(store, "%LMQ%x")
        await delete(store, "A")
        post("C", "%LMQ%x,A", b"new")
        await store.flusher.flush_all()
        for _ in range(2):
            await stop_by(how, simulation, machine, store, settings)
            store = await opened(machine.world, settings)
            found: dict[str, Any] = {}
            for queue in store.queues:
                found[queue.topic] = (queue.min, queue.next)
            assert found == {"%LMQ%x": (0, 1), "A": (0, 1), "B": (0, 40), "%LMQ%y": (0, 40), "C": (0, 41)}
        await store.stop()

    run(main())


def test_old_messages_do_not_use_up_the_hits_of_a_key() -> None:
    async def main() -> None:
        machine = Simulation(5).node("a")
        store = await opened(machine.world, small())
        send(store, "T", b"old", 20)
        await delete(store, "T")
        send(store, "T", b"new", 3)
        found = await store.query_message("T", "k", 10, 0, 1 << 62)
        assert len(found.records) == 3
        await store.stop()

    run(main())


def test_what_is_known_is_written_and_read() -> None:
    async def main() -> None:
        world = Simulation(5).node("a").world
        world.files.mkdir("/store")
        known = Deletions(world, "/store", 100)
        known.note("%RETRY%g", Deletion(250, 7, 99))
        known.note('q"uote', Deletion(90))
        known.add({0: 5, 100: 6})
        known.add({100: 1})
        await known.saved()
        again = Deletions(dataclasses.replace(world), "/store", 100)
        again.load()
        assert list(again.items()) == list(known.items())
        assert (again.horizon, again.bytes_in(0, 100), again.bytes_in(0, 300)) == (250, 5, 12)
        assert again.is_dead("%RETRY%g", 249)
        assert not again.is_dead("%RETRY%g", 250)
        assert not again.is_dead("other", 0)
        again.log_begins(100)
        assert [topic for topic, _ in again.items()] == ["%RETRY%g"]
        assert again.bytes_in(0, 300) == 7
        again.log_ends(200)
        assert again.end_of("%RETRY%g") == again.horizon == 200

    run(main())
