"""The end of the commit log is gone: that is told, and no offset that a message had is given to another."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq.broker.store.log.gate import Gate
from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, bodies, die, opened, put, small
from tests.support.store_scan import scan_log

QUEUES = (("A", 0), ("A", 1), ("B", 0))


async def filled(
    simulation: Simulation, node: SimNode, *, clean: bool, rounds: int = 150
) -> dict[tuple[str, int], int]:
    """A store whose process is gone; how many messages each queue has."""
    store = await opened(node.world, small())
    for number in range(rounds):
        for topic, queue_id in QUEUES:
            store.append([put(store.queues.get_or_create(topic, queue_id), b"body %04d" % number, key=f"k{number}")])
    only = store.queues.get_or_create("Last", 0)
    store.append([put(only, b"the only one of its queue")])
    if clean:
        await store.stop()
        simulation.kill(node)
    else:
        await asyncio.sleep(70)
        simulation.kill(node)
        await die(store)
    return {**dict.fromkeys(QUEUES, rounds), ("Last", 0): 1}


def cut_off(node: SimNode, records: int) -> tuple[int, int]:
    """Make the last records zeros; where the log ends then, and where it ended."""
    scan = scan_log(node.files, "/store/commitlog", LOG_SIZE)
    start = scan.records[-records].offset
    at = start
    while at < scan.end:
        stop = min(scan.end, at - at % LOG_SIZE + LOG_SIZE)
        file = node.disk.open(f"/store/commitlog/{at - at % LOG_SIZE:020d}")
        file.pwrite(bytes(stop - at), at % LOG_SIZE)
        file.datasync()
        file.close()
        at = stop
    return start, scan.end


def critical(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    caplog.clear()
    return found


def remove(node: SimNode, name: str) -> None:
    QueueDisk(node.files, "/store", QUEUE_SIZE).remove_tree(f"/store/{name}")


def ends(store: Store) -> dict[tuple[str, int], int]:
    return {(queue.topic, queue.id): queue.next for queue in store.queues}


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("gone", ["", "index", "checkpoint"])
@pytest.mark.parametrize("lost", [1, 31, 200])
def test_a_lost_tail_is_told_and_its_offsets_are_not_used_again(
    clean: bool, gone: str, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        simulation = Simulation(11)
        node = simulation.node("a")
        counts = await filled(simulation, node, clean=clean)
        end, behind = cut_off(node, lost)
        if gone == "index":
            remove(node, "index")
        elif gone:
            node.files.unlink("/store/checkpoint")
        caplog.clear()
        for life in range(3):
            store = await opened(node.world, small())
            assert store.log.end == end
            assert ends(store) == counts
            told = critical(caplog)
            if life:
                assert told == []
            else:
                assert len(told) == 1
                assert f"ends at offset {end} (/store/commitlog/{end - end % LOG_SIZE:020d}, " in told[0]
                assert f"reached to {behind}, " in told[0]
                assert f"{lost} messages or more" in told[0]
            for queue in store.queues:
                assert queue.visible == queue.next
            # No queue ends in a blank entry on disk: Java's broker would wait for a log of 2 GiB.
            if life == 1:
                simulation.kill(node)
                await die(store)
            else:
                await store.stop()
        store = await opened(node.world, small())
        for key, count in counts.items():
            queue = store.queues.get_or_create(*key)
            ((index, _),) = store.append([put(queue, b"new")]).offsets
            assert index == count
            assert (await bodies(store, queue))[-1] == b"new"
        await asyncio.sleep(2)
        await store.stop()
        seen = {}
        for life in range(2):
            if life:
                remove(node, "consumequeue")
            store = await opened(node.world, small())
            assert ends(store) == {key: count + 1 for key, count in counts.items()}
            assert seen in ({}, {queue.topic: await bodies(store, queue) for queue in store.queues})
            seen = {queue.topic: await bodies(store, queue) for queue in store.queues}
            assert critical(caplog) == []
            await store.stop()

    run(main())


@pytest.mark.parametrize("who", ["index", "checkpoint"])
def test_where_the_queues_are_gone_too_others_tell_that_there_was_more(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        simulation = Simulation(12)
        node = simulation.node("a")
        await filled(simulation, node, clean=True)
        end, _ = cut_off(node, 20)
        remove(node, "consumequeue")
        if who == "index":
            node.files.unlink("/store/checkpoint")
        else:
            remove(node, "index")
        caplog.clear()
        store = await opened(node.world, small())
        assert store.log.end == end
        (told,) = critical(caplog)
        assert f"({'the index' if who == 'index' else 'checkpoint'})" in told
        await store.stop()
        store = await opened(node.world, small())
        assert critical(caplog) == []
        await store.stop()

    run(main())


@pytest.mark.parametrize(("clean", "files"), [(True, 1), (False, 1), (False, 2)])
def test_messages_under_another_files_name_are_not_given_up(clean: bool, files: int) -> None:
    """Whether the log ends before them, and they would be written over, or goes on behind them."""

    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await opened(node.world, small())
        queue = store.queues.get_or_create("T", 0)
        while store.log.end < files * LOG_SIZE + LOG_SIZE // 2:
            store.append([put(queue, b"x" * 300)])
            await asyncio.sleep(0.01)
        if clean:
            await store.stop()
        else:
            simulation.kill(node)
            await die(store)
        first, second = (f"/store/commitlog/{start:020d}" for start in (0, LOG_SIZE))
        held = {path: node.files.read(path) for path in (first, second)}
        for path, other in ((first, second), (second, first)):
            node.files.write_atomic(path, held[other])
        with pytest.raises(StoreError, match=f"{first} holds the messages of {LOG_SIZE:020d}: .* rename them"):
            await opened(node.world, small())
        for path, data in held.items():
            assert node.files.read(path) == held[second if path == first else first]
            node.files.write_atomic(path, data)
        store = await opened(node.world, small())
        assert store.queues.get_or_create("T", 0).next > files * LOG_SIZE // 500
        await store.stop()

    run(main())


def test_what_a_queue_has_left_out_gets_to_disk_with_the_next_message_only() -> None:
    async def main() -> None:
        simulation = Simulation(13)
        node = simulation.node("a")
        await filled(simulation, node, clean=True)
        cut_off(node, 31)
        store = await opened(node.world, small())
        await asyncio.sleep(70)
        await store.stop()
        for topic, queue_id in QUEUES:
            directory = f"/store/consumequeue/{topic}/{queue_id}"
            data = b"".join(
                node.disk.open(f"{directory}/{name}").pread(QUEUE_SIZE, 0)
                for name in sorted(node.files.list(directory))
            )
            last = [data[at : at + 20] for at in range(0, len(data), 20) if any(data[at : at + 20])][-1]
            assert int.from_bytes(last[8:12], "big") < 1000, "no blank entry is the last one"

    run(main())


def test_a_slave_gets_what_it_lost_from_its_master_in_its_place() -> None:
    async def main() -> None:
        simulation = Simulation(14)
        node = simulation.node("a")
        counts = await filled(simulation, node, clean=True)
        scan = scan_log(node.files, "/store/commitlog", LOG_SIZE)
        whole = {at: node.files.read(f"/store/commitlog/{at:020d}") for at in range(0, scan.end, LOG_SIZE)}
        store = await opened(node.world, small(), start=False)
        wanted = {(queue.topic, queue.id): await bodies(store, queue) for queue in store.queues}
        await store.abandon()
        _, behind = cut_off(node, 40)
        store = await opened(node.world, small())
        store.log.gate |= Gate.SLAVE
        while store.log.end < behind:
            at = store.log.end
            file = at - at % LOG_SIZE
            store.append_raw(at, whole[file][at - file : min(behind - file, at - file + 300)])
            await asyncio.sleep(0.01)
        assert ends(store) == counts
        assert {(queue.topic, queue.id): await bodies(store, queue) for queue in store.queues} == wanted
        await store.stop()

    run(main())


@pytest.mark.parametrize("bit", [40, 61])
def test_one_bit_of_an_entry_is_no_lost_tail(bit: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        told = await filled(simulation, node, clean=True)
        node.files.unlink("/store/checkpoint")
        file = node.disk.open(f"/store/consumequeue/A/0/{0:020d}")
        entry = int.from_bytes(file.pread(8, 60), "big")
        file.pwrite((entry ^ 1 << bit).to_bytes(8, "big"), 60)
        start, end = cut_off(node, 1)
        store = await opened(node.world, small())
        assert store.recovered.lost is not None
        assert store.recovered.lost.start == start
        assert store.recovered.lost.end <= end + LOG_SIZE
        assert ends(store) == told
        await store.stop()

    run(main())
