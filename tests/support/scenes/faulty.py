"""Scenes on a simulated disk: each asserts one promise of the store, and fails when the promise is broken.

The tests run them as they are; the table of planted bugs runs them with one bug each and wants them to fail.
"""

from __future__ import annotations

import asyncio
import errno
import random
import struct
from collections.abc import Coroutine
from typing import Any

import pytest

from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.testing.simfiles import SimCrash
from rmq.testing.simloop import SimLoop, run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, body_of, die, opened, put, records, small
from tests.support.store_scan import scan_log

__all__ = [
    "Ledger",
    "acknowledged_survives_power_cuts",
    "checkpoint_decides_nothing",
    "consumed_survives_power_cuts",
    "damage_is_never_served",
    "failed_flush_is_final",
    "in_time",
    "queue_entries_are_checked",
    "refused_batches_leave_nothing",
    "stale_bytes_never_come_back",
]

Key = tuple[str, int, int]


def in_time(main: Coroutine[Any, Any, None]) -> None:
    """Run in virtual time. What a dead process's callbacks raise is no error of the scene."""
    loop = SimLoop()
    try:
        run(main, loop=loop)
    except RuntimeError as error:
        if not isinstance(error.__cause__, SimCrash):
            raise


class Ledger:
    """What was sent where, what was acknowledged, and what consumers were given."""

    def __init__(self) -> None:
        self.sent: dict[bytes, tuple[str, int]] = {}
        self.acknowledged: dict[Key, bytes] = {}
        self.refused: set[bytes] = set()
        self.given: dict[Key, bytes] = {}
        self._consumed: dict[tuple[str, int], int] = {}
        self.codes: dict[int, int] = {}
        self._number = 0

    def send(self, answers: list[tuple[dict[Key, bytes], bytes]]) -> None:
        """What the store calls with released answers."""
        for placed, code in answers:
            self.codes[int(code)] = self.codes.get(int(code), 0) + len(placed)
            if code == b"0":
                self.acknowledged |= placed

    def append(self, store: Store, rng: random.Random, count: int, *, together: bool = False) -> None:
        """Append messages to one or several queues and wait, as a producer does, for what durability says."""
        puts = []
        placed: dict[Key, bytes] = {}
        ahead: dict[Queue, int] = {}
        queue = store.queues.get_or_create(f"T{rng.randrange(2)}", rng.randrange(2))
        for _ in range(count):
            if not together:
                queue = store.queues.get_or_create(f"T{rng.randrange(2)}", rng.randrange(2))
            self._number += 1
            body = f"{self._number}:".encode() + rng.randbytes(rng.randint(0, 900))
            index = queue.next + ahead.get(queue, 0)
            ahead[queue] = ahead.get(queue, 0) + 1
            placed[queue.topic, queue.id, index] = body
            self.sent[body] = (queue.topic, queue.id)
            puts.append(put(queue, body, key=f"k{self._number % 9}", tag="TagA"))
        try:
            span = store.append(puts, together=together)
        except (StoreError, OSError):
            self.refused.update(placed.values())
            return
        store.acks.hold(span.end, [(placed, b"0")], lambda code: [(placed, str(code).encode())])

    async def consume(self, store: Store) -> None:
        """Take what may be seen and was not taken before: what was is never given anew in another form."""
        for queue in store.queues:
            for record in await records(store, queue, self._consumed.get((queue.topic, queue.id), 0)):
                index = struct.unpack_from(">q", record, 20)[0]
                self.given[queue.topic, queue.id, index] = body_of(record)
                self._consumed[queue.topic, queue.id] = index + 1

    async def check(self, store: Store, *, given: bool = True) -> None:
        """After a recovery: nothing promised is lost or moved, nothing else is there."""
        there: dict[Key, bytes] = {}
        for queue in store.queues:
            expected = queue.min
            for record in await records(store, queue):
                index = struct.unpack_from(">q", record, 20)[0]
                # Pages of the unforced tail reach the disk in any order: a hole in it is told as damage.
                known = store.recovered.damages or store.damaged.parts
                assert index == expected or known, f"I4: {queue!r} has no message {expected}"
                expected = index + 1
                body = body_of(record)
                assert self.sent.get(body) == (queue.topic, queue.id), f"I2: {queue!r} {index} was never sent there"
                assert body not in self.refused, f"I2: {queue!r} {index} was refused and is there"
                there[queue.topic, queue.id, index] = body
        assert len(set(there.values())) == len(there), "I2: a message is there twice"
        for key, body in self.acknowledged.items():
            assert there.get(key) == body, f"I1: {key} was acknowledged and is lost"
        if given:
            for key, body in self.given.items():
                assert there.get(key) == body, f"I7: {key} was given to a consumer and is lost"


def _sync(**changes: Any) -> Any:
    return small(sync_flush=True, queue_flush_interval_ms=200, queue_thorough_interval_ms=700, **changes)


async def _lives(seed: int, *, all_lost: bool, ledger: Ledger, lives: int = 3) -> None:
    simulation = Simulation(seed)
    machine = simulation.node("a", fsync_seconds=0.004)
    rng = random.Random(seed)
    for _ in range(lives):
        store = Store(machine.world, _sync(), ledger.send)
        await store.load()
        await ledger.check(store)
        await store.start()
        for _ in range(rng.randint(8, 30)):
            ledger.append(store, rng, rng.randint(1, 6), together=rng.random() < 0.3)
            await asyncio.sleep(rng.choice((0, 0.001, 0.002, 0.01)))
            await ledger.consume(store)
        simulation.power_cut(machine, all_lost=all_lost)
        await die(store)
    store = await opened(machine.world, _sync(), start=False)
    await ledger.check(store)


def acknowledged_survives_power_cuts(seeds: int = 6) -> None:
    """I1 and I9: SYNC_FLUSH, everything not forced is lost, names of files included."""
    acknowledged = 0
    for seed in range(seeds):
        ledger = Ledger()
        in_time(_lives(seed, all_lost=True, ledger=ledger))
        acknowledged += len(ledger.acknowledged)
    assert acknowledged > 20 * seeds, "the scene proves nothing: too little was acknowledged"


def consumed_survives_power_cuts(seeds: int = 6) -> None:
    """I7: what a consumer was given is still there after the cut; pages are lost, kept or torn."""
    given = 0
    for seed in range(100, 100 + seeds):
        ledger = Ledger()
        ledger_given = ledger.given
        in_time(_lives(seed, all_lost=seed % 2 == 0, ledger=ledger))
        given += len(ledger_given)
    assert given > 20 * seeds, "the scene proves nothing: too little was consumed"


async def _filled(files: int, *, wait: float = 2.0) -> tuple[Simulation, SimNode, list[bytes]]:
    """A store of several commit-log files whose process was killed."""
    simulation = Simulation(3)
    machine = simulation.node("a")
    store = await opened(machine.world, small())
    queue = store.queues.get_or_create("T", 0)
    sent: list[bytes] = []
    while len(store.log.segments) < files:
        sent.append(b"n%05d" % len(sent) * 12)
        store.append([put(queue, sent[-1], key=f"k{len(sent)}")])
    await asyncio.sleep(wait)
    simulation.kill(machine)
    await die(store)
    return simulation, machine, sent


def _spoil(machine: SimNode, number: int) -> int:
    """Flip a bit in the body of a record; its offset."""
    victim = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records[number]
    path = f"/store/commitlog/{victim.offset - victim.offset % LOG_SIZE:020d}"
    file = machine.disk.open(path)
    at = victim.offset % LOG_SIZE + 90
    file.pwrite(bytes([file.pread(1, at)[0] ^ 8]), at)
    return victim.offset


def checkpoint_decides_nothing() -> None:
    """I10, W18: a checkpoint that says that all is on disk does not keep recovery from looking."""

    async def main() -> None:
        for year in (0, 365 * 86_400_000):
            _, machine, sent = await _filled(4, wait=70)
            scan = scan_log(machine.files, "/store/commitlog", LOG_SIZE)
            number = next(n for n, record in enumerate(scan.records) if record.offset > 2 * LOG_SIZE + 3000)
            offset = _spoil(machine, number)
            times = (machine.clock.now_ms() + year).to_bytes(8, "big") * 3
            machine.disk.open("/store/checkpoint", create=True).pwrite(times, 0)
            store = await opened(machine.world, small(), start=False)
            found = [damage.start for damage in store.recovered.damages]
            assert found == [offset], f"I10: damage at {offset} was not found behind the checkpoint, but {found}"
            queue = store.queues.get("T", 0)
            assert queue is not None
            assert len(await records(store, queue)) == len(sent) - 1
            await store.stop()

    in_time(main())


def damage_is_never_served() -> None:
    """I11: a flipped bit in a body is found, at start or when it is read, and never given to a consumer."""

    async def main() -> None:
        for number in (5, 100, -1):
            _, machine, sent = await _filled(3)
            _spoil(machine, number)
            store = await opened(machine.world, small(), start=False)
            queue = store.queues.get("T", 0)
            assert queue is not None
            for record in await records(store, queue):
                assert body_of(record) in sent, "I11: a damaged body was served"
            await store.stop()

    in_time(main())


def queue_entries_are_checked() -> None:
    """I10: entries that were zeroed or lost are built anew from the log."""

    async def main() -> None:
        for start, stop in ((0, 400), (780, 800)):
            _, machine, sent = await _filled(3)
            machine.disk.open(f"/store/consumequeue/T/0/{0:020d}").pwrite(bytes(stop - start), start)
            store = await opened(machine.world, small(), start=False)
            queue = store.queues.get("T", 0)
            assert queue is not None
            assert [body_of(record) for record in await records(store, queue)] == sent, "I10: queue entries are lost"
            await store.stop()

    in_time(main())


def refused_batches_leave_nothing() -> None:
    """I2: a batch whose write failed in the middle was refused; none of it is there after a crash."""

    async def main() -> None:
        for room in (4096, 8192):
            simulation = Simulation(5)
            machine = simulation.node("a")
            store = await opened(machine.world, small())
            queue = store.queues.get_or_create("T", 0)
            store.append([put(queue, b"first")])
            machine.disk.capacity = machine.disk.used + room
            with pytest.raises(OSError, match="space"):
                store.append([put(queue, b"%d" % n * 1000) for n in range(12)], together=True)
            machine.disk.capacity = None
            simulation.kill(machine)
            await die(store)
            store = await opened(machine.world, small(), start=False)
            found = store.queues.get("T", 0)
            assert found is not None
            bodies = [body_of(record) for record in await records(store, found)]
            assert bodies == [b"first"], f"I2: {len(bodies) - 1} messages of a refused batch are there"
            await store.stop()

    in_time(main())


def stale_bytes_never_come_back() -> None:
    """I3: what a recovery cut off does not return behind shorter messages that came later."""

    async def main() -> None:
        simulation = Simulation(6)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        ends = [store.append([put(queue, b"old %d" % n)]).end for n in range(6)]
        simulation.kill(machine)
        await die(store)
        # The third record is torn, and so is the fourth: nothing good follows but the last two.
        path = f"/store/commitlog/{0:020d}"
        machine.disk.open(path).pwrite(b"\xff" * 40, ends[1])
        whole = machine.files.read(path)
        machine.disk.open(path).pwrite(bytes(ends[5] - ends[1]), ends[1])
        store = await opened(machine.world, small())
        assert store.log.end == ends[1]
        # The cut-off bytes are on the disk again, as when the cut itself had never been forced: then it is damage,
        # found at start; but while the process lives, its own writes end in zeros.
        data = machine.files.read(path)
        assert not any(data[ends[1] :]), "I3: bytes behind the end of the log are not cleared"
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"new")])
        assert whole != machine.files.read(path)
        simulation.kill(machine)
        await die(store)
        # Now with a tail that recovery itself has to cut.
        machine.disk.open(path).pwrite(b"\xff" * 60, store.log.end)
        again = await opened(machine.world, small(), start=False)
        assert not any(machine.files.read(path)[again.log.end :]), "I3: a torn tail was left where it was"
        found = again.queues.get("T", 0)
        assert found is not None
        assert [body_of(record) for record in await records(again, found)] == [b"old 0", b"old 1", b"new"]
        await again.stop()

    in_time(main())


def failed_flush_is_final() -> None:
    """I9: after the first failed flush nothing is acknowledged, whatever later flushes say."""

    async def main() -> None:
        simulation = Simulation(7)
        machine = simulation.node("a", fsync_seconds=0.002)
        ledger = Ledger()
        rng = random.Random(7)
        store = Store(machine.world, _sync(), ledger.send)
        await store.load()
        await store.start()
        for number in range(30):
            if number == 10:
                machine.disk.fail("datasync", errno.EIO, "*commitlog*")
            # What fails covers whole pages: those that more comes to are written once more with it.
            ledger.append(store, rng, 24 if number == 10 else 2)
            await asyncio.sleep(0.01)
        assert len(ledger.acknowledged) >= 18
        simulation.power_cut(machine, all_lost=True)
        await die(store)
        store = await opened(machine.world, _sync(), start=False)
        await ledger.check(store)
        assert 10 in ledger.codes, "I9: those who waited were not told"
        await store.stop()

    in_time(main())
