"""What is told of a span, and is not so: it has changed on its way, or a leader errs, or somebody else says it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, pack_into
from typing import Any
from zlib import crc32

import pytest

from rmq.broker.store.state import ENTRY_SIZE
from rmq.broker.store.told import Told, ToldQueue
from rmq.protocol.errors import ReplicationError
from rmq.testing.simloop import run
from tests.support.scenes.told import WRONG, Pair

_PLACE = Struct(">qi")
_KEY = Struct(">iq")
_HEAD = Struct(">qqqIIii")
#: Where the numbers of the first queue lie: behind the head, the length of its name and that name, of one letter.
_QUEUE_AT = _HEAD.size + 3


@pytest.fixture(scope="module")
def span() -> tuple[Told, bytes]:
    """What is told of nine messages in three queues, of two keys each; and their bytes."""

    async def main() -> tuple[Told, bytes]:
        pair = await Pair.made()
        pair.append(5)  # so that it begins somewhere
        pair.told.clear()
        start = pair.leader.log.end
        pair.append(9, size=40)
        (told,) = pair.told
        data = pair.leader.log.read(start, told.end - start)
        assert data is not None
        await pair.close()
        return told, data

    return run(main())


def changed(told: Told, queue: int, entry: int, place: tuple[int, int]) -> Told:
    queues = list(told.queues)
    entries = bytearray(queues[queue].entries)
    _PLACE.pack_into(entries, entry * ENTRY_SIZE, *place)
    queues[queue] = queues[queue]._replace(entries=bytes(entries))
    return told._replace(queues=queues)


def test_each_number_of_an_entry_that_is_another_one_is_noticed(span: tuple[Told, bytes]) -> None:
    told, data = span
    assert told.fits(data)
    count = 0
    for number, queue in enumerate(told.queues):
        for entry in range(len(queue.entries) // ENTRY_SIZE):
            offset, size = _PLACE.unpack_from(queue.entries, entry * ENTRY_SIZE)
            offsets = (offset + 1, offset - 1, offset ^ 1 << 31, offset + (1 << 32), -1, 0, 1 << 62, told.end)
            sizes = (size + 1, size - 1, 0, -1, -size, (1 << 31) - 1, -(1 << 31), told.end - offset + 1)
            for place in (*((other, size) for other in offsets), *((offset, other) for other in sizes)):
                if place != (offset, size):
                    assert not changed(told, number, entry, place).fits(data), (number, entry, place)
                    count += 1
    assert count > 100


def test_places_that_make_up_for_each_other_are_noticed(span: tuple[Told, bytes]) -> None:
    """Two entries of one record, or the place of one that is left out."""
    told, data = span
    places = [_PLACE.unpack_from(queue.entries) for queue in told.queues]
    assert not changed(told, 0, 0, places[1]).fits(data)
    one, two = sorted(places)[:2]
    wider = changed(told, places.index(one), 0, (one[0], one[1] + two[1]))
    assert not wider.fits(data)
    without = wider._replace(
        queues=[
            queue if place != two else queue._replace(entries=queue.entries[ENTRY_SIZE:])
            for queue, place in zip(wider.queues, places, strict=True)
        ]
    )
    assert not without.fits(data)


@pytest.mark.parametrize(
    "queue",
    [
        {"topic": "U"}, {"topic": "Т"}, {"topic": ""}, {"topic": "T" * 32_767}, {"topic": "T\0"},
        {"queue_id": 7}, {"queue_id": (1 << 31) - 1}, {"first": 0}, {"first": (1 << 63) - 1},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_told_of_another_queue_is_noticed(span: tuple[Told, bytes], queue: dict[str, Any]) -> None:
    told, data = span
    for number in range(len(told.queues)):
        queues = list(told.queues)
        queues[number] = queues[number]._replace(**queue)
        lie = Told.decode(told._replace(queues=queues).encode())
        assert not lie.fits(data), number


#: Fields of a record (store-and-broker.md 2.1): where they are, and something else that they might say.
FIELDS = {
    "size": (0, ">i", 99), "magic": (4, ">i", 7), "queue": (12, ">i", 9), "index": (20, ">q", 99),
    "offset": (28, ">q", 9), "in no queue": (36, ">i", 4), "store time": (56, ">q", 9),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "last"), [*((name, False) for name in FIELDS), ("size", True), ("store time", True)]
)  # fmt: skip
def test_records_that_say_something_else_of_themselves_are_noticed(
    span: tuple[Told, bytes], name: str, last: bool
) -> None:
    """The first of each queue is asked everything, the last of all its size and its store time."""
    told, data = span
    at, form, value = FIELDS[name]
    made = bytearray(data)
    ends = [_PLACE.unpack_from(queue.entries, len(queue.entries) - ENTRY_SIZE)[0] for queue in told.queues]
    pack_into(form, made, at + (max(ends) - told.start if last else 0), value)
    assert not told._replace(crc=crc32(made)).fits(bytes(made))
    assert not told.fits(bytes(made))


def keyed(told: Told, number: int, key: int, offset: int) -> Told:
    assert told.keys is not None
    keys = bytearray(told.keys)
    _KEY.pack_into(keys, number * 20, key, offset)
    return told._replace(keys=bytes(keys))


def test_keys_of_no_record_of_the_span_are_noticed(span: tuple[Told, bytes]) -> None:
    told, _ = span
    assert told.keys is not None
    count = len(told.keys) // 20
    for number, (was, offset) in ((0, _KEY.unpack_from(told.keys)), (count - 1, _KEY.unpack_from(told.keys, -20))):
        assert keyed(told, number, was, offset).has_good_keys()
        for key, other in (
            (was, told.start - 1), (was, told.end), (was, -1), (was, 1 << 62), (was, offset + (1 << 32)),
            (-1, offset), (-(1 << 31), offset),
        ):  # fmt: skip
            assert not keyed(told, number, key, other).has_good_keys(), (number, key, other)


def spelt(told: Told, at: int, form: str, value: int) -> bytes:
    """Some number of it is another one, and its own sum is right."""
    made = bytearray(told.encode())
    pack_into(form, made, at, value)
    pack_into(">I", made, 28, crc32(memoryview(made)[_HEAD.size :]))
    return bytes(made)


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (0, ">q", -1), (0, ">q", 1 << 62), (8, ">q", 0), (8, ">q", -1), (16, ">q", 0), (16, ">q", -1),
        (16, ">q", 1 << 53), (32, ">i", 0), (32, ">i", -1), (32, ">i", 2), (32, ">i", 4), (32, ">i", (1 << 31) - 1),
        (36, ">i", -2), (36, ">i", -1), (36, ">i", 0), (36, ">i", 17), (36, ">i", 19), (36, ">i", (1 << 31) - 1),
        (40, ">H", 0), (40, ">H", 65_535), (42, ">B", 0xFF), (_QUEUE_AT, ">i", -1), (_QUEUE_AT + 4, ">q", -1),
        (_QUEUE_AT + 12, ">i", 0), (_QUEUE_AT + 12, ">i", -1), (_QUEUE_AT + 12, ">i", (1 << 31) - 1),
    ],
)  # fmt: skip
def test_numbers_that_nobody_tells_are_refused(span: tuple[Told, bytes], at: int, form: str, value: int) -> None:
    told, _ = span
    data = spelt(told, at, form, value)
    with pytest.raises(ReplicationError) as refused:
        Told.decode(data)
    assert str(refused.value).isprintable()


def test_a_queue_that_gets_nothing_and_fewer_keys_than_none_are_refused(span: tuple[Told, bytes]) -> None:
    told, _ = span
    for lie in (
        told._replace(queues=[*told.queues, ToldQueue("T", 5, 0, b"")]).encode(),
        told._replace(queues=[]).encode(),
        spelt(told._replace(keys=None), 36, ">i", -2),
    ):
        with pytest.raises(ReplicationError):
            Told.decode(lie)
    assert Told.decode(spelt(told._replace(keys=None), 36, ">i", -1)).keys is None
    assert Told.decode(spelt(told._replace(keys=b""), 36, ">i", 0)).keys == b""


def test_a_queue_that_is_told_of_twice_gets_nothing_of_it() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(6, queues=1)

        def twice(told: Told) -> Told:
            (queue,) = told.queues
            half = queue.entries[: 3 * ENTRY_SIZE]
            rest = ToldQueue(queue.topic, queue.queue_id, queue.first + 3, queue.entries[3 * ENTRY_SIZE :])
            return told._replace(queues=[queue._replace(entries=half), rest])

        pair.tell(twice)
        await pair.alike(0)
        await pair.close()

    run(main())


@pytest.mark.parametrize("change", WRONG)
def test_what_does_not_fit_is_not_believed(change: Callable[[Told], Told]) -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(8)
        pair.tell(change)
        await pair.alike(0)
        pair.append(8)
        good = pair.told[0].end - pair.told[0].start
        pair.tell()
        await pair.alike(good)
        await pair.close()

    run(main())


def test_bytes_that_have_changed_on_their_way_are_damage_and_not_what_was_told() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.leader.append(pair.puts(8), 1_000_000)
        data = bytearray(pair.leader.log.read(0, pair.leader.log.end) or b"")
        data[len(data) // 2 + 100] ^= 1  # in the body of a message
        pair.follower.append_raw(0, bytes(data))
        pair.tell()
        await pair.commit()
        assert pair.follower.dispatcher.told.put_bytes == 0
        shown = sum(queue.visible for queue in pair.follower.queues)
        assert shown == 8
        damaged = pair.follower.damaged.parts
        assert len(damaged) == 1
        await pair.close()

    run(main())


@pytest.mark.parametrize("cut", [1, 20, 44, 60, -1, -30])
def test_what_is_cut_short_is_nothing(cut: int) -> None:
    data = Told(10, 200, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], bytes(40)).encode()
    assert Told.decode(data).end == 200
    with pytest.raises(ReplicationError):
        Told.decode(data[:cut])


def test_every_changed_byte_behind_the_head_is_noticed() -> None:
    data = Told(10, 200, 5, 7, [ToldQueue("T", 0, 0, bytes(20))], bytes(40)).encode()
    for at in range(44, len(data)):
        with pytest.raises(ReplicationError):
            Told.decode(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
