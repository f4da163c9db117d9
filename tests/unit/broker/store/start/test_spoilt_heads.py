"""One bit in the head of a record that has no checksum but of its body: it costs that message, no other one moves or is
hidden."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator

import pytest

from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, body_of, die, opened, put, small

QUEUES = (("T8", 0), ("T9", 0), ("T9", 1), ("T9", 2), ("Solo", 0))
ROUNDS = 14
#: Where the fields of a record begin.
SIZE, QUEUE_ID, QUEUE_OFFSET = 0, 12, 20
BODY = b"body %05d"
TOPIC = 88 + len(BODY % 0) + 1

Sent = dict[tuple[str, int, int], tuple[int, bytes]]


async def filled(node: SimNode, *, first: int = 0, queues: tuple[tuple[str, int], ...] = QUEUES) -> tuple[Store, Sent]:
    """A store with messages in several queues, mostly by turns; what was sent where, by offset in the queue.

    :param first: of T9-0 so many more before all others.
    """
    store = await opened(node.world, small(checksums=False))
    sent: Sent = {}
    rng = random.Random(5)
    turns = [("T9", 0)] * first + [key for _ in range(ROUNDS) for key in rng.sample(queues, len(queues))]
    for number, (topic, queue_id) in enumerate(turns):
        queue = store.queues.get_or_create(topic, queue_id)
        body = BODY % number
        ((index, offset),) = store.append([put(queue, body)]).offsets
        sent[topic, queue_id, index] = offset, body
    return store, sent


def flip(node: SimNode, offset: int, field: int, bit: int, width: int = 8) -> None:
    """Flip a bit of a big-endian field of the record at a commit-log offset."""
    file = node.disk.open(f"/store/commitlog/{offset - offset % LOG_SIZE:020d}")
    at = offset % LOG_SIZE + field + width - 1 - bit // 8
    file.pwrite(bytes([file.pread(1, at)[0] ^ 1 << bit % 8]), at)
    file.close()


def remove(node: SimNode, *names: str) -> None:
    for name in names:
        if node.files.is_dir(f"/store/{name}"):
            QueueDisk(node.files, "/store", QUEUE_SIZE).remove_tree(f"/store/{name}")


async def served(store: Store) -> dict[tuple[str, int, int], bytes]:
    """What every queue serves at which offset."""
    found = {}
    for queue in store.queues:
        for index in range(queue.min, queue.visible):
            entry = await store.queues.entries_cold(queue, index, 1)
            offset, size = int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:12], "big")
            if size != 0x7FFFFFFF:
                record = await store.messages.at(offset)
                assert record is not None
                found[queue.topic, queue.id, index] = body_of(record)
    return found


def critical(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


WAYS = ("all queues lost", "one queue lost", "killed with a tail", "rebuild")


async def with_a_flip(
    caplog: pytest.LogCaptureFixture,
    way: str,
    victim: tuple[str, int, int],
    field: int,
    bit: int,
    width: int,
    *,
    first: int = 0,
    queues: tuple[tuple[str, int], ...] = QUEUES,
) -> None:
    """Flip a bit of a message, start in a way that has the queues made anew, and look at all the others."""
    simulation = Simulation(3)
    node = simulation.node("a")
    store, sent = await filled(node, first=first, queues=queues)
    if way == "killed with a tail":
        await store.flusher.flush_all()
        await store.force()
        for topic, queue_id in queues:
            queue = store.queues.get_or_create(topic, queue_id)
            ((index, offset),) = store.append([put(queue, BODY % 99999)]).offsets
            sent[topic, queue_id, index] = offset, BODY % 99999
        simulation.kill(node)
        await die(store)
    else:
        await store.stop()
    flip(node, sent[victim][0], field, bit, width)
    caplog.clear()
    if way == "all queues lost":
        remove(node, "consumequeue")
    elif way == "one queue lost":
        remove(node, f"consumequeue/{victim[0]}/{victim[1]}")
    elif way == "rebuild":
        made = await rebuild(node.world, small(checksums=False))
        assert [part.start for part in made.damages] == [sent[victim][0]]
    good = {key: body for key, (_, body) in sent.items() if key != victim}
    ends: dict[tuple[str, int], int] = {}
    for topic, queue_id, index in sent:
        ends[topic, queue_id] = max(index + 1, ends.get((topic, queue_id), 0))
    for life in range(3):
        store = await opened(node.world, small(checksums=False))
        assert await served(store) == good
        for (topic, queue_id), end in ends.items():
            assert store.queues.get_or_create(topic, queue_id).next >= end, (topic, queue_id)
        lines = [line for line in critical(caplog) if field != SIZE or life == 0]
        if not life:
            assert any("/store/commitlog/0000" in line or field == SIZE for line in lines), lines
        assert store.damaged.bytes > 0 or way == "killed with a tail"
        for topic, queue_id in queues:
            ((index, offset),) = store.append([put(store.queues.get_or_create(topic, queue_id), b"next")]).offsets
            assert (topic, queue_id, index) not in good
            good[topic, queue_id, index] = b"next"
            ends[topic, queue_id] = index + 1
        caplog.clear()
        if life:
            assert lines == [], "it is told once"
        await asyncio.sleep(2)
        await store.stop()


def cases() -> Iterator[tuple[str, tuple[str, int, int], int, int, int]]:
    """Every bit in one way of a start each, those that lead to another queue in all of them."""
    middle = ROUNDS // 2
    everywhere: list[tuple[tuple[str, int, int], int, int, int]] = []
    for bit in (0, 1, 3, 31):
        everywhere.append((("T9", 0, middle), QUEUE_ID, bit, 4))
        everywhere.append((("T9", 1, middle), QUEUE_ID, bit, 4))
    everywhere += [(("T9", 0, middle), TOPIC, bit, 2) for bit in (0, 2, 7)]
    everywhere += [(("T9", 0, 0), TOPIC, 1, 2), (("T9", 0, middle), SIZE, 12, 4)]
    for bit in (0, 63):
        everywhere.append((("T9", 1, 0), QUEUE_OFFSET, bit, 8))
        everywhere.append((("T9", 2, ROUNDS - 1), QUEUE_OFFSET, bit, 8))
    for case in everywhere:
        for way in WAYS:
            yield way, *case
    for bit in range(41):
        yield WAYS[bit % len(WAYS)], ("T9", 0, middle), QUEUE_OFFSET, bit, 8
    for bit in range(32):
        yield WAYS[bit % len(WAYS)], ("T9", 0, middle), SIZE, bit, 4


@pytest.mark.parametrize(("way", "victim", "field", "bit", "width"), list(cases()))
def test_a_bit_in_a_head_costs_its_message_alone(
    way: str, victim: tuple[str, int, int], field: int, bit: int, width: int, caplog: pytest.LogCaptureFixture
) -> None:
    run(with_a_flip(caplog, way, victim, field, bit, width))


@pytest.mark.parametrize("way", ["all queues lost", "one queue lost", "rebuild"])
def test_a_long_queue_is_not_cut_back_by_the_first_message_of_another(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Many messages in queue 0, one in queue 1, which says then that it is the first of queue 0."""
    run(with_a_flip(caplog, way, ("T9", 1, 0), QUEUE_ID, 0, 4, first=300))


@pytest.mark.parametrize("way", WAYS)
def test_queues_that_have_one_message_each(way: str, caplog: pytest.LogCaptureFixture) -> None:
    queues = (("T9", 0), ("T9", 5), ("Solo", 0))
    run(with_a_flip(caplog, way, ("T9", 0, 40), QUEUE_OFFSET, 5, 8, first=70, queues=queues))


@pytest.mark.parametrize("news", [1, 2, 40])
def test_a_topic_that_nobody_knows_was_deleted_begins_anew(news: int) -> None:
    """Java notes no deletion: what its queues say, or messages that follow each other, tell."""

    async def main() -> None:
        node = Simulation(5).node("a")
        store = await opened(node.world, small(checksums=False))
        old = store.queues.get_or_create("T", 0)
        store.append([put(old, b"old") for _ in range(20)])
        store.queues.drop("T")
        again = store.queues.get_or_create("T", 0)
        store.append([put(again, b"new %d" % number) for number in range(news)])
        new = {("T", 0, number): b"new %d" % number for number in range(news)}
        await store.stop()
        store = await opened(node.world, small(checksums=False))
        assert await served(store) == new
        assert store.damaged.parts == []
        await store.stop()
        remove(node, "consumequeue")
        store = await opened(node.world, small(checksums=False))
        if news > 1:
            assert await served(store) == new
        else:
            # One message alone may as well be a damaged one of the first life: nothing is thrown away for it.
            assert len(await served(store)) == 20
            assert store.queues.get_or_create("T", 0).next == 21
        await store.stop()

    run(main())
