"""Consumer offsets and their file (store-and-broker.md 1.5, 8.5)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.groups.offsets import UNKNOWN, OffsetTable
from rmq.protocol import fastjson
from rmq.protocol.bodies.offset import ConsumerOffsetTable


def filled() -> OffsetTable:
    table = OffsetTable()
    table.commit("g", "T", 0, 7)
    table.commit("g", "T", 1, 10)
    table.commit("h", "T", 0, 3)
    table.commit("g", "%RETRY%g", 0, 0)
    return table


def test_commit_and_query() -> None:
    table = filled()
    assert table.query("g", "T", 1) == 10
    assert table.query("g", "T", 9) == UNKNOWN
    assert table.query("x", "T", 0) == UNKNOWN
    table.commit("g", "T", 1, 2)
    assert table.query("g", "T", 1) == 2
    assert table.topics_of("g") == ["T", "%RETRY%g"]
    assert table.groups_of("T") == ["g", "h"]


def test_the_text_of_the_file_is_javas() -> None:
    table = OffsetTable()
    table.commit("g", "T", 0, 7)
    table.commit("g", "T", 1, 10)
    text = asyncio.run(table.render())
    assert text == b'{\n\t"offsetTable":{\n\t\t"T@g":{0:7,1:10\n\t\t}\n\t}\n}'
    assert asyncio.run(OffsetTable().render()) == b'{\n\t"offsetTable":{}\n}'


def test_what_is_written_reads_back() -> None:
    table = filled()
    table.commit('a"b', "T", 0, 1)
    again = OffsetTable()
    again.load(ConsumerOffsetTable.decode(asyncio.run(table.render())).offset_table)
    assert sorted(again.pairs()) == sorted(table.pairs())
    assert again.of("g", "T") == {0: 7, 1: 10}
    assert again.query('a"b', "T", 0) == 1
    assert fastjson.loads(asyncio.run(table.encode())) == fastjson.loads(asyncio.run(table.render()))


def test_a_load_replaces_what_is_there() -> None:
    table = filled()
    before = table.changes
    table.parse(b'{"offsetTable":{"T@h":{0:9}},"lmqOffsetTable":{"%LMQ%a@%LMQ%g":3}}')
    assert sorted(table.pairs()) == [("%LMQ%a", "%LMQ%g"), ("T", "h")]
    assert (table.of("h", "T"), table.of("%LMQ%g", "%LMQ%a")) == ({0: 9}, {0: 3})
    assert table.changes > before


def test_a_merge_keeps_the_larger_offset_of_each_queue(caplog: pytest.LogCaptureFixture) -> None:
    table = filled()
    held = {"T@g": {0: 9, 1: 8, 2: 1, 3: -1}, "T@h": {0: 3}, "U@new": {4: 0}, "nothing": {0: 1}}
    assert table.merge(held) == 3
    assert table.of("g", "T") == {0: 9, 1: 10, 2: 1}
    assert table.of("h", "T") == {0: 3}
    assert table.of("new", "U") == {4: 0}
    assert "g has -1 stored on T-3" in caplog.text
    before = table.changes
    assert table.merge(held) == 0, "once more changes nothing"
    assert table.changes == before


@given(
    *[st.dictionaries(st.sampled_from(["T@g", "T@h", "U@g"]), st.dictionaries(st.integers(0, 3), st.integers(0, 9)))]
    * 2
)
def test_a_merge_is_the_same_either_way(one: dict[str, dict[int, int]], other: dict[str, dict[int, int]]) -> None:
    merged = []
    for first, second in ((one, other), (other, one)):
        table = OffsetTable()
        table.load(first)
        table.merge(second)
        merged.append({(pair, queue): at for pair in table.pairs() for queue, at in table.of(*pair[::-1]).items()})
    assert merged[0] == merged[1]


def test_a_group_name_may_hold_the_separator_only_in_the_topic() -> None:
    table = OffsetTable()
    table.load({"T@x@g": {0: 4}, "nothing": {0: 1}, "@g": {0: 1}, "T@": {0: 1}})
    assert table.pairs() == [("T@x", "g")]


def test_clone_replaces_and_does_not_share() -> None:
    table = filled()
    table.commit("n", "T", 5, 50)
    assert table.clone("g", "n", "T")
    assert table.of("n", "T") == {0: 7, 1: 10}
    table.commit("n", "T", 0, 8)
    assert table.query("g", "T", 0) == 7
    assert not table.clone("nobody", "n", "T")


def test_removing() -> None:
    table = filled()
    table.remove_topic("T")
    assert table.pairs() == [("%RETRY%g", "g")]
    table.remove_group("g")
    assert table.pairs() == []


def test_minimums_leave_out_stale_offsets_and_named_groups() -> None:
    table = filled()
    assert table.minimums("T", {}) == {0: 3, 1: 10}
    assert table.minimums("T", {0: 3}) == {0: 3, 1: 10}
    assert table.minimums("T", {0: 4}) == {0: 7, 1: 10}
    assert table.minimums("T", {0: 5}) == {0: 7, 1: 10}
    assert table.minimums("T", {}, without={"h"}) == {0: 7, 1: 10}


def test_rendering_gives_the_loop_its_turns() -> None:
    table = OffsetTable()
    for number in range(3000):
        table.commit(f"g{number}", "T", 0, number)

    async def main() -> int:
        turns = 0
        work = asyncio.ensure_future(table.render())
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) >= 6


def test_offsets_behind_the_ends_of_their_queues_come_back(caplog: pytest.LogCaptureFixture) -> None:
    table = filled()
    table.merge({f"T@many{number}": dict.fromkeys(range(20), 9) for number in range(30)})
    before = table.changes
    ends = {("T", 0): 3, ("T", 1): 10}
    table.bring_back(lambda topic, queue: ends.get((topic, queue)))
    assert table.of("g", "T") == {0: 3, 1: 10}
    assert table.of("h", "T") == {0: 3}
    assert table.of("many29", "T") == {0: 3, **dict.fromkeys(range(1, 20), 9)}
    assert table.changes > before
    assert len(caplog.records) == 11, "ten of them by name, and how many there are"
    assert "offsets of 31 groups on topics" in caplog.text
    caplog.clear()
    before = table.changes
    table.bring_back(lambda topic, queue: ends.get((topic, queue)))
    assert (table.changes, caplog.text) == (before, "")


def test_an_offset_below_0_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    table = filled()
    changes = table.changes
    for offset in (-1, -5, -(1 << 63)):
        table.commit("g", "T", 0, offset)
        table.commit("new", "T", 0, offset)
    assert (table.query("g", "T", 0), table.query("new", "T", 0)) == (7, UNKNOWN)
    assert (table.groups_of("T"), table.changes) == (["g", "h"], changes)
    assert caplog.messages[0] == "g commits -1 on T-0, which is no offset: what is stored stays"


def test_stored_offsets_that_are_none_are_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    table = OffsetTable()
    wrong = ",".join(f"{queue}:{-queue}" for queue in range(1, 21))
    table.parse(b'{"offsetTable":{"T@g":{0:7,%s},"U@g":{0:-1},"V@g":{0:3}}}' % wrong.encode())
    assert table.of("g", "T") == {0: 7}
    assert (table.query("g", "U", 0), table.query("g", "V", 0)) == (UNKNOWN, 3)
    assert table.minimums("T", {}) == {0: 7}
    begins = "which is no offset: it begins there like a group without one"
    assert f"g has -1 stored on T-1, {begins}" in caplog.messages
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == "11 more stored offsets are none"
    assert b"-" not in asyncio.run(table.render())
