"""How far delay levels are delivered, of two members of one log: the one that is further on knows what it set aside."""

from __future__ import annotations

from rmq.broker.schedule.levels import DelayOffsets


def offsets(table: dict[int, int], *aside: tuple[int, int]) -> DelayOffsets:
    made = DelayOffsets()
    made.load(table)
    made.aside |= set(aside)
    return made


def test_each_level_goes_on_where_either_has_come() -> None:
    own = offsets({1: 10, 2: 5, 3: 7}, (1, 4), (2, 3), (3, 6))
    kept = own.aside
    assert own.merge(offsets({1: 8, 2: 9, 3: 7, 4: 1}, (1, 2), (2, 8), (3, 5))) == 2
    assert own.table == {1: 10, 2: 9, 3: 7, 4: 1}
    assert own.aside == {(1, 4), (2, 8), (3, 6), (3, 5)}
    assert own.aside is kept, "others hold this object"
