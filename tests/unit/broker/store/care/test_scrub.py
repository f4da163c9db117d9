"""The check of the whole log behind a running broker: what it finds, what it leaves alone, and where it goes on."""

import asyncio
import errno
import json
import logging

import pytest

from rmq.broker.store.care import damaged
from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.runtime.world import Offload
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.boot import spoil, written
from tests.support.scenes.scrub import PASS, SETTINGS, damage_is_found_while_running, damaged_later, served
from tests.support.scenes.store import LOG_SIZE, die, opened, put, small
from tests.support.store_scan import scan_log
from tests.support.virtual import eventually


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def test_damage_is_found_told_and_kept_apart(caplog: pytest.LogCaptureFixture) -> None:
    damage_is_found_while_running()
    told = messages(caplog)
    assert len(told) == 1, "once, not at every pass"
    assert "/store/commitlog/00000000000000016384 is damaged at " in told[0]
    assert "1 messages are lost" in told[0]


def test_entries_that_are_in_memory_become_blank_too() -> None:
    async def main() -> None:
        simulation = Simulation(42)
        machine = simulation.node("a")
        settings = small(
            queue_file_size=20_000, index_enable=False, scrub_interval_hours=0,
            queue_flush_interval_ms=1_000_000, queue_thorough_interval_ms=1_000_000,
        )  # fmt: skip
        store = await opened(machine.world, settings)
        queues = [store.queues.get_or_create("T", number) for number in range(3)]
        for number in range(25):
            store.append([put(queue, b"n%05d" % number * 12) for queue in queues])
        await asyncio.sleep(30)
        records = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records
        victims = [record for record in records if record.queue_id == 1][10:12]
        for victim in reversed(victims):
            spoil(machine, victim.offset)
        await asyncio.sleep(3 * PASS)
        assert queues[1].tail_from == 0
        assert sorted(await served(store, queues[1])) == [n for n in range(25) if n not in (10, 11)]
        assert len(await served(store, queues[0])) == len(await served(store, queues[2])) == 25
        assert store.scrub.set_aside == 2
        await store.stop()

    run(main())


@pytest.mark.parametrize("in_memory", [0, 25])
def test_entries_side_by_side_become_blank_with_one_write(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole has thousands, and each write is forced to disk; a file's end and what is in memory are ends of a run."""
    written: list[tuple[int, int]] = []
    real = damaged.overwrite

    async def overwrite(queues: QueueTable, offload: Offload, queue: Queue, index: int, entries: bytes) -> bool:
        written.append((index, index + len(entries) // 20))
        return await real(queues, offload, queue, index, entries)

    async def main() -> None:
        monkeypatch.setattr(damaged, "overwrite", overwrite)
        machine = Simulation(46).node("a")
        settings = small(commit_log_file_size=1 << 20, index_enable=False, queue_flush_interval_ms=1_000_000,
                         queue_thorough_interval_ms=1_000_000)  # fmt: skip
        store = await opened(machine.world, settings)
        queue = store.queues.get_or_create("T", 0)
        places = []
        for number in range(100):
            if number == 100 - in_memory:
                await store.writer.write(everything=True)
            places += [offset for _, offset in store.append([put(queue, b"%d" % number)]).offsets]
        if not in_memory:
            await store.writer.write(everything=True)
        part = Damage(places[10], places[90])
        assert await store.damaged.set_aside(part) == 80
        assert written == ([(10, 40), (40, 75), (75, 90)] if in_memory else [(10, 40), (40, 80), (80, 90)])
        assert sorted(await served(store, queue)) == [*range(10), *range(90, 100)]
        await store.stop()

    run(main())


@pytest.mark.parametrize("before", [0, 1], ids=["alone", "behind another"])
def test_a_record_that_is_still_to_come_is_no_damage(before: int) -> None:
    """Who follows a master, or the leader of a group, gets large messages in pieces, and forces each to disk."""

    async def main() -> None:
        simulation = Simulation(47)
        leader, follower = [await opened(simulation.node(name).world, SETTINGS) for name in "ab"]
        follower.log.gate |= Gate.SLAVE
        queue = leader.queues.get_or_create("T", 0)
        for number in range(before + 1):
            leader.append([put(queue, b"%d" % number * 3000)])
        data = leader.log.read(0, leader.log.end)
        assert data is not None
        follower.append_raw(0, data[:-1000])
        await asyncio.sleep(3 * PASS)
        assert follower.scrub.progress().endswith("no damage known")
        follower.append_raw(len(data) - 1000, data[-1000:])
        await asyncio.sleep(3 * PASS)
        assert not follower.damaged.parts
        assert await served(follower, follower.queues.get_or_create("T", 0)) == await served(leader, queue)
        for store in (leader, follower):
            await store.stop()

    run(main())


@pytest.mark.parametrize("files", [0, 1], ids=["in its file", "in the file before"])
def test_a_log_that_is_cut_back_is_no_damage(files: int) -> None:
    """What comes in the place of records that a pass has seen begins elsewhere: a follower's log, and a slave's."""

    async def main() -> None:
        store = await opened(Simulation(48).node("a").world, SETTINGS)
        queue = store.queues.get_or_create("T", 0)
        places = [store.append([put(queue, b"%d" % number * 500)]).start for number in range(2 + 20 * files)]
        await eventually(lambda: store.damaged.position == store.log.end, 200, 0.001)
        assert store.scrub.active
        await store.truncate(places[1])
        sizes = range(700, 700 + 40 * (1 + files))
        for size in sizes:
            store.append([put(queue, b"x" * size)])
        await asyncio.sleep(3 * PASS)
        assert not store.damaged.parts
        assert not store.scrub.unreadable
        assert len(await served(store, queue)) == 1 + len(sizes)
        await store.stop()

    run(main())


def test_the_end_of_what_is_on_disk_can_be_damaged() -> None:
    async def main() -> None:
        simulation = Simulation(43)
        machine = simulation.node("a")
        store, sent = await written(machine, 2, scrub_interval_hours=0)
        last = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[-1]
        spoil(machine, last.offset)
        await asyncio.sleep(PASS)
        assert store.damaged.parts == [Damage(last.offset, store.log.end)]
        queue = store.queues.get_or_create("T", 0)
        assert len(await served(store, queue)) == len(sent) - 1
        # Messages go on behind it.
        store.append([put(queue, b"next")])
        await asyncio.sleep(PASS)
        assert (await served(store, queue))[len(sent)] == b"next"
        assert len(store.damaged.parts) == 1
        await store.stop()

    run(main())


def test_what_is_read_does_not_stay_in_the_page_cache() -> None:
    async def main() -> None:
        machine = Simulation(44).node("a")
        store, _ = await written(machine, 4, scrub_interval_hours=0)
        machine.disk.evict("*/commitlog/*")
        checked = store.scrub.checked
        await asyncio.sleep(PASS)
        assert store.scrub.checked - checked > 3 * (LOG_SIZE - 300)
        assert machine.disk.open(f"/store/commitlog/{LOG_SIZE:020d}").pread_hot(100, 0) is None
        await store.stop()

    run(main())


def test_it_takes_as_long_as_the_rate_says_and_goes_on_where_it_was() -> None:
    async def main() -> None:
        simulation = Simulation(45)
        machine = simulation.node("a")
        settings = small(
            commit_log_file_size=1 << 20, queue_file_size=20_000, index_enable=False, flush_interval_ms=60_000,
            scrub_rate_mib=1, scrub_interval_hours=2,
        )  # fmt: skip
        store = await opened(machine.world, settings)
        queue = store.queues.get_or_create("T", 0)
        for number in range(60):
            store.append([put(queue, b"%d" % (number % 10) * 60_000)])
        assert store.scrub.progress() == "not begun yet; a pass takes 1 min at 1 MiB/s; no damage known"
        await asyncio.sleep(62)
        assert 0 < store.scrub.checked < 3 << 20, "not all at once"
        assert "% checked since" in store.scrub.progress()
        position = store.damaged.position
        assert position > 1 << 20
        simulation.kill(machine)
        await die(store)
        store = await opened(machine.world, settings)
        assert store.damaged.position // (1 << 20) == position // (1 << 20)
        await asyncio.sleep(200)
        assert store.damaged.position == -1
        assert store.scrub.checked <= store.log.end - position + (1 << 20)
        assert "is done; a pass takes 1 min at 1 MiB/s; no damage known" in store.scrub.progress()
        checked = store.scrub.checked
        await asyncio.sleep(3600)
        assert store.scrub.checked == checked, "every two hours"
        await asyncio.sleep(3600)
        assert store.scrub.checked > checked
        settings.scrub_rate_mib = 0
        checked = store.scrub.checked
        await asyncio.sleep(3 * 3600)
        assert store.scrub.checked == checked
        assert store.scrub.progress() == "off; no damage known"
        await store.stop()

    run(main())


@pytest.mark.parametrize(
    ("gib", "least", "most", "hours", "told"),
    [
        (0, 4, 16, 24, "1 min at 4"),
        (10, 4, 16, 24, "43 min at 4"),
        (270, 4, 16, 24, "19.2 h at 4"),
        (400, 4, 16, 24, "19.2 h at 5.93"),
        (1024, 4, 16, 24, "19.2 h at 15.2"),
        (2048, 4, 16, 24, "36.4 h at 16"),
        (2048, 4, 64, 24, "19.2 h at 30.3"),
        (2048, 40, 16, 24, "14.6 h at 40"),  # who asks for more gets it
        (2048, 4, 16, 168, "134.4 h at 4.33"),
        (2048, 4, 16, 0, "145.6 h at 4"),
    ],
)
def test_a_pass_is_done_before_the_next_is_due_or_says_how_long_it_takes(
    gib: int, least: int, most: int, hours: int, told: str
) -> None:
    async def main() -> None:
        machine = Simulation(46).node("a")
        store = Store(machine.world, small(scrub_rate_mib=least, scrub_most_mib=most, scrub_interval_hours=hours))
        store.log.end = gib << 30
        assert store.scrub.progress() == f"not begun yet; a pass takes {told} MiB/s; no damage known"

    run(main())


def test_a_sector_that_cannot_be_read_costs_the_records_in_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        _, machine, store, sent, offset = await damaged_later(LOG_SIZE + 12_500)
        path = f"/store/commitlog/{LOG_SIZE:020d}"
        records = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records
        machine.disk.fail_at(path, 5000, 5001)
        machine.disk.evict("*")
        await asyncio.sleep(3 * PASS)
        assert [part.start for part in store.damaged.parts] == [offset], "behind it in the same file"
        page = range(LOG_SIZE + 4096, LOG_SIZE + 8192)
        first = max(record.offset for record in records if record.offset < page.start)
        behind = min(record.offset for record in records if record.offset >= page.stop)
        assert store.scrub.unreadable == [(first, behind)]
        told = [text for text in messages(caplog) if "cannot be read" in text]
        assert len(told) == 1, "once, not at every pass"
        assert f"{path} cannot be read at {first % LOG_SIZE}, {behind - first} bytes from offset {first} on" in told[0]
        assert f"1 places cannot be read, {behind - first} bytes" in store.scrub.progress()
        machine.disk.heal()
        await asyncio.sleep(PASS)
        assert store.scrub.unreadable == []
        queue = store.queues.get_or_create("T", 0)
        assert len(await served(store, queue)) == len(sent) - 1, "what can be read again is there"
        await store.stop()

    run(main())


@pytest.mark.parametrize("action", ["pread", "open"])
def test_a_file_that_cannot_be_read_is_told_and_passed_by(action: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        _, machine, store, _, offset = await damaged_later(3 * LOG_SIZE + 500)
        machine.disk.fail(action, errno.EIO, f"*/commitlog/{LOG_SIZE:020d}", count=-1)
        machine.disk.evict("*")
        await asyncio.sleep(PASS)
        assert [part.start for part in store.damaged.parts] == [offset]
        assert store.scrub.unreadable == [(LOG_SIZE, 2 * LOG_SIZE)]
        assert f"{LOG_SIZE:020d} cannot be read at 0, {LOG_SIZE} bytes" in caplog.text
        machine.disk.heal()
        await store.stop()

    run(main())


def test_what_cannot_be_read_where_the_log_ends_is_no_damage() -> None:
    async def main() -> None:
        _, machine, store, sent, _ = await damaged_later(500)
        queue = store.queues.get_or_create("T", 0)
        for _ in range(50):
            sent.append(b"last")
            store.append([put(queue, b"last")])
        last = store.log.end - 200
        machine.disk.fail_at(f"*/{last - last % LOG_SIZE:020d}", last % LOG_SIZE, LOG_SIZE)
        await asyncio.sleep(PASS)
        assert len(store.damaged.parts) == 1
        assert [part.end for part in store.scrub.unreadable] == [store.log.end]
        machine.disk.heal()
        assert len(await served(store, queue)) == len(sent) - 1
        await store.stop()

    run(main())


def test_retention_takes_known_damage_along() -> None:
    async def main() -> None:
        _, machine, store, _, _ = await damaged_later(500)
        await asyncio.sleep(PASS)
        assert len(store.damaged.parts) == 1
        await store.log.remove_first()
        later = spoil(machine, 2 * LOG_SIZE)
        await asyncio.sleep(PASS)
        assert [part.start for part in store.damaged.parts] == [later]
        await store.stop()

    run(main())


def test_damage_found_at_start_is_known_from_then_on() -> None:
    async def main() -> None:
        simulation, machine, store, sent, offset = await damaged_later(3 * LOG_SIZE + 500)
        simulation.power_cut(machine)
        await die(store)
        store = await opened(machine.world, SETTINGS)
        assert [damage.start for damage in store.recovered.damages] == [offset]
        await store.stop()
        store = await opened(machine.world, SETTINGS)
        assert store.recovered.checked_from >= 4 * LOG_SIZE
        queue = store.queues.get_or_create("T", 0)
        assert len(await served(store, queue)) == len(sent) - 1
        await store.stop()

    run(main())


def test_what_is_written_where_damage_was_cut_off_is_good() -> None:
    """The log ended before it once: later messages in its place are other bytes."""

    async def main() -> None:
        simulation, machine, store, _, offset = await damaged_later(2 * LOG_SIZE + 500)
        await asyncio.sleep(PASS)
        assert [part.start for part in store.damaged.parts] == [offset]
        lost = 0
        simulation.kill(machine)
        await die(store)
        cut_to = scan_log(machine.files, "/store/commitlog", LOG_SIZE).end
        assert cut_to == offset, "the scanner stops at the damage"
        for start in range(2 * LOG_SIZE, 10 * LOG_SIZE, LOG_SIZE):
            path = f"/store/commitlog/{start:020d}"
            if machine.files.exists(path):
                machine.disk.open(path).pwrite(bytes(LOG_SIZE), 0)
                machine.disk.open(path).datasync()
        for life in range(3):
            store = await opened(machine.world, SETTINGS)
            queue = store.queues.get_or_create("T", 0)
            if life == 0:
                lost = queue.next - len(await served(store, queue))
                assert lost
                assert store.log.end < offset
                assert not store.damaged.parts
                while store.log.end < 4 * LOG_SIZE:
                    store.append([put(queue, b"again" * 12)])
            assert len(await served(store, queue)) == queue.next - lost, f"life {life}: good messages are kept apart"
            simulation.kill(machine)
            await die(store)

    run(main())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"damaged": [[1]], "position": 0, "began": 0}', "null"])
def test_a_list_that_makes_no_sense_is_as_none(text: str) -> None:
    async def main() -> None:
        simulation, machine, store, _, offset = await damaged_later(20_000)
        await asyncio.sleep(PASS)
        assert json.loads(machine.files.read("/store/scrub.json"))["damaged"][0][0] == offset
        await store.stop()
        file = machine.disk.open("/store/scrub.json")
        file.truncate(0)
        file.pwrite(text.encode(), 0)
        store = await opened(machine.world, SETTINGS, start=False)
        # Entries are missing, and nothing is known of damage: the log is read, and tells.
        assert [damage.start for damage in store.recovered.damages] == [offset]
        await store._give_up()
        simulation.kill(machine)

    run(main())


@pytest.mark.parametrize(("place", "digit"), [(0, "1"), (1, "9")])
def test_a_list_that_has_changed_makes_nothing_blank_that_is_good(
    place: int, digit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another digit of where damage begins or ends, and good messages beside it were as lost as the one there."""

    async def main() -> None:
        simulation, machine, store, _, offset = await damaged_later(20_000)
        await asyncio.sleep(PASS)
        good = len(await served(store, store.queues.get_or_create("T", 0)))
        await store.stop()
        text = machine.files.read("/store/scrub.json").decode()
        [part] = json.loads(text)["damaged"]
        number = str(part[place])
        assert text.count(number) == 1
        machine.files.write_atomic("/store/scrub.json", text.replace(number, digit + number[1:]).encode())
        simulation.kill(machine)
        store = await opened(machine.world, SETTINGS)
        assert [damage.start for damage in store.damaged.parts] == [offset]
        assert len(await served(store, store.queues.get_or_create("T", 0))) == good
        assert "/store/scrub.json cannot be used (what it says is not what was written" in caplog.text
        await store.stop()

    run(main())


def test_parts_are_merged_and_forgotten() -> None:
    machine = Simulation(46).node("a")
    known = DamagedParts(machine.world, "/store", None)  # type: ignore[arg-type]
    assert known.add([Damage(100, 200), Damage(150, 300), Damage(500, 600)], 0)
    assert known.parts == [(100, 300), (500, 600)]
    assert not known.add([Damage(120, 180)], 0)
    assert known.bytes_in(0, 550) == 250
    assert known.bytes == 300
    assert known.add([], 400)
    assert known.parts == [(500, 600)]
    known.forget_from(550)
    assert known.parts == []
