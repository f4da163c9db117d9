"""Bytes that change under a running broker: no reader gets what is not its message, and damage costs itself alone."""

from __future__ import annotations

import logging
import struct
from array import array
from collections.abc import AsyncIterator, Callable

import pytest

from rmq.broker.delivery.filtering import EVERYTHING, Filter
from rmq.broker.delivery.read import Reader, ReadLimits
from rmq.broker.store.log.sums import decode, encode
from rmq.broker.store.queues.files import BLANK_ENTRY_SIZE
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.record import FIELDS
from rmq.testing.simloop import run
from tests.support.scenes.damage import CHANGES, LOG, Scene, pulled, scene
from tests.support.scenes.store import body_of, opened, put


class _Any:
    """A condition that has every record read, and lets each through."""

    weight = 0

    def matches(self, properties: dict[str, str]) -> bool:
        return True


#: What pulls without a filter do, pulls with tags, and pulls with a condition.
WAYS = {
    "all": EVERYTHING,
    "tags": Filter(codes=frozenset({2598919 & 0xFFFFFFFF})),
    "condition": Filter(sql=_Any()),
}


@pytest.fixture(params=WAYS)
def wants(request: pytest.FixtureRequest) -> Filter:
    return WAYS[request.param]


@pytest.fixture(params=[True, False], ids=["hot", "cold"])
def hot(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


#: A bit of each field that a record and its entry, or the record's own lengths, say twice.
FLIPS = {
    "size": FIELDS["size"][0] + 3,
    "size, much": FIELDS["size"][0] + 1,
    "magic": FIELDS["magic"][0],
    "queue id": FIELDS["queue_id"][0] + 3,
    "queue offset": FIELDS["queue_offset"][0] + 6,
    "physical offset": FIELDS["physical_offset"][0] + 7,
    "body size": FIELDS["body_size"][0] + 3,
    "body": 120,
    "length of the topic": 88 + 90,
    "topic": 88 + 90 + 1,
    "length of the properties": 88 + 90 + 3,
}


#: A bit of what nothing but a checksum beside the log knows.
BESIDE = {
    "flag": FIELDS["flag"][0],
    "born time": FIELDS["born_timestamp"][0] + 7,
    "reconsume times": FIELDS["reconsume_times"][0] + 3,
    "properties": 88 + 90 + 4 + 3,
}


async def _checked_scene() -> Scene:
    return await scene(hot=False, checksums_on_append=True)


@pytest.mark.parametrize("field", BESIDE)
def test_what_comes_from_the_disk_is_compared_beside_the_body_too(
    field: str, wants: Filter, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        at = await _checked_scene()
        queue = at.queue("A", 1)
        offset, size, _ = at.entry(queue, 20)
        at.flip(offset + BESIDE[field], 1)
        await at.check({queue: {20}}, wants)
        assert at.store.damaged.parts == [(offset, offset + size)]
        assert len(told(caplog)) == 1
        await at.store.stop()

    run(main())


@pytest.mark.parametrize("field", BESIDE)
def test_so_is_a_message_alone(field: str) -> None:
    """By its offset in the log, and by its entry as delays, timers and checks of transactions read it."""

    async def main() -> None:
        at = await _checked_scene()
        queue = at.queue("A", 1)
        for index, by_entry in ((20, True), (30, False)):
            offset, size, _ = at.entry(queue, index)
            at.flip(offset + BESIDE[field], 1)
            messages = at.store.messages
            assert not await (messages.of_entry(queue, index, offset, size) if by_entry else messages.at(offset))
        await at.check({queue: {20, 30}})
        await at.store.stop()

    run(main())


def test_checksums_of_another_log_cost_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await _checked_scene()
        sums = at.machine.disk.open(f"/store/checksums/{0:020d}")
        first, *_ = decode(sums.pread(1 << 20, 0))
        block, others = first
        sums.pwrite(encode(block, array("I", [one ^ 1 for one in others])), block.at)
        for name in at.machine.files.list("/store/checksums")[1:]:
            at.machine.files.unlink(f"/store/checksums/{name}")
        at.store.log.checksums.__init__(at.machine.world, at.store.settings, at.store.log)  # type: ignore[misc]
        await at.check({})
        assert at.store.damaged.parts == []
        assert "are of other messages" in caplog.text
        await at.store.stop()

    run(main())


@pytest.mark.parametrize("field", FLIPS)
def test_one_bit_costs_its_message_alone(field: str, hot: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await scene(hot=hot)
        queue = at.queue("A", 1)
        offset, size, _ = at.entry(queue, 20)
        at.flip(offset + FLIPS[field], 1)
        await at.check({queue: {20}})
        assert at.entry(queue, 20)[:2] == (0, BLANK_ENTRY_SIZE)
        assert at.store.damaged.parts == [(offset, offset + size)]
        assert len(told(caplog)) == 1
        assert f"is damaged at {offset % LOG}, " in told(caplog)[0]
        await at.store.stop()

    run(main())


def test_a_hole_costs_what_lay_in_it(hot: bool, wants: Filter, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = await scene(hot=hot, count=600)
        start, end = LOG // 2, LOG // 2 + 64 * 1024
        lost = {
            queue: {n for n in range(600) if (e := at.entry(queue, n))[0] < end and e[0] + e[1] > start}
            for queue in at.sent
        }
        assert all(len(numbers) > 60 for numbers in lost.values())
        at.write_log(start, bytes(end - start))
        await at.check(lost, wants)
        assert sum(part.end - part.start for part in at.store.damaged.parts) < end - start + 1000
        assert 1 <= len(told(caplog)) <= 2, "in each file once"
        await at.store.stop()

    run(main())


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_wrong_entry_costs_nothing(
    change: Callable[[Scene], None], hot: bool, wants: Filter, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        at = await scene(hot=hot)
        before = {queue: [at.entry(queue, n)[:2] for n in range(60)] for queue in at.sent}
        change(at)
        if wants.codes is not None:
            for queue in at.sent:  # zeros have no tags code: what has no tag is not asked for
                for n in range(60):
                    if at.entry(queue, n)[2] == 0:
                        at.set_entry(queue, n, *at.entry(queue, n)[:2], 2598919)
        await at.check({}, wants)
        assert {queue: [at.entry(queue, n)[:2] for n in range(60)] for queue in at.sent} == before, "made anew"
        assert at.store.damaged.parts == []
        assert at.store.mending.remade > 0
        assert at.store.mending.blanked == 0
        assert told(caplog)
        assert all("made anew from the commit log, 0 have become blank" in text for text in told(caplog))
        await at.store.stop()

    run(main())


def test_an_entry_into_a_deleted_file_is_wrong_only_behind_those_that_are_not(
    hot: bool, wants: Filter, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        at = await scene(hot=hot, count=300)
        assert await at.store.log.remove_first()
        start = at.store.log.start
        gone = {queue: {n for n in range(300) if at.entry(queue, n)[0] < start} for queue in at.sent}
        assert all(gone.values())
        queue = at.queue("B", 1)
        before = at.entry(queue, 200)
        at.set_entry(queue, 200, 100, *before[1:])
        for most in (1, 7, 32):
            assert await pulled(at.store, queue, wants, most=most) == {
                n: at.sent[queue][n] for n in range(300) if n not in gone[queue]
            }
        assert at.entry(queue, 200) == before
        await at.check(gone, wants)
        assert len(told(caplog)) == 1
        assert at.store.mending.blanked == 0
        for index in (0, 100, 299):
            record = await at.store.messages.of_entry(queue, index, *at.entry(queue, index)[:2])
            assert record == b"" if index in gone[queue] else body_of(record) == at.sent[queue][index]
        await at.store.stop()

    run(main())


def test_who_reads_one_message_gets_it_or_none(hot: bool) -> None:
    """Delays, timers, journals and checks of transactions read so."""

    async def main() -> None:
        at = await scene(hot=hot)
        one, other = at.queue("A", 0), at.queue("B", 0)
        CHANGES["swap"](at)
        at.flip(at.entry(one, 10)[0] + FLIPS["queue offset"], 1)
        for queue in (one, other):
            for index in range(60):
                record = await at.store.messages.of_entry(queue, index, *at.entry(queue, index)[:2])
                if queue is one and index == 10:
                    assert record == b""
                else:
                    assert body_of(record) == at.sent[queue][index]
        assert (at.store.mending.remade, at.store.mending.blanked) == (2, 0)
        assert len(at.store.damaged.parts) == 1
        await at.store.stop()

    run(main())


def test_a_record_is_looked_up_by_its_place_only_as_the_message_it_is(hot: bool) -> None:
    """Offset ids, keys, messages sent back and ends of transactions are read so."""

    async def main() -> None:
        at = await scene(hot=hot)
        one, other = at.queue("A", 0), at.queue("B", 0)
        wrong = [at.entry(one, 10)[0], at.entry(one, 11)[0], at.entry(other, 12)[0]]
        good = [(queue, n, at.entry(queue, n)[0]) for queue in (one, other) for n in range(60)]
        at.flip(wrong[0] + FLIPS["queue offset"], 1)
        at.flip(wrong[1] + FLIPS["queue offset"] + 1, 5)
        at.flip(wrong[2] + FLIPS["topic"], 1)
        at.flip(wrong[2] + FLIPS["topic"], 0)  # B becomes A
        CHANGES["swap"](at)
        for queue, index, offset in good:
            record = await at.store.messages.at(offset)
            if offset in wrong:
                assert record is None
            else:
                assert record is not None
                assert body_of(record) == at.sent[queue][index]
        await at.store.stop()

    run(main())


@pytest.mark.parametrize("compared", [False, True])
def test_bodies_that_this_process_wrote_are_compared_in_memory_when_that_is_set(compared: bool) -> None:
    async def main() -> None:
        at = await scene(hot=True, check_crc_in_memory=compared)
        at.store.log.written_from = 0
        queue = at.queue("A", 0)
        at.flip(at.entry(queue, 20)[0] + FLIPS["body"], 1)
        given = await pulled(at.store, queue)
        assert len(given) == (59 if compared else 60)
        await at.store.stop()

    run(main())


def test_what_the_disk_does_not_give_is_not_taken_for_damage() -> None:
    async def main() -> None:
        at = await scene(hot=False)
        queue = at.queue("A", 0)
        offset = at.entry(queue, 20)[0]
        at.machine.disk.fail_at(f"*/commitlog/{0:020d}", offset, offset + 10)
        with pytest.raises(OSError, match="error"):
            await pulled(at.store, queue)
        assert at.store.damaged.parts == []
        at.machine.disk.heal()
        await at.check({})
        await at.store.stop()

    run(main())


def test_a_message_in_light_queues_and_with_long_addresses_is_served() -> None:
    async def main() -> None:
        at = await scene(hot=True, multi_dispatch=True, lmq=True)
        store, queue = at.store, at.queue("A", 0)
        long = b"\0" * 20
        store.append([put(queue, b"six")._replace(born_host=long, store_host=long, sys_flag=0x30)])
        names = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"
        for number in range(3):
            store.append([put(at.queue("A", 1), b"l%d" % number)._replace(properties=names)])
        await store.stop()
        store = at.store = await opened(at.machine.world, store.settings)
        assert 60 in await pulled(store, at.queue("A", 0))
        for name in ("%LMQ%a", "%LMQ%b"):
            light = at.queue(name, 0)
            assert [record async for record in _bodies(store, light)] == [b"l0", b"l1", b"l2"]
            assert await _count(store, light) == 3
        assert (store.mending.remade, store.mending.blanked) == (0, 0)
        await store.stop()

    run(main())


async def _bodies(store: Store, queue: Queue) -> AsyncIterator[bytes]:
    for index in range(queue.next):
        entry = await store.queues.entries_cold(queue, index, 1)
        record = await store.messages.of_entry(queue, index, *struct.unpack(">qi8x", entry))
        yield body_of(record)


async def _count(store: Store, queue: Queue) -> int:
    scan = Reader(store, ReadLimits()).scan(queue, 0, 32, EVERYTHING)
    try:
        waits_for = next(scan)
        while True:
            waits_for = scan.send(await waits_for)
    except StopIteration as end:
        return len(end.value.records)
