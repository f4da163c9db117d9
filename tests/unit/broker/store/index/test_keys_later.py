"""Keys that are put into the index once their senders are answered: nobody ever finds less for it."""

from __future__ import annotations

import logging

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
        hashed = store.hashers.of("T").of(b"a")
        assert await store.index.query(hashed, 9, 0, 1 << 60) == starts[::-1]
        store.put_keys()
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
            store.put_keys()
        assert "putting keys into the index fails" in caplog.text
        send(store, "k1")
        assert await found_keys(store, "T", ["k1"]) == {"k1": 1}
        await store.stop()

    run(main())
