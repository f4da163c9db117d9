"""S09, S10: a disk that is mounted read-only, a quota, a limit of the size of files: messages are refused, reads go on,
and messages are taken again, without a restart, once the cause is gone; unless a flush failed."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.testing.simdisk import SimDisk
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.faults.os_calls import Rule
from tests.support.history import judge, read_histories
from tests.support.kills.campaign import amount
from tests.support.kills.killer import LOG_FILE_SIZE, BrokerProcess, OsTree
from tests.support.kills.load import Load, read_back, scan_back
from tests.support.scenes.faulty import Ledger, in_time
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, bodies, die, opened, put, small
from tests.support.store_scan import check_store

PATIENCE = 60.0
#: Longer than the longest pause between two tries, seconds.
PAUSE = 40.0


def _read_only(disk: SimDisk) -> None:
    disk.read_only = True


def _too_large(disk: SimDisk) -> None:
    disk.largest_file = LOG_SIZE // 2 + 77


def _quota(disk: SimDisk) -> None:
    disk.fail("pwrite", errno.EDQUOT, "*/commitlog/*", count=-1)


def _full(disk: SimDisk) -> None:
    disk.capacity = disk.used + 4096


def _immutable(disk: SimDisk) -> None:
    for action in ("pwrite", "truncate", "allocate"):
        disk.fail(action, errno.EPERM, "*/commitlog/*", count=-1)


def _healed(disk: SimDisk) -> None:
    disk.heal()
    disk.read_only = False
    disk.largest_file = disk.capacity = None


FAULTS = [_read_only, _too_large, _quota, _full, _immutable]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_s09_messages_are_taken_again_without_a_restart(fault: Callable[[SimDisk], None], sync: bool) -> None:
    """Over and over, in the middle of batches and of files; then a kill, and everything is where it belongs."""

    async def main() -> None:
        rng = random.Random(fault.__name__)
        simulation = Simulation(19)
        machine = simulation.node("a", fsync_seconds=0.002)
        ledger = Ledger()
        rhythms = {"queue_flush_interval_ms": 200, "queue_thorough_interval_ms": 700}
        settings = small(sync_flush=sync, clean_forcibly=False, **rhythms)
        store = Store(machine.world, settings, ledger.send)
        await store.load()
        await store.start()
        for _ in range(amount(3, 8)):
            for _ in range(rng.randint(3, 12)):
                ledger.append(store, rng, rng.randint(1, 6), together=rng.random() < 0.3)
                await asyncio.sleep(0.01)
            assert store.log.gate == 0
            fault(machine.disk)
            refused = len(ledger.refused)
            for _ in range(40):  # until the limit is met
                ledger.append(store, rng, rng.randint(1, 9), together=rng.random() < 0.3)
                if store.log.gate:
                    break
            assert store.log.gate
            assert len(ledger.refused) > refused
            await ledger.consume(store)
            end = store.log.end
            for _ in range(5):
                await asyncio.sleep(rng.uniform(1, 20))
                ledger.append(store, rng, rng.randint(1, 3))
            if fault in (_read_only, _too_large, _immutable):
                assert store.log.end == end, "nothing has changed, and messages are taken"
            _healed(machine.disk)
            await asyncio.sleep(PAUSE)
            assert store.log.gate == 0, store.log.gate_reason()
            ledger.append(store, rng, 2)
            assert store.log.end > end
        await asyncio.sleep(2)
        simulation.kill(machine)
        await die(store)
        store = await opened(machine.world, settings, start=False)
        assert not store.recovered.damages
        await ledger.check(store)
        assert len(ledger.acknowledged) > amount(40, 100)
        await store.stop()
        check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

    in_time(main())


def test_a_batch_over_two_files_leaves_nothing_when_it_cannot_even_be_cleared(caplog: pytest.LogCaptureFixture) -> None:
    """The part in the older file had been written when the disk became read-only: it goes before anything is taken."""

    async def main() -> None:
        simulation = Simulation(20)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"first" * 2800)])
        real = machine.disk._check

        def within(action: str, path: str) -> None:
            # The next file's first write comes when the older one's were made.
            machine.disk.read_only |= action == "pwrite" and path.endswith(f"{LOG_SIZE:020d}")
            real(action, path)

        machine.disk._check = within  # type: ignore[method-assign]
        with pytest.raises(OSError, match="Read-only"):
            store.append([put(queue, b"%d" % n * 500) for n in range(8)])
        machine.disk._check = real  # type: ignore[method-assign]
        assert store.log.gate == Gate.WRITE_FORBIDDEN
        assert "could not be cleared behind offset" in caplog.text
        assert "mount that file system writable" in caplog.text
        assert "Traceback" not in caplog.text
        assert (queue.next, await bodies(store, queue)) == (1, [b"first" * 2800])
        machine.disk.read_only = False
        await asyncio.sleep(PAUSE)
        assert store.log.gate == 0
        store.append([put(queue, b"second")])
        simulation.kill(machine)
        await die(store)
        store = await opened(machine.world, small(), start=False)
        queue = store.queues.get_or_create("T", 0)
        assert await bodies(store, queue) == [b"first" * 2800, b"second"], "I2: refused messages are there"
        await store.stop()

    run(main())


def test_after_a_failed_flush_nothing_is_tried_again() -> None:
    async def main() -> None:
        simulation = Simulation(21)
        machine = simulation.node("a")
        store = await opened(machine.world, small(sync_flush=True))
        queue = store.queues.get_or_create("T", 0)
        machine.disk.fail("datasync", errno.EIO, "*/commitlog/*")
        store.append([put(queue, b"a")])
        machine.disk.read_only = True
        with pytest.raises(OSError, match="Read-only"):
            store.append([put(queue, b"b")])
        await asyncio.sleep(1)
        machine.disk.read_only = False
        await asyncio.sleep(3600)
        assert store.log.gate == Gate.FSYNC_FAILED | Gate.WRITE_FORBIDDEN
        assert "restart the broker" in store.log.gate_reason()
        await store.stop()

    run(main())


# -- a real broker


@pytest.mark.parametrize("error", ["EROFS", "EDQUOT"])
async def test_s09_a_real_broker_takes_messages_again_once_it_may_write(tmp_path: Path, error: str) -> None:
    """Writes to the log, and the clearing behind its end, fail a few times in the middle of the load."""
    broker = BrokerProcess(tmp_path / "broker", RMQ_FLUSH_DISK_TYPE="SYNC_FLUSH")
    load = Load(tmp_path / "history", producers=4)
    rules = [
        Rule("run:log.write.before", f"errno:{error}", skip=60, count=2),
        Rule("run:log.extend.before", f"errno:{error}", skip=2, count=1),
    ]
    async with broker:
        address = await broker.start(*rules)
        resumed = 0

        def enough() -> bool:
            nonlocal resumed
            if not load.refused:
                resumed = load.acknowledged
            return load.refused > 0 and load.acknowledged > resumed + 100

        async with asyncio.timeout(PATIENCE):
            await load.run(address, enough)
        text = (broker.folder / "logs" / "broker.log").read_text()
        assert "no longer a reason to refuse messages" in text
        if error == "EROFS":
            assert "mount that file system writable" in text
        await broker.kill()
        address = await broker.start()
        pulled = await read_back(address)
        assert await broker.stop() == 0
        scanned = scan_back(OsTree(), str(broker.store / "commitlog"), LOG_FILE_SIZE)
    load.close()
    verdict = judge(read_histories(tmp_path / "history"), [scanned, pulled])
    verdict.demand()
    assert verdict.counts["send fail"]
