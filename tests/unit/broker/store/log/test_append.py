"""The append: what it writes, where it rolls, and that a failed write leaves no trace."""

import struct
import zlib

import pytest

from rmq.broker.store.log.append import Appender, RecordTooLarge
from rmq.broker.store.state import Put, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.message import decode_record

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")


class Log:
    """Files of a fixed size in memory; fails on the write number ``fail_on``."""

    prefix = 0

    def __init__(self, file_size: int = 1000, fail_on: int = 0) -> None:
        self.file_size = file_size
        self.data = bytearray()
        self.end = 0
        self.room = file_size - 8
        self.gate = 0
        self.writes = 0
        self.fail_on = fail_on

    def gate_reason(self) -> str:
        return "disk full"

    def write(self, data: bytes) -> None:
        self.writes += 1
        if self.writes == self.fail_on:
            raise OSError(28, "No space left on device")
        assert len(data) <= self.room
        self.data += data
        self.end += len(data)
        self.room -= len(data)

    def roll(self) -> None:
        left = self.file_size - self.end % self.file_size
        self.data += bytes(left)
        self.end += left
        self.room = self.file_size - 8


class Index:
    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def put_many(self, entries: list[tuple[int, int]], stamp: int) -> None:
        self.entries += entries


def put(queue: Queue, body: bytes, *, born: bytes = HOST, properties: bytes = b"", keys: tuple[bytes, ...] = ()) -> Put:
    flag = 0x10 if len(born) == 20 else 0
    return Put(queue, body, properties, 7, flag, 1_700_000_000_000, born, HOST, 2, 9, -5, keys)


def test_a_record_holds_what_was_put() -> None:
    log, index, queue = Log(), Index(), Queue("Orders", 3)
    queue.next = 41
    span = Appender(log, index).append([put(queue, b"hello", properties=b"a\x01b", keys=(b"k1", b"k2"))], 5000)  # type: ignore[arg-type]
    assert (span.start, span.end, span.offsets, span.touched) == (0, log.end, [(41, 0)], [queue])
    record = decode_record(bytes(log.data), check_crc=True)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("Orders", 3, 41, 0)
    assert (record.flag, record.born_timestamp, record.store_timestamp) == (7, 1_700_000_000_000, 5000)
    assert (record.born_host, record.store_host) == (("127.0.0.1", 10911), ("127.0.0.1", 10911))
    assert (record.reconsume_times, record.prepared_transaction_offset) == (2, 9)
    assert (record.body, record.properties) == (b"hello", {"a": "b"})
    assert record.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF
    assert bytes(queue.tail) == struct.pack(">qiq", 0, log.end, -5)
    assert (queue.next, queue.max_phys, queue.bytes_put, queue.touched) == (42, log.end, log.end, False)
    assert len(index.entries) == 2


def test_hosts_of_both_kinds() -> None:
    log, queue = Log(), Queue("T", 0)
    Appender(log, None).append([put(queue, b"x", born=HOST6), put(queue, b"y")], 1)  # type: ignore[arg-type]
    first = decode_record(bytes(log.data))
    assert first.born_host == ("::1", 10911)
    assert decode_record(bytes(log.data), first.size).body == b"y"


def test_many_queues_one_write() -> None:
    log = Log(file_size=1 << 20)
    queues = [Queue("T", n) for n in range(4)]
    span = Appender(log, None).append([put(queues[n % 4], b"%d" % n) for n in range(100)], 1)  # type: ignore[arg-type]
    assert log.writes == 1
    assert [queue.next for queue in queues] == [25] * 4
    assert span.touched == queues
    at = 0
    for n in range(100):
        record = decode_record(bytes(log.data), at)
        assert (record.body, record.queue_offset, record.physical_offset) == (b"%d" % n, n // 4, at)
        assert span.offsets[n] == (n // 4, at)
        at += record.size


def test_a_file_that_is_full_is_rolled() -> None:
    log, queue = Log(), Queue("T", 0)
    size = 91 + 1 + 300
    span = Appender(log, None).append([put(queue, bytes(300)) for _ in range(5)], 1)  # type: ignore[arg-type]
    assert [physical for _, physical in span.offsets] == [0, size, 1000, 1000 + size, 2000]
    assert queue.max_phys == span.end == 2000 + size
    assert log.writes == 3


def test_a_record_fills_a_file_to_the_last_byte_but_eight() -> None:
    log, queue = Log(), Queue("T", 0)
    appender = Appender(log, None)  # type: ignore[arg-type]
    appender.append([put(queue, bytes(1000 - 8 - 92))], 1)
    assert log.end == 992
    with pytest.raises(RecordTooLarge, match="no commit-log file of 1000"):
        appender.append([put(queue, bytes(1000 - 8 - 91))], 1)
    assert (queue.next, log.end) == (1, 992)


def test_properties_that_fit_no_record_leave_no_trace() -> None:
    log, queue = Log(), Queue("T", 0)
    appender = Appender(log, None)  # type: ignore[arg-type]
    long = put(queue, b"")._replace(properties=b"x" * 32_768)
    with pytest.raises(RecordTooLarge, match="32768 bytes"):
        appender.append([put(queue, b"1"), long], 1)
    assert (queue.next, queue.max_phys, len(queue.tail), log.end) == (0, 0, 0, 0)
    assert appender.append([put(queue, b"1")], 1).offsets == [(0, 0)]


def test_a_batch_stays_together() -> None:
    log, queue = Log(), Queue("T", 0)
    appender = Appender(log, None)  # type: ignore[arg-type]
    appender.append([put(queue, bytes(500))], 1)
    span = appender.append([put(queue, bytes(100)) for _ in range(4)], 1, together=True)
    assert span.start == 1000
    assert [physical for _, physical in span.offsets] == [1000, 1192, 1384, 1576]
    with pytest.raises(RecordTooLarge):
        appender.append([put(queue, bytes(400)) for _ in range(4)], 1, together=True)


@pytest.mark.parametrize("fail_on", [1, 2, 3])
def test_a_failed_write_leaves_no_trace_of_what_was_not_written(fail_on: int) -> None:
    log, index, queue, other = Log(fail_on=fail_on), Index(), Queue("T", 0), Queue("U", 0)
    puts = [put(queue if n % 2 else other, bytes(300), keys=(b"%d" % n,)) for n in range(5)]
    with pytest.raises(OSError, match="No space"):
        Appender(log, index).append(puts, 1)  # type: ignore[arg-type]
    written = [0, 2, 4][fail_on - 1]
    assert queue.next + other.next == written
    assert len(queue.tail) + len(other.tail) == 20 * written
    assert queue.bytes_put + other.bytes_put == 392 * written
    assert len(index.entries) == written
    assert not queue.touched
    assert not other.touched
    # The next append goes on from there.
    span = Appender(log, index).append([put(queue, b"again")], 1)  # type: ignore[arg-type]
    assert span.offsets[0][0] == queue.next - 1


def test_a_closed_gate_refuses() -> None:
    log = Log()
    log.gate = 16
    with pytest.raises(StoreError, match="disk full"):
        Appender(log, None).append([put(Queue("T", 0), b"x")], 1)  # type: ignore[arg-type]
