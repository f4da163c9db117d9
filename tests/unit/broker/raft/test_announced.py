"""What a leader tells before the bytes come: it is held against them when they are written, and believed then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq.broker.raft.announced import Announced
from rmq.broker.store.queues.multi_dispatch import MultiDispatch
from rmq.broker.store.told import Told, ToldQueue
from rmq.raft.position import Position
from rmq.testing.simloop import run
from tests.support.scenes.member_log import member
from tests.support.scenes.told import WRONG


def test_what_fits_is_put_without_reading_the_log() -> None:
    async def main() -> None:
        pair = await member(index_entries=500, commit_log_file_size=1 << 20)
        log = pair.follower.log
        for how in ({}, {"keys": 0}, {"keys": 1, "queues": 1}, {"keys": 5, "topic": "Other"}, {"size": 0}):
            pair.append(7, **how)
            assert not pair.kept
            assert pair.log._ends.last == log.end
        read, log.read = log.read, lambda offset, size: None
        pair.follower.log.written = lambda offset, size: None
        await pair.commit()
        log.read = read
        await pair.alike()
        await pair.close()

    run(main())


@pytest.mark.parametrize("most", [70, 333, 1000, 5000])
def test_spans_are_cut_anywhere_and_come_together(most: int, caplog: pytest.LogCaptureFixture) -> None:
    """What is not told of in one piece with its bytes is held against the log later."""

    async def main() -> None:
        pair = await member(index_entries=500)
        pair.most = most
        for number in range(12):
            start = pair.leader.log.end
            for count in (1, 4, 2)[: 1 + number % 3]:
                pair.leader.append(pair.puts(count), 1_000_000 + start)
            if number == 6:
                pair.told.clear()
            pair.send(start)
            assert (len(pair.announced), pair.announced.memory) == (0, 0)
        await pair.commit()
        assert pair.follower.dispatcher.told.put_bytes > pair.leader.log.end / 2
        await pair.alike(pair.follower.dispatcher.told.put_bytes)
        await pair.close()

    run(main())
    assert "does not fit" not in caplog.text


def test_files_roll() -> None:
    async def main() -> None:
        pair = await member()
        for _ in range(30):
            pair.append(6, size=300)
            await pair.commit()
        assert len(pair.leader.log.segments) > 3
        put_bytes = pair.follower.dispatcher.told.put_bytes
        assert pair.leader.log.end / 2 < put_bytes < pair.leader.log.end
        await pair.alike(put_bytes)
        await pair.close()

    run(main())


@pytest.mark.parametrize("change", WRONG)
def test_what_does_not_fit_is_not_believed(change: Callable[[Told], Told]) -> None:
    async def main() -> None:
        pair = await member()
        pair.change = change
        pair.append(8)
        assert pair.kept
        await pair.alike(0)
        pair.change = lambda told: told
        start = pair.leader.log.end
        pair.append(8)
        assert not pair.kept
        await pair.alike(pair.leader.log.end - start)
        await pair.close()

    run(main())


def test_bytes_that_have_changed_on_their_way_are_damage_and_not_what_was_told() -> None:
    async def main() -> None:
        pair = await member()
        pair.leader.append(pair.puts(8), 1_000_000)
        data = bytearray(pair.leader.log.read(0, pair.leader.log.end) or b"")
        data[len(data) // 2 + 100] ^= 1  # in the body of a message
        pair.log.write(0, Position(1, len(data)), data, pair.told)
        assert pair.kept
        await pair.commit()
        assert pair.follower.dispatcher.told.put_bytes == 0
        assert sum(queue.visible for queue in pair.follower.queues) == 8
        assert len(pair.follower.damaged.parts) == 1
        await pair.close()

    run(main())


def test_of_a_part_that_is_told_of_the_rest_is_read() -> None:
    async def main() -> None:
        pair = await member(commit_log_file_size=1 << 20, index_entries=500)
        told = 0
        for number in range(6):
            start = pair.leader.log.end
            pair.leader.append(pair.puts(3), 1_000_000 + start)
            behind = pair.leader.log.end
            pair.leader.append(pair.puts(3), 1_000_000 + start)
            (first, second) = pair.told
            pair.told[:] = [(first, second)[number % 2]]
            told += second.end - behind if number % 2 else behind - start
            assert first.end == behind
            pair.send(start)
            assert pair.kept
        await pair.alike(told)
        await pair.close()

    run(main())


def test_what_begins_within_a_record_is_no_span() -> None:
    """A leader is not believed about where records end that has begun another one before."""

    async def main() -> None:
        pair = await member()
        pair.append(1)
        start = pair.leader.log.end
        pair.leader.append(pair.puts(3), 1_000_000)
        log = pair.leader.log
        one, others = log.read(0, start) or b"", log.read(start, log.end - start) or b""
        other = await member()
        long = (start + 5000).to_bytes(4, "big") + one[4:]
        other.log.write(0, Position(1, start), long)
        assert other.log.write(start, Position(1, log.end), others, pair.told).end == 0
        assert other.kept
        await pair.close()
        await other.close()

    run(main())


def test_where_there_is_more_to_make_of_records_they_are_read() -> None:
    async def main() -> None:
        pair = await member(checksums_on_append=True)
        pair.append(6)
        pair.append(6)
        assert pair.kept
        await pair.alike(0)
        await pair.close()
        pair = await member()
        pair.follower.multi_dispatch = MultiDispatch(pair.follower.queues, lmq=True, most_lmq=10)
        pair.append(6)
        assert pair.kept
        await pair.close()

    run(main())


def test_what_another_term_has_put_there_is_not_told_of() -> None:
    async def main() -> None:
        pair = await member()
        start = pair.leader.log.end
        pair.leader.append(pair.puts(4), 1_000_000)
        data = pair.leader.log.read(start, pair.leader.log.end - start) or b""
        pair.log._path.begin(2)
        pair.log.write(0, Position(1, len(data)), data, pair.told)
        pair.told.clear()
        await pair.alike(0)
        await pair.close()

    run(main())


def test_what_is_cut_away_is_not_put() -> None:
    async def main() -> None:
        pair = await member()
        pair.append(4)
        await pair.commit()
        keep = pair.follower.log.end
        pair.append(6)
        await pair.leader.truncate(keep)
        await pair.log.cut(Position(1, keep), whole=False)
        pair.append(6, topic="U")  # another leader's messages, as long as those, where those were
        await pair.alike(counted=False)
        await pair.close()

    run(main())


def span(start: int, end: int, *, entries: int = 8) -> Told:
    return Told(start, end, 5, 7, [ToldQueue("T", 0, 0, bytes(20 * entries))], b"")


def test_what_is_taken_is_the_leaders_of_the_term() -> None:
    announced = Announced()
    for start in (0, 10, 20):
        announced.add("a", 3, span(start, start + 10))
    assert [told.start for told in announced.take("a", 3, 29)] == [0, 10]
    assert [told.start for told in announced.take("a", 3, 30)] == [20]
    for leader, term in (("b", 3), ("a", 2), ("a", 4), (None, 3)):
        announced.add("a", 3, span(0, 10))
        assert announced.take(leader, term, 10) == []
        assert (announced.take("a", 3, 10), announced.memory) == ([], 0)
    announced.add("a", 3, span(0, 10))
    announced.add("b", 4, span(10, 20))
    assert [told.start for told in announced.take("b", 4, 20)] == [10]


def test_the_last_word_counts() -> None:
    announced = Announced()
    for start in (0, 10, 1 << 50, 20, 15):
        announced.add("a", 3, span(start, start + 10))
    assert [told.start for told in announced.take("a", 3, 1 << 60)] == [0, 15]
    assert announced.memory == 0


@pytest.mark.parametrize(("entries", "most"), [(1, 64), (50_000, 8)])
def test_no_more_is_kept_than_may_be(entries: int, most: int) -> None:
    announced = Announced()
    for start in range(200):
        announced.add("a", 3, span(start, start + 1, entries=entries))
        assert announced.memory <= 8 << 20
        assert len(announced) <= 64
    found = announced.take("a", 3, 200)
    assert (len(found), found[-1].start) == (most, 199), "the oldest is read from the log, not the newest"
    announced.add("a", 3, span(0, 10, entries=500_000))
    assert (len(announced), announced.memory) == (0, 0)
