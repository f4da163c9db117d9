"""What a start in the same boot of the machine checks, and what it goes back to when that is not all there."""

import asyncio
import errno
import logging
from dataclasses import replace

import pytest

from rmq.broker.store.start import queue_loader
from rmq.broker.store.store import Store
from rmq.runtime.world import World
from rmq.testing.simloop import run
from rmq.testing.simworld import SimIdentity, SimNode, Simulation
from tests.support.scenes.boot import SEGMENT, many_deaths, spoil, written
from tests.support.scenes.store import LOG_SIZE, die, opened, put, small, snapshot
from tests.support.store_scan import scan_log

SETTINGS = small(queue_file_size=20_000, index_enable=False)


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_loader, "_SEGMENT", SEGMENT)


def node() -> tuple[Simulation, SimNode]:
    simulation = Simulation(21)
    return simulation, simulation.node("a")


async def dead(simulation: Simulation, machine: SimNode, *, clean: bool = False) -> int:
    """A store of five files whose process is gone; where its log was forced up to."""
    store, _ = await written(machine, 5)
    queue = store.queues.get_or_create("T", 0)
    store.append([put(queue, b"and more" * 20) for _ in range(20)])
    if clean:
        await store.stop()
        simulation.kill(machine)
        return store.log.end
    await asyncio.sleep(70)
    forced = store.flusher.flushed
    store.append([put(queue, b"and more" * 20) for _ in range(5)])
    simulation.kill(machine)
    await die(store)
    return forced


def by_files(checked_from: int, first: int = 2) -> bool:
    """Whether whole files were checked: the newest three and no more, when the checkpoint tells of the rest."""
    return checked_from == first * LOG_SIZE


async def told(world: World, *, start: bool = False) -> tuple[Store, object]:
    store = await opened(world, SETTINGS, start=start)
    return store, await snapshot(store)


@pytest.mark.parametrize("clean", [False, True])
def test_the_check_begins_in_the_segment_where_the_forced_part_ends(clean: bool) -> None:
    async def main() -> None:
        simulation, machine = node()
        forced = await dead(simulation, machine, clean=clean)
        assert forced > 4 * LOG_SIZE
        store, seen = await told(machine.world)
        from_here = store.recovered.checked_from
        assert forced - 2 * SEGMENT < from_here < forced
        assert store.recovered.damages == []
        await store._give_up()
        # The same of another boot: whole files are checked, and nothing else comes of it.
        machine.boot = "another"
        simulation.kill(machine)
        store, other = await told(machine.world)
        assert store.recovered.checked_from == 4 * LOG_SIZE if clean else by_files(store.recovered.checked_from)
        assert other == seen
        await store.stop()

    run(main())


def test_a_boot_that_is_not_known_is_another() -> None:
    async def main() -> None:
        simulation, machine = node()
        machine.world = replace(machine.world, identity=SimIdentity("a", "10.0.0.1"))
        machine.boot = ""
        await dead(simulation, machine)
        store, _ = await told(machine.world)
        assert by_files(store.recovered.checked_from)
        await store.stop()

    run(main())


@pytest.mark.parametrize("what", ["the end is gone", "damage", "an entry is gone"])
def test_more_is_checked_when_not_all_of_it_is_there(what: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        simulation, machine = node()
        forced = await dead(simulation, machine)
        last = machine.disk.open(f"/store/commitlog/{4 * LOG_SIZE:020d}")
        damages = {spoil(machine, forced - 300)} if what == "damage" else set()
        damages.add(spoil(machine, 3 * LOG_SIZE + 3000))
        if what == "the end is gone":
            last.pwrite(bytes(LOG_SIZE - (forced - 200) % LOG_SIZE), (forced - 200) % LOG_SIZE)
        elif what == "an entry is gone":
            path = f"/store/consumequeue/T/0/{0:020d}"
            machine.disk.open(path).pwrite(bytes(20), 20 * 50)
        caplog.set_level(logging.INFO)
        store, _ = await told(machine.world)
        assert [damage.start for damage in store.recovered.damages] == sorted(damages)
        # The entry that is gone was in the first file.
        assert by_files(store.recovered.checked_from, 0 if what == "an entry is gone" else 2)
        assert ("more of " in caplog.text) is (what != "an entry is gone")
        assert caplog.text.count("commit log is damaged") == len(damages)
        await store.stop()

    run(main())


def test_a_flush_that_failed_takes_the_note_back() -> None:
    async def main() -> None:
        simulation, machine = node()
        store, _ = await written(machine, 5)
        machine.disk.fail("datasync", errno.EIO, "*commitlog*")
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"late")])
        await asyncio.sleep(70)
        assert store.flusher.failed
        simulation.kill(machine)
        await die(store)
        store, _ = await told(machine.world)
        # The time up to which all was forced is that of the first messages, and 3 s are taken off.
        assert by_files(store.recovered.checked_from, 0)
        await store.stop()

    run(main())


def test_times_that_somebody_else_wrote_take_the_note_back() -> None:
    """Java has written to the store since: its times are others."""

    async def main() -> None:
        simulation, machine = node()
        await dead(simulation, machine)
        times = (machine.clock.now_ms() + 5).to_bytes(8, "big") * 2
        machine.disk.open("/store/checkpoint").pwrite(times, 0)
        store, _ = await told(machine.world)
        assert by_files(store.recovered.checked_from)
        await store.stop()

    run(main())


def test_nothing_is_lost_over_many_deaths() -> None:
    many_deaths()


def change(machine: SimNode, offset: int, *, hidden: bool = False) -> None:
    """Flip a bit of a message's body while no broker runs.

    :param hidden: with the time of change that the file had, by another file of the same name.
    """
    path = f"/store/commitlog/{offset - offset % LOG_SIZE:020d}"
    data, before = bytearray(machine.files.read(path)), machine.files.mtime_ms(path)
    data[offset % LOG_SIZE + 90] ^= 8
    if hidden:
        machine.files.unlink(path)
    file = machine.disk.open(path, create=True)
    file.pwrite(bytes(data), 0)
    file.datasync()
    if hidden:
        inode = machine.disk._entries[path]
        assert inode is not None
        inode.mtime_ms = before


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("file", [3, 4], ids=["full", "newest"])
@pytest.mark.parametrize("hidden", [False, True], ids=["changed", "another file"])
def test_what_was_changed_while_no_broker_ran_is_told(clean: bool, file: int, hidden: bool) -> None:
    """Before the place where the check of a start in the same boot begins."""

    async def main() -> None:
        simulation, machine = node()
        forced = await dead(simulation, machine, clean=clean)
        assert forced > 4 * LOG_SIZE + SEGMENT
        await asyncio.sleep(1)
        records = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records
        victim = [record.offset for record in records if record.offset >= file * LOG_SIZE][3]
        change(machine, victim, hidden=hidden)
        store = await opened(machine.world, SETTINGS, start=False)
        # After a clean stop the newest file is checked in whatever boot, older ones are the scrub's.
        seen = [] if clean and file == 3 else [victim]
        assert [damage.start for damage in store.recovered.damages] == seen
        await store._give_up()

    run(main())


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_file_systems_of_others_are_not_believed(clean: bool) -> None:
    async def main() -> None:
        simulation, machine = node()
        machine.disk.shared = True
        await dead(simulation, machine, clean=clean)
        store, _ = await told(machine.world)
        assert store.recovered.checked_from == 4 * LOG_SIZE if clean else by_files(store.recovered.checked_from)
        await store.stop()

    run(main())


def test_messages_behind_the_note_are_no_change() -> None:
    """Files that were filled and begun since the note, and a start that has cut a torn end away."""

    async def main() -> None:
        simulation, machine = node()
        store, _ = await written(machine, 4)
        await asyncio.sleep(70)
        noted = store.flusher.flushed
        queue = store.queues.get_or_create("T", 0)
        while store.log.end < noted + LOG_SIZE:
            store.append([put(queue, b"and more" * 20)])
            await asyncio.sleep(0.01)
        store.append([put(queue, b"and more" * 20) for _ in range(3)])
        simulation.kill(machine)
        await die(store)
        await asyncio.sleep(1)
        store, _ = await told(machine.world, start=True)
        assert noted - 2 * SEGMENT < store.recovered.checked_from < noted
        # The start has noted what it left: with nothing written since, it is believed again.
        simulation.kill(machine)
        await die(store)
        await asyncio.sleep(1)
        end = store.log.end
        store, _ = await told(machine.world)
        assert store.recovered.checked_from > end - 2 * SEGMENT
        await store.stop()

    run(main())
