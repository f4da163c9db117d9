"""A member's log: cut back, begun anew, and what of it is known to be committed."""

from __future__ import annotations

import orjson
import pytest

from rmq.protocol.errors import StoreError
from rmq.raft.position import LogsParted, Position
from rmq.testing.simloop import run
from tests.support.scenes.member_log import Member, member


def ends_of(pair: Member) -> list[int]:
    """Where records end."""
    data, ends = pair.leader.log.read(0, pair.leader.log.end) or b"", [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "big"))
    return ends


def terms(pair: Member) -> object:
    """Those on its disk."""
    return orjson.loads(pair.simulation.nodes["f"].files.read("/store/raft/terms"))["starts"]


def test_what_is_committed_within_a_span_is_seen_when_that_is_cut_back_to_there() -> None:
    """Where the records of a span end nobody looks at that is as it was told."""

    async def main() -> None:
        pair = await member()
        pair.append(3)
        _, _, second, last = ends_of(pair)
        said: list[int] = []
        pair.log.on_committed.append(said.append)
        pair.log.committed(second, whole=False)
        assert said == [0]
        await pair.log.cut(Position(1, second), whole=False)
        assert said == [0, second]
        assert (pair.follower.log.end, pair.follower.dispatcher.limit) == (second, second)
        assert (
            pair.log.write(second, Position(1, last), (pair.leader.log.read(second, last - second) or b"")).end == last
        )
        await pair.close()

    run(main())


def test_a_cut_tells_where_the_log_ends_and_takes_terms_back_on_the_disk() -> None:
    async def main() -> None:
        pair = await member()
        pair.append(3)
        _, first, second, last = ends_of(pair)
        cuts: list[int] = []
        pair.log.on_cut.append(cuts.append)
        assert pair.log.known == last
        await pair.log.begin_term(Position(4, last))
        assert (terms(pair), pair.log.is_of(4, last)) == ([[1, 0], [4, last]], True)
        await pair.log.cut(Position(1, last), whole=False)  # no byte goes
        assert (terms(pair), cuts, pair.log.known) == ([[1, 0]], [], last)
        await pair.log.begin_term(Position(5, last))
        await pair.log.cut(Position(1, second), whole=False)
        assert (terms(pair), cuts, pair.log.known) == ([[1, 0]], [second], second)
        assert pair.log.is_of(1, 0, second)
        assert not pair.log.is_of(5, last)
        pair.log._noted = second
        with pytest.raises(LogsParted, match=f"what is committed: the log from 1:{first} up to {second}"):
            await pair.log.cut(Position(1, first), whole=False)
        await pair.close()

    run(main())


def test_an_empty_log_begins_where_the_leaders_does() -> None:
    async def main() -> None:
        pair = await member()
        pair.leader.append(pair.puts(2), 1_000_000)
        record = pair.leader.log.read(0, ends_of(pair)[1]) or b""
        at = 7 * pair.leader.log.file_size
        await pair.log.reset(Position(3, at))
        assert (terms(pair), pair.log.known) == ([[3, at]], at)
        assert pair.log.write(at, Position(3, at + len(record)), record) == Position(3, at + len(record))
        assert (pair.follower.log.start, pair.log.taken) == (at, len(record))
        with pytest.raises(LogsParted, match="start it with an empty store"):
            await pair.log.reset(Position(3, 9 * pair.leader.log.file_size))
        await pair.close()

    run(main())


def test_a_store_that_cannot_keep_what_it_is_given_is_no_members() -> None:
    async def main() -> None:
        pair = await member()
        pair.append(2)
        path = await pair.log.begin()
        assert path.last == Position(1, pair.leader.log.end)
        pair.follower.flusher.fail("/store/commitlog/0", OSError(5, "I/O error"))
        with pytest.raises(StoreError):
            await pair.log.begin()
        await pair.close()

    run(main())


def test_who_begins_leaves_half_a_record_out() -> None:
    async def main() -> None:
        pair = await member()
        pair.leader.append(pair.puts(3), 1_000_000)
        _, _, second, last = ends_of(pair)
        data = pair.leader.log.read(0, last) or b""
        assert pair.log.write(0, Position(1, second + 50), data[: second + 50]).end == second
        path = await pair.log.begin()
        assert (path.last, pair.follower.log.end) == (Position(1, second), second)
        assert pair.log.write(second, Position(1, last), data[second:]).end == last
        await pair.close()

    run(main())
