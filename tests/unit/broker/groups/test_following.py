"""How a slave's offsets follow its master's: nothing is lost, nothing moves back but what the master itself moved."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.groups.lmq_groups import LmqOffsetTable
from rmq.broker.groups.offsets import OffsetTable, offsets_in, read_offsets
from rmq.protocol.bodies.offset import ConsumerOffsetTable
from rmq.protocol.errors import ProtocolError

Table = dict[str, dict[int, int]]
NAMES = st.sampled_from(["T@g", "U@g", "%RETRY%g@g", "T@h"])
TABLES = st.dictionaries(NAMES, st.dictionaries(st.integers(0, 2), st.integers(0, 9), min_size=1))


def held(table: OffsetTable) -> dict[str, dict[int, int]]:
    return {f"{topic}@{group}": dict(table.of(group, topic)) for topic, group in table.pairs()}


@given(TABLES, TABLES, TABLES)
def test_every_queue_by_itself(own: Table, last: Table, now: Table) -> None:
    table = OffsetTable()
    table.load(own)
    asyncio.run(table.follow(now, last))
    after = held(table)
    for name in {*own, *last, *now}:
        for queue in range(3):
            mine, before, told = (one.get(name, {}).get(queue, -1) for one in (own, last, now))
            if name in last and name not in now:
                expected = -1
            elif 0 <= told < before:
                expected = told
            else:
                expected = max(mine, told)
            assert after.get(name, {}).get(queue, -1) == expected, (name, queue)


@given(TABLES, TABLES)
def test_what_is_taken_whole_is_as_it_was_told_and_nothing_else_goes(own: Table, now: Table) -> None:
    table = OffsetTable()
    table.load(own)
    moved = asyncio.run(table.follow(now, {}, whole=True))
    expected = {name: {**own.get(name, {}), **now.get(name, {})} for name in {*own, *now}}
    assert held(table) == expected
    assert moved == sum(at != own.get(name, {}).get(queue) for name in now for queue, at in now[name].items())


@given(TABLES)
def test_what_does_not_change_is_not_written(own: Table) -> None:
    table = OffsetTable()
    table.load(own)
    changes = table.changes
    assert asyncio.run(table.follow(own, own)) == 0
    assert table.changes == changes


@given(TABLES)
def test_an_answer_is_read_as_it_was_written(own: Table) -> None:
    table = LmqOffsetTable()
    table.load({**own, "L@%LMQ%l": {0: 3}})
    body = asyncio.run(table.encode())
    assert asyncio.run(read_offsets(body, nobody)) == {**own, "L@%LMQ%l": {0: 3}}


def nobody(name: str, why: str) -> None:
    raise AssertionError(f"{name}: {why}")


@pytest.mark.parametrize("bad", [b"{0:99999999999999999999}", b'{0:"x"}', b"[1]", b"7", b'{"x":1}'])
def test_a_pair_whose_offsets_are_none_costs_itself(bad: bytes) -> None:
    body = b'{"offsetTable":{"S@g":{0:7},"T@g":%b,"U@g":{0:5}},"lmqOffsetTable":{"L@%%LMQ%%l":3}}' % bad
    refused: dict[str, str] = {}
    assert asyncio.run(read_offsets(body, refused.__setitem__)) == {"S@g": {0: 7}, "U@g": {0: 5}, "L@%LMQ%l": {0: 3}}
    assert list(refused) == ["T@g"]


def test_any_form_of_an_answer_is_read() -> None:
    for body in (
        b'{"dataVersion":{"counter":3,"timestamp":4},"offsetTable":{"T@g":{0:1,1:2},"U@g":{"0":5}}}',
        b'{"offsetTable":{}}',
        b'{ "offsetTable" : { "T@g" : { 0 : 1 } , "U@g":{0:2}}}',
        b'{"offsetTable":{"T@g":{0:1},"a\\"b@g":{0:2},"V@g":{0:3}}}',
        b'{"offsetTable":{"T@g":{0:-1},"V@g":{0:3},"W@g":{}}}',
        b'{"offsetTable":{"T@g":{0:1},"U@g":{0:999999999999999999}}}',
        b"{}",
    ):
        expected = offsets_in(ConsumerOffsetTable.decode(body))
        assert asyncio.run(read_offsets(body, nobody)) == expected, body


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{"T@g":{' + b"1:11111111" * 200 + b"}}}",
        b'{"offsetTable":{"T@g":{' + b"1:1," * 20_000 + b"x}}}",
        b'{"offsetTable":{"T@g":{0:1}',
        b"junk",
    ],
    ids=["no commas", "no end", "cut", "no JSON"],
)
def test_what_is_no_answer_is_refused_at_once(body: bytes) -> None:
    """No place of it is tried in more than one way."""
    with pytest.raises(ProtocolError):
        asyncio.run(read_offsets(body, nobody))
