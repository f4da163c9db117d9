"""Every bit that an entry and its record say both is compared: of records that are all alike, and of others."""

from __future__ import annotations

from itertools import accumulate, repeat

import pytest

from rmq.broker.store.queues import fitting
from rmq.broker.store.queues.fitting import all_fit, run_fits
from rmq.broker.store.state import Queue
from rmq.protocol.message import MessageRecord, encode_record
from rmq.protocol.record import FIELDS, HEAD_SIZE

QUEUE = Queue("the topic", 3)
INDEXES = range(1000, 1009)
FIRST = 1 << 40
#: What nothing else says as well, of a record with four bytes of body.
UNKNOWN = {
    *range(FIELDS["body_crc"][0], FIELDS["queue_id"][0]),
    *range(FIELDS["flag"][0], FIELDS["queue_offset"][0]),
    *range(FIELDS["born_timestamp"][0], FIELDS["body_size"][0]),
}
BODY = range(HEAD_SIZE, HEAD_SIZE + 4)


def records(*, alike: bool) -> tuple[list[bytes], list[int], list[int]]:
    """Records, where they lie in the log, and their sizes; of those that are not alike, the last but one is longer."""
    made: list[bytes] = []
    offsets: list[int] = []
    at = FIRST
    for index in INDEXES:
        text = "v" * (5 if alike or index != INDEXES[-2] else 9)
        host = ("10.0.0.1", 5)
        one = MessageRecord(
            "the topic", 3, 0, index, at, 0, 7, host, 8, host, 0, 0, b"%d" % index, {"KEYS": text},
        )  # fmt: skip
        made.append(encode_record(one))
        offsets.append(at)
        at += len(made[-1]) + 1000
    return made, offsets, [len(record) for record in made]


def fit(made: list[bytes], offsets: list[int], sizes: list[int], *, crc: bool = False, queue: Queue = QUEUE) -> bool:
    """As records apart, one by one, in one piece, and behind one another there: the same."""
    apart = all_fit(queue, INDEXES, offsets, sizes, made, repeat(0), crc=crc)
    places = list(accumulate(map(len, made), initial=0))[:-1]
    joined = b"".join(made)
    assert all_fit(queue, INDEXES, offsets, sizes, repeat(memoryview(joined)), places, crc=crc) == apart
    assert run_fits(queue, INDEXES, offsets, sizes, joined, crc=crc) == apart
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_COLUMNS", len(made))  # as more of them are
        assert run_fits(queue, INDEXES, offsets, sizes, bytearray(joined + b"more"), crc=crc) == apart
    each = zip(INDEXES, offsets, sizes, made, strict=True)
    assert all(all_fit(queue, (n,), (at,), (size,), (one,), (0,), crc=crc) for n, at, size, one in each) == apart
    return apart


@pytest.mark.parametrize("first", [0, 254, 65_536 - 3, 65_536, (1 << 40) - 5, (1 << 62) + 255])
@pytest.mark.parametrize("count", [1, 9, 512, 1024, 1025])
def test_the_columns_of_numbers_in_a_row_are_those_of_any_numbers(first: int, count: int) -> None:
    numbers = range(first, first + count)
    packed = b"".join(number.to_bytes(8, "big") for number in numbers)
    expected = [packed[byte::8] for byte in range(8)]
    assert fitting._columns(numbers) == fitting._columns(list(numbers)) == expected
    assert fitting._columns(numbers[::-1])[7] == expected[7][::-1]


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("crc", [True, False])
def test_each_bit_counts(alike: bool, place: int, crc: bool) -> None:
    made, offsets, sizes = records(alike=alike)
    good = made[place]
    assert fit(made, offsets, sizes, crc=crc)
    text = len(good) - len(b"KEYS\x01vvvvv")
    for at in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            made[place] = bytes(bad)
            if at in UNKNOWN or at >= text:
                told = crc and at in range(*[FIELDS[name][0] for name in ("body_crc", "queue_id")])
            elif at in BODY:
                told = crc
            else:
                told = at not in range(36, 40) or (at == 39 and bit in (4, 5))  # of sysFlag, which hosts it has
            assert fit(made, offsets, sizes, crc=crc) != told, (at, bit)


@pytest.mark.parametrize("alike", [True, False])
def test_entries_of_others_do_not_fit(alike: bool) -> None:
    made, offsets, sizes = records(alike=alike)
    for other in (Queue("the topic", 2), Queue("the tOpic", 3), Queue("a topic", 3)):
        assert not fit(made, offsets, sizes, queue=other)
    made[1], made[2] = made[2], made[1]
    assert not fit(made, offsets, sizes)
    offsets[1], offsets[2] = offsets[2], offsets[1]
    assert not fit(made, offsets, sizes), "the indexes tell"
