"""Keys that are put into the index once their senders are answered: nobody ever finds less for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import die, found_keys, opened, put, small

KEYS = [f"k{n}" for n in range(8)]


def send(store: Store, key: str, *, later: bool = True) -> int:
    queue = store.queues.get_or_create("T", 0)
    return store.append([put(queue, key=key)], keys_later=later).start


def test_they_come_in_the_order_of_the_log() -> None:
    async def main() -> None:
        store = await opened(Simulation().node("b").world, small())
        assert store.index is not None
        starts = [send(store, "a"), send(store, "a")]
        assert store.index.end == (0, 0)
        starts.append(send(store, "a", later=False))
        assert store.index.end[1] == starts[-1]
        hashed = store.indexing.hashers.of("T").of(b"a")
        assert await store.index.query(hashed, 9, 0, 1 << 60) == starts[::-1]
        store.indexing.fresh.put()
        assert await store.index.query(hashed, 9, 0, 1 << 60) == starts[::-1]
        await store.stop()

    run(main())


def test_a_query_finds_what_was_stored_before_it() -> None:
    async def main() -> None:
        store = await opened(Simulation().node("b").world, small())
        for key in KEYS:
            send(store, key)
        assert await found_keys(store, "T", KEYS) == dict.fromkeys(KEYS, 1)
        await store.stop()

    run(main())


def test_a_kill_between_an_answer_and_its_keys_costs_no_key() -> None:
    async def main() -> None:
        simulation = Simulation()
        machine = simulation.node("b")
        store = await opened(machine.world, small())
        for key in KEYS[:4]:
            send(store, key, later=False)
        await store.force()
        for key in KEYS[4:]:
            send(store, key)
        killed, store = store, await opened(simulation.kill(machine), small())
        await die(killed)
        assert await found_keys(store, "T", KEYS) == dict.fromkeys(KEYS, 1)
        await store.stop()

    run(main())


def test_a_clean_stop_leaves_no_key_behind() -> None:
    """It notes that the index is complete: the next start would not look for what is missing."""

    async def main() -> None:
        machine = Simulation().node("b")
        store = await opened(machine.world, small())
        for key in KEYS:
            send(store, key)
        await store.stop()
        store = await opened(machine.world, small())
        assert store.recovered.clean
        assert await found_keys(store, "T", KEYS) == dict.fromkeys(KEYS, 1)
        await store.stop()

    run(main())


def test_an_index_that_takes_no_keys_costs_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = await opened(Simulation().node("b").world, small())

        def refuse(*_: object) -> None:
            raise OSError("no memory for its slots")

        send(store, "k0")
        with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
            broken.setattr(store.index, "put_many", refuse)
            store.indexing.fresh.put()
        assert "putting keys into the index fails" in caplog.text
        send(store, "k1")
        assert await found_keys(store, "T", ["k1"]) == {"k1": 1}
        await store.stop()

    run(main())


def refusing(store: Store, refused: str, error: Exception) -> Callable[[list[tuple[int, int]], int], None]:
    """An index that refuses what comes with one key."""
    assert store.index is not None
    real, bad = store.index.put_many, store.indexing.hashers.of("T").of(refused.encode())

    def put_many(hashes: list[tuple[int, int]], stamp: int) -> None:
        if any(value == bad for value, _ in hashes):
            raise error
        real(hashes, stamp)

    return put_many


@pytest.mark.parametrize("refused", ["k0", "k3", "k7"])
def test_a_message_whose_keys_are_refused_costs_its_own_keys_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    """Appends of one tick, and the messages of one append."""

    async def main() -> None:
        store = await opened(Simulation().node("b").world, small())
        queue = store.queues.get_or_create("T", 0)
        with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
            broken.setattr(store.index, "put_many", refusing(store, refused, OverflowError("too large")))
            span = store.append([put(queue, key=key) for key in KEYS[:4]], keys_later=True)
            later = [send(store, key) for key in KEYS[4:]]
            store.indexing.fresh.put()
        place = [*[offset for _, offset in span.offsets], *later][KEYS.index(refused)]
        assert f"those of the message at {place}: too large" in caplog.text
        expected = dict.fromkeys(KEYS, 1) | {refused: 0}
        assert await found_keys(store, "T", KEYS) == expected
        await store.stop()

    run(main())


def test_a_message_whose_keys_cannot_be_hashed_costs_its_own_keys_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = await opened(Simulation().node("b").world, small())
        queue = store.queues.get_or_create("T", 0)
        puts = [put(queue, key=key) for key in KEYS]
        puts[3] = puts[3]._replace(keys=(b"",))
        with caplog.at_level(logging.ERROR):
            store.append(puts)
        assert caplog.text.count("those of the message at ") == 1
        assert await found_keys(store, "T", KEYS) == dict.fromkeys(KEYS, 1) | {"k3": 0}
        await store.stop()

    run(main())


@pytest.mark.parametrize("kind", ["good", "two topics", "two keys", "refused", "no key", "cannot be hashed"])
def test_those_of_a_large_append(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """They are put all at once, if they are alike, and one of them alone is lost if anything is wrong with it."""

    async def main() -> None:
        store = await opened(Simulation().node("b").world, small(index_entries=60))
        assert store.index is not None
        queue = store.queues.get_or_create("T", 0)
        keys = [f"k{n}" for n in range(50)]
        puts = [put(queue, key=key) for key in keys]
        topic, lost = "T", 0 if kind in ("good", "two topics", "two keys") else 1
        if kind == "two topics":
            topic = "U"
            puts[7] = puts[7]._replace(queue=store.queues.get_or_create(topic, 0))
        elif kind == "two keys":
            puts[7] = put(queue, key="k7 other")._replace(keys=(b"k7", b"other"))
        elif kind == "no key":
            puts[7] = puts[7]._replace(keys=())
        elif kind == "cannot be hashed":
            puts[7] = puts[7]._replace(keys=(b"",))
        with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
            if kind == "refused":
                broken.setattr(store.index, "put_many", refusing(store, "k7", OverflowError("too large")))
                broken.setattr(store.index, "put_columns", lambda *_: store.index.put_many(None, 0))
            store.append(puts)
        assert caplog.text.count("those of the message at ") == (kind in ("refused", "cannot be hashed"))
        assert [file.count for file in store.index.files] == [51 - lost + (kind == "two keys")]
        assert await found_keys(store, "T", keys) == dict.fromkeys(keys, 1) | {"k7": int(topic == "T" and not lost)}
        if topic != "T":
            assert await found_keys(store, topic, ["k7"]) == {"k7": 1}
        await store.stop()

    run(main())


@pytest.mark.parametrize("error", [OSError("no memory for its slots"), MemoryError()])
def test_what_an_index_that_had_stopped_lacks_is_put_from_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        store = await opened(Simulation().node("b").world, small())
        with monkeypatch.context() as broken:
            broken.setattr(store.index, "put_many", refusing(store, "k2", error))
            starts = [send(store, key) for key in KEYS[:4]]
            store.indexing.fresh.put()
            assert f"it has no keys from {starts[2]} on" in caplog.text
            send(store, "k4")
            store.indexing.fresh.put()
            await asyncio.sleep(30)
            assert store.indexing.build is not None
            assert not store.indexing.build.complete
            assert await found_keys(store, "T", KEYS[:4]) == {"k0": 1, "k1": 1, "k2": 0, "k3": 0}
        send(store, "k5")
        await asyncio.sleep(30)
        assert store.indexing.build.complete
        assert "putting keys into the index works again" in caplog.text
        for key in KEYS[6:]:
            send(store, key)
        assert await found_keys(store, "T", KEYS) == dict.fromkeys(KEYS, 1)
        await store.stop()

    run(main())


def test_a_stop_while_the_index_takes_no_keys_does_not_claim_that_it_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine = Simulation().node("b")
        store = await opened(machine.world, small())
        with monkeypatch.context() as broken:
            broken.setattr(store.index, "put_many", refusing(store, "k2", OSError("no memory for its slots")))
            for key in KEYS:
                send(store, key)
            await store.stop()
        store = await opened(machine.world, small())
        await asyncio.sleep(1)
        assert await found_keys(store, "T", KEYS) == dict.fromkeys(KEYS, 1)
        await store.stop()

    run(main())


@pytest.mark.parametrize(("error", "left"), [(OverflowError("too large"), 0), (OSError("no memory"), 1)])
def test_keys_of_replicated_messages_are_contained_likewise(
    monkeypatch: pytest.MonkeyPatch, error: Exception, left: int
) -> None:
    async def main() -> None:
        master = await opened(Simulation().node("m").world, small())
        for key in KEYS:
            send(master, key)
        data = master.log.read(0, master.log.end)
        assert data is not None
        slave = await opened(Simulation().node("s").world, small())
        with monkeypatch.context() as broken:
            broken.setattr(slave.index, "put_many", refusing(slave, "k2", error))
            slave.append_raw(0, data)
            await asyncio.sleep(5)
            assert slave.dispatcher.behind == 0
        await asyncio.sleep(30)
        assert await found_keys(slave, "T", KEYS) == dict.fromkeys(KEYS, 1) | {"k2": left}
        for store in (master, slave):
            await store.stop()

    run(main())
