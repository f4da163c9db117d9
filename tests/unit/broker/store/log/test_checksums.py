"""Checksums of what stands beside the bodies: any change there is told, and costs its message alone; and whatever
becomes of their own files, no good message is taken for damaged."""

import asyncio
import logging
from collections.abc import Callable
from struct import calcsize

import pytest

from rmq.broker.store.log.checksums import Checksums, Look
from rmq.broker.store.log.sums import decode
from rmq.broker.store.store import Store
from rmq.protocol.record import FIELDS
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, bodies, die, entries, opened, put, small
from tests.support.store_scan import scan_log

SETTINGS = small(queue_file_size=20_000, index_enable=False)
FIRST = "/store/checksums/00000000000000000000"
LOG = "/store/commitlog/00000000000000000000"
COUNT = 20


async def filled(machine: SimNode, *, count: int = COUNT, size: int = 100, born: int = 1) -> Store:
    store = await opened(machine.world, SETTINGS)
    queue = store.queues.get_or_create("T", 0)
    for number in range(count):
        store.append([put(queue, b"%05d" % number * (size // 5), key=f"k{number}", born=born)])
    await asyncio.sleep(20)
    return store


async def checked(machine: SimNode) -> tuple[list[int], list[int]]:
    """Offsets that are served, and those of what was found damaged in the log, by a start and a pass."""
    store = await opened(machine.world, SETTINGS)
    await asyncio.sleep(100)
    served = await entries(store, store.queues.get_or_create("T", 0))
    damaged = [part.start for part in store.damaged.parts]
    await store.stop()
    return list(served), damaged


def changed(machine: SimNode, path: str, change: Callable[[bytes], bytes]) -> None:
    data = change(machine.files.read(path))
    file = machine.disk.open(path)
    file.truncate(0)
    file.pwrite(data, 0)
    file.datasync()


def flipped(machine: SimNode, path: str, at: int, bits: int = 0x10) -> None:
    changed(machine, path, lambda data: data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :])


def last_byte(name: str) -> int:
    """Where the last byte of a field is, in a record of the test: the body is 100 bytes, the topic one."""
    if name in FIELDS:
        at, letter = FIELDS[name]
        return at + calcsize(f">{letter}") - 1
    return {"topic": 88 + 100 + 1, "properties": 88 + 100 + 2 + 2 + 6}[name]


@pytest.mark.parametrize("name", [
    "queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp", "born_ip", "born_port", "store_timestamp",
    "store_ip", "store_port", "reconsume_times", "prepared_transaction_offset", "topic", "properties",
])  # fmt: skip
@pytest.mark.parametrize("number", [7, COUNT - 1], ids=["middle", "last"])
def test_a_change_beside_the_body_is_told_and_costs_its_message_alone(name: str, number: int) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        await (await filled(machine)).stop()
        victim = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[number]
        flipped(machine, LOG, victim.offset + last_byte(name), 0x40 if name == "sys_flag" else 0x01)
        store = await opened(machine.world, SETTINGS)
        await asyncio.sleep(100)
        queue = store.queues.get_or_create("T", 0)
        assert list(await entries(store, queue)) == [n for n in range(COUNT) if n != number]
        assert len(await bodies(store, queue)) == COUNT - 1
        assert queue.next == COUNT
        found = [part.start for part in store.damaged.parts]
        assert found == ([victim.offset] if number < COUNT - 1 else []), "the log ends before a bad last record"
        assert number < COUNT - 1 or store.recovered.lost is not None
        await store.stop()

    run(main())


def test_it_is_told_while_the_broker_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await filled(machine)
        victim = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[7]
        flipped(machine, LOG, victim.offset + last_byte("flag"))
        await asyncio.sleep(100)
        assert 7 not in await entries(store, store.queues.get_or_create("T", 0))
        await store.stop()

    run(main())
    assert [record.getMessage()[:40] for record in caplog.records if record.levelno == logging.CRITICAL] == [
        f"{LOG} is damaged at "[:40]
    ]


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "a sum flipped": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "the stretch flipped": lambda data: data[:17] + bytes([data[17] ^ 1]) + data[18:],
    "the number flipped": lambda data: data[:9] + b"\xff" + data[10:],
    "cut": lambda data: data[: len(data) // 2],
    "zero": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "behind others": lambda data: b"rmqS" * 9 + data,
    "doubled": lambda data: data + data,
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_of_checksums_that_is_spoilt_costs_no_message(how: str) -> None:
    """And the scrub makes it anew: a change is told from then on."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        await (await filled(machine)).stop()
        changed(machine, FIRST, SPOILT[how])
        assert await checked(machine) == (list(range(COUNT)), [])
        victim = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[7]
        flipped(machine, LOG, victim.offset + last_byte("flag"))
        assert (await checked(machine))[1] == [victim.offset]

    run(main())


def test_without_the_directory_everything_is_served_and_the_scrub_makes_it() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        await (await filled(machine)).stop()
        machine.files.unlink(FIRST)
        machine.files.rmdir("/store/checksums")
        assert await checked(machine) == (list(range(COUNT)), [])
        ((block, sums),) = decode(machine.files.read(FIRST))
        assert (block.start, len(sums)) == (0, COUNT)

    run(main())


async def _other(count: int, size: int, born: int) -> bytes:
    """The checksums of another store."""
    other = Simulation(2).node("b")
    await asyncio.sleep(5)
    await (await filled(other, count=count, size=size, born=born)).stop()
    return other.files.read(FIRST)


@pytest.mark.parametrize(
    ("count", "size", "born"), [(COUNT, 100, 2), (COUNT + 9, 100, 2), (9, 100, 2), (COUNT, 105, 1)]
)
def test_checksums_of_another_log_are_given_up(
    count: int, size: int, born: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        await (await filled(machine)).stop()
        data = await _other(count, size, born)
        changed(machine, FIRST, lambda _: data)
        assert await checked(machine) == (list(range(COUNT)), [])
        made = [len(sums) for _, sums in decode(machine.files.read(FIRST))]
        assert sum(made) == COUNT, "made anew"

    run(main())
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.WARNING] == []


def test_another_broker_that_cut_the_log_and_went_on_is_no_damage() -> None:
    """As Java does after a kill: what is behind the cut has other sums, and the messages are good."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        await (await filled(machine)).stop()
        kept = machine.files.read(FIRST)
        store = await opened(machine.world, SETTINGS)
        tenth = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[10]
        await store.truncate(tenth.offset)
        queue = store.queues.get_or_create("T", 0)
        for number in range(10, COUNT):
            store.append([put(queue, b"other" * 20, key=f"k{number}")])
        await asyncio.sleep(20)
        await store.stop()
        changed(machine, FIRST, lambda _: kept)
        assert await checked(machine) == (list(range(COUNT)), [])

    run(main())


def test_a_log_that_is_cut_takes_its_checksums_along() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await filled(machine, count=120)
        files = sorted(machine.files.list("/store/checksums"))
        assert files == sorted(machine.files.list("/store/commitlog"))[: len(files)]
        assert len(files) > 1
        tenth = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[10]
        await store.truncate(tenth.offset)
        left = machine.files.list("/store/checksums")
        blocks = [block for name in left for block, _ in decode(machine.files.read(f"/store/checksums/{name}"))]
        assert all(block.end <= tenth.offset for block in blocks)
        queue = store.queues.get_or_create("T", 0)
        for number in range(10, 20):
            store.append([put(queue, b"other" * 20, key=f"k{number}")])
        await store.stop()
        assert await checked(machine) == (list(range(20)), [])

    run(main())


def test_files_of_the_log_that_go_take_their_checksums_along() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await filled(machine, count=120)
        store.settings.file_reserved_hours = 0
        store.retention.trigger()
        await store.retention.run()
        names = machine.files.list("/store/commitlog")
        assert set(machine.files.list("/store/checksums")) <= set(names)
        await store.stop()

    run(main())


@pytest.mark.parametrize("kept", [0, 3, 40, 60, 91])
def test_a_kill_while_they_are_written_costs_nothing(kept: int) -> None:
    """Whatever part of a block got to the file: the next start covers what is not."""

    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await filled(machine)
        queue = store.queues.get_or_create("T", 0)
        machine.disk.tear("/store/checksums/*", kept)
        for number in range(COUNT, COUNT + 9):
            store.append([put(queue, b"%05d" % number * 20, key=f"k{number}")])
        await asyncio.sleep(15)
        simulation.kill(machine)
        await die(store)
        assert await checked(machine) == (list(range(COUNT + 9)), [])
        victim = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[COUNT + 4]
        flipped(machine, LOG, victim.offset + last_byte("flag"))
        assert (await checked(machine))[1] == [victim.offset]

    run(main())


def test_replicated_bytes_have_theirs_too() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        master, slave = simulation.node("a"), simulation.node("b")
        await (await filled(master)).stop()
        end = scan_log(master.files, "/store/commitlog", LOG_SIZE).end
        data = master.files.read(LOG)[:end]
        store = await opened(slave.world, SETTINGS)
        for start in range(0, end, 700):
            store.append_raw(start, data[start : start + 700])
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        await store.stop()
        made = [sums for _, sums in decode(slave.files.read(FIRST))]
        assert [n for sums in made for n in sums] == [n for _, sums in decode(master.files.read(FIRST)) for n in sums]

    run(main())


def test_a_disk_that_does_not_take_or_give_them_costs_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        machine.disk.fail("pwrite", 28, "/store/checksums/*", count=-1)
        await (await filled(machine)).stop()
        machine.disk.heal()
        machine.disk.fail("open", 5, "/store/checksums/*", count=-1)
        assert await checked(machine) == (list(range(COUNT)), [])

    run(main())
    assert any("writing checksums of the commit log fails" in record.getMessage() for record in caplog.records)


def test_switched_off_none_are_made() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small(checksums=False))
        store.append([put(store.queues.get_or_create("T", 0))])
        await asyncio.sleep(100)
        await store.stop()
        assert machine.files.list("/store/checksums") == []

    run(main())


def test_without_comparing_a_change_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug that the others are to find."""

    async def nothing(*_: object) -> Look:
        return Look([], -1)

    monkeypatch.setattr(Checksums, "look", nothing)
    with pytest.raises(AssertionError):
        test_a_change_beside_the_body_is_told_and_costs_its_message_alone("flag", 7)
