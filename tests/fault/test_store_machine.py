"""The store against a model of places and bodies: anything in any order, found and made small by Hypothesis (C.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.testing.simfiles import SimCrash
from rmq.testing.simloop import SimLoop
from rmq.testing.simworld import Simulation
from tests.support.kills.campaign import amount
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, body_of, die, entries, put, small
from tests.support.store_scan import check_store

T = TypeVar("T")
Key = tuple[str, int, int]
_SIZES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2500)), min_size=1, max_size=6)
_LOST = st.sampled_from(["", "consumequeue", "index", "checkpoint"])


class StoreMachine(RuleBasedStateMachine):
    """One disk, its processes one after the other, and what must be found."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0
        #: Where each message lies: (body, commit-log offset, end of its record); what a crash took is taken out.
        self.written: dict[Key, tuple[bytes, int, int]] = {}
        self.acknowledged: set[Key] = set()
        self.consumed: dict[Key, bytes] = {}
        #: Damaged records: their places stay empty.
        self.holes: set[Key] = set()
        #: Those that no start has had to read again since: commit-log offset and end of the record.
        self.untold: dict[Key, tuple[int, int]] = {}
        self.damaged = False
        #: Commit-log offsets between which the disk gives nothing now.
        self.bad = range(0)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(main)

    @initialize(sync=st.booleans(), seed=st.integers(0, 99))
    def begin(self, sync: bool, seed: int) -> None:
        self.loop = SimLoop()
        self.sync = sync
        self.simulation = Simulation(seed)
        self.machine = self.simulation.node("a", fsync_seconds=0.002)
        self.run(self._open())

    async def _open(self) -> None:
        rhythms = {"queue_flush_interval_ms": 200, "queue_thorough_interval_ms": 700}
        self.store = Store(self.machine.world, small(sync_flush=self.sync, **rhythms), self._answer)
        await self.store.load()
        await self.store.start()

    def _answer(self, answers: list[tuple[list[Key], bytes]]) -> None:
        for keys, code in answers:
            assert code == b"0"
            self.acknowledged.update(keys)

    # -- what is done

    @rule(messages=_SIZES, together=st.booleans())
    def append(self, messages: list[tuple[int, int]], together: bool) -> None:
        self.run(self._append(messages, together))

    async def _append(self, messages: list[tuple[int, int]], together: bool = False) -> None:
        puts = []
        for number, size in messages:
            self.serial += 1
            number = messages[0][0] if together else number
            queue = self.store.queues.get_or_create(f"T{number % 2}", number // 2)
            puts.append(put(queue, b"%d " % self.serial + b"x" * size, key=f"k{self.serial}"))
        span = self.store.append(puts, together=together)
        keys = []
        for message, (index, offset) in zip(puts, span.offsets, strict=True):
            keys.append((message.queue.topic, message.queue.id, index))
            self.untold.pop(keys[-1], None)
            end = offset + 91 + len(message.body) + len(message.queue.topic) + len(message.properties)
            self.written[keys[-1]] = (message.body, offset, end)
        self.store.acks.hold(span.end, [(keys, b"0")], lambda code: [(keys, str(code).encode())])

    @rule(seconds=st.sampled_from([0.001, 0.3, 1.1, 70.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def flush(self) -> None:
        self.run(self.store.flusher.flush_all())
        assert self.store.flusher.flushed == self.store.log.end

    @rule()
    def consume(self) -> None:
        async def main() -> None:
            for queue in self.store.queues:
                for key, body in (await self._found(queue)).items():
                    self.consumed[key] = body

        self.run(main())

    @rule(files=st.integers(1, 3))
    def expire(self, files: int) -> None:
        async def main() -> None:
            for file in self.store.log.segments[:files]:
                self.machine.disk._entries[file.path].mtime_ms = -(10**12)
            self.store.retention.trigger()
            await self.store.retention.run()
            for file in self.store.log.segments:
                self.machine.disk._entries[file.path].mtime_ms = 10**15

        self.run(main())
        start = self.store.log.start
        gone = {key for key, (_, offset, _) in self.written.items() if offset < start}
        for key in gone:
            del self.written[key]
        self.untold = {key: place for key, place in self.untold.items() if place[0] >= start}
        for queue in self.store.queues:
            self.holes -= {key for key in self.holes if key[:2] == (queue.topic, queue.id) and key[2] < queue.min}
        self._forget(gone)

    # -- how it ends

    @rule(lost=_LOST)
    def stop(self, lost: str) -> None:
        async def main() -> None:
            await self.store.stop()
            if not self.damaged:  # the scanner reads up to the first damage
                check_store(self.machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

        self.run(main())
        self._without(lost)
        self._recovered()

    @rule(lost=_LOST)
    def kill(self, lost: str) -> None:
        self._die()
        self._without(lost)
        self._recovered()

    @rule(messages=_SIZES, kept=st.integers(0, 400))
    def die_in_a_write(self, messages: list[tuple[int, int]], kept: int) -> None:
        """Of what was being written the beginning may be there, and nothing else."""
        before = set(self.written)
        serial = self.serial
        self.machine.disk.tear("*/commitlog/*", kept)
        try:
            self.run(self._append(messages))
        except SimCrash:
            pass
        self.machine.disk.heal()
        self._die()
        for key in set(self.written) - before:
            del self.written[key]
        self._recovered(perhaps={b"%d" % number for number in range(serial + 1, self.serial + 1)})

    @rule(all_lost=st.booleans(), disk_only=st.booleans())
    def power_cut(self, all_lost: bool, disk_only: bool) -> None:
        flushed = self.store.flusher.flushed
        self.machine.files.freeze()
        self.simulation.power_cut(self.machine, all_lost=all_lost, disk_only=disk_only)
        self.run(die(self.store))
        kept = {key for key, (_, _, end) in self.written.items() if end <= flushed}
        assert self.sync is False or self.acknowledged & self.written.keys() <= kept, "I9: acknowledged, not flushed"
        self._recovered(required=kept)

    @precondition(lambda self: len(self.written) > 2)
    @rule(data=st.data())
    def corrupt(self, data: st.DataObject) -> None:
        """A bit of a body flips while nobody looks; good records follow it."""
        self._die()
        ordered = sorted(self.written, key=lambda key: self.written[key][1])
        key = data.draw(st.sampled_from(ordered[:-1]))
        _, offset, end = self.written.pop(key)
        self.run(self._flip(offset + 88))
        self.holes.add(key)
        self.damaged = True
        self._forget({key})
        self.untold[key] = (offset, end)
        self._recovered()
        # What was forced to disk in this boot is not read again: then it is the scrub that tells.
        recovered = self.store.recovered
        told = key not in self.untold
        assert told or offset < recovered.compared_from, f"I11: damage at {offset} is not told: {recovered.damages}"

    @precondition(lambda self: len(self.written) > 2)
    @rule(data=st.data(), clean=st.booleans(), lost=_LOST)
    def meet_a_bad_place(self, data: st.DataObject, clean: bool, lost: str) -> None:
        """A start cannot read a page, behind which good records lie; the next one can."""
        newest = max(offset for _, offset, _ in self.written.values())
        pages = {at - at % 4096 for _, offset, end in self.written.values() for at in (offset, end - 1)}
        pages = {page for page in pages if page + 4096 <= newest}
        if not pages:
            return
        page = data.draw(st.sampled_from(sorted(pages)))
        if clean:
            self.run(self.store.stop())
        else:
            self._die()
        self._without(lost)
        self.bad = range(page, page + 4096)
        start = page - page % LOG_SIZE
        self.machine.disk.fail_at(f"/store/commitlog/{start:020d}", page - start, page - start + 4096)
        self.run(self._open())
        there: dict[Key, bytes] = {}
        for queue in self.store.queues:
            there |= self.run(self._found(queue))
        good = {key: body for key, (body, offset, end) in self.written.items() if not self._is_bad(offset, end)}
        assert there == good, f"S08: {sorted(good.keys() ^ there.keys())} are lost, or came from nowhere"
        self.bad = range(0)
        self.machine.disk.heal()
        self._die()
        self._recovered()

    def _is_bad(self, start: int, end: int) -> bool:
        return start < self.bad.stop and self.bad.start < end

    @rule()
    def scrub(self) -> None:
        """One pass over all that is on disk: then every damage is told and kept apart."""

        async def main() -> None:
            await self.store.flusher.flush_all()
            while self.store.scrub.active:  # noqa: ASYNC110
                await asyncio.sleep(1)
            self.store.damaged.position, self.store.damaged.began_ms = -1, 0
            await self.store.scrub.run()

        self.run(main())
        self._take_as_told()
        assert not self.untold, f"I11: a pass over the log did not tell of {self.untold}"

    def _take_as_told(self) -> None:
        """What is known of now is in no queue any more."""
        known = self.store.damaged
        told = {key for key, (start, end) in self.untold.items() if known.bytes_in(start, end) == end - start}
        self.damaged |= bool(told)
        for key in told:
            del self.untold[key]

    async def _flip(self, offset: int) -> None:
        path = f"/store/commitlog/{offset - offset % LOG_SIZE:020d}"
        file = self.machine.disk.open(path)
        at = offset % LOG_SIZE
        with self.machine.disk.unnoticed(path):
            file.pwrite(bytes([file.pread(1, at)[0] ^ 2]), at)
        file.datasync()

    def _die(self) -> None:
        self.machine.files.freeze()
        self.run(die(self.store))
        self.simulation.kill(self.machine)

    def _without(self, lost: str) -> None:
        files = self.machine.world.files
        for path in [path for path, inode in self.machine.disk._entries.items() if inode is not None]:
            # A queue whose messages are all gone is known by its files alone.
            if lost and f"/{lost}" in path and (lost != "consumequeue" or self.store.log.start == 0):
                files.unlink(path)

    # -- what is found

    async def _found(self, queue: Queue) -> dict[Key, bytes]:
        """Good messages; an entry may point to a bad one only where nobody has had to read it since it went bad."""
        found: dict[Key, bytes] = {}
        for index, (offset, size) in (await entries(self.store, queue)).items():
            key = (queue.topic, queue.id, index)
            if self._is_bad(offset, offset + size):
                continue
            data = await self.store.messages.at(offset)
            if data is None:
                assert self.untold.get(key) == (offset, offset + size), f"I11: {key} has no record at {offset}"
                continue
            assert (len(data), int.from_bytes(data[20:28], "big")) == (size, index)
            found[key] = body_of(data)
        return found

    def _recovered(self, *, required: set[Key] | None = None, perhaps: set[bytes] | None = None) -> None:
        """Open it again; take out of the model what a crash may have taken, and nothing else."""
        self.run(self._open())
        self.damaged |= bool(self.store.recovered.damages)
        self._take_as_told()
        end = self.store.log.end
        self.untold = {key: place for key, place in self.untold.items() if place[1] <= end}
        there: dict[Key, bytes] = {}
        for queue in self.store.queues:
            there |= self.run(self._found(queue))
        for key, body in there.items():
            if key not in self.written and perhaps is not None and body.split(b" ")[0] in perhaps:
                self.written[key] = (body, *self.run(self._place(key)))
            assert self.written[key][0] == body, f"I2: {key} holds something else"
        lost = self.written.keys() - there.keys()
        assert not lost & (self.written.keys() if required is None else required), f"I1: {sorted(lost)} lost"
        for key in lost:
            del self.written[key]
        for queue in self.store.queues:
            mine = {key[2] for key in self.written if key[:2] == (queue.topic, queue.id)}
            self.holes |= {(queue.topic, queue.id, n) for n in range(queue.min, queue.next)} - self.written.keys()
            self.holes = {key for key in self.holes if key[:2] != (queue.topic, queue.id) or key[2] < queue.next}
            assert not mine or max(mine) < queue.next
        gone = (self.acknowledged | self.consumed.keys()) - self.written.keys()
        if self.sync:
            assert not gone, f"I1, I7: acknowledged or consumed, and lost: {sorted(gone)}"
        self._forget(set(gone))

    async def _place(self, key: Key) -> tuple[int, int]:
        queue = self.store.queues.get(key[0], key[1])
        assert queue is not None
        entry = await self.store.queues.entries_cold(queue, key[2], 1)
        offset = int.from_bytes(entry[:8], "big")
        return offset, offset + int.from_bytes(entry[8:12], "big")

    def _forget(self, keys: set[Key]) -> None:
        self.acknowledged -= keys
        for key in keys:
            self.consumed.pop(key, None)

    @invariant()
    def what_is_visible_is_what_was_written(self) -> None:
        if not hasattr(self, "store"):
            return
        for queue in self.store.queues:
            found = self.run(self._found(queue))
            for key, body in found.items():
                assert self.written[key][0] == body
            places = {(queue.topic, queue.id, n) for n in range(queue.min, queue.visible)}
            missing = places - found.keys()
            assert missing <= self.holes, f"I4: {sorted(missing - self.holes)}"
            if not self.sync:
                assert queue.visible == queue.next
        for key, body in self.consumed.items():
            assert self.written[key][0] == body, f"I7: {key}"

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(die(self.store))
            self.loop.close()


StoreMachine.TestCase.settings = settings(max_examples=amount(20, 1500), stateful_step_count=20, deadline=None)
TestStoreMachine = StoreMachine.TestCase


def test_known_damage_stays_out_of_queues_that_are_built_anew() -> None:
    """Found by the long form: after the crash that told of it, a clean stop, and the queues gone."""

    class First:
        def draw(self, _: Any) -> Key:
            return ("T0", 0, 0)

    machine = StoreMachine()
    machine.begin(sync=False, seed=0)
    machine.append(messages=[(0, 1000)] * 12, together=False)
    machine.corrupt(data=First())  # type: ignore[arg-type]
    machine.append(messages=[(0, 100)] * 6, together=False)
    machine.stop(lost="consumequeue")
    machine.what_is_visible_is_what_was_written()
    assert machine.store.recovered.dispatched_from == 0, "the queues were built anew"
    machine.teardown()


def test_damage_that_a_start_does_not_read_again_is_told_by_the_scrub() -> None:
    """Found by the long form: it was forced to disk in this boot, and goes bad between two lives."""

    class Second:
        def draw(self, _: Any) -> Key:
            return ("T0", 0, 1)

    machine = StoreMachine()
    machine.begin(sync=True, seed=0)
    for _ in range(3):
        machine.append(messages=[(0, 2400)] * 6, together=False)
    machine.wait(1.1)
    machine.corrupt(data=Second())  # type: ignore[arg-type]
    assert machine.untold, "the start has read it again: this shows nothing"
    machine.what_is_visible_is_what_was_written()
    machine.scrub()
    machine.kill(lost="consumequeue")
    machine.what_is_visible_is_what_was_written()
    assert machine.store.damaged.parts, "forgotten"
    machine.teardown()
