"""How much is told, and how much of it may wait."""

from __future__ import annotations

import pytest

from rmq.broker.raft.wire import SpanTold, encode
from rmq.broker.replication.wire import LARGEST_BODY
from rmq.broker.store.told import LONGEST, Told, ToldQueue
from rmq.testing.simloop import run
from tests.support.scenes.told import Pair


def span(start: int, size: int, *, topics: int = 1, entries: int = 8, keys: int = 0) -> Told:
    queues = [ToldQueue(f"T{number}", 0, 0, bytes(20 * entries)) for number in range(topics)]
    return Told(start, start + size, 5, 7, queues, bytes(20 * keys))


def test_of_few_messages_nothing_is_told() -> None:
    async def main() -> None:
        pair = await Pair.made()
        assert pair.leader._telling is not None
        pair.leader._telling.fewest = 8
        pair.append(7)
        assert pair.told == []
        start = pair.leader.log.end
        pair.append(8)
        assert [told.start for told in pair.told] == [start]
        pair.tell()
        await pair.alike(pair.leader.log.end - start)
        await pair.close()

    run(main())


@pytest.mark.parametrize(
    ("size", "how"),
    [
        (100, {}),  # tiny ones without end
        (1 << 20, {"keys": 100_000}),  # more is told than there is
        (100_000, {"topics": 3_000, "entries": 1}),
        (1 << 20, {}),
    ],
)
def test_what_waits_takes_no_more_memory_than_it_may(size: int, how: dict[str, int]) -> None:
    async def main() -> None:
        pair = await Pair.made()
        told = pair.follower.dispatcher.told
        one = span(0, size, **how)
        last = (80 << 20) // max(size, one.memory) + 10
        for number in range(last + 1):
            told.add(one._replace(start=number * size, end=(number + 1) * size))
        waiting = list(told._spans)
        assert told.memory == sum(one.memory for one in waiting) <= 32 << 20
        assert waiting[-1].end - waiting[0].start <= 64 << 20
        assert waiting[-1].start == last * size, "the oldest is read from the log, not the newest"
        assert max(told.memory / (32 << 20), (waiting[-1].end - waiting[0].start) / (64 << 20)) > 0.9
        told.log_ends(waiting[len(waiting) // 2].end)
        assert told.memory == sum(one.memory for one in told._spans)
        told.next_after(1 << 50)
        assert (told.memory, len(told._spans)) == (0, 0)
        await pair.close()

    run(main())


def test_what_is_told_twice_waits_once() -> None:
    async def main() -> None:
        pair = await Pair.made()
        pair.append(7)
        for told in list(pair.told):
            for _ in range(3):
                pair.follower.told(told)
        spans = pair.follower.dispatcher.told
        assert spans.memory == sum(told.memory for told in pair.told)
        pair.told.clear()
        await pair.alike()
        assert spans.memory == 0
        await pair.close()

    run(main())


def test_a_span_of_which_more_is_told_than_may_wait_is_read() -> None:
    async def main() -> None:
        pair = await Pair.made()
        told = pair.follower.dispatcher.told
        told.add(span(0, 1 << 20))
        told.add(span(1 << 20, 1 << 20, topics=90_000, entries=1))
        assert (told.memory, told.next_after(0)) == (0, 1 << 62)
        await pair.close()

    run(main())


def test_a_long_span_is_read_piece_by_piece() -> None:
    """It would be compared, and put, without a pause."""

    async def main() -> None:
        pair = await Pair.made()
        told = pair.follower.dispatcher.told
        told.add(span(0, LONGEST + 1))
        assert told.next_after(0) == 1 << 62
        told.add(span(0, LONGEST))
        assert told.next_after(0) == 0
        telling = pair.leader._telling
        assert telling is not None
        queue = pair.leader.queues.get_or_create("T", 0)
        for size, count in ((LONGEST + 1, 0), (LONGEST, 1)):
            telling.appended(0, bytes(size), 5, [(queue, bytes(20), 1, size, size)], keys=False)
            assert len(pair.told) == count
        await pair.close()

    run(main())


def test_what_is_longer_than_a_unit_is_not_told() -> None:
    """Short messages with many keys; who gets a longer unit closes the connection."""

    async def main() -> None:
        pair = await Pair.made(index_entries=1 << 20, commit_log_file_size=16 << 20)
        pair.leader.append(pair.puts(800, size=1, keys=257, queues=1), 1_000_000)
        (told,) = pair.told
        assert len(encode(SpanTold(5, "l", told))) < told.memory < LONGEST
        pair.leader.append(pair.puts(816, size=1, keys=257, queues=1), 1_000_000)
        assert len(pair.told) == 1
        queue = pair.leader.queues.get_or_create("T" * 127, 0)
        most = Told(1 << 60, (1 << 60) + 1, 5, 7, [ToldQueue(queue.topic, 0, 0, bytes(20))] * 10_300, None)
        assert most.memory <= LONGEST
        assert len(encode(SpanTold(5, "l", most))) <= LARGEST_BODY
        await pair.close()

    run(main())
