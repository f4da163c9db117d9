"""What a power cut has torn out of a member's log: nothing behind it counts as stored, and nothing before it is cut."""

from __future__ import annotations

import pytest

from rmq.broker.store.log.reader import Damage
from rmq.testing.simloop import run
from tests.support.scenes.member_log import member


@pytest.mark.parametrize(
    ("found", "known", "noted", "left"),
    [
        ([1, 3], [2], 1, 1),
        ([3], [2], 1, 2),
        ([3], [1, 2], 2, 2),  # the first is older: it was on the disk, and is damage of this disk alone
        ([1], [], 2, 5),
        ([5], [], 0, 5),  # behind the log's end
    ],
)
def test_a_log_ends_at_the_first_hole_that_is_not_before_what_was_noted(
    found: list[int], known: list[int], noted: int, left: int
) -> None:
    """Numbers are of records.

    :param found: holes that the start has found, and
    :param known: that were found before.
    """

    async def main() -> None:
        pair = await member()
        starts = []
        for _ in range(5):
            starts.append(pair.leader.log.end)
            pair.append(1)
        starts.append(pair.leader.log.end)
        store, cuts = pair.follower, list[int]()
        store.recovered.damages.extend(Damage(starts[one], starts[one] + 9) for one in found)
        store.damaged.parts.extend(Damage(starts[one], starts[one] + 9) for one in known)
        pair.log._noted = starts[noted]
        pair.log.on_cut.append(cuts.append)
        await pair.log.cut_torn()
        assert store.log.end == starts[left]
        assert cuts == ([starts[left]] if left < 5 else [])
        await pair.close()

    run(main())
