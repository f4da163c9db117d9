"""The first half of the append: which records it makes, where the log rolls, and that nothing is changed by it."""

import struct
import zlib

import pytest

from rmq.broker.store.log.append import Packed, Place, RecordTooLarge, pack
from rmq.broker.store.state import Put, Queue
from rmq.protocol.message import decode_record

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
FILE = 1000
#: Bytes of a record with topic T besides its body.
FIXED = 92


def put(queue: Queue, body: bytes, *, born: bytes = HOST, properties: bytes = b"", keys: tuple[bytes, ...] = ()) -> Put:
    flag = 0x10 if len(born) == 20 else 0
    return Put(queue, body, properties, 7, flag, 1_700_000_000_000, born, HOST, 2, 9, -5, keys)


def at(end: int = 0, file_size: int = FILE) -> Place:
    """A log that ends there."""
    return end, file_size - end % file_size - 8, file_size


def places(packed: Packed) -> list[int]:
    return [physical for _, physical in packed.offsets]


#: One message is packed another way than many.
@pytest.mark.parametrize("others", [0, 2])
def test_a_record_holds_what_was_put(others: int) -> None:
    queue, other = Queue("Orders", 3), Queue("T", 0)
    queue.next = 41
    puts = [put(queue, b"hello", properties=b"a\x01b"), *[put(other, b"other")] * others]
    packed = pack(puts, at(2000, 1 << 20), 5000)
    (data,) = packed.pieces
    record = decode_record(data, check_crc=True)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("Orders", 3, 41, 2000)
    assert (record.flag, record.born_timestamp, record.store_timestamp) == (7, 1_700_000_000_000, 5000)
    assert (record.born_host, record.store_host) == (("127.0.0.1", 10911), ("127.0.0.1", 10911))
    assert (record.reconsume_times, record.prepared_transaction_offset) == (2, 9)
    assert (record.body, record.properties) == (b"hello", {"a": "b"})
    assert record.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF
    entry = struct.pack(">qiq", 2000, record.size, -5)
    assert packed.deltas[0] == (queue, entry, 1, record.size, 2000 + record.size)
    assert (packed.at, packed.stamp, packed.puts, packed.offsets[0]) == (2000, 5000, puts, (41, 2000))


def test_a_record_is_the_same_alone_and_among_others() -> None:
    queue = Queue("T", 0)
    for message in (
        put(queue, b""), put(queue, b"x" * 300, properties=b"p" * 32_767), put(queue, b"y", born=HOST6)
    ):  # fmt: skip
        alone = pack([message], at(0, 1 << 20), 1)
        both = pack([message, message], at(0, 1 << 20), 1)
        size = len(alone.pieces[0])
        assert both.pieces[0][:size] == alone.pieces[0]
        assert both.deltas[0][1][:20] == alone.deltas[0][1]
        assert alone.deltas[0][2:] == (1, size, size)
        assert both.deltas[0][2:] == (2, 2 * size, 2 * size)


def test_hosts_of_both_kinds() -> None:
    queue = Queue("T", 0)
    (data,) = pack([put(queue, b"x", born=HOST6), put(queue, b"y")], at(), 1).pieces
    first = decode_record(data)
    assert first.born_host == ("::1", 10911)
    assert decode_record(data, first.size).body == b"y"


def test_many_queues_one_write() -> None:
    queues = [Queue("T", n) for n in range(4)]
    packed = pack([put(queues[n % 4], b"%d" % n) for n in range(100)], at(0, 1 << 20), 1)
    (data,) = packed.pieces
    assert [(queue, count) for queue, _, count, *_ in packed.deltas] == [(queue, 25) for queue in queues]
    position = 0
    for n in range(100):
        record = decode_record(data, position)
        assert (record.body, record.queue_offset, record.physical_offset) == (b"%d" % n, n // 4, position)
        assert packed.offsets[n] == (n // 4, position)
        assert packed.deltas[n % 4][1][n // 4 * 20 :][:20] == struct.pack(">qiq", position, record.size, -5)
        position += record.size
    assert packed.deltas[3][4] == position == len(data)


def test_many_messages_of_one_queue() -> None:
    queue = Queue("T", 0)
    packed = pack([put(queue, b"x")] * 150, at(0, 1 << 20), 1)
    size = FIXED + 1
    entries = b"".join(struct.pack(">qiq", n * size, size, -5) for n in range(150))
    assert packed.deltas == [(queue, entries, 150, 150 * size, 150 * size)]


def test_packing_changes_nothing() -> None:
    queue = Queue("T", 0)
    before = (queue.next, queue.visible, bytes(queue.tail), queue.max_phys, queue.bytes_put)
    for puts in ([put(queue, b"a")], [put(queue, b"a"), put(queue, b"b")]):
        assert pack(puts, at(), 1).offsets[0] == (0, 0)
    with pytest.raises(struct.error):  # a tags code that no entry holds
        pack([put(queue, b"a"), put(queue, b"b")._replace(tags_code=1 << 64)], at(), 1)
    assert (queue.next, queue.visible, bytes(queue.tail), queue.max_phys, queue.bytes_put) == before


def test_a_file_that_is_full_is_rolled() -> None:
    queue = Queue("T", 0)
    size = FIXED + 300
    packed = pack([put(queue, bytes(300)) for _ in range(5)], at(), 1)
    assert places(packed) == [0, size, FILE, FILE + size, 2 * FILE]
    assert [len(piece) for piece in packed.pieces] == [2 * size, 2 * size, size]
    assert packed.deltas[0][4] == 2 * FILE + size


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("end", [700, 992, FILE])
def test_what_does_not_fit_goes_into_the_next_file(count: int, end: int) -> None:
    # A log that ends with a file has no room, not even for the blank record.
    place = end, FILE - end - 8, FILE
    packed = pack([put(Queue("T", 0), bytes(300)) for _ in range(count)], place, 1)
    assert places(packed) == [FILE, FILE + FIXED + 300][:count]
    assert [len(piece) for piece in packed.pieces] == [0, count * (FIXED + 300)]


@pytest.mark.parametrize("others", [0, 1])
def test_a_record_fills_a_file_to_the_last_byte_but_eight(others: int) -> None:
    queue = Queue("T", 0)
    small = [put(queue, b"")] * others
    packed = pack([put(queue, bytes(FILE - 8 - FIXED)), *small], at(), 1)
    assert len(packed.pieces[0]) == FILE - 8
    assert places(pack([put(queue, bytes(FILE - 8 - FIXED)), *small], at(500), 1))[0] == FILE
    with pytest.raises(RecordTooLarge, match="no commit-log file of 1000"):
        pack([put(queue, bytes(FILE - 8 - FIXED + 1)), *small], at(), 1)


@pytest.mark.parametrize("others", [0, 1])
def test_properties_that_fit_no_record_are_refused(others: int) -> None:
    queue = Queue("T", 0)
    long = put(queue, b"")._replace(properties=b"x" * 32_768)
    with pytest.raises(RecordTooLarge, match="32768 bytes"):
        pack([*[put(queue, b"1")] * others, long], at(0, 1 << 20), 1)


@pytest.mark.parametrize("count", [1, 4])
def test_a_batch_stays_together(count: int) -> None:
    queue = Queue("T", 0)
    size = 800 // count
    packed = pack([put(queue, bytes(size - FIXED))] * count, at(FIXED + 500), 1, together=True)
    assert places(packed) == [FILE + n * size for n in range(count)]
    assert [len(piece) for piece in packed.pieces] == [0, 800]
    fits = pack([put(queue, bytes(size - FIXED))] * count, at(FILE - 808), 1, together=True)
    assert places(fits) == [FILE - 808 + n * size for n in range(count)]
    with pytest.raises(RecordTooLarge, match="fits in no commit-log file"):
        pack([put(queue, bytes(FILE // count))] * count, at(FIXED + 500), 1, together=True)


@pytest.mark.parametrize("left", [8, 7])
def test_a_batch_fills_a_file_to_the_last_byte_but_eight(left: int) -> None:
    queue = Queue("T", 0)
    batch = [put(queue, bytes(200)), put(queue, bytes(FILE - left - 2 * FIXED - 200))]
    if left < 8:
        with pytest.raises(RecordTooLarge):
            pack(batch, at(500), 1, together=True)
    else:
        assert places(pack(batch, at(500), 1, together=True)) == [FILE, FILE + FIXED + 200]
