"""The second half of the append: everything is moved, or nothing at all."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from rmq.broker.store.log.append import pack
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import LOG_SIZE, bodies, found_keys, opened, put, small


async def fresh() -> tuple[Store, Queue]:
    store = await opened(Simulation(1).node("a").world, small())
    return store, store.queues.get_or_create("T", 0)


def state(store: Store) -> tuple[Any, ...]:
    """Whatever an append moves."""
    assert store.index is not None
    queues = [(q.next, q.visible, bytes(q.tail), q.max_phys, q.bytes_put) for q in store.queues]
    durable = store.durability
    marks = (store.log.end, store.log.room, store.log.stamp, store.dispatcher.position, store.index.end)
    return (queues, marks, durable.appended, durable.visible, store.queues.pending, list(store.queues.dirty))


def test_what_was_packed_moves_everything() -> None:
    async def main() -> None:
        store, queue = await fresh()
        packed = pack([put(queue, b"a", key="k"), put(queue, b"b")], store.log.place, 5000)
        span = store.commit(packed)
        (data,) = packed.pieces
        assert (span.start, span.end, span.offsets, span.touched) == (0, len(data), packed.offsets, [queue])
        assert store.log.read(0, span.end) == data
        assert (store.log.stamp, store.dispatcher.position, store.durability.visible) == (5000, span.end, span.end)
        assert (queue.next, queue.visible, queue.max_phys, queue.bytes_put) == (2, 2, span.end, span.end)
        assert await bodies(store, queue) == [b"a", b"b"]
        assert await found_keys(store, "T", ["k"]) == {"k": 1}
        await store.stop()

    run(main())


def test_what_was_packed_for_another_place_is_refused() -> None:
    async def main() -> None:
        store, queue = await fresh()
        late = pack([put(queue, b"late")], store.log.place, 1)
        store.append([put(queue, b"first")])
        before = state(store)
        with pytest.raises(StoreError, match=f"offset 0 of a log that ends at {store.log.end}"):
            store.commit(late)
        store.log.gate |= 64
        with pytest.raises(StoreError, match="is a slave"):
            store.commit(pack([put(queue, b"a")], store.log.place, 1))
        store.log.gate &= ~64
        assert state(store) == before
        await store.stop()

    run(main())


@pytest.mark.parametrize("fail_on", [1, 2, 3])
def test_a_write_that_fails_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, fail_on: int) -> None:
    async def main() -> None:
        store, queue = await fresh()
        other = store.queues.get_or_create("U", 0)
        store.append([put(queue, b"before", key="k")])
        before = state(store)
        real, writes = CommitLog.write, 0

        def write(self: CommitLog, data: bytes) -> None:
            nonlocal writes
            writes += 1
            if writes == fail_on:
                raise OSError(errno.EIO, "a bad disk")
            real(self, data)

        with monkeypatch.context() as broken:
            broken.setattr(CommitLog, "write", write)
            with pytest.raises(OSError, match="bad disk"):
                # Three files.
                store.append([put(q, bytes(7000), key="k") for q in (queue, other, queue, other, queue)])
        assert writes == fail_on
        assert state(store) == before
        assert not any(store.log.segments[0].file.pread(LOG_SIZE, store.log.end))
        store.append([put(queue, b"after", key="k")])
        assert await bodies(store, queue) == [b"before", b"after"]
        assert await found_keys(store, "T", ["k"]) == {"k": 2}
        await store.stop()

    run(main())


def test_an_index_that_takes_no_keys_costs_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store, queue = await fresh()

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOMEM, "no memory for its slots")

        with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
            broken.setattr(store.index, "put_many", refuse)
            assert store.append([put(queue, b"a", key="k")]).offsets == [(0, 0)]
        assert "putting keys into the index fails" in caplog.text
        assert (queue.visible, store.dispatcher.position) == (1, store.log.end)
        await store.stop()

    run(main())
