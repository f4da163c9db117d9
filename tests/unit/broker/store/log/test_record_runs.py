"""Runs of records: the fast way says what ``check`` and ``derive`` say, whatever the bytes are."""

from random import Random
from struct import pack
from zlib import crc32

import pytest

from rmq.broker.store.log.record_runs import Run, Topics, take
from rmq.broker.store.log.records import TagsRule, check, derive, index_keys
from rmq.protocol.record import FIXED_SIZE, MAGIC_V1, MAGIC_V2

RULE = TagsRule((1000, 2000))
TOPICS = (b"T", b"Orders", b"SCHEDULE_TOPIC_XXXX", b"%RETRY%group", "\u8ba2\u5355".encode())
PROPERTIES = (
    b"",
    b"TAGS\1TagA",
    b"KEYS\1one two\2UNIQ_KEY\1AC10\2WAIT\1true\2TAGS\1b\2",
    b"XTAGS\1no\2KEYS\1 \2DELAY\0012",
    b"TAGS\1first\2TAGS\1last",
    b"binary\1a\0b\2TAGS\1\0",
    b"x\1" + bytes(600) + b"\2TAGS\1c",
    b"ends\1\0",
)


def record(random: Random, offset: int, index: int) -> bytes:
    topic = random.choice(TOPICS)
    properties = random.choice(PROPERTIES)
    body = random.randbytes(random.choice((0, 1, 40, 700)))
    sys_flag = random.choice((0, 0, 0, 0x4, 0x8, 0xC, 0x10, 0x20, 0x30))
    born = random.randbytes(20 if sys_flag & 0x10 else 8)
    store = random.randbytes(20 if sys_flag & 0x20 else 8)
    magic = random.choice((MAGIC_V1, MAGIC_V1, MAGIC_V1, MAGIC_V2))
    name = bytes((len(topic),)) + topic if magic == MAGIC_V1 else pack(">h", len(topic)) + topic
    rest = body + name + pack(">h", len(properties)) + properties
    size = 72 + len(born) + len(store) + len(rest)
    head = pack(">iiiiiqqiq", size, magic, crc32(body) & 0x7FFFFFFF, random.randrange(4), 7, index, offset, sys_flag, 9)
    return head + born + pack(">q", 1700000000000 + index) + store + pack(">iqi", 0, 0, len(body)) + rest


def log_of(random: Random, base: int) -> bytes:
    data = b""
    for index in range(random.randrange(1, 12)):
        data += record(random, base + len(data), index)
    kind = random.randrange(5)
    if kind == 0:
        data += bytes(random.randrange(200))
    elif kind == 1:
        data = data[: random.randrange(len(data))]
    elif kind == 2:
        at = random.randrange(len(data))
        data = data[:at] + random.randbytes(random.choice((1, 4, 30))) + data[at:]
    elif kind == 3:
        at = random.randrange(len(data))
        data = data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]
    return data


def one_by_one(data: bytes, base: int, stop: int, file_end: int, *, crc: bool) -> tuple[list[tuple[int, int]], int]:
    found, at = [], 0
    while base + at < stop:
        verdict = check(data, at, base + at, file_end - base - at, crc=crc)
        if verdict <= 0:
            return found, verdict
        found.append((at, verdict))
        at += verdict
    return found, 1


def runs(data: bytes, base: int, stop: int, file_end: int, topics: Topics, *, crc: bool) -> tuple[list[Run], int]:
    found: list[Run] = []
    at, verdict = 0, 1
    while verdict > 0 and base + at < stop:
        run = take(data, at, base, stop, file_end, topics, crc=crc)
        found.append(run)
        at, verdict = run.end, run.verdict
    return found, min(verdict, 1)


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_a_run_is_what_check_and_derive_say(seed: int, crc: bool) -> None:
    random = Random(seed)
    topics: Topics = {}
    for _ in range(25):
        base = random.randrange(1 << 33)
        data = log_of(random, base)
        stop = base + (random.randrange(1, len(data) + 1) if data and random.randrange(4) == 0 else 1 << 30)
        file_end = base + len(data) + random.choice((0, 50, FIXED_SIZE, 100_000))
        found, verdict = runs(data, base, stop, file_end, topics, crc=crc)
        assert ([(seen[0], seen[1]) for run in found for seen in run.records], verdict) == one_by_one(
            data, base, stop, file_end, crc=crc
        )
        for at, size, sys_flag, queue_id, index, topic, text in (seen for run in found for seen in run.records):
            told = derive(data, at, RULE)
            assert (topic, queue_id, index, sys_flag) == told[:4]
            assert index_keys(data, text, at + size) == told.keys
            code = RULE.code(data, text, at + size)
            if code is not None and topic != "SCHEDULE_TOPIC_XXXX":
                assert code == told.tags_code


def test_tags_that_only_splitting_tells_are_not_guessed() -> None:
    for text in (b"XTAGS\1no", b"TAGS\1a\2TAGS\1b"):
        assert RULE.code(text, 0, len(text)) is None
    assert RULE.code(b"a\1b\2TAGS\1TagA\2c\1d", 0, 17) == RULE.tag(b"TagA")


def test_a_long_run_comes_in_slices() -> None:
    data = b""
    for index in range(2500):
        data += record(Random(1), len(data), index)
    found, verdict = runs(data, 0, 1 << 30, len(data), {}, crc=True)
    assert [len(run.records) for run in found] == [1000, 1000, 500]
    assert verdict == 0
