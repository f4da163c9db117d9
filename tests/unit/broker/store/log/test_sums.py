"""What the append sums up is what a reader does, of any kind of record; and a block is read as it was written."""

from array import array

import pytest

from rmq.broker.store.log.append import pack
from rmq.broker.store.log.record_runs import take
from rmq.broker.store.log.sums import Block, Identity, decode, encode, identity, sums_in
from rmq.broker.store.state import Put, Queue
from tests.support.scenes.store import HOST, put

HOST6 = bytes(range(16)) + HOST[4:]
FILE = 1 << 20


def messages() -> list[Put]:
    plain = [
        put(Queue(topic, 3), b"body" * number, key="k") for number, topic in enumerate(("T", "Ünïcode", "%RETRY%g"))
    ]
    return [
        *plain,
        plain[0]._replace(born_host=HOST6, sys_flag=0x10),
        plain[1]._replace(store_host=HOST6, sys_flag=0x20),
        plain[2]._replace(born_host=HOST6, store_host=HOST6, sys_flag=0x30, properties=b""),
    ]


@pytest.mark.parametrize("count", [1, 6])
def test_a_reader_makes_the_sums_of_the_append(count: int) -> None:
    for first in range(0, 6, count):
        packed = pack(messages()[first : first + count], (0, FILE, FILE), 7, sums=True)
        ((data,), (sums,)) = packed.pieces, packed.sums
        run = take(data, 0, 0, FILE, FILE, {}, crc=True)
        assert len(run.records) == count
        assert sums_in(run) == sums
        assert identity(data, 0)[1:] == (7, 1)


def test_each_file_has_the_sums_of_its_records() -> None:
    alone = pack([put(Queue("T", 0), bytes(300))], (0, FILE, FILE), 1, sums=True)
    size = len(alone.pieces[0])
    rolled = pack([put(Queue("T", 0), bytes(300)) for _ in range(5)], (0, 2 * size, 4 * size), 1, sums=True)
    assert [len(made) for made in rolled.sums] == [2, 3]
    one = pack([put(Queue("T", 0), bytes(300))], (0, 8, 4 * size), 1, sums=True)
    batch = pack([put(Queue("T", 0), bytes(300))] * 2, (0, 8, 4 * size), 1, together=True, sums=True)
    assert [len(made) for made in one.sums] == [0, 1]
    assert [len(made) for made in batch.sums] == [0, 2]
    assert pack([put(Queue("T", 0))], (0, FILE, FILE), 1).sums == []


def test_a_topic_that_is_no_text_is_summed_up_by_its_bytes() -> None:
    (data,) = pack([put(Queue("T", 0), b"x")], (0, FILE, FILE), 1).pieces
    odd = [data.replace(b"\x01T", b"\x01" + byte) for byte in (b"\xfe", b"\xff")]
    runs = [take(one, 0, 0, FILE, FILE, {}, crc=True) for one in odd]
    assert runs[0].records[0][5] == runs[1].records[0][5]
    assert sums_in(runs[0]) != sums_in(runs[1])


def test_blocks_are_read_as_they_were_written_whatever_is_between_them() -> None:
    sums = [array("I", range(number, number + 5)) for number in (0, 1 << 31)]
    blocks = [Block(1, 700, 5, 600, Identity(9, 8, 7)), Block(700, 1 << 40, 5, -1, Identity(0, 0, 0))]
    parts = [encode(block, made) for block, made in zip(blocks, sums, strict=True)]
    data = b"rmqS" + parts[0] + b"rmqrmqS" * 20 + parts[1] + parts[0][:-1]
    assert [(found._replace(at=0), made) for found, made in decode(data)] == list(zip(blocks, sums, strict=True))
    for at in range(len(parts[0])):
        spoilt = bytearray(parts[0])
        spoilt[at] ^= 4
        assert list(decode(bytes(spoilt))) == []
